/* What random programs have found, each as it was printed once it was shrunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "books.h"
#include "program.h"

static void play_all(const struct fuzz_setup *setup, const struct fuzz_op *ops, size_t count)
{
    const struct fuzz_program program = {*setup, ops, (uint32_t)count};
    struct fuzz_outcome outcome, again;
    fuzz_play(&program, &outcome);
    if (outcome.broken[0])
        fail_msg("operation %u: %s", outcome.at, outcome.broken);
    fuzz_play(&program, &again);
    assert_int_equal(outcome.digest, again.digest);
}

/* The limit was lowered below what is held: a plan gave back no more than its place needs, which is not enough then. */
static void test_limit_below_what_is_held(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(4194304)},
        {FUZZ_LIMIT, .bytes = UINT64_C(4155781)},
        {FUZZ_FREE, .block = 0},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(2097152)},
    };
    static const struct fuzz_setup setup = {
        .conf = "", .total = UINT64_C(10485760), .granularity = 2097152, .devices = 1, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* A destroyed stream whose work counts as complete beyond its end kept its slot for good. */
static void test_slot_of_who_stood_still(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_STREAM_NEW, .stream = 1},
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(2097152)},
        {FUZZ_STREAM_NEW, .stream = 2},
        {FUZZ_ALLOCATE, .stream = 1, .block = 1, .bytes = UINT64_C(67108864)},
        {FUZZ_FREE, .block = 0},
        {FUZZ_ALLOCATE, .stream = FUZZ_STREAMS, .block = 2, .bytes = UINT64_C(67108864)},
        {FUZZ_STREAM_GONE, .stream = 1},
        {FUZZ_ALLOCATE, .stream = 2, .flags = FUZZ_WORKS, .block = 3, .bytes = UINT64_C(2097152)},
        {FUZZ_FREE, .block = 1},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(1182793728), .granularity = 8388608,
        .devices = 1, .check_every = 1, .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* Where no event can be recorded over a context, and others than the one that is waited for may be using what is
   pending, an allocation waited for ever. */
static void test_pending_of_several_contexts(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .stream = 0, .block = 0, .bytes = UINT64_C(8388608), .flags = FUZZ_WORKS},
        {FUZZ_ALLOCATE, .stream = 1, .block = 1, .bytes = UINT64_C(8388608), .flags = FUZZ_WORKS},
        {FUZZ_FAULT, .other = BOOKS_ctx_record_event, .flags = FUZZ_FOR_EVER},
        {FUZZ_FAULT, .other = BOOKS_event_record, .flags = FUZZ_FOR_EVER},
        {FUZZ_FREE, .other = FUZZ_FREE_EVENT, .block = 0},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 1},
        {FUZZ_ALLOCATE, .stream = 0, .block = 2, .bytes = UINT64_C(16777216)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(20971520), .granularity = 2097152,
        .devices = 1, .contexts = 2, .streams = 2, .context_of = {0, 1}, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* The same where one context's event can be recorded again and again, and another's never: it tells of nothing new. */
static void test_event_in_one_of_two_contexts(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(71303168)},
        {FUZZ_FAULT, .other = BOOKS_release},
        {FUZZ_FREE, .block = 0},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(2097152)},
        {FUZZ_FAULT, .other = BOOKS_ctx_push, .flags = FUZZ_FOR_EVER},
        {FUZZ_FREE, .other = FUZZ_FREE_EVENT, .block = 1},
        {FUZZ_ALLOCATE, .block = 2, .bytes = UINT64_C(67108864)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(79691776), .granularity = 2097152,
        .devices = 1, .contexts = 3, .streams = 4, .context_of = {[3] = 1}, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* Of what is held beyond a lowered limit not all went back that was complete: what waits for several streams was not
   looked at before. */
static void test_small_block_below_a_lowered_limit(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .stream = 1, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(33554432)},
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 1, .bytes = UINT64_C(2608640)},
        {FUZZ_ALLOCATE, .stream = 1, .block = 2, .bytes = UINT64_C(2097152)},
        {FUZZ_LIMIT, .bytes = UINT64_C(18851449)},
        {FUZZ_FREE, .block = 2},
        {FUZZ_FREE, .block = 0},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(65536)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(42991616), .granularity = 524288,
        .devices = 1, .streams = 2, .check_every = 1, .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* What an abandoned place had joined became its stream's in a region in which nothing had an owner: others would not
   have found it, nor noticed what it comes after. */
static void test_abandoned_place_has_an_owner(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_FAULT, .other = BOOKS_create, .bytes = UINT64_C(2)},
        {FUZZ_ALLOCATE, .stream = FUZZ_STREAMS, .block = 0, .bytes = UINT64_C(2096640)},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(6291456)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(35651584), .granularity = 2097152,
        .devices = 1, .streams = 1, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* A stream that the core had made wait counted as one whose order the program tells of: who had come after others
   unseen was overlooked when their blocks were freed. */
