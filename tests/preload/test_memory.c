/* When a free takes effect, of which stream a block is, and what is done for captures and graphs: what the core is told
   of each call, against a core and a driver made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "captures.h"
#include "contexts.h"
#include "declare.h"
#include "graphs.h"
#include "hooks.h"
#include "life.h"
#include "recorder.h"
#include "streams.h"
#include "torch.h"
#include "trimming.h"

static CUcontext const context = (CUcontext)64, other_context = (CUcontext)128;
static CUstream const stream = (CUstream)192;
enum { BLOCK = 4096, SLOT = 5, NO_RECORD = -1 };

/* What the rest of the library and the driver say, and what they are asked. */
static struct {
    struct sg_conf conf;
    bool complete, blind, late;      /* what is known of streams */
    bool placed, on_device, capturing;
    int place_device, stream_device;
    CUcontext stream_context;
    bool live, others, all, green;   /* a capture; other devices; that a wait was for all; a green context */
    CUresult block, record, wait, probe, free;
    enum sg_graphs_answer keeps;

    int recorded, adopted, kept, settled, waits_for_all, probes, parked, spared; /* recorded: the slot */
    bool abroad, waited, fresh, disabled;
    struct sg_tag tag;
    int frees;
} fake;

atomic_bool sg_following_order, sg_captures_begun;
atomic_int sg_captures_parked, sg_graphs_blocks, sg_graphs_gone;
atomic_uint sg_captures_ended;
bool sg_declare_on, sg_recorder_on;
__thread struct sg_thread sg_self;

const struct sg_conf *sg_life_conf(void)
{
    return &fake.conf;
}

struct sg_core *sg_begin(void)
{
    return (struct sg_core *)&fake;
}

void sg_end(void)
{
}

static CUresult get_current(CUcontext *ret)
{
    *ret = context;
    return CUDA_SUCCESS;
}

static CUresult no_record(CUcontext named, CUevent event)
{
    (void)named, (void)event;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_life_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_current = get_current, .ctx_record_event = no_record};
    return &driver;
}

static CUresult alloc(CUdeviceptr *ret, size_t bytes)
{
    (void)bytes;
    fake.probes++;
    *ret = 1;
    return fake.probe;
}

static CUresult free_it(CUdeviceptr address)
{
    (void)address;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)attribute, (void)address;
    *(CUcontext *)ret = context;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream asked)
{
    (void)asked;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuMemAlloc_v2 = alloc, .cuMemFree_v2 = free_it,
        .cuPointerGetAttribute = pointer_attribute, .cuStreamQuery = query};
    return &real;
}

/* Streams. */
bool sg_streams_complete(void)
{
    return fake.complete;
}

bool sg_streams_untracked(void)
{
    return fake.blind;
}

bool sg_follow_late(void)
{
    return fake.late;
}

void sg_follow(void)
{
}

void sg_streams_serve(int device)
{
    (void)device;
}

bool sg_streams_place(struct sg_core *core, CUstream asked, bool per_thread, struct sg_place *ret)
{
    (void)core, (void)asked, (void)per_thread;
    *ret = (struct sg_place){.device = fake.place_device, .slot = SLOT};
    return fake.placed;
}

bool sg_streams_place_on(struct sg_core *core, CUstream asked, int device, struct sg_place *ret)
{
    (void)core, (void)asked;
    *ret = (struct sg_place){.device = device, .slot = SLOT};
    return fake.on_device;
}

CUcontext sg_streams_context_of(CUstream asked)
{
    (void)asked;
    return fake.stream_context;
}

bool sg_streams_device(CUstream asked, int *ret)
{
    (void)asked;
    *ret = fake.stream_device;
    return true;
}

/* Captures and graphs. */
bool sg_captures_live(void)
{
    return fake.live;
}

bool sg_captures_capturing(CUstream asked, bool per_thread)
{
    (void)asked, (void)per_thread;
    return fake.capturing;
}

