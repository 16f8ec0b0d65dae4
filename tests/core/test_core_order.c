/* What is known about the order of streams, rule by rule, as it is seen by who may use memory after a free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect.h"
#include "order_stage.h"
#include "locked.h"

/* Work and events. */

static void comes_after_work_before_an_event(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    struct sg_after after = freed(0, false);
    assert_true(is_usable(after, other));
    assert_false(is_usable(after, third));
}

static void comes_not_after_work_since_an_event(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(own);
    assert_false(is_usable(freed(0, false), other));
}

/* Nothing else happens between the event and the free that would take time. */
static void waits_later_for_an_event_before_the_work(void **state)
{
    (void)state;
    work(own);
    const struct sg_vector_clock before = record(own);
    work(own);
    struct sg_after after = freed(0, false);
    wait_for(other, &before);
    assert_false(is_usable(after, other));
}

static void comes_not_after_work_that_is_not_seen(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    assert_false(is_usable(freed(0, /* unseen */ true), other));
}

static void comes_not_after_what_a_stream_waits_for_later(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(third);
    wait_for_stream(own, third);
    assert_false(is_usable(freed(0, false), other));
}

static void comes_after_what_both_wait_for(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(third);
    const struct sg_vector_clock both = record(third);
    wait_for(other, &both);
    wait_for(own, &both);
    assert_true(is_usable(freed(0, false), other));
}

/* The legacy stream was given nothing between its events, but the second comes after what the blocking stream did
   meanwhile, and `other` waits for the first. */
static void comes_not_after_what_the_legacy_stream_waits_for_unseen(void **state)
{
    (void)state;
    sg_slot legacy = add_stream(4, SG_STREAM_LEGACY, false), blocking = add_stream(5, SG_STREAM_BLOCKING, false);
    work(own);
    wait_for_stream(other, own);
    const struct sg_vector_clock first = record(legacy);
    work(blocking);
    const struct sg_vector_clock second = record(legacy);
    wait_for(other, &first);
    wait_for(own, &second);
    assert_false(is_usable(freed(0, false), other));
}

/* What a blocking stream was given last is no end of its work: it comes after the legacy stream's, which nobody else
   has waited for. */
static void comes_not_after_the_legacy_stream_by_way_of_a_blocking_one(void **state)
{
    (void)state;
    sg_slot legacy = add_stream(4, SG_STREAM_LEGACY, false);
    own = add_stream(5, SG_STREAM_BLOCKING, false);
    work(own);
    wait_for_stream(other, own);
    work(legacy);
    (void)record(legacy);
    work(third);
    const struct sg_vector_clock both = record(third);
    wait_for(other, &both);
    wait_for(own, &both);
    assert_false(is_usable(freed(0, false), other));
}

/* What it has waited for is an earlier event of the same stream. */
static void comes_not_after_a_later_event_that_another_waits_for(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(third);
    const struct sg_vector_clock first = record(third);
    work(third);
    const struct sg_vector_clock second = record(third);
    wait_for(other, &first);
    wait_for(own, &second);
    assert_false(is_usable(freed(0, false), other));
}

/* It may have been given work by means that are not seen. */
static void comes_not_after_who_is_ordered_by_other_means(void **state)
{
    (void)state;
    sg_core_slot_untracked_order(core, 0, own);
    work(own);
    wait_for_stream(other, own);
    assert_false(is_usable(freed(0, false), other));
}

/* A blocking stream's free comes after the legacy stream's work, which may have used the block: that the blocking one
   has nothing left to do tells nothing of it, and no free of another stream makes it do so. */
static void blocking_streams_free_is_after_the_legacy_stream(void **state)
{
    (void)state;
    sg_slot freeing = own, legacy = add_stream(4, SG_STREAM_LEGACY, false);
    own = add_stream(5, SG_STREAM_BLOCKING, false);
    work(own);
    const struct sg_vector_clock done = record(own);
    complete(&done);
    work(legacy);
    struct sg_after after = freed(0, false);
    assert_false(is_usable(after, 0));
    uint64_t blocking = sg_slot_bit(own);
    own = freeing;
    work(own);
    (void)freed(blocking, false);
    assert_false(is_usable(after, 0));
    const struct sg_vector_clock all = record(legacy);
    complete(&all);
}

