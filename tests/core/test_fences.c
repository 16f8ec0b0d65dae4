/* What events of ours and waits tell, and of whom: whatever happens while the driver is being called, or in a context
   that is not waited for, they tell nothing of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scene.h"
#include "strict_kept.h"

static sg_slot busy; /* is given work meanwhile */

static void work(sg_slot slot)
{
    sg_core_slot_submitted(scene.core, 0, slot);
}

static void work_meanwhile(void)
{
    work(busy);
}

/* No event can be recorded on the stream, so its context is waited for. */
static void wait_tells_nothing_of_work_meanwhile(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, SG_STREAM_UNFENCEABLE, NULL);
    (void)scene_add_stream(2, 0, NULL);
    work(slot);
    struct sg_after before = scene_freed(slot);
    busy = slot;
    scene.meanwhile = work_meanwhile;
    assert_true(sg_device_ask(scene.device, SG_ASK_WAIT));
    assert_true(scene_is_complete(before));
    assert_false(scene_is_complete(scene_freed(slot)));
}

static void wait_tells_nothing_of_other_contexts(void **state)
{
    (void)state;
    CUcontext other = scene_add_context(2, 0);
    scene.current = scene_add_context(1, 0);
    sg_slot here = scene_add_stream(1, SG_STREAM_UNFENCEABLE, scene.current),
            there = scene_add_stream(2, SG_STREAM_UNFENCEABLE, other);
    work(here);
    work(there);
    struct sg_after after_here = scene_freed(here), after_there = scene_freed(there);
    assert_true(sg_device_ask(scene.device, SG_ASK_WAIT));
    assert_true(scene_is_complete(after_here));
    assert_false(scene_is_complete(after_there));
    scene.current = other; /* that one is still to be waited for */
    assert_true(sg_device_ask(scene.device, SG_ASK_WAIT));
    assert_true(scene_is_complete(after_there));
}

/* As many events are out as there may be: those that something pending waits for are not taken for others. */
static void pending_free_keeps_its_event(void **state)
{
    enum { FREES = 70 };
    CUdeviceptr address[FREES];
    (void)state;
    for (int i = 0; i < FREES; i++)
        address[i] = scene_allocate(0);
    for (int i = 0; i < FREES; i++) {
        scene_free(address[i], SG_FREE_SYNC_EVENT);
        sg_device_ask(scene.device, SG_ASK_FENCE);
    }
    assert_int_equal(scene_pending_bytes(), (uint64_t)FREES << 21);
    strict_complete(1); /* of the first alone */
    sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), (uint64_t)(FREES - 1) << 21);
    strict_complete(UINT32_MAX);
    sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* What is recorded, and where. */

static void stream_that_takes_no_event_is_covered_by_its_context(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, SG_STREAM_UNFENCEABLE, NULL);
    work(slot);
    struct sg_after after = scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.recorded, 1);
    assert_int_equal(scene.over_contexts, 1);
    strict_complete(1);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(scene_is_complete(after));
}

/* An event on a legacy stream orders the blocking ones around it: where the program gives that stream nothing, its
   context tells of what comes before it. */
static void legacy_stream_takes_no_event_before_it_is_used(void **state)
{
    (void)state;
    sg_slot legacy = scene_add_stream(1, SG_STREAM_LEGACY | SG_STREAM_UNUSED, NULL),
            blocking = scene_add_stream(2, SG_STREAM_BLOCKING, NULL);
    work(blocking);
    scene_free(scene_allocate(legacy), SG_FREE_SYNC_STREAM);
    struct sg_after after = scene_freed(legacy);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_true(scene.over_contexts > 0 && scene.recorded == scene.over_contexts);
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(scene_is_complete(after));
    unsigned over = scene.over_contexts;
    work(legacy);
    scene_free(scene_allocate(legacy), SG_FREE_SYNC_STREAM);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.over_contexts, over);
    assert_true(scene.recorded > over);
}

/* And it is not waited for by name, nor made to wait, as by a driver without such events. */
static void unused_legacy_stream_is_in_nobody_s_way(void **state)
{
    (void)state;
    sg_slot legacy = scene_add_stream(1, SG_STREAM_LEGACY | SG_STREAM_UNUSED, NULL),
            blocking = scene_add_stream(2, SG_STREAM_BLOCKING, NULL);
    CUdeviceptr address = scene_allocate(blocking);
    work(blocking);
    scene_free(address, SG_FREE_SYNC_STREAM);
    struct sg_vector_clock told;
    uint64_t done;
    sg_core_idle_clock(scene.core, 0, blocking, &told, &done);
    assert_int_equal(done, told.at[blocking]); /* there is nothing before its next step */
    work(legacy);
    sg_core_idle_clock(scene.core, 0, blocking, &told, &done);
    assert_true(done < told.at[blocking]);
}

