/* Random programs of several streams against the allocator, beside a model that knows what really comes before what.
   Memory is given to a stream only when all work that could still touch it is ordered before the stream's next work. No
   page is unmapped under work that is not complete. When everything is over, everything can be given back. */
#include "order_model.h"

static int add_stream(enum nature nature)
{
    static const unsigned flags[] = {
        [OPAQUE] = SG_STREAM_UNTRACKED_ORDER, [BLOCKING] = SG_STREAM_BLOCKING, [LEGACY] = SG_STREAM_LEGACY};
    static uint64_t key;
    int i = the.streams++;
    struct stream *stream = &the.stream[i];
    const struct sg_stream_id id = {.key = ++key, .handle = (CUstream)(uintptr_t)(i + 1), .per_thread = nature == OWN,
        .flags = flags[nature]};
    *stream = (struct stream){.alive = true, .nature = nature, .of_work = calloc(WORKS, sizeof *stream->of_work)};
    assert_non_null(stream->of_work);
    stream->slot = sg_core_slot(the.core, 0, &id);
    assert_true(stream->slot > 0);
    assert_int_equal(sg_core_slot(the.core, 0, &id), stream->slot);
    return i;
}

static int some_stream(void)
{
    for (;;) {
        int i = (int)random_below(&the.random, (uint64_t)the.streams);
        if (the.stream[i].alive)
            return i;
    }
}

static void start(const char *text, uint64_t total, uint64_t granule, uint64_t seed)
{
    struct sg_conf conf;
    for (int i = 0; i < the.streams; i++)
        free(the.stream[i].of_work);
    enum sg_user_rule user_rule = the.user_rule;
    bool missed_calls = the.missed_calls;
    const enum nature *natures = the.natures;
    memset(&the, 0, sizeof the);
    the.user_rule = user_rule;
    the.missed_calls = missed_calls;
    the.natures = natures;
    the.exact_unmap = true;
    the.leaving = -1;
    strict_reset(1, total, granule);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    the.driver = strict_driver;
    the.driver.event_record = event_record;
    the.driver.ctx_record_event = ctx_record_event;
    the.driver.event_query = event_query;
    the.driver.event_synchronize = event_synchronize;
    the.driver.ctx_synchronize = ctx_synchronize;
    the.driver.unmap = unmap;
    the.core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &the.driver});
    assert_non_null(the.core);
    the.random.state = seed;
    for (int i = 0; i < AT_ONCE; i++)
        add_stream(the.natures ? the.natures[i] : PLAIN);
}

/* Queues a piece of work that touches a block, or nothing. */
static void submit(int i, struct block *block)
{
    struct stream *stream = &the.stream[i];
    if (stream->works == WORKS)
        return;
    come_after_by_rules(i);
    stream->of_work[stream->works++] = stream->after;
    if (block)
        block->touched.work[i] = stream->works;
    if (!the.missed_calls || random_below(&the.random, 2))
        sg_core_slot_submitted(the.core, 0, stream->slot);
}

static void forget_complete(void)
{
    int left = 0;
    for (int i = 0; i < the.pasts; i++)
        if (!is_complete(&the.past[i].touched))
            the.past[left++] = the.past[i];
    the.pasts = left;
}