/* What is complete when a blocking stream is said to have no work left: no more than what the legacy stream of its
   context has done. */
static void idle_blocking_stream_shows_nothing_of_the_legacy_one(void **state)
{
    (void)state;
    CUcontext here = (CUcontext)(uintptr_t)1, there = (CUcontext)(uintptr_t)2;
    const struct sg_stream_id ids[] = {{.key = 4, .context = there, .flags = SG_STREAM_LEGACY},
        {.key = 5, .context = here, .flags = SG_STREAM_LEGACY}, {.key = 6, .context = here, .flags = SG_STREAM_BLOCKING},
        {.key = 7, .context = (CUcontext)(uintptr_t)3, .flags = SG_STREAM_BLOCKING}};
    sg_slot slot[4];
    struct sg_vector_clock clock;
    uint64_t done;
    for (int i = 0; i < 4; i++)
        slot[i] = sg_core_slot(core, 0, &ids[i]);
    sg_core_idle_clock(core, 0, slot[2], &clock, &done);
    assert_int_equal(done, 0); /* what they were given before they were met may still be going on */
    for (int i = 0; i < 2; i++) {
        const struct sg_vector_clock met = record(slot[i]);
        complete(&met);
    }
    work(slot[2]);
    sg_core_idle_clock(core, 0, slot[2], &clock, &done);
    assert_true(done > device->clocks.complete[slot[1]]); /* that one was given nothing since */
    work(slot[1]);
    uint64_t complete_before = device->clocks.complete[slot[1]];
    for (int i = 0; i < 2; i++) {
        work(slot[2]);
        sg_core_idle_clock(core, 0, slot[2], &clock, &done);
        assert_int_equal(done, complete_before);
        assert_true(clock.at[slot[2]] > complete_before); /* what the host may show to others */
        (void)record(slot[1]); /* its clock is read, and the work is there still */
    }
    sg_core_idle_clock(core, 0, slot[3], &clock, &done);
    assert_int_equal(done, 0); /* its legacy stream is not followed */
    const struct sg_vector_clock all = record(slot[1]);
    complete(&all);
    sg_core_idle_clock(core, 0, slot[2], &clock, &done);
    assert_true(done > complete_before);
}

static void event_before_the_work_completes_nothing_after(void **state)
{
    (void)state;
    work(own);
    const struct sg_vector_clock before = record(own);
    work(own);
    struct sg_after after = freed(0, false);
    complete(&before);
    assert_false(is_usable(after, 0));
    assert_false(is_usable(after, other));
}

/* It has come after all that the other waited for, but not after what that one was given before it waited. */
static void comes_not_after_work_before_a_later_wait(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(third);
    const struct sg_vector_clock both = record(third);
    wait_for(other, &both);
    work(own);
    (void)record(own);
    wait_for(own, &both);
    assert_false(is_usable(freed(0, false), other));
}

/* Blocks that several streams have used. */

static void shared_block_is_free_after_its_last_user(void **state)
{
    (void)state;
    work(own);
    wait_for_stream(other, own);
    work(third);
    wait_for_stream(other, third);
    work(third);
    assert_false(is_usable(freed(sg_slot_bit(third), false), other));
}

/* The user does nothing, but what it has done is not complete, and nobody has come after it. */
static void user_that_stands_still_is_not_complete(void **state)
{
    (void)state;
    work(third);
    (void)record(third);
    work(own);
    struct sg_after after = freed(sg_slot_bit(third), false);
    wait_for_stream(other, own);
    assert_false(is_usable(after, other));
    struct sg_vector_clock done = record(own);
    complete(&done);
    assert_false(is_usable(after, 0));
    assert_false(is_usable(after, other));
    wait_for_stream(other, third);
    assert_true(is_usable(after, other));
}

