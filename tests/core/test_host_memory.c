/* The allocator and PyTorch's rules in a process whose n-th piece of host memory is refused. n rises until the whole
   script runs without that. Each request is served or refused, the books add up, and nothing is left behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "rooms.h"
#include "inspect.h"
#include "meta.h"
#include "size.h"
#include "strict_kept.h"
#include "ledger_device.h"

/* The linker has these called in place of the functions without `__wrap_` (--wrap). */
void *__real_sg_meta_map(size_t bytes);
void *__wrap_sg_meta_map(size_t bytes);
void __real_sg_meta_unmap(void *memory, size_t bytes);
void __wrap_sg_meta_unmap(void *memory, size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void __wrap_free(void *memory);

static struct {
    bool armed, for_ever, met;
    uint64_t calls, at;
    size_t most; /* larger pieces are refused; 0: none is for that */
    uint64_t mapped_bytes, pieces; /* had and not given back */
} host;

static bool refuses(size_t bytes)
{
    if (!host.armed)
        return false;
    host.calls++;
    bool refused = (host.most && bytes > host.most) ||
                   (host.at && (host.calls == host.at || (host.calls > host.at && host.for_ever)));
    host.met = host.met || refused;
    return refused;
}

void *__wrap_sg_meta_map(size_t bytes)
{
    void *memory = refuses(bytes) ? NULL : __real_sg_meta_map(bytes);
    host.mapped_bytes += memory ? bytes : 0;
    return memory;
}

void __wrap_sg_meta_unmap(void *memory, size_t bytes)
{
    host.mapped_bytes -= memory ? bytes : 0;
    __real_sg_meta_unmap(memory, bytes);
}

void *__wrap_malloc(size_t bytes)
{
    void *memory = refuses(bytes) ? NULL : __real_malloc(bytes);
    host.pieces += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    void *memory = refuses(count * bytes) ? NULL : __real_calloc(count, bytes);
    host.pieces += memory != NULL;
    return memory;
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    void *larger = refuses(bytes) ? NULL : __real_realloc(memory, bytes);
    host.pieces += larger && !memory;
    return larger;
}

void __wrap_free(void *memory)
{
    host.pieces -= memory != NULL;
    __real_free(memory);
}

static void refuse_at(uint64_t at, bool for_ever)
{
    host.armed = true;
    host.met = false;
    host.calls = 0;
    host.at = at;
    host.for_ever = for_ever;
}

static void refuse_none(void)
{
    host.armed = false;
    host.at = 0;
    host.most = 0;
}

/* Runs a script once for each piece of memory that it asks for; `for_ever`: that one and all after it are refused. */
static void run_all(void (*script)(void))
{
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        uint64_t at = 0;
        do {
            refuse_at(++at, for_ever);
            script();
        } while (host.met);
        assert_true(at > 2);
        refuse_none();
    }
}

enum { BLOCKS = 40, STREAMS = 4 };

static struct {
    struct sg_core *core;
    CUdeviceptr block[BLOCKS];
    sg_slot slot[STREAMS];
} the;

/* A block is had, or nothing has changed. */
static void allocate(int at, size_t bytes, int stream)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE, .slot = the.slot[stream]};
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(the.core, 0, bytes, &tag, &address);
    assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_NOT_SUPPORTED);
    assert_true(result == CUDA_SUCCESS || !address);
    the.block[at] = address;
    inspect(the.core, 1);
}

static void release(int at, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.sync = sync};
    if (the.block[at])
        assert_int_equal(sg_core_free(the.core, the.block[at], &tag), CUDA_SUCCESS);
    the.block[at] = 0;
    inspect(the.core, 1);
}

static bool start(const char *conf_text, uint64_t total)
{
    struct sg_conf conf;
    strict_reset(1, total, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, conf_text, NULL, NULL), 0);
    the.core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver});
    for (int i = 0; i < BLOCKS; i++)
        the.block[i] = 0;
    for (int i = 0; i < STREAMS && the.core; i++) {
        const struct sg_stream_id id = {.key = (uint64_t)i + 1};
        the.slot[i] = sg_core_slot(the.core, 0, &id);
    }
    return the.core != NULL;
}

/* What was refused for good is had once there is memory again, but for a device that was found unfit; and all of it goes
   back. */
