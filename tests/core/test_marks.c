/* What events of ours and waits tell, and of whom: whatever happens while the driver is being called, or in a context
   that is not waited for, they tell nothing of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core.h"
#include "device.h"
#include "inspect.h"
#include "strict_driver.h"

static struct sg_core *core;
static struct sg_device *device;
static struct sg_driver driver;
static CUcontext current;
static sg_slot busy; /* is given work during a call of the driver; 0: none is */

static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = current;
    return CUDA_SUCCESS;
}

static void meanwhile(void)
{
    if (busy)
        sg_core_slot_touched(core, 0, busy);
}

static CUresult ctx_synchronize(void)
{
    meanwhile();
    return strict_driver.ctx_synchronize();
}

static CUresult stream_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    meanwhile();
    return strict_driver.stream_wait_event(stream, event, flags);
}

static bool may_wait(void)
{
    return true;
}

static int start_with(bool records_contexts)
{
    struct sg_conf conf;
    strict_reset(1, 512 << 20, 2 << 20);
    sg_conf_init(&conf);
    driver = strict_driver;
    driver.ctx_get_current = ctx_get_current;
    driver.ctx_synchronize = ctx_synchronize;
    driver.stream_wait_event = stream_wait_event;
    if (!records_contexts)
        driver.ctx_record_event = NULL;
    busy = 0;
    current = NULL;
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver, .may_wait = may_wait});
    assert_non_null(core);
    device = sg_device_get(core, 0);
    assert_non_null(device);
    return 0;
}

static int start(void **state)
{
    (void)state;
    return start_with(true);
}

static int start_without_events_over_contexts(void **state)
{
    (void)state;
    return start_with(false);
}

static int stop(void **state)
{
    (void)state;
    busy = 0;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    return strict_leaks() ? -1 : 0;
}

static sg_slot add_stream(uintptr_t key, unsigned flags, CUcontext context)
{
    const struct sg_stream_id id = {.key = key, .handle = (CUstream)key, .flags = flags, .context = context};
    sg_slot slot = sg_core_slot(core, 0, &id);
    assert_true(slot);
    return slot;
}

static CUdeviceptr allocate(sg_slot slot)
{
    const struct sg_tag tag = {.slot = slot, .sync = SG_FREE_SYNC_STREAM};
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(core, 0, 2 << 20, &tag, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUdeviceptr address, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.sync = sync};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

/* What is freed after the stream's work so far. */
static struct sg_after freed(sg_slot slot)
{
    bool worked;
    uint64_t time = sg_order_freed(device, slot, 0, false, &worked);
    sg_order_owe(device, sg_slot_bit(slot));
    return (struct sg_after){sg_slot_bit(slot), time};
}

static bool is_complete(struct sg_after after)
{
    return sg_after_complete(&device->order, after);
}

static uint64_t pending_bytes(void)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[SG_STAT_pending_bytes];
}

/* No event can be recorded on the stream, so its context is waited for. */
static void wait_tells_nothing_of_work_meanwhile(void **state)
{
    (void)state;
    sg_slot slot = add_stream(1, SG_STREAM_UNMARKED, NULL);
    (void)add_stream(2, 0, NULL);
    sg_core_slot_touched(core, 0, slot);
    struct sg_after before = freed(slot);
    busy = slot;
    assert_true(sg_device_ask(device, SG_ASK_WAIT));
    assert_true(is_complete(before));
    assert_false(is_complete(freed(slot)));
}

static void wait_tells_nothing_of_other_contexts(void **state)
{
    (void)state;
    CUcontext other = (CUcontext)(uintptr_t)2;
    current = (CUcontext)(uintptr_t)1;
    sg_core_context_seen(core, 0, current);
    sg_core_context_seen(core, 0, other);
    sg_slot here = add_stream(1, SG_STREAM_UNMARKED, current), there = add_stream(2, SG_STREAM_UNMARKED, other);
    sg_core_slot_touched(core, 0, here);
    sg_core_slot_touched(core, 0, there);
    struct sg_after after_here = freed(here), after_there = freed(there);
    assert_true(sg_device_ask(device, SG_ASK_WAIT));
    assert_true(is_complete(after_here));
    assert_false(is_complete(after_there));
}

static void stream_that_is_made_to_wait_comes_not_after_work_meanwhile(void **state)
{
    (void)state;
    sg_slot slot = add_stream(1, 0, NULL), other = add_stream(2, 0, NULL);
    CUdeviceptr address = allocate(slot);
    sg_core_slot_touched(core, 0, slot);
    release(address, SG_FREE_SYNC_STREAM);
    struct sg_after before = freed(slot);
    busy = slot;
    assert_true(sg_device_make_wait(device, other));
    assert_true(sg_after_usable(&device->order, before, other));
    assert_false(sg_after_usable(&device->order, freed(slot), other));
}

/* As many events are out as there may be: those that something pending waits for are not taken for others. */
static void pending_free_keeps_its_event(void **state)
{
    enum { FREES = 70 };
    CUdeviceptr address[FREES];
    (void)state;
    for (int i = 0; i < FREES; i++)
        address[i] = allocate(0);
    for (int i = 0; i < FREES; i++) {
        release(address[i], SG_FREE_SYNC_EVENT);
        sg_device_ask(device, SG_ASK_MARK);
    }
    assert_int_equal(pending_bytes(), (uint64_t)FREES << 21);
    strict_complete(1); /* of the first alone */
    sg_device_ask(device, SG_ASK_QUERY);
    assert_int_equal(pending_bytes(), (uint64_t)(FREES - 1) << 21);
    strict_complete(UINT32_MAX);
    sg_device_ask(device, SG_ASK_QUERY);
    assert_int_equal(pending_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wait_tells_nothing_of_work_meanwhile, start_without_events_over_contexts, stop),
        cmocka_unit_test_setup_teardown(wait_tells_nothing_of_other_contexts, start_without_events_over_contexts, stop),
        cmocka_unit_test_setup_teardown(stream_that_is_made_to_wait_comes_not_after_work_meanwhile, start, stop),
        cmocka_unit_test_setup_teardown(pending_free_keeps_its_event, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