static void shared_block_is_told_of_by_marks_on_all_its_users(void **state)
{
    (void)state;
    work(own);
    work(third);
    struct sg_after after = freed(sg_slot_bit(third), false);
    DO_LOCKED(device, sg_clocks_fenced(&device->clocks, sg_slot_bit(own), after.seq));
    assert_false(sg_after_fenced(&device->clocks, after));
    DO_LOCKED(device, sg_clocks_fenced(&device->clocks, sg_slot_bit(third), after.seq - 1));
    assert_false(sg_after_fenced(&device->clocks, after));
    DO_LOCKED(device, sg_clocks_fenced(&device->clocks, sg_slot_bit(third), after.seq));
    assert_true(sg_after_fenced(&device->clocks, after));
}

/* Streams that go, and those that come in their place. */

static void slot_of_a_gone_stream_is_kept_for_its_work(void **state)
{
    (void)state;
    work(third);
    sg_core_slot_gone(core, 0, third);
    sg_slot next = add_stream(4, 0, false);
    assert_int_not_equal(next, third);
    struct sg_vector_clock all;
    sg_core_context_clock(core, 0, NULL, &all);
    complete(&all);
    assert_int_equal(add_stream(5, 0, false), third);
}

static void new_stream_of_a_slot_is_not_complete(void **state)
{
    (void)state;
    struct sg_vector_clock all;
    sg_core_slot_gone(core, 0, own);
    sg_core_context_clock(core, 0, NULL, &all);
    complete(&all);
    assert_int_equal(add_stream(4, 0, false), own);
    work(own);
    assert_false(is_usable(freed(0, false), other));
}

static void streams_too_many_have_no_slot(void **state)
{
    (void)state;
    for (uint64_t key = 4; key < SG_SLOTS; key++)
        (void)add_stream(key, 0, false);
    const struct sg_stream_id more = {.key = SG_SLOTS}, known = {.key = 1};
    assert_int_equal(sg_core_slot(core, 0, &more), 0);
    assert_int_equal(sg_core_slot(core, 0, &known), own);
}

/* A stream may have been given work before it is met. */
static void stream_that_is_met_is_not_complete(void **state)
{
    (void)state;
    struct sg_vector_clock all;
    sg_core_slot_gone(core, 0, own);
    sg_core_context_clock(core, 0, NULL, &all);
    complete(&all);
    assert_int_equal(add_stream(4, 0, false), own);
    struct sg_after after = freed(0, false);
    assert_false(is_usable(after, 0));
    assert_false(is_usable(after, other));
}

/* The stream before it in its slot waited for work of another context, and ended with its own before that. */
static void new_stream_comes_not_after_what_the_one_before_waited_for(void **state)
{
    (void)state;
    CUcontext here = (CUcontext)(uintptr_t)1, there = (CUcontext)(uintptr_t)2;
    sg_core_context_seen(core, 0, here);
    sg_core_context_seen(core, 0, there);
    const struct sg_stream_id before = {.key = 4, .context = there}, next = {.key = 5, .context = here};
    sg_slot slot = sg_core_slot(core, 0, &before);
    work(own);
    wait_for_stream(slot, own);
    struct sg_after after = freed(0, false);
    assert_true(is_usable(after, slot));
    sg_core_context_gone(core, 0, there);
    assert_int_equal(sg_core_slot(core, 0, &next), slot);
    assert_false(is_usable(after, slot));
}

/* A key is met again while the work of the stream that had it is not complete: that one's slot is not given for it. */
static void key_of_a_stream_that_is_gone(void **state)
{
    (void)state;
    work(own);
    (void)freed(0, false);
    sg_core_slot_gone(core, 0, own);
    assert_int_equal(device->clocks.state[own], SG_SLOT_GONE);
    sg_slot again = add_stream(1, 0, false);
    assert_int_not_equal(again, own);
    assert_int_equal(add_stream(1, 0, false), again);
}

