/* Whom a free waits for, where nobody says who has used the block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "order_stage.h"
#include "locked.h"

static uint64_t seen(uint64_t alloc_seq)
{
    return LOCKED(device, sg_clocks_possible_users(&device->clocks, own, alloc_seq, 0, SG_USERS_POSSIBLE));
}

/* A block that is allocated now. */
struct birth {
    uint64_t seq;
    uint32_t idle_before;
};

static struct birth allocated(void)
{
    uint64_t seq = LOCKED(device, sg_clocks_tick_locked(device));
    return (struct birth){seq, sg_clocks_idle_before(&device->clocks, own, seq)};
}

static uint64_t seen_since(struct birth birth)
{
    return LOCKED(device,
        sg_clocks_possible_users(&device->clocks, own, birth.seq, birth.idle_before, SG_USERS_POSSIBLE));
}

static void seen_by_who_waited_right_after_the_allocation(void **state)
{
    (void)state;
    (void)record(other); /* in an event call: others are believed to be seen in any case */
    (void)record(third);
    work(other);
    work(third);
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, own); /* its time is that of the allocation */
    assert_int_equal(device->clocks.ordered_after[other].at[own], alloc_seq);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
    assert_int_equal(seen(alloc_seq + 1), 0);
}

static void seen_by_who_was_in_no_event_call(void **state)
{
    (void)state;
    (void)record(third);
    work(other);
    work(third);
    assert_int_equal(seen(LOCKED(device, sg_clocks_tick_locked(device))), sg_slot_bit(other));
}

static void seen_by_who_is_ordered_by_other_means(void **state)
{
    (void)state;
    sg_slot untracked_order = add_stream(4, SG_STREAM_UNTRACKED_ORDER, false), late = add_stream(5, 0, false),
            threads = add_stream(6, 0, /* per_thread */ true), plain = add_stream(7, 0, false);
    sg_core_slot_untracked_order(core, 0, late);
    const sg_slot all[] = {untracked_order, late, threads, plain};
    for (int i = 0; i < 4; i++) {
        (void)record(all[i]);
        work(all[i]);
    }
    assert_int_equal(seen(LOCKED(device, sg_clocks_tick_locked(device))),
        sg_slot_bit(untracked_order) | sg_slot_bit(late) | sg_slot_bit(threads));
}

static void seen_by_each_that_waited(void **state)
{
    (void)state;
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, own);
    wait_for_stream(third, own);
    work(other);
    work(third);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other) | sg_slot_bit(third));
    wait_for_stream(third, other); /* both may be running still */
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other) | sg_slot_bit(third));
}

/* Of two that waited the own stream has come after one. */
static void seen_by_who_was_not_waited_for(void **state)
{
    (void)state;
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, own);
    wait_for_stream(third, own);
    work(other);
    work(third);
    wait_for_stream(own, other);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(third));
}

/* By the legacy stream's rules what a blocking stream comes after the other blocking ones do, and who waits for them. */
static void seen_by_who_came_after_a_blocking_stream(void **state)
{
    (void)state;
    sg_slot blocking = add_stream(4, SG_STREAM_BLOCKING, false), last = add_stream(5, SG_STREAM_BLOCKING, false);
    const sg_slot all[] = {other, third, blocking, last};
    for (int i = 0; i < 4; i++) {
        (void)record(all[i]);
        work(all[i]);
    }
    uint64_t before = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, last);
    work(last);
    assert_int_equal(seen(before), 0);
    wait_for_stream(blocking, own);
    const struct sg_vector_clock passed = record(last);
    assert_int_equal(seen(before), sg_slot_bit(other) | sg_slot_bit(blocking) | sg_slot_bit(last));
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    assert_int_equal(seen(alloc_seq), 0);
    sg_core_slot_untracked_order(core, 0, blocking);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(blocking) | sg_slot_bit(last));
    wait_for_stream(third, last);
    work(last);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(third) | sg_slot_bit(blocking) | sg_slot_bit(last));
    assert_int_equal(seen(before), sg_slot_bit(third) | sg_slot_bit(other) | sg_slot_bit(blocking) | sg_slot_bit(last));
    sg_core_host_observed(core, 0, &passed);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(third) | sg_slot_bit(blocking) | sg_slot_bit(last));
    const struct sg_vector_clock now = record(last);
    sg_core_host_observed(core, 0, &now);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(third) | sg_slot_bit(other) | sg_slot_bit(blocking) |
        sg_slot_bit(last));
}