static void stop(size_t bytes)
{
    bool again = host.met;
    host.armed = false;
    for (int i = 0; i < BLOCKS; i++)
        release(i, SG_FREE_SYNC_COMPLETE);
    allocate(0, bytes, 0);
    assert_true(the.block[0] || (again && the.core->device[0]->mode == SG_MODE_PASSTHROUGH));
    release(0, SG_FREE_SYNC_COMPLETE);
    sg_core_poll(the.core, 0);
    strict_complete(UINT32_MAX);
    sg_core_poll(the.core, 0);
    sg_core_trim(the.core, 0, 0);
    inspect_empty(the.core, 1);
    sg_core_destroy(the.core);
    assert_int_equal(host.mapped_bytes, 0);
    strict_expect_over();
}

/* Blocks of every class; free memory of several streams, in both kinds of regions; a full card. */
static void play_ranges(void)
{
    static const size_t sizes[] = {3000, 30 << 10, 3 << 20, 5 << 20, 300 << 10, 40 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    if (!start("", 256 * SG_MIB))
        return;
    for (int i = 0; i < BLOCKS; i++)
        allocate(i, sizes[i % SIZES], i % STREAMS);
    for (int i = 0; i < BLOCKS; i += 2) {
        sg_core_slot_submitted(the.core, 0, the.slot[i % STREAMS]);
        release(i, SG_FREE_SYNC_STREAM);
    }
    for (int i = 0; i < BLOCKS; i += 4)
        allocate(i, sizes[(i + 3) % SIZES], (i + 1) % STREAMS);
    for (int i = 0; i < BLOCKS; i++)
        release(i, i % 3 ? SG_FREE_SYNC_EVENT : SG_FREE_SYNC_STREAM);
    allocate(0, 200 * SG_MIB, 0);
    release(0, SG_FREE_SYNC_COMPLETE);
    allocate(0, 160 * SG_MIB, 0); /* where that one was */
    stop(3 * SG_MIB);
}

static void ranges_survive_each_refusal_of_host_memory(void **state)
{
    (void)state;
    run_all(play_ranges);
}

/* More pages for one block, and from more places, than what is set aside at first for plans has room for. */
static void play_large_plans(void)
{
    enum { GIB = 1 << 30 };
    if (!start("reserve_slack:1.0", UINT64_C(44) * GIB))
        return;
    allocate(0, 3 * SG_MIB, 0);
    allocate(1, UINT64_C(18) * GIB, 0);
    release(1, SG_FREE_SYNC_COMPLETE);
    stop(UINT64_C(20) * GIB);
}

static void large_plans(void **state)
{
    (void)state;
    run_all(play_large_plans);
}

static void play_segments(void)
{
    if (!start("expandable_segments:False", 256 * SG_MIB))
        return;
    for (int i = 0; i < BLOCKS; i++)
        allocate(i, i % 2 ? 3000 : 3 << 20, 0);
    for (int i = 0; i < BLOCKS; i += 2)
        release(i, SG_FREE_SYNC_COMPLETE);
    allocate(0, 30 << 20, 0);
    stop(3 * SG_MIB);
}

static void segments_survive_each_refusal_of_host_memory(void **state)
{
    (void)state;
    run_all(play_segments);
}

/* Fixed segments follow regions, or they cannot be had, and regions go on. */
static void play_change(void)
{
    if (!start("", 256 * SG_MIB))
        return;
    for (int i = 0; i < 4; i++)
        allocate(i, 3 << 20, 0);
    bool changes = sg_core_fix(the.core, 0, /* whole */ true);
    const struct sg_device *device = the.core->device[0];
    assert_true(!device || changes == (device->mode == SG_MODE_SEGMENTS));
    for (int i = 4; i < 8; i++)
        allocate(i, 3 << 20, 0);
    stop(3 * SG_MIB);
}

static void a_change_to_segments_survives_each_refusal_of_host_memory(void **state)
{
    (void)state;
    run_all(play_change);
}

/* Where blocks were asked for is kept beside them, in host memory that is had with the first one. */
static void play_sites(void)
{
    if (!start("", 256 * SG_MIB))
        return;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE, .site = 7, .phase = 3};
    CUresult result = sg_core_malloc(the.core, 0, 3 << 20, &tag, &the.block[0]);
    assert_int_equal(result == CUDA_SUCCESS, the.block[0] != 0);
    const struct sg_device *device = the.core->device[0];
    if (the.block[0])
        assert_true(device->regions.extents.sites || host.met); /* it is served all the same */
    stop(3 * SG_MIB);
}

