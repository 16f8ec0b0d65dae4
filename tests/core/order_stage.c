#include "order_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect.h"
#include "strict_driver.h"
#include "locked.h"

struct sg_core *core;
struct sg_device *device;
sg_slot own, other, third;

sg_slot add_stream(uint64_t key, unsigned flags, bool per_thread)
{
    const struct sg_stream_id id = {
        .key = key, .handle = (CUstream)(uintptr_t)key, .per_thread = per_thread, .flags = flags};
    sg_slot slot = sg_core_slot(core, 0, &id);
    assert_true(slot);
    return slot;
}

int start(void **state)
{
    (void)state;
    core = inspect_start("", 64 << 20);
    own = add_stream(1, 0, false);
    other = add_stream(2, 0, false);
    third = add_stream(3, 0, false);
    device = sg_device_known(core, 0);
    assert_non_null(device);
    return 0;
}

int stop(void **state)
{
    (void)state;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    return strict_leaks() ? -1 : 0;
}

void work(sg_slot slot)
{
    sg_core_slot_submitted(core, 0, slot);
}

struct sg_vector_clock record(sg_slot slot)
{
    struct sg_vector_clock clock;
    sg_core_clock(core, 0, slot, &clock);
    return clock;
}

void wait_for(sg_slot slot, const struct sg_vector_clock *clock)
{
    sg_core_ordered_after(core, 0, slot, clock);
}

void wait_for_stream(sg_slot slot, sg_slot whom)
{
    struct sg_vector_clock clock = record(whom);
    wait_for(slot, &clock);
}

void complete(const struct sg_vector_clock *clock)
{
    sg_core_completed(core, 0, clock);
}

struct sg_after freed(uint64_t others, bool unseen)
{
    bool was_used;
    uint64_t seq = LOCKED(device, sg_clocks_freed_locked(device, own, others, unseen, &was_used));
    return (struct sg_after){sg_slot_bit(own) | others, seq};
}

bool is_usable(struct sg_after after, sg_slot slot)
{
    return sg_after_usable(&device->clocks, after, slot);
}