bool sg_captures_own(CUstream *ret)
{
    (void)ret;
    return false;
}

bool sg_captures_await(uint64_t *left_ns)
{
    (void)left_ns;
    return true;
}

bool sg_captures_settling(void)
{
    return false;
}

void sg_captures_settle(struct sg_core *core)
{
    (void)core;
    fake.settled++;
}

CUresult sg_captures_park(struct sg_core *core, CUdeviceptr address, const struct sg_origin *origin)
{
    (void)core, (void)address, (void)origin;
    fake.parked++;
    return CUDA_SUCCESS;
}

bool sg_captures_relax(CUstreamCaptureMode *ret)
{
    (void)ret;
    return false;
}

void sg_captures_restore(CUstreamCaptureMode *mode)
{
    (void)mode;
}

bool sg_graphs_adopt(struct sg_core *core, CUstream asked, CUdeviceptr address, bool fresh)
{
    (void)core, (void)asked, (void)address;
    fake.adopted++;
    fake.fresh = fresh;
    return true;
}

enum sg_graphs_answer sg_graphs_keep(CUdeviceptr address, const struct sg_origin *origin, bool waited)
{
    (void)address, (void)origin;
    fake.kept++;
    fake.waited = waited;
    return fake.keeps;
}

void sg_graphs_spare(CUstream asked, CUdeviceptr address)
{
    (void)asked, (void)address;
    fake.spared++;
}

bool sg_graphs_again(CUstream asked, size_t bytes, CUdeviceptr *ret)
{
    (void)asked, (void)bytes, (void)ret;
    return false;
}

void sg_graphs_settle(struct sg_core *core)
{
    (void)core;
}

/* The core. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    *ret = (struct sg_block_info){.base = address & ~(CUdeviceptr)(BLOCK - 1), .bytes = BLOCK, .context = context};
    return fake.block;
}

CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    (void)core, (void)device, (void)bytes;
    fake.tag = *tag;
    *ret = BLOCK;
    return CUDA_SUCCESS;
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    (void)core, (void)address;
    fake.tag = *tag;
    fake.frees++;
    return fake.free;
}

CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot)
{
    (void)core, (void)address;
    fake.recorded = (int)slot;
    return fake.record;
}

void sg_core_used_abroad(struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
    fake.abroad = true;
}

CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all)
{
    (void)core, (void)address, (void)current;
    *ret_all = fake.all;
    return fake.wait;
}

CUresult sg_core_wait_for_all(struct sg_core *core)
{
    (void)core;
    fake.waits_for_all++;
    return CUDA_SUCCESS;
}

bool sg_core_owns(const struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
    return true;
}

void sg_core_disable(struct sg_core *core)
{
    (void)core;
    fake.disabled = true;
}

void sg_core_poll(struct sg_core *core, int device)
{
    (void)core, (void)device;
}

void sg_core_passed_on(struct sg_core *core, int device, CUdeviceptr address, size_t bytes)
{
    (void)core, (void)device, (void)address, (void)bytes;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core, (void)device, (void)ret;
    return false;
}

size_t sg_core_oom_text(struct sg_core *core, int device, char *buffer, size_t size)
{
    (void)core, (void)device, (void)buffer, (void)size;
    return 0;
}

bool sg_core_is_limited(struct sg_core *core, int device)
{
    (void)core, (void)device;
    return false;
}

/* The rest. */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret, int *ret_device)
{
    (void)core;
    *ret_device = 0;
    return get_current(ret);
}

bool sg_contexts_devices(void)
{
    return fake.others;
}

bool sg_contexts_green(CUcontext asked)
{
    (void)asked;
    return fake.green;
}

CUcontext sg_contexts_primary_of(int device)
{
    (void)device;
    return other_context;
}

bool sg_torch_direct(void)
{
    return true;
}

bool sg_torch_stream(CUstream *ret)
{
    *ret = stream;
    return true;
}

void sg_declare_given(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
}

void sg_declare_freed(struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
}