static void event_over_a_context_covers_its_streams_alone(void **state)
{
    (void)state;
    CUcontext here = scene.current = scene_add_context(1, 0), there = scene_add_context(2, 0);
    sg_slot own = scene_add_stream(1, SG_STREAM_UNFENCEABLE, here),
        other = scene_add_stream(2, SG_STREAM_UNFENCEABLE, there);
    work(own);
    work(other);
    struct sg_after after_own = scene_freed(own), after_other = scene_freed(other);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    strict_complete(1);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(scene_is_complete(after_own));
    assert_false(scene_is_complete(after_other));
}

static void events_are_of_the_streams_context(void **state)
{
    (void)state;
    CUcontext here = scene.current = scene_add_context(1, 0), there = scene_add_context(2, 0);
    sg_slot own = scene_add_stream(1, 0, here), other = scene_add_stream(2, 0, there);
    work(own);
    (void)scene_freed(own);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_ptr_equal(scene.made_in, here);
    strict_complete(1);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY); /* that event is idle now */
    work(other);
    (void)scene_freed(other);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.made, 2);
    assert_ptr_equal(scene.made_in, there);
    assert_ptr_equal(scene.current, here);
}

/* As many are out on one stream as there may be, and then in all. */
static void streams_with_many_events_leave_those_of_others(void **state)
{
    enum { STREAMS = 20, EACH = 70, MOST = 64 };
    sg_slot slot[STREAMS];
    (void)state;
    for (int i = 0; i < STREAMS; i++)
        slot[i] = scene_add_stream((uintptr_t)i + 1, 0, NULL);
    for (int i = 0; i < STREAMS; i++) {
        unsigned before = scene.made;
        for (int k = 0; k < EACH; k++) {
            unsigned made = scene.made;
            work(slot[i]);
            (void)scene_freed(slot[i]);
            (void)sg_device_ask(scene.device, SG_ASK_FENCE);
            assert_true(scene.device->fences.count <= SG_FENCES);
            assert_true(k || scene.made == made + 1 || scene.device->fences.count == SG_FENCES);
        }
        assert_true(scene.made - before <= MOST);
    }
}

/* One less is out than there may be, and one was: none of them is taken. */
static void room_for_one_more_event(void **state)
{
    enum { MOST = 64 };
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    for (int i = 0; i <= MOST; i++) {
        work(slot);
        (void)scene_freed(slot);
        (void)sg_device_ask(scene.device, SG_ASK_FENCE);
        assert_int_equal(scene.device->fences.count, i < MOST ? i + 1 : MOST);
        strict_complete(i == MOST - 1); /* it is heard of by the next one */
    }
}

/* The event of one that is out is taken, and can't be recorded again: what it would have told is owed another. */
static void event_that_could_not_be_recorded_again(void **state)
{
    enum { MOST = 64 };
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    CUdeviceptr address = scene_allocate(slot);
    work(slot);
    scene_free(address, SG_FREE_SYNC_STREAM);
    for (int i = 0; i < MOST; i++) {
        work(slot);
        (void)scene_freed(slot);
        (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    }
    assert_int_equal(scene.device->fences.count, MOST);
    assert_int_equal(scene.device->clocks.needs_fence & sg_slot_bit(slot), 0);
    sg_device_lock(scene.device);
    sg_clocks_need_fence_locked(scene.device, sg_slot_bit(slot));
    sg_device_unlock(scene.device);
    strict_fail_at(2, false, CUDA_ERROR_ILLEGAL_ADDRESS); /* the oldest is asked about first */
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.device->fences.count, MOST - 1);
    assert_int_equal(scene.device->clocks.needs_fence & sg_slot_bit(slot), sg_slot_bit(slot));
}

static void event_that_was_not_recorded_shows_nothing(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    work(slot);
    struct sg_after after = scene_freed(slot);
    strict_fail_at(2, false, CUDA_ERROR_ILLEGAL_ADDRESS); /* it is made first */
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_true(strict_failed(NULL));
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_false(scene_is_complete(after));
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(scene_is_complete(after));
}

