#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"

struct play play;

static const char *const kind_names[] = {
#define OP(name, text) #name,
#include "ops.def"
};

const char *fuzz_kind_name(enum fuzz_kind kind)
{
    return kind_names[kind];
}

/* The handle of a context; NULL where none is ever told of. */
static CUcontext context_handle(int context)
{
    return play.setup->contexts ? (CUcontext)(uintptr_t)(context + 1) : NULL;
}

static CUstream stream_handle(int stream)
{
    return (CUstream)(uintptr_t)(stream + 1);
}

static bool is_alive(unsigned stream)
{
    return stream < FUZZ_STREAMS && work.stream[stream].alive;
}

static int device_of(unsigned stream)
{
    return play.context[work.stream[stream].context].device;
}

/* Whether it comes after others by means that nobody is told of. */
static bool is_unseen(unsigned stream)
{
    enum fuzz_nature nature = work.stream[stream].nature;
    return nature >= FUZZ_OPAQUE && nature <= FUZZ_OWN;
}

/* Whether the core is told of events on it. */
static bool is_told(unsigned stream)
{
    return work.stream[stream].nature != FUZZ_UNHEARD;
}

static void make_current(int context)
{
    books_use(context, play.context[context].device);
}

/* A context of the device; below 0: there is none. */
static int some_context(int device)
{
    int current = books_current();
    if (play.context[current].alive && play.context[current].device == device)
        return current;
    for (int i = 0; i < FUZZ_CONTEXTS; i++)
        if (play.context[i].alive && play.context[i].device == device)
            return i;
    return -1;
}

static bool record_begin(void)
{
    return !play.capturing;
}

static void record_end(void)
{
}

static bool may_wait(void)
{
    return true;
}

static bool begin_aside(CUresult (*run)(void *user), void *user)
{
    if (play.aside)
        return false;
    play.aside = run;
    play.aside_user = user;
    return true;
}

static int enter_context(CUcontext context)
{
    int number = (int)(uintptr_t)context - 1, before = books_current();
    if (!play.context[number].alive)
        return -1;
    make_current(number);
    return before;
}

static void leave_context(int use)
{
    make_current(use);
}

enum { BOUND = 12 };

/* Waits for a context, but not where much is to be waited for. */
static CUresult wait_for_context(CUcontext context)
{
    int number = context ? (int)(uintptr_t)context - 1 : books_current();
    struct work_after all = work_of_context(number);
    uint64_t left = 0;
    for (uint32_t i = 0; i < work.streams; i++)
        left += all.work[i] > work.stream[i].complete ? all.work[i] - work.stream[i].complete : 0;
    if (left > BOUND)
        return CUDA_ERROR_NOT_READY;
    work_finish(&all);
    return CUDA_SUCCESS;
}

static uint64_t now_ns(void)
{
    static uint64_t now;
    return now += 100;
}

static void on_unmap(CUdeviceptr address, uint64_t bytes)
{
    play.moved++;
    for (uint32_t i = 0; i < play.lives; i++) {
        const struct play_block *block = &play.block[play.live[i]];
        bool in_use = block != play.freed || !work_is_complete(&block->touched);
        if (in_use && block->address < address + bytes && address < block->address + block->bytes)
            books_breaks("memory is taken from under a live block");
    }
    for (uint32_t i = 0; i < play.pasts; i++) {
        const struct play_block *past = &play.past[i];
        if (past->address < address + bytes && address < past->address + past->bytes &&
            !work_is_complete(&past->touched))
            books_breaks("memory is taken from an address that queued work can touch");
    }
}

static void meet_stream(int i, enum fuzz_nature nature, int context)
{
    static const unsigned flags[FUZZ_NATURES] = {
        [FUZZ_OPAQUE] = SG_STREAM_OPAQUE, [FUZZ_BLOCKING] = SG_STREAM_BLOCKING, [FUZZ_LEGACY] = SG_STREAM_LEGACY};
    const struct sg_stream_id id = {.key = (uint64_t)i + 1, .context = context_handle(context),
        .handle = stream_handle(i), .per_thread = nature == FUZZ_OWN, .flags = flags[nature]};
    make_current(context);
    work_meet(i, nature, (uint8_t)context);
    play.slot[i] = sg_core_slot(play.core, play.context[context].device, &id);
    play_digest(play.slot[i]);
}

