/* A slot that is another stream's by the time that an event of ours is recorded: it tells nothing of that one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core.h"
#include "device.h"
#include "strict_driver.h"

static struct sg_core *core;
static struct sg_device *device;
static struct sg_driver driver;
static const CUcontext here = (CUcontext)(uintptr_t)1, there = (CUcontext)(uintptr_t)2;
static sg_slot slot;          /* of the stream that is gone, and then of the next */
static struct sg_after after; /* the next one's work */

static sg_slot add_stream(uint64_t key, CUcontext context)
{
    const struct sg_stream_id id = {
        .key = key, .handle = (CUstream)(uintptr_t)key, .flags = SG_STREAM_UNMARKED, .context = context};
    return sg_core_slot(core, 0, &id);
}

static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = here;
    return CUDA_SUCCESS;
}

static struct sg_after freed(void)
{
    bool worked;
    uint64_t time = sg_order_freed(device, slot, 0, false, &worked);
    sg_order_owe(device, sg_slot_bit(slot));
    return (struct sg_after){sg_slot_bit(slot), time};
}

/* Another thread hears that the old stream's work is complete, and makes a stream that takes the slot. */
static CUresult event_create(CUevent *ret, unsigned flags)
{
    struct sg_clock clock = {{0}};
    clock.at[slot] = device->serial;
    sg_core_completed(core, 0, &clock);
    assert_int_equal(add_stream(2, there), slot);
    sg_core_slot_touched(core, 0, slot);
    after = freed();
    return strict_driver.event_create(ret, flags);
}

static void event_of_a_context_tells_nothing_of_a_slot_that_another_has_taken(void **state)
{
    (void)state;
    slot = add_stream(1, here);
    assert_true(slot);
    sg_core_slot_touched(core, 0, slot);
    (void)freed();
    sg_core_slot_gone(core, 0, slot);
    driver.event_create = event_create;
    sg_device_ask(device, SG_ASK_MARK);
    driver.event_create = strict_driver.event_create;
    assert_int_equal(after.slots, sg_slot_bit(slot));
    strict_complete(UINT32_MAX);
    sg_device_ask(device, SG_ASK_QUERY);
    assert_false(sg_after_complete(&device->order, after));
}

static void last_slot_is_given_to_another(void **state)
{
    uint64_t key = 1;
    sg_slot last = 0, next;
    (void)state;
    while ((next = add_stream(key, here)) != 0) {
        last = next;
        key++;
    }
    assert_int_equal(last, SG_SLOTS - 1);
    sg_core_slot_gone(core, 0, last);
    assert_int_equal(device->order.state[last], SG_SLOT_GONE);
    struct sg_clock clock = {{0}};
    clock.at[last] = device->serial;
    sg_core_completed(core, 0, &clock);
    assert_int_equal(add_stream(key, here), last);
}

static int start(void **state)
{
    struct sg_conf conf;
    (void)state;
    strict_reset(1, 512 << 20, 2 << 20);
    sg_conf_init(&conf);
    driver = strict_driver;
    driver.ctx_get_current = ctx_get_current;
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    assert_non_null(core);
    device = sg_device_get(core, 0);
    assert_non_null(device);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    return strict_leaks() ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(event_of_a_context_tells_nothing_of_a_slot_that_another_has_taken, start, stop),
        cmocka_unit_test_setup_teardown(last_slot_is_given_to_another, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
