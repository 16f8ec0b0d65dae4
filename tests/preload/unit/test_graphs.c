/* Blocks of graphs: each is kept until its graph, the clones and the executables are gone. */
#include "graphs_fakes.h"

static void is_kept_until_its_graph_is_gone(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr first = allocate(1), second = allocate(1);
    assert_int_equal(release(first, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(first, 1), SG_GRAPHS_RETAINED_BEFORE);
    assert_int_equal(freed(first), 0);
    destroy(graph);
    assert_int_equal(freed(first), 1);
    assert_true(fake.request.was_deferred && fake.request.is_complete && fake.request.stream == stream(1));
    assert_int_equal(freed(second), 0); /* that is the program's to free */
    assert_int_equal(release(second, 1), SG_GRAPHS_FREE);
    assert_int_equal(freed(first), 1);
}

static void others_graphs_are_not_its_own(void **state)
{
    (void)state;
    unsigned long long first = capture(1), second = capture(2);
    CUdeviceptr ones = allocate(1), others = allocate(2);
    assert_int_equal(release(ones, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    destroy(second);
    assert_int_equal(freed(ones), 0);
    assert_int_equal(freed(others), 1);
    destroy(first);
    assert_int_equal(freed(ones), 1);
}

static void is_kept_for_each_of_several_graphs(void **state)
{
    (void)state;
    unsigned long long first = capture(1), second = capture(2);
    CUdeviceptr block = allocate(1);
    assert_true(sg_graphs_adopt(core, stream(2), block, false));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(block), 0);
    destroy(second);
    assert_int_equal(freed(block), 1);
}

/* Which they are is not known any more. */
static void is_kept_for_ever_for_very_many_graphs(void **state)
{
    enum { MANY = 8 };
    (void)state;
    unsigned long long graph[MANY] = {capture(1)};
    CUdeviceptr block = allocate(1);
    for (int i = 1; i < MANY; i++) {
        graph[i] = capture(i + 1);
        CUdeviceptr own = allocate(i + 1);
        assert_true(sg_graphs_adopt(core, stream(i + 1), block, false));
        assert_int_equal(release(own, i + 1), SG_GRAPHS_RETAINED);
    }
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    for (int i = 0; i < MANY; i++)
        destroy(graph[i]);
    assert_int_equal(freed(block), 0);
}

/* A graph whose memory the driver has freed is still there, and its end is nobody else's. */
static void graph_without_memory_is_no_other(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(sg_graphs_retain(block, NULL, true), SG_GRAPHS_FREE);
    assert_false(sg_graphs_retain_any());
    unsigned long long second = capture(2);
    CUdeviceptr others = allocate(2);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(others), 0);
    destroy(second);
    assert_int_equal(freed(others), 1);
}

/* Nothing has been settled since. */
static void graph_that_is_gone_is_no_other(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    (void)capture(2);
    CUdeviceptr others = allocate(2);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    assert_int_equal(freed(block), 1);
    assert_int_equal(freed(others), 0);
}

static void is_not_kept_where_nothing_tells_of_the_end(void **state)
{
    (void)state;
    const CUdeviceptr block = 3 * 4096;
    assert_false(sg_graphs_adopt(core, stream(1), block, true)); /* no capture */
    (void)capture(1);
    fake.retain = CUDA_ERROR_INVALID_VALUE;
    assert_false(sg_graphs_adopt(core, stream(1), block, true));
    assert_false(sg_graphs_retain_any());
}

static void ended_context_takes_its_blocks_along(void **state)
{
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    const CUdeviceptr others = block + 4096;
    assert_true(sg_graphs_adopt(core, stream(1), others, true));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_context_gone(context);
    assert_int_equal(release(block, 1), SG_GRAPHS_FREE);
    assert_int_equal(release(others, 1), SG_GRAPHS_RETAINED);
}

/* Without a call that it takes, in no capture, or in one that is ruined, a block is as any other. */
static void is_not_kept_where_the_driver_cannot_tell(void **state)
{
    (void)state;
    (void)capture(1);
    for (fake.lacks = 1; fake.lacks <= 4; fake.lacks++)
        assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.lacks = 0;
    fake.info = CUDA_ERROR_INVALID_HANDLE;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.info = CUDA_SUCCESS;
    fake.invalidated = true;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.invalidated = false;
    assert_false(sg_graphs_adopt(core, stream(2), 4096, true));
    fake.create = CUDA_ERROR_OUT_OF_MEMORY; /* nothing to retain */
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    assert_int_equal(release(4096, 1), SG_GRAPHS_FREE);
    assert_false(sg_graphs_retain_any());
}

/* A block that another graph has stays that one's where this one can't be told of. */
static void is_kept_for_the_graph_that_has_it(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    (void)capture(2);
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    assert_false(sg_graphs_adopt(core, stream(2), block, false));
    fake.create = CUDA_SUCCESS;
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(block), 1);
}

/* The driver's own memory is kept for graphs too, as the current context's, and goes back to the driver. */
static void memory_of_the_driver_s_goes_back_to_it(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    fake.block = CUDA_ERROR_NOT_FOUND;
    fake.theirs = true;
    fake.current = CUDA_ERROR_DEINITIALIZED;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, false));
    fake.current = CUDA_SUCCESS;
    assert_true(sg_graphs_adopt(core, stream(1), 4096, false));
    assert_int_equal(release(4096, 1), SG_GRAPHS_RETAINED);
    destroy(graph);
    assert_int_equal(freed(4096), 0);
    assert_int_equal(fake.driver_s_frees, 1);
}