static void meet_context(int i, int device)
{
    play.context[i].alive = true;
    play.context[i].device = (int8_t)device;
    if (play.setup->contexts)
        sg_core_context_seen(play.core, device, context_handle(i));
}

static void make_core(void)
{
    const struct fuzz_setup *setup = play.setup;
    struct sg_core_params params = {.conf = &play.conf, .now_ns = now_ns, .record_begin = record_begin,
        .record_end = record_end, .driver = setup->older ? &books_older_driver : &books_driver};
    sg_conf_init(&play.conf);
    if (sg_conf_apply(&play.conf, SG_CONF_ARGUMENT, setup->conf, NULL, NULL))
        books_breaks("the configuration is not understood");
    if (setup->may_wait)
        params.may_wait = may_wait;
    if (setup->bounded)
        params.wait_for_context = wait_for_context;
    if (setup->contexts) {
        params.begin_aside = begin_aside;
        params.enter_context = enter_context;
        params.leave_context = leave_context;
    }
    play.core = sg_core_create(&params);
    if (!play.core)
        abort();
}

static void start(const struct fuzz_program *program)
{
    const struct fuzz_setup *setup = &program->setup;
    uint32_t blocks = 0;
    struct play kept = play;
    for (uint32_t i = 0; i < program->ops; i++)
        blocks = program->op[i].kind == FUZZ_ALLOCATE && program->op[i].block >= blocks ? program->op[i].block + 1
                                                                                        : blocks;
    memset(&play, 0, sizeof play);
    play.setup = setup;
    play.blocks = blocks;
    play.block = kept.block;
    play.live = kept.live;
    play.past = kept.past;
    play.past_room = kept.past_room;
    play.block = realloc(play.block, (blocks + 1) * sizeof *play.block);
    play.live = realloc(play.live, (blocks + 1) * sizeof *play.live);
    if (!play.block || !play.live)
        abort();
    memset(play.block, 0, (blocks + 1) * sizeof *play.block);
    play.digest = UINT64_C(0xcbf29ce484222325);
    work_reset();
    books_reset(setup->devices, setup->total, setup->granularity, setup->contexts > 0);
    books_on_unmap = on_unmap;
    make_core();
    play.context[0].alive = true;
    for (int i = 0; i < setup->contexts; i++)
        meet_context(i, i % setup->devices);
    for (int i = 0; i < setup->streams; i++)
        meet_stream(i, setup->nature[i], setup->contexts ? setup->context_of[i] % setup->contexts : 0);
    for (int i = 0; i < FUZZ_DEVICES; i++)
        play.most_reserved[i] = UINT64_MAX;
}

static void touch(unsigned stream)
{
    if (play.slot[stream])
        sg_core_slot_touched(play.core, device_of(stream), play.slot[stream]);
}

/* Gives a stream work on a block, or on nothing. */
static void submit(unsigned stream, struct play_block *block, bool told)
{
    work_submit((int)stream, block ? &block->touched : NULL);
    if (told)
        touch(stream);
}

static void drop_spans(struct play_block *block)
{
    if (block->span != block->few)
        free(block->span);
    block->span = NULL;
}

static void find_spans(struct play_block *block)
{
    static struct books_span spans[1 << 15];
    block->spans = books_spans(block->address, block->bytes, block->device, spans, sizeof spans / sizeof *spans);
    block->span = block->few;
    if (block->spans > sizeof block->few / sizeof *block->few)
        block->span = malloc(block->spans * sizeof *block->span);
    if (!block->span)
        abort();
    block->lowest = UINT64_MAX;
    block->highest = 0;
    for (uint32_t i = 0; i < block->spans; i++) {
        block->span[i] = spans[i];
        block->lowest = spans[i].begin < block->lowest ? spans[i].begin : block->lowest;
        block->highest = spans[i].end > block->highest ? spans[i].end : block->highest;
    }
}