void sg_trimming_use(int device)
{
    (void)device;
}

bool sg_trimming_ask_others(const struct sg_driver *driver, int device, size_t bytes)
{
    (void)driver, (void)device, (void)bytes;
    return false;
}

void sg_recorder_device(const struct sg_driver *driver, int device)
{
    (void)driver, (void)device;
}

void sg_recorder_tick(struct sg_core *core, int device)
{
    (void)core, (void)device;
}

static struct sg_core *const core = (struct sg_core *)&fake;
static const struct sg_origin plain = {0}, torch = {.torch = true, .has_stream = true, .stream = stream},
                              named = {.named = true, .has_stream = true, .stream = stream},
                              in_order = {.stream_order = true, .has_stream = true, .stream = stream};

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.complete = fake.placed = fake.on_device = true;
    fake.stream_context = context;
    fake.recorded = NO_RECORD;
    fake.conf.free_sync = SG_FREE_SYNC_AUTO;
    atomic_store(&sg_following_order, true);
    atomic_store(&sg_captures_parked, 0);
    atomic_store(&sg_graphs_blocks, 0);
    return 0;
}

static struct sg_tag tag_of(const struct sg_origin *origin)
{
    return sg_memory_tag(core, origin, context, 0);
}

static enum sg_free_sync sync_of(enum sg_free_sync wanted, struct sg_origin origin, bool kept)
{
    fake.conf.free_sync = wanted;
    origin.kept = kept;
    return tag_of(&origin).sync;
}

/* When a free takes effect. */

static void as_it_is_configured(void **state)
{
    (void)state;
    assert_int_equal(sync_of(SG_FREE_SYNC_STRICT, torch, false), SG_FREE_SYNC_STRICT);
    assert_int_equal(sync_of(SG_FREE_SYNC_EVENT, torch, false), SG_FREE_SYNC_EVENT);
    assert_int_equal(sync_of(SG_FREE_SYNC_STREAM, plain, false), SG_FREE_SYNC_STREAM);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, torch, false), SG_FREE_SYNC_STREAM);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, named, false), SG_FREE_SYNC_STREAM);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, plain, false), SG_FREE_SYNC_STRICT);
    assert_int_equal(sync_of(SG_FREE_SYNC_STRICT, in_order, false), SG_FREE_SYNC_STREAM);
    assert_int_equal(sync_of(SG_FREE_SYNC_EVENT, in_order, false), SG_FREE_SYNC_STREAM);
}

/* Nobody is to wait in it any more, but others' work may still be going on. */
static void after_all_work_where_it_was_put_off(void **state)
{
    (void)state;
    assert_int_equal(sync_of(SG_FREE_SYNC_STRICT, plain, true), SG_FREE_SYNC_EVENT);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, plain, true), SG_FREE_SYNC_EVENT);
    struct sg_origin settled = {.settled = true};
    assert_int_equal(sync_of(SG_FREE_SYNC_STRICT, settled, true), SG_FREE_SYNC_AUTO);
}

static void by_order_only_where_that_is_known(void **state)
{
    (void)state;
    struct sg_origin pluggable = torch;
    pluggable.pluggable = true;
    for (int i = 0; i < 2; i++) {
        fake.complete = i != 0;
        fake.blind = i == 1;
        assert_int_equal(sync_of(SG_FREE_SYNC_STREAM, plain, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, torch, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, pluggable, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, named, false), SG_FREE_SYNC_STREAM); /* it says which */
        assert_true(tag_of(&named).unseen);
        assert_false(tag_of(&named).followed);
    }
    atomic_store(&sg_following_order, false);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, named, false), SG_FREE_SYNC_EVENT);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, in_order, false), SG_FREE_SYNC_EVENT);
    assert_false(tag_of(&named).followed);
}

static void streams_followed_late_are_not_all(void **state)
{
    (void)state;
    assert_true(tag_of(&plain).followed);
    assert_false(tag_of(&plain).unseen);
    fake.late = true;
    assert_false(tag_of(&plain).followed);
}