/* `stream`: -1 for nobody's. */
static void expect_after_all(const struct block *block, int stream)
{
    struct after next = {{0}};
    if (stream >= 0)
        next = up_to(stream);
    for (int i = 0; i < the.pasts; i++) {
        const struct block *past = &the.past[i];
        if (!strict_share(past->address, past->bytes, block->address, block->bytes))
            continue;
        for (int k = 0; k < the.streams; k++) {
            if (past->touched.work[k] > the.stream[k].complete && k != stream &&
                (stream < 0 || past->touched.work[k] > next.work[k]))
                fail_msg("step %u: stream %d was given memory that stream %d may still touch", the.step, stream, k);
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *other = &the.block[i];
        if (other->address && other != block &&
            strict_share(other->address, other->bytes, block->address, block->bytes))
            fail_msg("two live blocks share memory");
    }
}

static void allocate(struct block *block, uint64_t most)
{
    int stream = random_below(&the.random, 40) ? some_stream() : -1;
    static const uint64_t common[] = {512, 4096, 40 << 10, 1 << 20, 3 << 20, 5 << 20, 8 << 20};
    uint64_t bytes = random_below(&the.random, 3)
                         ? common[random_below(&the.random, 7)]
                         : random_between(&the.random, 1, random_below(&the.random, 4) ? 2 * SG_MIB : most);
    const struct sg_tag tag = {.slot = stream < 0 ? 0 : the.stream[stream].slot, .has_stream = stream >= 0,
                               .stream = (CUstream)(uintptr_t)(stream + 1), .sync = SG_FREE_SYNC_STREAM};
    the.held = block;
    CUresult result = sg_core_malloc(the.core, 0, bytes, &tag, &block->address);
    if (result != CUDA_SUCCESS) {
        assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
        block->address = 0;
        return;
    }
    the.given++;
    *block = (struct block){.address = block->address, .bytes = bytes, .stream = stream};
    if (stream >= 0)
        block->alloc_seq = up_to(stream);
    expect_after_all(block, stream);
    if (stream >= 0 && random_below(&the.random, 4))
        submit(stream, block);
}

static void record(struct event *event, int i)
{
    come_after_by_rules(i);
    sg_core_clock(the.core, 0, the.stream[i].slot, &event->clock);
    event->after = up_to(i);
    event->recorded = true;
}

static void know(const struct event *event)
{
    join(&the.host, &event->after);
    if (the.user_rule != SG_USERS_POSSIBLE || random_below(&the.random, 4))
        sg_core_completed(the.core, 0, &event->clock);
    else /* by means of which the library knows only that they were there */
        sg_core_host_observed(the.core, 0, random_below(&the.random, 2) ? &event->clock : NULL);
}

static void follow(const struct event *event, int i)
{
    come_after_by_rules(i);
    join(&the.stream[i].after, &event->after);
    sg_core_ordered_after(the.core, 0, the.stream[i].slot, &event->clock);
}

/* Whether what a stream is given next comes after all that the block's own was given before the allocation: perhaps
   because it did so before the block was allocated, and the other was given nothing between. */
static bool comes_after_allocation(int user, const struct block *block)
{
    for (int i = 0; i < the.streams; i++)
        if (block->alloc_seq.work[i] > the.stream[user].after.work[i] && block->alloc_seq.work[i] > the.host.work[i] &&
            i != user)
            return false;
    return true;
}

/* Another stream uses a block if the program has seen to it that it comes after the allocation. */
static void use(struct block *block)
{
    int user = some_stream();
    struct stream *stream = &the.stream[user];
    if (block->stream < 0)
        return;
    if (user != block->stream && !is_told(block->stream))
        return; /* who may have come after that one is not known */
    if (user != block->stream) {
        come_after_by_rules(user); /* as what it is given now does */
        const struct stream *own = &the.stream[block->stream];
        bool ordered = own->alive && by_legacy_rules(user, block->stream);
        if (the.user_rule == SG_USERS_RECORDED && ordered && random_below(&the.random, 2)) {
            submit(user, block); /* so what its own stream is given next comes after that, its end too */
            return;
        }
        if (own->alive && is_told(user) && random_below(&the.random, 3) == 0) { /* as programs do */
            struct event now;
            record(&now, block->stream);
            follow(&now, user);
        }
        if ((is_unseen(user) || own->nature == OPAQUE) && own->alive && random_below(&the.random, 2)) {
            struct after after = up_to(block->stream); /* nobody is told */
            join(&stream->after, &after);
        } else if (!comes_after_allocation(user, block)) {
            return;
        }
        if (the.user_rule == SG_USERS_RECORDED && own->alive && is_told(user) && random_below(&the.random, 2) == 0) {
            struct event done; /* its own stream waits, so nobody has to be told of the user */
            submit(user, block);
            record(&done, user);
            follow(&done, block->stream);
            return;
        }
        if (the.user_rule == SG_USERS_RECORDED)
            assert_int_equal(sg_core_record_stream(the.core, block->address,
                random_below(&the.random, 20) ? stream->slot : 0), CUDA_SUCCESS);
    }
    submit(user, block);
}

static void release(struct block *block)
{
    struct sg_tag tag = {.sync = SG_FREE_SYNC_STREAM, .user_rule = the.user_rule, .missed_calls = the.missed_calls};
    uint64_t how = random_below(&the.random, the.interrupted ? 6 : 60);
    /* what the stream came after may still touch it */
    struct after own = block->stream < 0 ? all_work() : up_to(block->stream);
    if (how == 0)
        tag.sync = SG_FREE_SYNC_STRICT;
    else if (how < 3 || block->stream < 0)
        tag.sync = SG_FREE_SYNC_EVENT;
    else if (how < 6 && is_complete(&block->touched) && is_complete(&own))
        tag.sync = SG_FREE_SYNC_COMPLETE;
    the.held = block;
    assert_int_equal(sg_core_free(the.core, block->address, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(the.core, block->address, &tag), CUDA_ERROR_INVALID_VALUE);
    forget_complete();
    assert_true(the.pasts < PAST);
    if (!is_complete(&block->touched))
        the.past[the.pasts++] = *block;
    block->address = 0;
}

static void synchronize_all(void)
{
    struct event now = {0};
    sg_core_context_clock(the.core, 0, NULL, &now.clock);
    now.after = all_work();
    finish_until(&now.after);
    know(&now);
}

static void replace_stream(void)
{
    int i = some_stream();
    if (the.streams == STREAMS || the.stream[i].nature == LEGACY)
        return;
    the.leaving = i;
    sg_core_slot_gone(the.core, 0, the.stream[i].slot);
    the.leaving = -1;
    the.stream[i].alive = false;
    add_stream(the.stream[i].nature);
}

static void step(uint64_t most)
{
    struct block *block = &the.block[random_below(&the.random, BLOCKS)];
    struct event *event = &the.event[random_below(&the.random, EVENTS)];
    int other = some_stream();
    the.step++;
    switch (random_below(&the.random, 24)) {
    case 0:
    case 1:
        if (is_told(other))
            record(event, other);
        break;
    case 2:
    case 3:
        if (event->recorded && is_told(other))
            follow(event, other);
        break;
    case 4:
        if (event->recorded && is_complete(&event->after))
            know(event);
        break;
    case 5:
        if (event->recorded && !random_below(&the.random, 6)) {
            finish_until(&event->after);
            know(event);
        }
        break;
    case 6:
    case 7:
    case 8:
        progress((int)random_below(&the.random, (uint64_t)the.streams), (uint32_t)random_below(&the.random, 12));
        break;
    case 9:
        submit(some_stream(), NULL);
        break;
    case 10:
        switch (random_below(&the.random, 60)) {
        case 0:
            synchronize_all();
            break;
        case 1:
        case 2:
        case 6:
        case 7:
            replace_stream();
            break;
        case 3:
            sg_core_trim(the.core, 0, random_below(&the.random, 64) * SG_MIB);
            break;
        case 4:
            sg_core_poll(the.core, 0);
            break;
        case 5: {
            size_t free_bytes = 1 << 30, total_bytes = 1 << 30;
            sg_core_mem_info(the.core, 0, &free_bytes, &total_bytes);
            break;
        }
        default:
            break;
        }
        break;
    default:
        if (!block->address)
            allocate(block, most);
        else if (random_below(&the.random, 2))
            use(block);
        else
            release(block);
        break;
    }
}

static void finish(void)
{
    for (int i = 0; i < BLOCKS; i++)
        if (the.block[i].address)
            release(&the.block[i]);
    sg_core_poll(the.core, 0);
    synchronize_all();
    sg_core_poll(the.core, 0);
    sg_core_trim(the.core, 0, 0);
    inspect_empty(the.core, 1);
    sg_core_destroy(the.core);
    strict_expect_over();
}

static void run(const char *conf, uint64_t total, uint64_t granule)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        start(conf, total, granule, seed);
        for (int i = 0; i < 12000; i++) {
            step(total / 8);
            if (i % 64 == 0)
                inspect(the.core, 1);
        }
        assert_true(the.given > 500);
        finish();
    }
}