static void allocate(const struct fuzz_op *op)
{
    struct play_block *block = &play.block[op->block];
    bool of_stream = is_alive(op->stream);
    int stream = of_stream ? op->stream : -1, device = of_stream ? device_of(op->stream) : op->other;
    if (block->bytes || device >= play.setup->devices)
        return;
    int context = of_stream ? work.stream[stream].context : some_context(device);
    if (context < 0)
        return;
    make_current(context);
    bool known = of_stream && !(op->flags & FUZZ_UNKNOWN);
    const struct sg_tag tag = {.context = context_handle(context), .slot = known ? play.slot[stream] : 0,
        .has_stream = known, .stream = known ? stream_handle(stream) : NULL, .sync = SG_FREE_SYNC_STREAM};
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(play.core, device, op->bytes, &tag, &address);
    play_digest(result);
    play.done++;
    if (result != CUDA_SUCCESS) {
        play.refused++;
        if (address)
            books_breaks("an output is changed by a call that failed");
        verify_refused(device, op->bytes, &tag);
        return;
    }
    play_digest(address);
    play.allocated++;
    *block = (struct play_block){.address = address, .bytes = op->bytes, .device = (int8_t)device,
        .context = (int8_t)context, .stream = known ? (int8_t)stream : -1};
    if (known)
        block->born = work_up_to(stream);
    find_spans(block);
    verify_given(block);
    play.live[play.lives++] = op->block;
    play.requested[device] += op->bytes;
    if (known && op->flags & FUZZ_WORKS)
        submit((unsigned)stream, block, true);
}

static struct play_block *live_block(const struct fuzz_op *op)
{
    return op->block < play.blocks && play.block[op->block].address ? &play.block[op->block] : NULL;
}

static void forget_complete(void)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < play.pasts; i++) {
        if (work_is_complete(&play.past[i].touched)) {
            drop_spans(&play.past[i]);
            continue;
        }
        if (left != i) {
            play.past[left] = play.past[i];
            if (play.past[i].span == play.past[i].few)
                play.past[left].span = play.past[left].few;
        }
        left++;
    }
    play.pasts = left;
}

/* A block is no more; its memory may still be touched. */
static void bury(struct play_block *block)
{
    uint32_t number = (uint32_t)(block - play.block);
    play.requested[block->device] -= block->bytes;
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.live[i] == number)
            play.live[i--] = play.live[--play.lives];
    forget_complete();
    if (work_is_complete(&block->touched)) {
        drop_spans(block);
    } else {
        if (play.pasts == play.past_room) {
            uint32_t room = play.past_room ? 2 * play.past_room : 64;
            struct play_block *past = malloc(room * sizeof *past);
            if (!past)
                abort();
            for (uint32_t i = 0; i < play.pasts; i++) {
                past[i] = play.past[i];
                if (past[i].spans <= sizeof past[i].few / sizeof *past[i].few)
                    past[i].span = past[i].few;
            }
            free(play.past);
            play.past = past;
            play.past_room = room;
        }
        struct play_block *past = &play.past[play.pasts++];
        *past = *block;
        if (block->span == block->few)
            past->span = past->few;
    }
    block->address = 0;
}

static CUcontext current_handle(void)
{
    return context_handle(books_current());
}

static bool has_come_after(unsigned stream, const struct play_block *block)
{
    if (!is_alive(stream) || device_of(stream) != block->device)
        return false;
    struct work_after next = work_up_to((int)stream);
    for (uint32_t i = 0; i < work.streams; i++)
        if (block->touched.work[i] > work.stream[i].complete && block->touched.work[i] > next.work[i])
            return false;
    return true;
}