/* Whom a free waits for. The last of these tests: once told of streams, a caller tells of all of them. */
static void those_that_are_told_of_or_all_that_could(void **state)
{
    (void)state;
    struct sg_origin pluggable = torch;
    pluggable.pluggable = true;
    assert_int_equal(tag_of(&plain).sees, SG_SEES_POSSIBLE);
    assert_int_equal(tag_of(&torch).sees, SG_SEES_POSSIBLE);
    assert_int_equal(tag_of(&pluggable).sees, SG_SEES_POSSIBLE);
    assert_int_equal(tag_of(&named).sees, SG_SEES_RECORDED);
    sg_memory_torch_records();
    assert_int_equal(tag_of(&pluggable).sees, SG_SEES_RECORDED);
    assert_int_equal(tag_of(&torch).sees, SG_SEES_POSSIBLE);
}

/* Of which stream a block is. */
static void block_is_its_streams_on_its_device(void **state)
{
    (void)state;
    assert_int_equal(tag_of(&torch).slot, SLOT);
    assert_int_equal(tag_of(&plain).slot, 0);
    assert_int_equal(tag_of(&in_order).slot, 0);
    fake.capturing = true; /* a graph is launched on any */
    assert_int_equal(tag_of(&torch).slot, 0);
    fake.capturing = false;
    fake.place_device = 1;
    assert_int_equal(tag_of(&torch).slot, 0);
    fake.place_device = 0;
    fake.placed = false;
    assert_int_equal(tag_of(&torch).slot, 0);
}