static void failed_query_shows_nothing(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    work(slot);
    struct sg_after after = scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    strict_fail_at(1, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(strict_failed(NULL));
    assert_false(scene_is_complete(after));
}

static void wait_that_fails_tells_nothing(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    work(slot);
    struct sg_after after = scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    strict_fail_at(1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_false(sg_device_ask(scene.device, SG_ASK_WAIT));
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_int_equal(scene.event_waits, 1);
    assert_false(scene_is_complete(after));
}

/* Of a context, where no event can be recorded. */
static void wait_for_a_context_that_fails_tells_nothing(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, SG_STREAM_UNFENCEABLE, NULL);
    work(slot);
    struct sg_after after = scene_freed(slot);
    strict_fail_at(1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_false(sg_device_ask(scene.device, SG_ASK_WAIT));
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_int_not_equal(scene.waited, 0);
    assert_false(scene_is_complete(after));
    assert_true(sg_device_ask(scene.device, SG_ASK_WAIT));
    assert_true(scene_is_complete(after));
}

/* The event's context can't be made current, or it isn't known which one is: then it is taken to be the stream's. */
static void context_that_cannot_be_entered(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    sg_slot slot = scene_add_stream(1, 0, scene_add_context(2, 0));
    work(slot);
    struct sg_after after = scene_freed(slot);
    scene.push_fails = true;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.made, 0);
    scene.current_unknown = true;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.made, 1);
    assert_int_equal(scene.recorded, 1);
    scene.current_unknown = scene.push_fails = false;
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_true(scene_is_complete(after));
}

/* The event went with its context while it was waited for. */
static void end_first_context(void)
{
    sg_core_context_gone(scene.core, 0, scene_context(1));
}

static void context_that_ends_during_the_wait(void **state)
{
    (void)state;
    CUcontext context = scene.current = scene_add_context(1, 0);
    sg_slot slot = scene_add_stream(1, 0, context), other = scene_add_stream(2, 0, scene_add_context(2, 0));
    work(other);
    struct sg_after after = scene_freed(other);
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.device->fences.count, 2);
    CUevent event = scene.device->fences.fence[0].event;
    scene.meanwhile = end_first_context;
    (void)sg_device_ask(scene.device, SG_ASK_WAIT);
    assert_true(scene_is_complete(after));
    assert_int_equal(scene.device->fences.idle_count, 1); /* the other's */
    assert_int_equal(strict_driver.event_destroy(event), CUDA_SUCCESS);
}

/* As many are out on a stream as there may be, and something pending waits for all of them: one more is made. */
static void events_that_are_all_needed(void **state)
{
    enum { EACH = 64 };
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    CUdeviceptr address = scene_allocate(0);
    for (int i = 0; i < EACH; i++) {
        work(slot);
        (void)scene_freed(slot);
        (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    }
    scene_free(address, SG_FREE_SYNC_EVENT);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    unsigned made = scene.made;
    assert_int_equal(made, EACH); /* the one over the context, which is of no other streams, was among them */
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.made, made + 1);
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* What is left out when the core ends is destroyed, whatever the driver says of it. */
static void end_after_a_wait_that_failed(void **state)
{
    (void)state;
    struct sg_conf conf;
    strict_reset(1, 64 << 20, 2 << 20);
    sg_conf_init(&conf);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver});
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_EVENT};
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(core, 0, 3 << 20, &tag, &address), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    (void)sg_device_ask(core->device[0], SG_ASK_FENCE);
    assert_int_equal(core->device[0]->fences.count, 1);
    strict_fail_at(1, true, CUDA_ERROR_DEINITIALIZED);
    sg_core_destroy(core);
    strict_fail_at(0, false, CUDA_SUCCESS);
    strict_expect_kept();
}

/* Captures, during which nothing is recorded or waited for. */

static void nothing_is_recorded_in_captures(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    CUdeviceptr address = scene_allocate(0), own = scene_allocate(slot);
    work(slot);
    scene_free(address, SG_FREE_SYNC_EVENT);
    scene_free(own, SG_FREE_SYNC_STREAM);
    scene.capturing = true;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    sg_core_slot_gone(scene.core, 0, slot);
    assert_int_equal(scene.recorded, 0);
    scene.capturing = false;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_not_equal(scene.recorded, 0);
}