static void release(const struct fuzz_op *op)
{
    struct play_block *block = live_block(op);
    struct sg_tag tag = {.context = current_handle(), .unseen = play.setup->unseen, .followed = !play.setup->unseen,
        .sees = play.setup->sees_possible ? SG_SEES_POSSIBLE : SG_SEES_RECORDED};
    if (!block)
        return;
    /* what the stream came after may still touch it */
    struct work_after own = block->stream < 0 ? work_of_context(-1) : work_up_to(block->stream);
    switch (op->other) {
    case FUZZ_FREE_STREAM:
        tag.sync = block->stream < 0 ? SG_FREE_SYNC_EVENT : SG_FREE_SYNC_STREAM;
        break;
    case FUZZ_FREE_STRICT:
        tag.sync = SG_FREE_SYNC_STRICT;
        if (block->stream >= 0 && !play.slot[block->stream])
            work_finish(&block->touched); /* of a fixed segment: it waits for its context alone, as natively */
        break;
    case FUZZ_FREE_AUTO:
        tag.sync = work_is_complete(&block->touched) && work_is_complete(&own) ? SG_FREE_SYNC_AUTO
                                                                               : SG_FREE_SYNC_STREAM;
        break;
    case FUZZ_FREE_STEP:
        tag.sync = SG_FREE_SYNC_STREAM;
        if (has_come_after(op->stream, block)) {
            tag.slot = play.slot[op->stream];
            tag.in_order = true;
        } else if (block->stream < 0) {
            tag.sync = SG_FREE_SYNC_EVENT;
        }
        break;
    default:
        tag.sync = SG_FREE_SYNC_EVENT;
        break;
    }
    play.freed = block;
    CUresult result = sg_core_free(play.core, block->address, &tag);
    play.freed = NULL;
    play_digest(result);
    play.done++;
    if (result == CUDA_SUCCESS) {
        CUdeviceptr address = block->address;
        bury(block);
        if (sg_core_free(play.core, address, &tag) == CUDA_SUCCESS)
            books_breaks("a block is freed twice");
    } else if (!books_failed()) {
        books_breaks("a live block cannot be freed");
    }
}

static void record(struct play_event *event, unsigned stream)
{
    work_come_after_by_rules((int)stream);
    sg_core_clock(play.core, device_of(stream), play.slot[stream], &event->clock);
    event->after = work_up_to((int)stream);
    event->device = (int8_t)device_of(stream);
    event->recorded = true;
}

static void know(const struct play_event *event, bool indirect)
{
    work_join(&play.host, &event->after);
    if (indirect && play.setup->sees_possible) /* by means of which the core knows only that they were there */
        sg_core_told(play.core, event->device, indirect ? &event->clock : NULL);
    else
        sg_core_completed(play.core, event->device, &event->clock);
}

static void follow(const struct play_event *event, unsigned stream)
{
    work_come_after_by_rules((int)stream);
    work_come_after((int)stream, &event->after);
    sg_core_waited(play.core, device_of(stream), play.slot[stream], &event->clock);
}

/* Whether what a stream is given next comes after all that the block's own was given before the allocation: perhaps
   because it did so before the block was allocated, and the other was given nothing between. */
static bool comes_after_allocation(unsigned user, const struct play_block *block)
{
    for (uint32_t i = 0; i < work.streams; i++)
        if (block->born.work[i] > work.stream[user].after.work[i] && block->born.work[i] > play.host.work[i] &&
            i != user)
            return false;
    return true;
}

/* Names the user of a block; false: the core knows of no such stream. */
static void name_user(struct play_block *block, unsigned user, bool unnamed)
{
    sg_slot slot = unnamed ? 0 : play.slot[user];
    CUresult result = sg_core_record_stream(play.core, block->address, slot);
    if (result == CUDA_ERROR_NOT_FOUND) /* in a fixed segment */
        sg_core_used_abroad(play.core, block->address);
    else if (result != CUDA_SUCCESS)
        books_breaks("a live block's user cannot be named");
}