/* More at once than are taken in one go. */
static void many_blocks_go_with_their_graph(void **state)
{
    enum { MANY = 200 };
    CUdeviceptr block[MANY];
    (void)state;
    unsigned long long graph = capture(1);
    for (int i = 0; i < MANY; i++) {
        block[i] = allocate(1);
        if (i % 3) /* the others are live, and no graph's any more */
            assert_int_equal(release(block[i], 1), SG_GRAPHS_RETAINED);
    }
    destroy(graph);
    sg_graphs_run_deferred(core);
    assert_int_equal(fake.frees, MANY - (MANY + 2) / 3);
    assert_false(sg_graphs_retain_any());
    for (int i = 0; i < MANY; i++)
        assert_int_equal(freed(block[i]), i % 3 != 0);
}

/* However many graphs there have been, one after another. */
static void places_are_used_again(void **state)
{
    enum { MANY = 10000 };
    (void)state;
    for (int i = 0; i < MANY; i++) {
        unsigned long long graph = capture(1);
        CUdeviceptr block = allocate(1);
        assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
        destroy(graph);
        fake.objects = 0;
        assert_int_equal(freed(block), 1);
        fake.frees = 0;
        if (i == 0)
            fake.maps = 0;
    }
    assert_int_equal(fake.maps, 0);
}

static int asked_by;      /* the object by which call_destructors() is asked; set before its thread */
static unsigned after_us; /* that it begins after that */

/* The driver calls the destructors that are left, once it was asked and after a while. */
static void *call_destructors(void *graph)
{
    while (fake.objects < asked_by)
        usleep(1000);
    usleep(after_us);
    destroy(*(unsigned long long *)graph);
    fake.object[fake.objects - 1].destroyed(fake.object[fake.objects - 1].hold);
    return NULL;
}

static void driver_is_waited_for_to_tell(void **state)
{
    pthread_t thread;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_false(sg_graphs_retain_freed());
    sg_graphs_await_destroyed(false); /* nothing is freed: nothing is asked */
    assert_int_equal(fake.objects, 1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_true(sg_graphs_retain_freed());
    sg_graphs_await_destroyed(false);
    assert_int_equal(fake.objects, 2);
    assert_int_equal(freed(block), 0); /* its graph lives on */
    fake.later = true;
    asked_by = 3;
    after_us = 0;
    assert_int_equal(pthread_create(&thread, NULL, call_destructors, &graph), 0);
    sg_graphs_await_destroyed(false);
    assert_int_equal(fake.objects, 3);
    assert_int_equal(freed(block), 1);
    pthread_join(thread, NULL);
    assert_false(sg_graphs_retain_freed());
}

/* One graph is asked about, that of the block which the program is about to free. */
static void driver_is_waited_for_to_tell_of_a_block(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1), other = block + 8192;
    sg_graphs_await_destroyed_of(other);
    assert_int_equal(fake.objects, 1);
    sg_graphs_await_destroyed_of(block);
    assert_int_equal(fake.objects, 2);
    destroy(graph);
    assert_int_equal(release(block, 1), SG_GRAPHS_FREE);
}

/* Who was held up once, by a destructor of the program's, keeps nobody else waiting until it goes on. */
static void driver_that_is_held_up_is_not_waited_for_again(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    fake.later = true;
    sg_graphs_await_destroyed(false);
    const struct object held_up = fake.object[1];
    for (int i = 0; i < 3; i++)
        sg_graphs_await_destroyed(false);
    assert_int_equal(fake.objects, 2);
    held_up.destroyed(held_up.hold);
    fake.later = false;
    sg_graphs_await_destroyed(false);
    assert_int_equal(fake.objects, 3);
    destroy(graph);
    assert_int_equal(freed(block), 1);
}

/* A caller that was refused memory waits as long as an allocation may, though others have waited for a moment in vain. The next
   one does not. */
static void driver_that_is_held_up_is_waited_for_where_memory_was_refused(void **state)
{
    pthread_t thread;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    fake.later = true;
    sg_graphs_await_destroyed(false);
    for (int i = 0; i < 3; i++)
        sg_graphs_await_destroyed(true); /* 2 s, the least; the others none */
    assert_int_equal(fake.objects, 3);
    fake.object[2].destroyed(fake.object[2].hold);
    fake.conf.wait_limit = 60;
    asked_by = 4;
    after_us = 2100000;
    assert_int_equal(pthread_create(&thread, NULL, call_destructors, &graph), 0);
    sg_graphs_await_destroyed(true);
    assert_int_equal(fake.objects, 4);
    assert_int_equal(freed(block), 1);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(is_kept_until_its_graph_is_gone),
        TEST(others_graphs_are_not_its_own),
        TEST(is_kept_for_each_of_several_graphs),
        TEST(is_kept_for_ever_for_very_many_graphs),
        TEST(graph_without_memory_is_no_other),
        TEST(graph_that_is_gone_is_no_other),
        TEST(is_not_kept_where_nothing_tells_of_the_end),
        TEST(ended_context_takes_its_blocks_along),
        TEST(is_not_kept_where_the_driver_cannot_tell),
        TEST(is_kept_for_the_graph_that_has_it),
        TEST(memory_of_the_driver_s_goes_back_to_it),
        TEST(places_are_used_again),
        TEST(many_blocks_go_with_their_graph),
        TEST(driver_is_waited_for_to_tell),
        TEST(driver_is_waited_for_to_tell_of_a_block),
        TEST(driver_that_is_held_up_is_not_waited_for_again),
        TEST(driver_that_is_held_up_is_waited_for_where_memory_was_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
