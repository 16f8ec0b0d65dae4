/* A free takes effect at the right time, for the right stream, and captures and graphs keep their blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "serve/alloc.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "requests_fakes.h"
#include "track/streams.h"

static struct sg_tag tag_of(const struct sg_request *request)
{
    return sg_memory_tag(CORE, request, CONTEXT, 0);
}

static enum sg_free_sync sync_of(enum sg_free_sync wanted, struct sg_request request, bool kept)
{
    fake.conf.free_sync = wanted;
    request.was_deferred = kept;
    return tag_of(&request).sync;
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
    struct sg_request settled = {.is_complete = true};
    assert_int_equal(sync_of(SG_FREE_SYNC_STRICT, settled, true), SG_FREE_SYNC_COMPLETE);
}

static void by_order_only_where_that_is_known(void **state)
{
    (void)state;
    struct sg_request pluggable = torch;
    pluggable.pluggable = true;
    for (int i = 0; i < 2; i++) {
        ANSWER(sg_streams_complete, i != 0);
        ANSWER(sg_streams_untracked, i == 1);
        assert_int_equal(sync_of(SG_FREE_SYNC_STREAM, plain, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, torch, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, pluggable, false), SG_FREE_SYNC_EVENT);
        assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, named, false), SG_FREE_SYNC_STREAM); /* it says which */
        assert_true(tag_of(&named).missed_calls);
    }
    atomic_store(&sg_following_order, false);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, named, false), SG_FREE_SYNC_EVENT);
    assert_int_equal(sync_of(SG_FREE_SYNC_AUTO, in_order, false), SG_FREE_SYNC_EVENT);
}

/* Whom a free waits for. The last of these tests: once told of streams, a caller tells of all of them. */
static void those_that_are_told_of_or_all_that_could(void **state)
{
    (void)state;
    struct sg_request pluggable = torch;
    pluggable.pluggable = true;
    assert_int_equal(tag_of(&plain).user_rule, SG_USERS_POSSIBLE);
    assert_int_equal(tag_of(&torch).user_rule, SG_USERS_POSSIBLE);
    assert_int_equal(tag_of(&pluggable).user_rule, SG_USERS_POSSIBLE);
    assert_int_equal(tag_of(&named).user_rule, SG_USERS_RECORDED);
    sg_memory_record_stream_hooked();
    assert_int_equal(tag_of(&torch).user_rule, SG_USERS_POSSIBLE_HERE);
    assert_int_equal(tag_of(&pluggable).user_rule, SG_USERS_POSSIBLE_HERE);
    assert_int_equal(tag_of(&plain).user_rule, SG_USERS_POSSIBLE);
    sg_memory_torch_records();
    assert_int_equal(tag_of(&pluggable).user_rule, SG_USERS_RECORDED);
    assert_int_equal(tag_of(&torch).user_rule, SG_USERS_POSSIBLE_HERE);
}

/* Of which stream a block is. */
static void block_is_its_streams_on_its_device(void **state)
{
    (void)state;
    assert_int_equal(tag_of(&torch).slot, SLOT);
    assert_int_equal(tag_of(&plain).slot, 0);
    assert_int_equal(tag_of(&in_order).slot, 0);
    ANSWER(sg_captures_capturing, true); /* a graph is launched on any */
    assert_int_equal(tag_of(&torch).slot, 0);
    ANSWER(sg_captures_capturing, false);
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
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_ptr_equal(fake.tag.context, CONTEXT);
    ANSWER(sg_contexts_green, true);
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_ptr_equal(fake.tag.context, OTHER_CONTEXT);
}

/* Streams that use a block. */

static void recorded_stream_is_followed_or_all_are_waited_for(void **state)
{
    (void)state;
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_int_equal(recorded(), SLOT);
    fake.on_device = false;
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_int_equal(recorded(), 0);
    FORGET(sg_core_record_stream);
    fake.stream_device = 1;
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(recorded(), 0);
}