/* Another stream than the block's own uses it. */
static void use_elsewhere(const struct fuzz_op *op, struct play_block *block)
{
    unsigned user = op->stream, own = (unsigned)block->stream;
    const struct work_after before = work.stream[user].after;
    bool possible = play.setup->sees_possible, alive = is_alive(own);
    if (!is_told(own))
        return; /* who may have come after that one is not known */
    if (possible && !play.slot[user] && work.stream[user].context != work.stream[own].context)
        return; /* a free in a fixed segment waits for its context alone, as natively */
    work_come_after_by_rules((int)user); /* as what it is given now does */
    if (!possible && alive && work_is_by_legacy_rules((int)user, (int)own) && op->flags & FUZZ_WAITED_FOR) {
        submit(user, block, true); /* so what its own stream is given next comes after that, its end too */
        return;
    }
    if (alive && is_told(user) && op->flags & FUZZ_WAITS) { /* as programs do */
        struct play_event now;
        record(&now, own);
        follow(&now, user);
    }
    if ((is_unseen(user) || work.stream[own].nature == FUZZ_OPAQUE) && alive && op->flags & FUZZ_WORKS) {
        struct work_after after = work_up_to((int)own); /* nobody is told */
        work_come_after((int)user, &after);
    } else if (!comes_after_allocation(user, block)) {
        work.stream[user].after = before;
        return;
    }
    if (!possible && alive && is_told(user) && op->flags & FUZZ_WAITED_FOR) {
        struct play_event done; /* its own stream waits, so nobody has to be told of the user */
        submit(user, block, true);
        record(&done, user);
        follow(&done, own);
        return;
    }
    if (!possible)
        name_user(block, user, op->flags & FUZZ_UNNAMED);
    submit(user, block, true);
}

static void use(const struct fuzz_op *op)
{
    struct play_block *block = live_block(op);
    if (!block || !is_alive(op->stream) || device_of(op->stream) != block->device)
        return;
    if (block->stream < 0 && !play.slot[op->stream] && work.stream[op->stream].context != block->context)
        return; /* in a fixed segment, as below */
    play.done++;
    if (op->stream == block->stream || block->stream < 0)
        submit(op->stream, block, true);
    else
        use_elsewhere(op, block);
}

static void work_on_nothing(const struct fuzz_op *op)
{
    if (!is_alive(op->stream))
        return;
    play.done++;
    submit(op->stream, NULL, !(play.setup->unseen && op->flags & FUZZ_UNNAMED));
}

static void on_event(const struct fuzz_op *op)
{
    struct play_event *event = &play.event[op->other % FUZZ_EVENTS];
    bool of_stream = is_alive(op->stream) && is_told(op->stream);
    if (op->kind == FUZZ_RECORD && of_stream)
        record(event, op->stream);
    if (op->kind == FUZZ_WAIT && of_stream && event->recorded && event->device == device_of(op->stream))
        follow(event, op->stream);
    if (op->kind == FUZZ_EVENT_SYNC && event->recorded)
        work_finish(&event->after);
    if (op->kind >= FUZZ_EVENT_QUERY && event->recorded && work_is_complete(&event->after))
        know(event, op->flags & FUZZ_INDIRECT);
    play.done++;
}

/* What the host learns of a stream that has no work left. */
static void on_stream(const struct fuzz_op *op)
{
    struct sg_clock told;
    uint64_t done;
    if (!is_alive(op->stream) || !is_told(op->stream) || !play.slot[op->stream])
        return;
    int device = device_of(op->stream);
    struct work_after own = work.stream[op->stream].after; /* of what the next piece comes after by rules it says
                                                              nothing */
    own.work[op->stream] = work.stream[op->stream].works;
    sg_core_idle_clock(play.core, device, play.slot[op->stream], &told, &done);
    if (op->kind == FUZZ_STREAM_SYNC)
        work_finish(&own);
    play.done++;
    if (!work_is_complete(&own))
        return;
    work_join(&play.host, &own);
    if (done < told.at[play.slot[op->stream]])
        sg_core_told(play.core, device, &told);
    told.at[play.slot[op->stream]] = done;
    sg_core_completed(play.core, device, &told);
}

