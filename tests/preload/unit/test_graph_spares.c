/* Spares: what a captured stream has freed it gets again in the same capture, and nobody else does. */
#include "graphs_fakes.h"

/* Blocks that a capture gets again. */

static bool again(int number, size_t bytes, CUdeviceptr *ret)
{
    return sg_graphs_reuse(stream(number), bytes, ret);
}

static void stream_has_again_what_it_freed(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    sg_graphs_add_spare(stream(1), block); /* it is not free */
    assert_false(again(1, 4096, &found));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(again(1, 4097, &found));
    assert_false(again(1, 3584, &found));
    assert_true(again(1, 3585, &found));
    assert_int_equal(found, block);
    assert_false(again(1, 4096, &found)); /* once */
    destroy(graph);
    assert_int_equal(freed(block), 0); /* it is live */
}

static void other_captures_have_none_of_it(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    fake.capture[2] = graph; /* another stream of the same */
    assert_false(again(2, 4096, &found));
    (void)capture(1);
    assert_false(again(1, 4096, &found));
    fake.capture[1] = 0;
    assert_false(again(1, 4096, &found));
    sg_graphs_forget_spares();
    fake.capture[1] = graph;
    assert_false(again(1, 4096, &found));
}

static void others_blocks_are_no_spares(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    fake.capture[2] = graph;
    CUdeviceptr others = allocate(2), shared = allocate(1), joined = allocate(1), outside = allocate(1) + 4096;
    (void)capture(3);
    assert_true(sg_graphs_adopt(core, stream(3), shared, false));
    assert_true(sg_graphs_adopt(core, stream(1), outside, false)); /* it was allocated before */
    const CUdeviceptr all[] = {others, shared, outside, joined};
    for (int i = 0; i < 4; i++) {
        fake.forked = all[i] == joined;
        assert_int_equal(release(all[i], 1), SG_GRAPHS_RETAINED);
        sg_graphs_add_spare(stream(1), all[i]);
        assert_false(again(1, 4096, &found));
    }
}

static void freed_by_the_driver_it_is_no_spare(void **state)
{
    CUdeviceptr found;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_int_equal(sg_graphs_retain(block, NULL, true), SG_GRAPHS_FREE);
    assert_false(again(1, 4096, &found));
}

/* Before any table is made there is no block. Nothing else may have made one: the first of these tests. */
static void no_block_is_a_spare_before_there_is_one(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    sg_graphs_add_spare(stream(1), 4096);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_run_deferred(core);
    sg_graphs_context_gone(context);
    assert_false(sg_graphs_retain_any());
}

/* It has gone with its context, or been given again already. */
static void what_has_gone_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1), other = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(other, 1), SG_GRAPHS_RETAINED);
    for (int i = 0; i < 2; i++) /* it is noted twice */
        sg_graphs_add_spare(stream(1), block);
    assert_true(sg_graphs_reuse(stream(1), 4096, &again));
    assert_int_equal(again, block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_add_spare(stream(1), other);
    sg_graphs_context_gone(context);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* Whichever graph's it is: of one that has it alone and for ever nobody knows which. */
static void what_is_kept_for_ever_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    for (int i = 2; i < 7; i++) {
        (void)capture(i);
        assert_true(sg_graphs_adopt(core, stream(i), block, false));
    }
    for (int i = 2; i < 7; i++)
        if (fake.object[i - 1].graph)
            destroy(fake.capture[i]);
    assert_int_equal(freed(block), 0);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    destroy(first);
    assert_int_equal(freed(block), 0);
}

/* A block of several graphs, or one that is not free, is no spare of one. */
static void block_of_two_graphs_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    (void)capture(2);
    CUdeviceptr block = allocate(1);
    sg_graphs_add_spare(stream(1), block); /* not freed */
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    assert_true(sg_graphs_adopt(core, stream(2), block, false));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_add_spare(stream(3), block);   /* in no capture */
    sg_graphs_add_spare(stream(1), 1 << 30); /* no block */
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* The capture that freed it has ended, and the next one of the stream is another graph. */
static void block_of_the_last_graph_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    (void)capture(1);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* A spare that is handed out again is nobody's freed block. */
static void spare_in_use_waits_for_nothing(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_true(sg_graphs_reuse(stream(1), 4096, &again));
    assert_false(sg_graphs_retain_freed());
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_true(sg_graphs_retain_freed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_block_is_a_spare_before_there_is_one),
        TEST(stream_has_again_what_it_freed),
        TEST(other_captures_have_none_of_it),
        TEST(others_blocks_are_no_spares),
        TEST(freed_by_the_driver_it_is_no_spare),
        TEST(block_of_two_graphs_is_no_spare),
        TEST(block_of_the_last_graph_is_no_spare),
        TEST(what_has_gone_is_no_spare),
        TEST(what_is_kept_for_ever_is_no_spare),
        TEST(spare_in_use_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