static void streams_of_other_contexts_use_fixed_segments_abroad(void **state)
{
    (void)state;
    ANSWER(sg_core_record_stream, CUDA_ERROR_NOT_FOUND);
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_false(CALLS(sg_core_used_cross_device));
    ANSWER(sg_streams_context_of, (uintptr_t)OTHER_CONTEXT);
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_true(CALLS(sg_core_used_cross_device));
}

/* Memory that the driver serves: its free waits for its own context alone. Nothing else tells of the other context, so
   this is the first of these tests. */
static void what_the_driver_served_is_waited_for_abroad(void **state)
{
    (void)state;
    fake.block = CUDA_ERROR_NOT_FOUND;
    ANSWER(sg_contexts_devices, true);
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free_passthrough(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_wait_for_all), 0);
    ANSWER(sg_streams_context_of, (uintptr_t)OTHER_CONTEXT);
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free_passthrough(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_wait_for_all), 1);
    ANSWER(sg_contexts_devices, false);
    assert_int_equal(sg_memory_free_passthrough(BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_wait_for_all), 1);
}

static void stream_that_cannot_be_recorded_is_all_streams(void **state)
{
    (void)state;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
    assert_int_equal(recorded(), SLOT);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_STREAM);
    fake.on_device = false;
    fake.stream_device = 1;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_EVENT);
}

/* Captures and graphs. */

static void what_a_capture_has_is_its_graphs(void **state)
{
    CUdeviceptr address;
    (void)state;
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &torch, &address), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 0);
    fake.live = true;
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &torch, &address), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 1);
    assert_true(ARGUMENT(sg_graphs_adopt, 3));
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED);
    assert_int_equal(sg_memory_free(CORE, address, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 2);
    assert_false(ARGUMENT(sg_graphs_adopt, 3));
    assert_int_equal(CALLS(sg_graphs_retain), 1);
    assert_false(ARGUMENT(sg_graphs_retain, 2));
    assert_int_equal(CALLS(sg_core_free) + fake.probes, 0);
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED_BEFORE);
    assert_int_equal(sg_memory_free(CORE, address, &torch), CUDA_ERROR_INVALID_VALUE);
}

/* What it answers to an allocation of its own is what it would answer to this free. */
static void free_that_waits_is_the_drivers_to_allow_in_a_capture(void **state)
{
    (void)state;
    fake.live = true;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(fake.probes, 1);
    assert_int_equal(CALLS(sg_captures_defer_free), 1);
    fake.probe = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(fake.probes, 2); /* it is asked once for each free */
    assert_int_equal(CALLS(sg_captures_defer_free), 1);
    assert_int_equal(CALLS(sg_core_free), 0);
    assert_int_equal(sg_memory_free(CORE, BLOCK + 1, &plain), CUDA_SUCCESS); /* the core says what is wrong with it */
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_EVENT);
}

/* The program's free waits as it does natively; whether that was for all who use the block is kept with it. */
static void free_of_a_graphs_block_still_waits(void **state)
{
    (void)state;
    atomic_store(&sg_graphs_blocks, 1);
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED);
    for (int i = 0; i < 2; i++) {
        fake.all = i != 0;
        assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
        assert_int_equal(CALLS(sg_graphs_retain), i + 1);
        assert_int_equal(ARGUMENT(sg_graphs_retain, 2), fake.all);
        assert_int_equal(CALLS(sg_graphs_await_destroyed_of), i + 1);
        assert_true(ARGUMENT(sg_graphs_await_destroyed_of, 0) == BLOCK && IS_BEFORE(sg_graphs_await_destroyed_of, sg_graphs_retain));
    }
    assert_ptr_equal(fake.waited_in, CONTEXT);
    fake.wait = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(CALLS(sg_graphs_retain), 2);
    fake.look = CUDA_ERROR_DEINITIALIZED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(CALLS(sg_graphs_retain), 2);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_SUCCESS); /* by order: it waits for nothing */
    assert_false(CALLS(sg_graphs_retain) == 3 && ARGUMENT(sg_graphs_retain, 2));
    assert_int_equal(CALLS(sg_graphs_await_destroyed_of), 2);
    assert_int_equal(CALLS(sg_core_free), 0);
}