/* And of which context: memory outlives a green one. */
static void block_is_the_primary_contexts_in_a_green_one(void **state)
{
    CUdeviceptr address;
    (void)state;
    assert_int_equal(sg_memory_alloc(core, BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_ptr_equal(fake.tag.context, context);
    fake.green = true;
    assert_int_equal(sg_memory_alloc(core, BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_ptr_equal(fake.tag.context, other_context);
}

/* Streams that use a block. */

static void recorded_stream_is_followed_or_all_are_waited_for(void **state)
{
    (void)state;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_int_equal(fake.recorded, SLOT);
    fake.on_device = false;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_int_equal(fake.recorded, 0);
    fake.recorded = NO_RECORD;
    fake.stream_device = 1;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(fake.recorded, 0);
}

static void streams_of_other_contexts_use_fixed_segments_abroad(void **state)
{
    (void)state;
    fake.record = CUDA_ERROR_NOT_FOUND;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_false(fake.abroad);
    fake.stream_context = other_context;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_true(fake.abroad);
}

/* Memory that the driver serves: its free waits for its own context alone. Nothing else tells of the other context, so
   this is the first of these tests. */
static void what_the_driver_served_is_waited_for_abroad(void **state)
{
    (void)state;
    fake.block = CUDA_ERROR_NOT_FOUND;
    fake.others = true;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free_passed(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(fake.waits_for_all, 0);
    fake.stream_context = other_context;
    assert_int_equal(sg_memory_record_stream(core, BLOCK, stream), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free_passed(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(fake.waits_for_all, 1);
    fake.others = false;
    assert_int_equal(sg_memory_free_passed(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(fake.waits_for_all, 1);
}

static void stream_that_cannot_be_recorded_is_all_streams(void **state)
{
    (void)state;
    assert_int_equal(sg_memory_free(core, BLOCK, &in_order), CUDA_SUCCESS);
    assert_int_equal(fake.recorded, SLOT);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_STREAM);
    fake.on_device = false;
    fake.stream_device = 1;
    assert_int_equal(sg_memory_free(core, BLOCK, &in_order), CUDA_SUCCESS);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_EVENT);
}

/* Captures and graphs. */

static void what_a_capture_has_is_its_graphs(void **state)
{
    CUdeviceptr address;
    (void)state;
    assert_int_equal(sg_memory_alloc(core, BLOCK, &torch, &address), CUDA_SUCCESS);
    assert_int_equal(fake.adopted, 0);
    fake.live = true;
    assert_int_equal(sg_memory_alloc(core, BLOCK, &torch, &address), CUDA_SUCCESS);
    assert_int_equal(fake.adopted, 1);
    assert_true(fake.fresh);
    fake.keeps = SG_GRAPHS_KEPT;
    assert_int_equal(sg_memory_free(core, address, &torch), CUDA_SUCCESS);
    assert_int_equal(fake.adopted, 2);
    assert_false(fake.fresh);
    assert_int_equal(fake.kept, 1);
    assert_false(fake.waited);
    assert_int_equal(fake.frees + fake.probes, 0);
    fake.keeps = SG_GRAPHS_KEPT_BEFORE;
    assert_int_equal(sg_memory_free(core, address, &torch), CUDA_ERROR_INVALID_VALUE);
}

/* What it answers to an allocation of its own is what it would answer to this free. */
static void free_that_waits_is_the_drivers_to_allow_in_a_capture(void **state)
{
    (void)state;
    fake.live = true;
    assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(fake.probes, 1);
    assert_int_equal(fake.parked, 1);
    fake.probe = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(fake.parked, 1);
    assert_int_equal(fake.frees, 0);
    assert_int_equal(sg_memory_free(core, BLOCK + 1, &plain), CUDA_SUCCESS); /* the core says what is wrong with it */
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_EVENT);
}

/* The program's free waits as it does natively; whether that was for all who use the block is kept with it. */
static void free_of_a_graphs_block_still_waits(void **state)
{
    (void)state;
    atomic_store(&sg_graphs_blocks, 1);
    fake.keeps = SG_GRAPHS_KEPT;
    for (int i = 0; i < 2; i++) {
        fake.all = i != 0;
        assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_SUCCESS);
        assert_int_equal(fake.kept, i + 1);
        assert_int_equal(fake.waited, fake.all);
    }
    fake.wait = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(fake.kept, 2);
    assert_int_equal(sg_memory_free(core, BLOCK, &torch), CUDA_SUCCESS); /* by order: it waits for nothing */
    assert_false(fake.kept == 3 && fake.waited);
    assert_int_equal(fake.frees, 0);
}

static void nothing_is_settled_in_a_capture(void **state)
{
    (void)state;
    atomic_store(&sg_captures_parked, 1);
    fake.live = true;
    sg_memory_settle(core);
    assert_int_equal(fake.settled, 0);
    fake.live = false;
    sg_memory_settle(core);
    assert_int_equal(fake.settled, 1);
}

/* The driver answers nothing any more after such an error. */
static void nothing_is_asked_after_a_final_error(void **state)
{
    (void)state;
    fake.free = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_ERROR_INVALID_VALUE);
    assert_false(fake.disabled);
    fake.free = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(sg_memory_free(core, BLOCK, &plain), CUDA_ERROR_LAUNCH_FAILED);
    assert_true(fake.disabled);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_driver_served_is_waited_for_abroad),
        TEST(as_it_is_configured),
        TEST(after_all_work_where_it_was_put_off),
        TEST(by_order_only_where_that_is_known),
        TEST(streams_followed_late_are_not_all),
        TEST(block_is_its_streams_on_its_device),
        TEST(block_is_the_primary_contexts_in_a_green_one),
        TEST(recorded_stream_is_followed_or_all_are_waited_for),
        TEST(streams_of_other_contexts_use_fixed_segments_abroad),
        TEST(stream_that_cannot_be_recorded_is_all_streams),
        TEST(what_a_capture_has_is_its_graphs),
        TEST(free_that_waits_is_the_drivers_to_allow_in_a_capture),
        TEST(free_of_a_graphs_block_still_waits),
        TEST(nothing_is_settled_in_a_capture),
        TEST(nothing_is_asked_after_a_final_error),
        TEST(those_that_are_told_of_or_all_that_could),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