/* That the legacy stream's work is complete beyond what a blocking one was given takes nothing from that. */
static void idle_blocking_stream_beside_a_legacy_one_that_is_ahead(void **state)
{
    (void)state;
    struct sg_vector_clock told;
    uint64_t done;
    sg_slot legacy = add_stream(4, SG_STREAM_LEGACY, false), blocking = add_stream(5, SG_STREAM_BLOCKING, false);
    work(blocking);
    const struct sg_vector_clock ahead = {.at = {[4] = device->clocks.seq + 100}};
    assert_int_equal(legacy, 4);
    complete(&ahead);
    work(legacy);
    sg_core_idle_clock(core, 0, blocking, &told, &done);
    assert_int_equal(done, told.at[blocking]);
}

/* How long a stream has been given nothing is told in 32 bits. */
static void stream_that_was_quiet_for_very_long(void **state)
{
    (void)state;
    work(own);
    (void)record(own);
    uint64_t now = LOCKED(device, sg_clocks_tick_locked(device));
    assert_true(sg_clocks_idle_before(&device->clocks, own, now) < 100);
    assert_int_equal(sg_clocks_idle_before(&device->clocks, own, now + UINT32_MAX), UINT32_MAX);
}

/* As a replay is told of it. */
/* What an event told of, and is complete by the time that it is waited for, is no order that anybody has to know of. */
static void wait_for_what_is_complete_tells_nothing(void **state)
{
    (void)state;
    work(other);
    const struct sg_vector_clock done = record(other);
    complete(&done);
    uint64_t version = device->clocks.version;
    wait_for(own, &done);
    assert_int_equal(device->clocks.ordered_after[own].at[other], 0);
    assert_int_equal(device->clocks.version, version);
}

static void mark_that_is_told_of(void **state)
{
    (void)state;
    apply(core, 0, SEGALLOC_RECORD_MARK, sg_slot_bit(own) | sg_slot_bit(third), 7);
    assert_int_equal(device->clocks.fenced[own], 7);
    assert_int_equal(device->clocks.fenced[other], 0);
    assert_int_equal(device->clocks.fenced[third], 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comes_after_work_before_an_event),
        TEST(comes_not_after_work_since_an_event),
        TEST(waits_later_for_an_event_before_the_work),
        TEST(comes_not_after_work_that_is_not_seen),
        TEST(comes_not_after_what_a_stream_waits_for_later),
        TEST(comes_after_what_both_wait_for),
        TEST(comes_not_after_what_the_legacy_stream_waits_for_unseen),
        TEST(comes_not_after_the_legacy_stream_by_way_of_a_blocking_one),
        TEST(comes_not_after_a_later_event_that_another_waits_for),
        TEST(comes_not_after_who_is_ordered_by_other_means),
        TEST(blocking_streams_free_is_after_the_legacy_stream),
        TEST(idle_blocking_stream_shows_nothing_of_the_legacy_one),
        TEST(event_before_the_work_completes_nothing_after),
        TEST(comes_not_after_work_before_a_later_wait),
        TEST(shared_block_is_free_after_its_last_user),
        TEST(user_that_stands_still_is_not_complete),
        TEST(shared_block_is_told_of_by_marks_on_all_its_users),
        TEST(slot_of_a_gone_stream_is_kept_for_its_work),
        TEST(new_stream_of_a_slot_is_not_complete),
        TEST(streams_too_many_have_no_slot),
        TEST(stream_that_is_met_is_not_complete),
        TEST(new_stream_comes_not_after_what_the_one_before_waited_for),
        TEST(key_of_a_stream_that_is_gone),
        TEST(idle_blocking_stream_beside_a_legacy_one_that_is_ahead),
        TEST(stream_that_was_quiet_for_very_long),
        TEST(wait_for_what_is_complete_tells_nothing),
        TEST(mark_that_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