static void context_sync(int context)
{
    struct sg_clock clock;
    int device = play.context[context].device;
    if (!play.context[context].alive)
        return;
    make_current(context);
    sg_core_context_clock(play.core, device, context_handle(context), &clock);
    if (play.setup->devices > 1)
        clock.at[0] = 0; /* what waits for all work waits for other devices' too */
    struct work_after all = work_of_context(context);
    work_finish(&all);
    work_join(&play.host, &all);
    sg_core_completed(play.core, device, &clock);
    play.done++;
}

static void new_stream(const struct fuzz_op *op)
{
    if (op->stream >= FUZZ_STREAMS || work.stream[op->stream].met || op->bytes >= FUZZ_CONTEXTS ||
        !play.context[op->bytes].alive || op->other >= FUZZ_NATURES)
        return;
    for (uint32_t i = 0; op->other == FUZZ_LEGACY && i < work.streams; i++)
        if (work.stream[i].met && work.stream[i].nature == FUZZ_LEGACY && work.stream[i].context == op->bytes)
            return; /* a context has one */
    meet_stream(op->stream, op->other, (int)op->bytes);
    play.done++;
}

static void end_stream(unsigned stream)
{
    if (!is_alive(stream) || work.stream[stream].nature == FUZZ_LEGACY)
        return;
    make_current(work.stream[stream].context);
    sg_core_slot_gone(play.core, device_of(stream), play.slot[stream]);
    work.stream[stream].alive = false;
    play.done++;
}

/* Who destroys a context has waited for what others do with its memory. */
static void end_context(int context)
{
    int others = 0;
    for (int i = 0; i < FUZZ_CONTEXTS; i++)
        others += play.context[i].alive && i != context;
    if (context >= FUZZ_CONTEXTS || !play.context[context].alive || !others || !play.setup->contexts)
        return;
    struct work_after all = work_of_context(context);
    work_finish(&all);
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.block[play.live[i]].context == context)
            work_finish(&play.block[play.live[i]].touched);
    sg_core_context_ending(play.core, context_handle(context), true);
    for (int i = 0; i < FUZZ_CONTEXTS; i++) /* one that stays is current */
        if (play.context[i].alive && i != context)
            make_current(i);
    for (uint32_t i = 0; i < work.streams; i++)
        if (work.stream[i].context == context)
            work.stream[i].alive = false;
    play.context[context].alive = false;
    for (uint32_t i = play.lives; i-- > 0;)
        if (play.block[play.live[i]].context == context)
            bury(&play.block[play.live[i]]);
    books_context_gone(context);
    sg_core_context_gone(play.core, play.context[context].device, context_handle(context));
    play.done++;
}

static void set_limit(int device, uint64_t bytes)
{
    struct sg_stats stats;
    if (device >= play.setup->devices)
        return;
    uint64_t before = sg_core_stats(play.core, device, &stats) ? stats.value[SG_STAT_reserved_bytes] : 0,
             set = sg_core_set_limit(play.core, device, bytes);
    play.most_reserved[device] = before;
    if (set > bytes)
        books_breaks("another limit is in force than was asked for");
    play_digest(set);
    play.done++;
}

static void trim(int device, uint64_t keep)
{
    if (device >= play.setup->devices)
        return;
    if (some_context(device) >= 0)
        make_current(some_context(device));
    play_digest(sg_core_trim(play.core, device, keep));
    verify_trimmed(device, keep);
    play.done++;
}