static void test_made_to_wait_and_unheard(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(2097152)},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(37748736)},
        {FUZZ_FREE, .block = 1},
        {FUZZ_ALLOCATE, .stream = 2, .block = 2, .bytes = UINT64_C(39845888)},
        {FUZZ_FREE, .block = 2},
        {FUZZ_ALLOCATE, .stream = 5, .flags = FUZZ_WORKS, .block = 3, .bytes = UINT64_C(2097152)},
        {FUZZ_ALLOCATE, .stream = 5, .block = 4, .bytes = UINT64_C(12582912)},
        {FUZZ_USE, .stream = 2, .flags = FUZZ_WORKS | FUZZ_WAITS | FUZZ_WAITED_FOR, .block = 4},
        {FUZZ_FREE, .block = 4},
        {FUZZ_ALLOCATE, .block = 5, .bytes = UINT64_C(27262976)},
        {FUZZ_ALLOCATE, .stream = 7, .block = 6, .bytes = UINT64_C(16777216)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(52428800), .granularity = 2097152,
        .devices = 1, .streams = 7, .check_every = 1, .nature = {[2] = FUZZ_UNHEARD}, .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* What was given up for a place was more than it needed, and what was still wanted went below 0: pages without end were
   taken, for which the place has no handles. */
static void test_more_given_up_than_is_wanted(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(6331415293)},
        {FUZZ_FREE, .block = 0},
        {FUZZ_CONTEXT_SYNC, .other = 0},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(5638543650)},
        {FUZZ_FREE, .block = 1},
        {FUZZ_ALLOCATE, .block = 2, .bytes = UINT64_C(1978588032)},
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 3, .bytes = UINT64_C(1263691467)},
        {FUZZ_FREE, .block = 2},
        {FUZZ_ALLOCATE, .block = 4, .bytes = UINT64_C(3522366811)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(12477005824), .granularity = 2097152,
        .devices = 1, .streams = 1, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* A page that is pinned ahead of its memory, and then is at the border of a block that borrows a part of another page,
   is at an old address: the count of pinned pages of its region said otherwise. */
static void test_pinned_before_it_is_borrowed(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .stream = 4, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(1048576)},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(134217728)},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 1},
        {FUZZ_ALLOCATE, .block = 2, .bytes = UINT64_C(2097152)},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(73400320)},
        {FUZZ_ALLOCATE, .block = 4, .bytes = UINT64_C(103809024)},
        {FUZZ_ALLOCATE, .block = 5, .bytes = UINT64_C(72744960)},
        {FUZZ_ALLOCATE, .block = 6, .bytes = UINT64_C(71303168)},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 6},
        {FUZZ_ALLOCATE, .block = 7, .bytes = UINT64_C(14680064)},
        {FUZZ_ALLOCATE, .block = 8, .bytes = UINT64_C(4194304)},
        {FUZZ_ALLOCATE, .block = 9, .bytes = UINT64_C(8388608)},
        {FUZZ_ALLOCATE, .block = 10, .bytes = UINT64_C(20971520)},
        {FUZZ_ALLOCATE, .block = 11, .bytes = UINT64_C(23068672)},
        {FUZZ_PIN, .block = 11, .bytes = UINT64_C(29137096)},
        {FUZZ_ALLOCATE, .block = 12, .bytes = UINT64_C(2162688)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(327155712), .granularity = 2097152,
        .devices = 1, .streams = 5, .check_every = 1, .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* The place began in part of a free page, which could not be given up for it then, and was one page too many once the
   driver had refused: with that page whole there were enough. */
static void test_place_in_the_way_of_a_page(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(196608)},
        {FUZZ_OUTSIDE, .block = 0, .bytes = UINT64_C(623132)},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 0},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(655360)},
        {FUZZ_ALLOCATE, .stream = 1, .block = 2, .bytes = UINT64_C(175104)},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(334336)},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 2},
        {FUZZ_ALLOCATE, .block = 4, .bytes = UINT64_C(524288)},
        {FUZZ_ALLOCATE, .block = 5, .bytes = UINT64_C(196608)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(699218), .granularity = 65536,
        .devices = 1, .streams = 2, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* A stream frees while it is the only one, so that its clock is not read, and then waits for a new one. The new one was
   taken to come after all of it, and was given memory that was in use. */
static void test_work_before_a_clock_was_read(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_CONTEXT_SYNC, .block = 0},
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(65536)},
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 1, .bytes = UINT64_C(2097152)},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 1},
        {FUZZ_STREAM_NEW, .stream = 1, .block = 0},
        {FUZZ_ALLOCATE, .stream = 1, .block = 2, .bytes = UINT64_C(65536)},
        {FUZZ_USE, .flags = FUZZ_WAITS, .block = 2},
        {FUZZ_ALLOCATE, .stream = 1, .block = 3, .bytes = UINT64_C(4194304)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(12582912), .granularity = 2097152,
        .devices = 1, .streams = 1, .check_every = 1};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* The host waits for a stream that may have waited for others unseen, and so may know what those have done: it may have
   shown a block of theirs to anybody. */