/* Who came after the destroyed one may have come after the block's own stream by way of it. */
static void seen_by_who_came_after_a_blocking_stream_that_is_gone(void **state)
{
    (void)state;
    sg_slot blocking = add_stream(4, SG_STREAM_BLOCKING, false), last = add_stream(5, SG_STREAM_BLOCKING, false);
    (void)record(other);
    work(other);
    own = blocking;
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    work(last);
    wait_for_stream(other, last);
    work(other);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other) | sg_slot_bit(last));
    sg_core_slot_gone(core, 0, last);
    const struct sg_vector_clock all = record(last);
    complete(&all);
    assert_int_equal(device->clocks.state[last], SG_SLOT_UNUSED);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
    assert_int_equal(seen(LOCKED(device, sg_clocks_tick_locked(device))), 0);
}

/* Once all streams of a context have no work left, so much is complete as they came after, of other contexts too. */
static void context_clock_covers_what_its_streams_are_ordered_after(void **state)
{
    (void)state;
    CUcontext there = (CUcontext)(uintptr_t)2;
    const struct sg_stream_id id = {.key = 4, .context = there};
    sg_slot far = sg_core_slot(core, 0, &id);
    struct sg_vector_clock clock;
    work(own);
    const struct sg_vector_clock before = record(own);
    work(own);
    wait_for(far, &before);
    work(far);
    sg_core_context_clock(core, 0, there, &clock);
    assert_int_equal(clock.at[own], before.at[own]);
    assert_true(clock.at[far] > before.at[own]);
    assert_int_equal(clock.at[other], 0);
}

static void seen_by_all_where_the_own_stream_is_ordered_by_other_means(void **state)
{
    (void)state;
    (void)record(other); /* in an event call, as above */
    work(other);
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    assert_int_equal(seen(alloc_seq), 0);
    sg_core_slot_untracked_order(core, 0, own);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
}

/* What the host has learnt it knows, whatever it learns later. */
static void seen_by_who_the_host_could_tell(void **state)
{
    (void)state;
    (void)record(other);
    const struct sg_vector_clock before = record(own);
    work(other);
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    assert_int_equal(seen(alloc_seq), 0);
    sg_core_host_observed(core, 0, NULL);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
    sg_core_host_observed(core, 0, &before);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
}

static void seen_by_who_is_not_done_with_its_last_work(void **state)
{
    (void)state;
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, own);
    work(other);
    const struct sg_vector_clock first = record(other);
    work(other);
    const struct sg_vector_clock second = record(other);
    complete(&first);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
    complete(&second);
    assert_int_equal(seen(alloc_seq), 0);
}

static void seen_by_who_works_on_after_it_was_waited_for(void **state)
{
    (void)state;
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    wait_for_stream(other, own);
    work(other);
    wait_for_stream(own, other);
    assert_int_equal(seen(alloc_seq), 0);
    work(other);
    assert_int_equal(seen(alloc_seq), sg_slot_bit(other));
}

/* The block's own stream was given nothing between, so what the other does with it comes after all that it did. */
static void seen_by_who_waited_right_before_the_allocation(void **state)
{
    (void)state;
    (void)record(third);
    work(own);
    wait_for_stream(other, own);
    struct birth early = allocated();
    work(own);
    struct birth late = allocated();
    work(other);
    work(third);
    assert_int_equal(late.idle_before, 0);
    assert_int_equal(seen_since(late), 0);
    assert_int_equal(seen_since(early), sg_slot_bit(other));
}