static void look(const struct fuzz_op *op)
{
    static struct sg_piece piece[512];
    char text[4096];
    struct play_block *block = live_block(op);
    struct sg_block_info info;
    for (int device = 0; device < play.setup->devices; device++) {
        play_digest(sg_core_pieces(play.core, device, piece, op->bytes % 512));
        play_digest(sg_core_oom_text(play.core, device, text, op->bytes % sizeof text));
        play_digest(sg_core_limit(play.core, device) + sg_core_is_limited(play.core, device));
    }
    play.done++;
    if (!block)
        return;
    if (sg_core_block(play.core, block->address + op->bytes % block->bytes, &info) != CUDA_SUCCESS ||
        info.base != block->address || info.bytes != block->bytes || info.device != block->device ||
        info.context != context_handle(block->context) || !sg_core_owns(play.core, block->address))
        books_breaks("a live block is not what it was asked for");
}

static void free_badly(const struct fuzz_op *op)
{
    struct play_block *block = live_block(op);
    const struct sg_tag tag = {.context = current_handle(), .sync = SG_FREE_SYNC_EVENT, .tentative = op->other & 1};
    CUdeviceptr address = block ? block->address + 1 + op->bytes % (block->bytes ? block->bytes : 1) : op->bytes;
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.block[play.live[i]].address == address)
            return;
    if (sg_core_free(play.core, address, &tag) == CUDA_SUCCESS)
        books_breaks("what is no block can be freed");
    play.done++;
}

static void run_aside(void)
{
    CUresult (*run)(void *user) = play.aside;
    play.aside = NULL;
    if (run)
        play_digest(run(play.aside_user));
}

static void pin(const struct fuzz_op *op)
{
    struct play_block *block = live_block(op);
    if (block)
        sg_core_pin(play.core, block->address, op->bytes < block->bytes ? op->bytes : block->bytes);
    play.done += block != NULL;
}

static void mem_info(int device)
{
    if (device >= play.setup->devices || some_context(device) < 0)
        return;
    make_current(some_context(device));
    size_t free_bytes = play.setup->total - books_used(device), total_bytes = play.setup->total;
    sg_core_mem_info(play.core, device, &free_bytes, &total_bytes);
    if (free_bytes > total_bytes || total_bytes > play.setup->total)
        books_breaks("more is said to be free than there is");
    play_digest(free_bytes);
    play.done++;
}

static void peer(const struct fuzz_op *op)
{
    if (play.setup->devices < 2 || op->other >= play.setup->devices)
        return;
    CUresult result = sg_core_peer_access(play.core, op->other, 1 - op->other, op->bytes != 0);
    if (result == CUDA_SUCCESS)
        play.peers[op->other] = op->bytes != 0;
    play_digest(result);
    play.done++;
}

/* Of contexts, memory and what there is beside them. */
static void do_other(const struct fuzz_op *op)
{
    int other = op->other;
    switch (op->kind) {
    case FUZZ_CONTEXT_NEW:
        if (other < FUZZ_CONTEXTS && play.setup->contexts && op->bytes < play.setup->devices &&
            !play.context[other].alive)
            meet_context(other, (int)op->bytes);
        break;
    case FUZZ_CONTEXT_GONE:
        end_context(other);
        break;
    case FUZZ_CONTEXT_CURRENT:
        if (other < FUZZ_CONTEXTS && play.context[other].alive)
            make_current(other);
        break;
    case FUZZ_CAPTURE:
        play.capturing = op->bytes != 0;
        break;
    case FUZZ_OUTSIDE:
        if (other < play.setup->devices)
            books_outside(other, op->bytes);
        break;
    case FUZZ_FAULT:
        if (other < BOOKS_CALL_COUNT)
            books_fail(other, op->bytes, op->flags & FUZZ_FOR_EVER);
        break;
    case FUZZ_HOST_FAULT:
        host_fail(op->bytes);
        play.unsure = true;
        break;
    case FUZZ_ABROAD:
        if (live_block(op))
            sg_core_used_abroad(play.core, live_block(op)->address);
        break;
    case FUZZ_RESET_PEAKS:
        if (other < play.setup->devices)
            sg_core_reset_peaks(play.core, other);
        break;
    case FUZZ_ASIDE:
        run_aside();
        break;
    default:
        break;
    }
}