/* An event from before it may be waited for, and a trim has the memory. What is freed in it has none, so it stays. */
static void captures_wait_for_what_was_recorded_before(void **state)
{
    (void)state;
    CUdeviceptr before = scene_allocate(0), within = scene_allocate(0);
    scene_free(before, SG_FREE_SYNC_EVENT);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    unsigned recorded = scene.recorded;
    scene.capturing = true;
    scene_free(within, SG_FREE_SYNC_EVENT);
    uint64_t pending = scene_pending_bytes();
    sg_device_drain(scene.device);
    assert_int_equal(scene.event_waits, 1);
    assert_int_equal(scene_pending_bytes(), pending / 2);
    assert_int_equal(scene.recorded, recorded);
    sg_device_drain(scene.device);
    assert_int_equal(scene.event_waits, 1);
    scene.capturing = false;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    sg_device_drain(scene.device);
    assert_int_equal(scene.event_waits, 2);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* Contexts that end. */

static void context_that_is_ending_is_not_named(void **state)
{
    (void)state;
    CUcontext context = scene.current = scene_add_context(1, 0);
    sg_slot slot = scene_add_stream(1, 0, context);
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.recorded, 1);
    sg_core_context_ending(scene.core, context, true);
    scene.queried = 0;
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.recorded, 1);
    assert_int_equal(scene.queried, 0);
    (void)sg_device_ask(scene.device, SG_ASK_WAIT); /* for it to end, or to stay */
    assert_int_equal(scene.event_waits, 0);
    sg_core_context_ending(scene.core, context, false);
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.recorded, 2);
    assert_int_not_equal(scene.queried, 0);
}

/* Its handle may be the next one's. */
static void events_of_an_ended_context_are_not_used_again(void **state)
{
    (void)state;
    CUcontext context = scene.current = scene_add_context(1, 0);
    sg_slot slot = scene_add_stream(1, 0, context);
    for (int i = 0; i < 2; i++) {
        work(slot);
        (void)scene_freed(slot);
        (void)sg_device_ask(scene.device, SG_ASK_FENCE);
        strict_complete(UINT32_MAX);
        (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    }
    assert_int_equal(scene.made, 1);
    sg_core_context_gone(scene.core, 0, context);
    (void)strict_driver.event_destroy(scene.latest);
    (void)scene_add_context(1, 0);
    slot = scene_add_stream(2, 0, context);
    work(slot);
    (void)scene_freed(slot);
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(scene.made, 2);
}

/* An event goes after the work of a stream that ends. */
static void stream_that_goes_leaves_an_event(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    work(slot);
    sg_core_slot_gone(scene.core, 0, slot);
    assert_int_equal(scene.recorded, 1);
    assert_int_equal(scene.device->clocks.state[slot], SG_SLOT_GONE);
    strict_complete(1);
    (void)sg_device_ask(scene.device, SG_ASK_QUERY);
    assert_int_equal(scene.device->clocks.state[slot], SG_SLOT_UNUSED);
}

#define TEST(name, start) cmocka_unit_test_setup_teardown(name, start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wait_tells_nothing_of_work_meanwhile, scene_start_on_older_driver),
        TEST(wait_tells_nothing_of_other_contexts, scene_start_on_older_driver),
        TEST(pending_free_keeps_its_event, scene_start),
        TEST(stream_that_takes_no_event_is_covered_by_its_context, scene_start),
        TEST(legacy_stream_takes_no_event_before_it_is_used, scene_start),
        TEST(unused_legacy_stream_is_in_nobody_s_way, scene_start),
        TEST(event_over_a_context_covers_its_streams_alone, scene_start),
        TEST(events_are_of_the_streams_context, scene_start),
        TEST(streams_with_many_events_leave_those_of_others, scene_start),
        TEST(room_for_one_more_event, scene_start),
        TEST(event_that_could_not_be_recorded_again, scene_start),
        TEST(event_that_was_not_recorded_shows_nothing, scene_start),
        TEST(failed_query_shows_nothing, scene_start),
        TEST(wait_that_fails_tells_nothing, scene_start),
        TEST(wait_for_a_context_that_fails_tells_nothing, scene_start_on_older_driver),
        TEST(context_that_cannot_be_entered, scene_start),
        TEST(context_that_ends_during_the_wait, scene_start),
        TEST(events_that_are_all_needed, scene_start),
        cmocka_unit_test(end_after_a_wait_that_failed),
        TEST(nothing_is_recorded_in_captures, scene_start),
        TEST(captures_wait_for_what_was_recorded_before, scene_start),
        TEST(context_that_is_ending_is_not_named, scene_start),
        TEST(events_of_an_ended_context_are_not_used_again, scene_start),
        TEST(stream_that_goes_leaves_an_event, scene_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