/* Work of the library's own comes in between, which nobody can come after: read by the next allocation's clock, or not yet. */
static void seen_by_who_waited_before_work_of_our_own(void **state)
{
    (void)state;
    (void)record(third);
    work(own);
    wait_for_stream(other, own);
    sg_core_slot_upkeep(core, 0, own);
    struct birth dirty = allocated();
    (void)LOCKED(device, sg_clocks_read(&device->clocks, sg_slot_bit(own)));
    struct birth late = allocated();
    sg_core_slot_upkeep(core, 0, own);
    work(own);
    struct birth given = allocated();
    work(other);
    work(third);
    assert_int_equal(seen_since(dirty), sg_slot_bit(other));
    assert_int_equal(seen_since(late), sg_slot_bit(other));
    assert_int_equal(given.idle_before, 0);
    assert_int_equal(seen_since(given), 0);
}

/* By way of the third one, and whatever the own one was told to wait for meanwhile. */
static void seen_by_who_knows_an_idle_stream(void **state)
{
    (void)state;
    sg_slot last = add_stream(4, 0, false);
    (void)record(last);
    work(own);
    wait_for_stream(third, own);
    wait_for_stream(other, third);
    work(last);
    wait_for_stream(own, last);
    struct birth birth = allocated();
    work(last);
    work(other);
    assert_int_equal(seen_since(birth), sg_slot_bit(other));
}

static void seen_by_none_that_was_given_nothing_since(void **state)
{
    (void)state;
    (void)record(third);
    work(own);
    wait_for_stream(other, own);
    work(other);
    (void)record(other);
    struct birth birth = allocated();
    assert_int_equal(seen_since(birth), 0);
    work(other);
    assert_int_equal(seen_since(birth), sg_slot_bit(other));
    (void)record(other); /* it has the work still */
    assert_int_equal(seen_since(birth), sg_slot_bit(other));
}

static void seen_by_all_where_the_own_stream_was_never_at_work(void **state)
{
    (void)state;
    (void)record(other);
    (void)record(third);
    struct birth birth = allocated();
    work(third);
    assert_int_equal(seen_since(birth), sg_slot_bit(third));
}

/* It may look for what the host shows it. */
static void seen_by_what_runs_where_the_host_had_waited(void **state)
{
    (void)state;
    (void)record(third);
    work(third);
    (void)record(third);
    work(own);
    const struct sg_vector_clock done = record(own);
    complete(&done);
    struct birth birth = allocated();
    assert_int_equal(seen_since(birth), sg_slot_bit(third));
    work(own);
    birth = allocated();
    assert_int_equal(seen_since(birth), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(seen_by_who_waited_right_after_the_allocation),
        TEST(seen_by_who_was_in_no_event_call),
        TEST(seen_by_who_is_ordered_by_other_means),
        TEST(seen_by_each_that_waited),
        TEST(seen_by_who_was_not_waited_for),
        TEST(seen_by_who_came_after_a_blocking_stream),
        TEST(seen_by_who_came_after_a_blocking_stream_that_is_gone),
        TEST(context_clock_covers_what_its_streams_are_ordered_after),
        TEST(seen_by_all_where_the_own_stream_is_ordered_by_other_means),
        TEST(seen_by_who_the_host_could_tell),
        TEST(seen_by_who_is_not_done_with_its_last_work),
        TEST(seen_by_who_works_on_after_it_was_waited_for),
        TEST(seen_by_who_waited_right_before_the_allocation),
        TEST(seen_by_who_waited_before_work_of_our_own),
        TEST(seen_by_who_knows_an_idle_stream),
        TEST(seen_by_none_that_was_given_nothing_since),
        TEST(seen_by_all_where_the_own_stream_was_never_at_work),
        TEST(seen_by_what_runs_where_the_host_had_waited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