static void sites_survive_each_refusal_of_host_memory(void **state)
{
    (void)state;
    run_all(play_sites);
}

/* The table of live blocks grows, and the records of free ones. */
static void play_many_blocks(void)
{
    enum { MANY = 3000 };
    static CUdeviceptr block[MANY];
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    if (!start("expandable_segments:False", 256 * SG_MIB))
        return;
    for (int i = 0; i < MANY; i++) {
        block[i] = 0;
        (void)sg_core_malloc(the.core, 0, 3000, &tag, &block[i]);
    }
    for (int i = 0; i < MANY; i++)
        if (block[i])
            assert_int_equal(sg_core_free(the.core, block[i], &tag), CUDA_SUCCESS);
    stop(3 * SG_MIB);
}

static void many_blocks(void **state)
{
    (void)state;
    run_all(play_many_blocks);
}

/* Of all that is set aside at first only small pieces are to be had: there are fewer nodes then, and it works. */
static void few_nodes(void **state)
{
    (void)state;
    static const size_t most[] = {256 << 20, 4 << 20};
    for (int i = 0; i < 2; i++) {
        refuse_at(0, false);
        host.most = most[i];
        assert_true(start("", 64 * SG_MIB));
        allocate(0, 3 * SG_MIB, 0);
        assert_true(host.met);
        if (i == 0)
            assert_true(the.block[0] && the.core->device[0]->regions.extents.capacity < 1 << 24);
        else /* nor that few */
            assert_int_equal(the.core->device[0]->mode, SG_MODE_PASSTHROUGH);
        stop(3 * SG_MIB);
        refuse_none();
    }
}

/* PyTorch's rules over a card whose events are complete once they were waited for. */
static struct sg_torch_ops ops;
static uint64_t recorded, waited, done;

static uint64_t event_record(void *user, uint64_t stream)
{
    (void)user;
    (void)stream;
    return ++recorded;
}

static bool event_done(void *user, uint64_t event)
{
    (void)user;
    return event <= done;
}

static void event_wait(void *user, uint64_t event)
{
    (void)user;
    (void)event;
    waited++;
}

static int play_row(struct sg_torch *torch, struct sg_torch_block **block, const struct segalloc_trace_record *row)
{
    switch (row->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return sg_torch_alloc(torch, row->size, row->stream, &block[row->id]);
    case SEGALLOC_RECORD_RECORD_STREAM:
        return block[row->id] ? sg_torch_record_stream(torch, block[row->id], row->stream) : 0;
    case SEGALLOC_RECORD_FREE:
        if (block[row->id])
            sg_torch_free(torch, block[row->id]);
        block[row->id] = NULL;
        return 0;
    default:
        sg_torch_empty_cache(torch);
        return 0;
    }
}