static void test_host_that_learns_unseen(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_ALLOCATE, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(67108864)},
        {FUZZ_USE, .stream = 2, .flags = FUZZ_WORKS, .block = 0},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(1048576)},
        {FUZZ_STREAM_SYNC, .stream = 2, .block = 0},
        {FUZZ_STREAM_QUERY, .stream = 1, .block = 0},
        {FUZZ_USE, .stream = 1, .block = 1},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 1},
        {FUZZ_ALLOCATE, .block = 2},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(65536)},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(343932928), .granularity = 4194304,
        .devices = 1, .streams = 3, .check_every = 1, .nature = {FUZZ_PLAIN, FUZZ_PLAIN, FUZZ_OPAQUE},
        .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* The same where the one that may have waited is a thread's own stream, and where a page moves. */
static void test_host_that_learns_by_a_threads_stream(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_STREAM_SYNC, .stream = 1, .block = 0},
        {FUZZ_ALLOCATE, .stream = 7, .flags = FUZZ_WORKS, .block = 0, .bytes = UINT64_C(10485760)},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(2097152)},
        {FUZZ_ALLOCATE, .stream = 7, .block = 2, .bytes = UINT64_C(1048576)},
        {FUZZ_USE, .stream = 5, .flags = FUZZ_WORKS, .block = 0},
        {FUZZ_STREAM_SYNC, .stream = 5, .block = 0},
        {FUZZ_USE, .stream = 1, .block = 2},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 2},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(4194304)},
        {FUZZ_ALLOCATE, .block = 4, .bytes = UINT64_C(23068672)},
    };
    static const struct fuzz_setup setup = {.conf = "garbage_collection_threshold:0.5", .total = UINT64_C(32243712),
        .granularity = 262144, .devices = 1, .streams = 8, .check_every = 1, .nature = {[5] = FUZZ_OWN},
        .sees_possible = true};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

/* A device gave its pages up for fixed segments after eight failures of the driver, and streams it had met before use and
   free blocks of both kinds. The books took all blocks of such a device for blocks of pages. */
static void test_blocks_after_pages_were_given_up(void **state)
{
    static const struct fuzz_op ops[] = {
        {FUZZ_FAULT, .other = BOOKS_set_access, .flags = 64, .block = 0},
        {FUZZ_ALLOCATE, .block = 0, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 1, .bytes = UINT64_C(134217728)},
        {FUZZ_ALLOCATE, .block = 2, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 3, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 4, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 5, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 6, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .block = 7, .bytes = UINT64_C(67108864)},
        {FUZZ_ALLOCATE, .stream = 5, .block = 8, .bytes = UINT64_C(67108864)},
        {FUZZ_USE, .block = 8},
        {FUZZ_FREE, .other = FUZZ_FREE_STREAM, .block = 8},
        {FUZZ_TRIM, .block = 7},
        {FUZZ_ALLOCATE, .stream = 5, .block = 9, .bytes = UINT64_C(67108864)},
        {FUZZ_USE, .block = 9},
        {FUZZ_FREE, .other = FUZZ_FREE_STRICT, .block = 9},
        {FUZZ_TRIM, .block = 7},
    };
    static const struct fuzz_setup setup = {.conf = "", .total = UINT64_C(241172480), .granularity = 2097152,
        .devices = 1, .contexts = 2, .streams = 6, .check_every = 1, .context_of = {[5] = 1}};
    (void)state;
    play_all(&setup, ops, sizeof ops / sizeof *ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_given_up_than_is_wanted),
        cmocka_unit_test(test_limit_below_what_is_held),
        cmocka_unit_test(test_slot_of_who_stood_still),
        cmocka_unit_test(test_pending_of_several_contexts),
        cmocka_unit_test(test_event_in_one_of_two_contexts),
        cmocka_unit_test(test_small_block_below_a_lowered_limit),
        cmocka_unit_test(test_abandoned_place_has_an_owner),
        cmocka_unit_test(test_made_to_wait_and_unheard),
        cmocka_unit_test(test_pinned_before_it_is_borrowed),
        cmocka_unit_test(test_place_in_the_way_of_a_page),
        cmocka_unit_test(test_work_before_a_clock_was_read),
        cmocka_unit_test(test_host_that_learns_unseen),
        cmocka_unit_test(test_host_that_learns_by_a_threads_stream),
        cmocka_unit_test(test_blocks_after_pages_were_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
