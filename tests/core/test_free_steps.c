/* Frees that are a step of a stream, of blocks that were allocated for no stream that is known, or for one that is
   gone: whose the memory is from then on, and what the trace says of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "order_stage.h"
#include "strict_driver.h"

enum { BYTES = 4 << 20 };

static struct segalloc_trace_record told; /* the last FREE */

static void observe(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (record->kind == SEGALLOC_RECORD_FREE)
        told = *record;
}

static int start_to_observe(void **state)
{
    int result = start(state);
    core->observer = (struct sg_event_sink){observe, NULL};
    return result;
}

static CUdeviceptr allocate(sg_slot slot)
{
    const struct sg_tag tag = {.slot = slot};
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(core, 0, BYTES, &tag, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUdeviceptr address, sg_slot slot, bool in_order)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_STREAM, .slot = slot, .in_order = in_order};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static bool is_later(void)
{
    return told.flags & SEGALLOC_FLAG_PENDING;
}

static void block_is_the_streams_whose_step_it_is(void **state)
{
    (void)state;
    CUdeviceptr address = allocate(0);
    work(own);
    release(address, own, true);
    assert_false(is_later());
    assert_int_equal(told.stream, sg_device_slot_stream(device, own));
    assert_int_not_equal(allocate(other), address); /* that stream has not come after it */
    assert_int_equal(allocate(own), address);
}

static void free_that_is_no_step_waits_for_all(void **state)
{
    (void)state;
    CUdeviceptr address = allocate(0);
    work(own);
    release(address, own, false);
    assert_true(is_later());
    assert_int_equal(told.stream, sg_device_unknown_stream(device));
    assert_int_not_equal(allocate(own), address);
}

/* There was no slot left for the stream. */
static void step_of_a_stream_that_is_not_followed(void **state)
{
    (void)state;
    CUdeviceptr address = allocate(0);
    release(address, 0, true);
    assert_true(is_later());
    assert_int_equal(told.stream, sg_device_unknown_stream(device));
}

/* A stream's own blocks stay its own, whoever's step the free is. */
static void block_of_a_stream_is_freed_in_its_order(void **state)
{
    (void)state;
    CUdeviceptr address = allocate(own);
    work(own);
    release(address, other, true);
    assert_false(is_later());
    assert_int_equal(told.stream, sg_device_slot_stream(device, own));
}

/* The stream that it was allocated for is gone, and its slot another's. */
static CUdeviceptr leave_behind(void)
{
    CUdeviceptr address = allocate(own);
    sg_core_slot_gone(core, 0, own);
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(device, SG_ASK_QUERY);
    assert_int_equal(device->clocks.state[own], SG_SLOT_UNUSED);
    assert_int_equal(add_stream(9, 0, false), own);
    return address;
}

static void block_that_was_left_behind(void **state)
{
    (void)state;
    CUdeviceptr address = leave_behind();
    work(other);
    release(address, other, true);
    assert_false(is_later());
    assert_int_equal(told.stream, sg_device_slot_stream(device, other));
    assert_int_not_equal(allocate(own), address);
    assert_int_equal(allocate(other), address);
}

static void block_that_was_left_behind_by_nobodys_step(void **state)
{
    (void)state;
    release(leave_behind(), other, false);
    assert_true(is_later());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_to_observe, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(block_is_the_streams_whose_step_it_is), TEST(free_that_is_no_step_waits_for_all),
        TEST(step_of_a_stream_that_is_not_followed), TEST(block_of_a_stream_is_freed_in_its_order),
        TEST(block_that_was_left_behind), TEST(block_that_was_left_behind_by_nobodys_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