static void play_rules_of(const char *text)
{
    static const uint8_t A = SEGALLOC_RECORD_ALLOCATE, F = SEGALLOC_RECORD_FREE, R = SEGALLOC_RECORD_RECORD_STREAM,
                         E = SEGALLOC_RECORD_EMPTY_CACHE;
    static const struct segalloc_trace_record trace[] = {
        {.kind = A, .id = 1, .size = 30 << 20},
        {.kind = A, .id = 2, .size = 3000, .stream = 1},
        {.kind = A, .id = 3, .size = 3 << 20, .stream = 2},
        {.kind = R, .id = 1, .stream = 1},
        {.kind = R, .id = 1, .stream = 2},
        {.kind = R, .id = 1, .stream = 3},
        {.kind = R, .id = 1, .stream = 4},
        {.kind = R, .id = 1, .stream = 5},
        {.kind = F, .id = 1},
        {.kind = R, .id = 3, .stream = 4},
        {.kind = F, .id = 3},
        {.kind = A, .id = 4, .size = 25 << 20},
        {.kind = A, .id = 5, .size = 50 << 20},
        {.kind = F, .id = 4},
        {.kind = E},
        {.kind = A, .id = 6, .size = 70 << 20},
    };
    const size_t count = sizeof trace / sizeof *trace;
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT];
    struct sg_ledger_device card;
    uint64_t pieces = host.pieces;
    bool armed = host.armed;
    host.armed = false;
    assert_int_equal(sg_torch_conf_parse(text, &conf, error), 0);
    host.armed = armed;
    recorded = waited = done = 0;
    sg_ledger_device_init(&card, 128 * SG_MIB);
    struct sg_torch *torch = sg_torch_create(&conf, 128 * SG_MIB, &ops, &card);
    struct sg_torch_block *block[7] = {NULL}; /* by the rows' ids */
    for (size_t i = 0; torch && i < count; i++) {
        int result = play_row(torch, block, &trace[i]);
        assert_true(result == 0 || result == -12 /* ENOMEM */);
    }
    if (torch)
        sg_torch_empty_stream(torch, 77); /* which was never heard of */
    host.armed = false;
    if (torch) { /* nothing is held for a block that nobody has */
        const struct sg_torch_stats *stats = sg_torch_stats(torch);
        struct sg_torch_block *last;
        sg_torch_empty_cache(torch);
        assert_int_equal(stats->reserved.current, card.used);
        assert_true(stats->active.current == stats->allocated.current);
        if (stats->allocated.current == 0)
            assert_int_equal(card.used, 0);
        assert_int_equal(sg_torch_alloc(torch, 3000, 9, &last), 0);
        sg_torch_free(torch, last);
    }
    sg_torch_destroy(torch);
    sg_ledger_device_clear(&card);
    assert_int_equal(host.pieces, pieces);
}

static void play_rules(void)
{
    play_rules_of("");
}

static void play_expandable_rules(void)
{
    play_rules_of("expandable_segments:True");
}

static void pytorchs_rules_survive_each_refusal_of_host_memory(void **state)
{
    (void)state;
    ops = sg_ledger_device_ops;
    ops.event_record = event_record;
    ops.event_done = event_done;
    ops.event_wait = event_wait;
    run_all(play_rules);
    run_all(play_expandable_rules);
}

/* Records of blocks come many at a time. Whichever call needs more of them than are left is refused, and has done
   nothing. */
static void play_records(size_t count, uint64_t bytes)
{
    enum { RECORDS = 4096 /* bytes that their piece is larger than, and no other is */ };
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT];
    struct sg_ledger_device card;
    struct sg_torch_block *block;
    assert_int_equal(sg_torch_conf_parse("expandable_segments:True", &conf, error), 0);
    sg_ledger_device_init(&card, 128 * SG_MIB);
    struct sg_torch *torch = sg_torch_create(&conf, 128 * SG_MIB, &ops, &card);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(sg_torch_alloc(torch, 512, 0, &block), 0);
    assert_int_equal(sg_torch_alloc(torch, bytes, 0, &block), 0);
    refuse_at(0, false);
    host.most = RECORDS;
    struct sg_torch_block *more = NULL;
    int result = sg_torch_alloc(torch, 30 * SG_MIB, 1, &more);
    assert_true(result == 0 || (result == -ENOMEM && host.met && !more));
    sg_torch_free(torch, more);
    host.most = 1;
    assert_int_equal(sg_torch_record_stream(torch, block, 5), -ENOMEM);
    host.most = RECORDS;
    sg_torch_free(torch, block);
    sg_torch_empty_cache(torch);
    assert_int_equal(card.used, sg_torch_stats(torch)->reserved.current);
    refuse_none();
    sg_torch_empty_cache(torch);
    assert_true(card.used <= 2 * SG_MIB);
    sg_torch_destroy(torch);
    sg_ledger_device_clear(&card);
}

static void last_records(void **state)
{
    enum { MOST = 600 };
    (void)state;
    for (size_t count = 0; count < MOST; count++)
        for (uint64_t mib = 40; mib <= 45; mib += 5) /* chunks as they are, or more than is asked for */
            play_records(count, mib * SG_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_survive_each_refusal_of_host_memory),
        cmocka_unit_test(large_plans),
        cmocka_unit_test(segments_survive_each_refusal_of_host_memory),
        cmocka_unit_test(a_change_to_segments_survives_each_refusal_of_host_memory),
        cmocka_unit_test(sites_survive_each_refusal_of_host_memory),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(few_nodes),
        cmocka_unit_test(pytorchs_rules_survive_each_refusal_of_host_memory),
        cmocka_unit_test(last_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