static void memory_waits_for_recorded_streams(void **state)
{
    (void)state;
    the.user_rule = SG_USERS_RECORDED;
    run("", 256 * SG_MIB, 2 * SG_MIB);
    run("reserve_slack:1.0", 256 * SG_MIB, 2 * SG_MIB);
    run("reserve_slack:1.0,page_size_mb:6", 192 * SG_MIB, 2 * SG_MIB);
}

static void memory_waits_for_possible_streams(void **state)
{
    static const enum nature natures[][AT_ONCE] = {{PLAIN}, {PLAIN, OPAQUE, UNHEARD}, {PLAIN, OWN, OPAQUE, OWN}};
    (void)state;
    the.user_rule = SG_USERS_POSSIBLE;
    for (int i = 0; i < 3; i++) {
        the.natures = natures[i];
        run("", 256 * SG_MIB, 2 * SG_MIB);
    }
    the.natures = NULL;
    run("reserve_slack:1.0", 192 * SG_MIB, 2 * SG_MIB);
}

static void test_legacy_rules(void **state)
{
    static const enum nature natures[AT_ONCE] = {LEGACY, BLOCKING, BLOCKING, PLAIN, PLAIN, PLAIN};
    (void)state;
    the.natures = natures;
    for (enum sg_user_rule rule = SG_USERS_RECORDED; rule <= SG_USERS_POSSIBLE; rule++) {
        the.user_rule = rule;
        run("reserve_slack:1.0", 192 * SG_MIB, 2 * SG_MIB);
    }
    the.natures = NULL;
}

static void test_unseen_work(void **state)
{
    (void)state;
    the.user_rule = SG_USERS_RECORDED;
    the.missed_calls = true;
    run("reserve_slack:1.0", 256 * SG_MIB, 2 * SG_MIB);
    the.missed_calls = false;
}

static void test_small_granules(void **state)
{
    (void)state;
    the.user_rule = SG_USERS_RECORDED;
    run("reserve_slack:1.0", 48 * SG_MIB, 64 * SG_KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_waits_for_recorded_streams),
        cmocka_unit_test(memory_waits_for_possible_streams),
        cmocka_unit_test(test_legacy_rules),
        cmocka_unit_test(test_unseen_work),
        cmocka_unit_test(test_small_granules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