static void nothing_is_settled_in_a_capture(void **state)
{
    (void)state;
    atomic_store(&sg_captures_deferred, 1);
    fake.live = true;
    sg_memory_run_deferred(CORE);
    assert_int_equal(CALLS(sg_captures_run_deferred), 0);
    fake.live = false;
    sg_memory_run_deferred(CORE);
    assert_int_equal(CALLS(sg_captures_run_deferred), 1);
}

/* The driver answers nothing any more after such an error. */
static void nothing_is_asked_after_a_final_error(void **state)
{
    (void)state;
    fake.free = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_INVALID_VALUE);
    assert_false(CALLS(sg_core_disable));
    fake.free = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_LAUNCH_FAILED);
    assert_true(CALLS(sg_core_disable));
}

/* The core may have no room for its books, or no addresses, where there is memory: the driver is given that and asked
   again, but nothing is given up for what would not fit. */
static void idle_memory_is_the_drivers_at_last(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    fake.malloc[0] = fake.malloc[1] = fake.malloc[2] = fake.malloc[3] = CUDA_ERROR_OUT_OF_MEMORY;
    fake.idle = 2 * BLOCK;
    fake.driver_has = BLOCK;
    sg_conf_init(&fake.conf);
    fake.conf.oom_report = SG_OOM_NEVER;
    assert_int_equal(sg_memory_alloc(CORE, 4 * BLOCK, &plain, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.probes, 1);
    assert_int_equal(fake.idle, 2 * BLOCK);
    assert_int_equal(sg_memory_alloc(CORE, 3 * BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_int_equal(fake.probes, 3);
    assert_int_equal(address, 1);
}

/* Pages that regions have left go back before the driver is asked for what the core has not: it is the core that serves
   then. */
static void pages_left_make_room(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    fake.malloc[0] = CUDA_ERROR_OUT_OF_MEMORY;
    ANSWER(sg_core_left_pages, true);
    fake.idle = BLOCK;
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &plain, &address), CUDA_SUCCESS);
    assert_true(address == BLOCK && fake.probes == 0 && fake.idle == 0 && fake.mallocs == 2);
}

/* What a module needs of the driver's own is asked of the driver, and counted. */
static void the_drivers_own_is_the_drivers(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    fake.driver_has = BLOCK;
    fake.idle = BLOCK;
    assert_int_equal(sg_memory_passthrough(CORE, BLOCK, &address), CUDA_SUCCESS);
    assert_true(address == 1 && CALLS(sg_core_passthrough) == 1 && fake.idle == BLOCK);
    assert_int_equal(sg_memory_passthrough(CORE, 2 * BLOCK, &address), CUDA_SUCCESS); /* idle memory makes room */
    assert_true(CALLS(sg_core_passthrough) == 2 && fake.idle == 0);
    assert_int_equal(sg_memory_passthrough(CORE, 3 * BLOCK, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(CALLS(sg_core_passthrough) == 2 && fake.mallocs == 0);
    fake.probes = 0;
    fake.no_room = true; /* it is not asked for nothing */
    assert_int_equal(sg_memory_passthrough(CORE, 3 * BLOCK, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.probes, 1);
    fake.current = CUDA_ERROR_INVALID_CONTEXT; /* on a device that nobody can tell */
    assert_int_equal(sg_memory_passthrough(CORE, BLOCK, &address), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_passthrough), 2);
}

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_driver_served_is_waited_for_abroad),
        TEST(pages_left_make_room),
        TEST(the_drivers_own_is_the_drivers),
        TEST(as_it_is_configured),
        TEST(after_all_work_where_it_was_put_off),
        TEST(by_order_only_where_that_is_known),
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
        TEST(idle_memory_is_the_drivers_at_last),
        TEST(those_that_are_told_of_or_all_that_could),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