static void do_op(const struct fuzz_op *op)
{
    switch (op->kind) {
    case FUZZ_ALLOCATE:
        allocate(op);
        break;
    case FUZZ_FREE:
        release(op);
        break;
    case FUZZ_USE:
        use(op);
        break;
    case FUZZ_WORK:
        work_on_nothing(op);
        break;
    case FUZZ_PROGRESS:
        if (op->stream < FUZZ_STREAMS && work.stream[op->stream].met)
            work_progress(op->stream, op->bytes);
        break;
    case FUZZ_RECORD:
    case FUZZ_WAIT:
    case FUZZ_EVENT_QUERY:
    case FUZZ_EVENT_SYNC:
        on_event(op);
        break;
    case FUZZ_STREAM_SYNC:
    case FUZZ_STREAM_QUERY:
        on_stream(op);
        break;
    case FUZZ_CONTEXT_SYNC:
        if (op->other < FUZZ_CONTEXTS)
            context_sync(op->other);
        break;
    case FUZZ_STREAM_NEW:
        new_stream(op);
        break;
    case FUZZ_STREAM_GONE:
        end_stream(op->stream);
        break;
    case FUZZ_TRIM:
        trim(op->other, op->bytes);
        break;
    case FUZZ_POLL:
        sg_core_poll(play.core, op->other);
        break;
    case FUZZ_MEM_INFO:
        mem_info(op->other);
        break;
    case FUZZ_LIMIT:
        set_limit(op->other, op->bytes);
        break;
    case FUZZ_PIN:
        pin(op);
        break;
    case FUZZ_PEER:
        peer(op);
        break;
    case FUZZ_LOOK:
        look(op);
        break;
    case FUZZ_BAD_FREE:
        free_badly(op);
        break;
    default:
        do_other(op);
        break;
    }
}

/* Everything goes: blocks, work, what is idle, and the core. */
static void finish(void)
{
    struct work_after all = work_of_context(-1);
    books_heal();
    play.host_faults = host_heal();
    play.capturing = false;
    for (int device = 0; device < play.setup->devices; device++)
        books_outside(device, 0);
    for (uint32_t i = 0; play.lives && i < play.blocks; i++)
        if (play.block[i].address)
            release(&(struct fuzz_op){.block = i, .other = i % 3 == 0 ? FUZZ_FREE_STREAM : FUZZ_FREE_EVENT});
    work_finish(&all);
    run_aside();
    for (int device = 0; device < play.setup->devices; device++) {
        sg_core_poll(play.core, device);
        for (int context = 0; context < FUZZ_CONTEXTS; context++)
            context_sync(context);
        sg_core_poll(play.core, device);
        trim(device, 0);
    }
    verify_empty();
    sg_core_destroy(play.core);
    verify_gone();
    for (uint32_t i = 0; i < play.pasts; i++)
        drop_spans(&play.past[i]);
}

void fuzz_play(const struct fuzz_program *program, struct fuzz_outcome *ret)
{
    uint32_t every = program->setup.check_every, checks = 0;
    start(program);
    for (play.step = 0; play.step < program->ops && !books_broken(); play.step++) {
        do_op(&program->op[play.step]);
        if (every && play.step % every == 0 && !books_broken())
            verify(checks++ % 32 == 31 ? SG_CHECK_TABLES : SG_CHECK_NODES);
    }
    *ret = (struct fuzz_outcome){.at = play.step};
    if (!books_broken())
        verify(program->setup.slots ? SG_CHECK_SLOTS : SG_CHECK_TABLES);
    if (!books_broken())
        finish();
    if (books_broken())
        snprintf(ret->broken, sizeof ret->broken, "%s", books_broken());
    ret->digest = play.digest;
    ret->done = play.done;
    ret->allocated = play.allocated;
    ret->refused = play.refused;
    ret->moved = play.moved;
    ret->faults = books_failed() + play.host_faults;
}
