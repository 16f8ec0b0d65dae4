/* Slots whose streams go: what is owed, known and told of them from then on, and that an event of ours tells nothing of
   the stream that has the slot by the time that it is recorded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rooms.h"
#include "strict_driver.h"
#include "locked.h"

static struct sg_core *core;
static struct sg_device *device;
static struct sg_driver driver;
static const CUcontext here = (CUcontext)(uintptr_t)1, there = (CUcontext)(uintptr_t)2;
static sg_slot slot;          /* of the stream that is gone, and then of the next */
static struct sg_after after; /* the next one's work */

static sg_slot add_stream(uint64_t key, CUcontext context)
{
    const struct sg_stream_id id = {
        .key = key, .handle = (CUstream)(uintptr_t)key, .flags = SG_STREAM_UNFENCEABLE, .context = context};
    return sg_core_slot(core, 0, &id);
}

static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = here;
    return CUDA_SUCCESS;
}

static struct sg_after freed(void)
{
    bool was_used;
    uint64_t seq = LOCKED(device, sg_clocks_freed_locked(device, slot, 0, false, &was_used));
    DO_LOCKED(device, sg_clocks_need_fence_locked(device, sg_slot_bit(slot)));
    return (struct sg_after){sg_slot_bit(slot), seq};
}

/* Another thread hears that the old stream's work is complete, and makes a stream that takes the slot. */
static CUresult event_create(CUevent *ret, unsigned flags)
{
    struct sg_vector_clock clock = {{0}};
    clock.at[slot] = device->clocks.seq;
    sg_core_completed(core, 0, &clock);
    assert_int_equal(add_stream(2, there), slot);
    sg_core_slot_submitted(core, 0, slot);
    after = freed();
    return strict_driver.event_create(ret, flags);
}

static void event_of_a_context_tells_nothing_of_a_slot_that_another_has_taken(void **state)
{
    (void)state;
    slot = add_stream(1, here);
    assert_true(slot);
    sg_core_slot_submitted(core, 0, slot);
    (void)freed();
    sg_core_slot_gone(core, 0, slot);
    driver.event_create = event_create;
    sg_device_ask(device, SG_ASK_FENCE);
    driver.event_create = strict_driver.event_create;
    assert_int_equal(after.slots, sg_slot_bit(slot));
    strict_complete(UINT32_MAX);
    sg_device_ask(device, SG_ASK_QUERY);
    assert_false(sg_after_complete(&device->clocks, after));
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
    assert_int_equal(device->clocks.state[last], SG_SLOT_GONE);
    struct sg_vector_clock clock = {{0}};
    clock.at[last] = device->clocks.seq;
    sg_core_completed(core, 0, &clock);
    assert_int_equal(add_stream(key, here), last);
}

/* One that is gone already owes no event, nor does any other because of it. */
static void slot_goes_once(void **state)
{
    (void)state;
    slot = add_stream(1, here);
    (void)add_stream(2, here);
    sg_core_slot_gone(core, 0, slot);
    uint64_t needs_fence = device->clocks.needs_fence;
    sg_core_slot_gone(core, 0, slot);
    assert_int_equal(device->clocks.needs_fence, needs_fence);
}

static const struct segalloc_trace_record *no_turn(void)
{
    return NULL;
}

static void no_way(void)
{
}

/* The trace says when its work was complete. */
static void slot_that_goes_in_a_replay_asks_nothing_of_the_driver(void **state)
{
    static const struct sg_replay replay = {no_turn, no_way};
    const struct sg_stream_id id = {.key = 1, .context = here};
    (void)state;
    core->replay = &replay;
    slot = sg_core_slot(core, 0, &id);
    strict_fail_at(1, true, CUDA_ERROR_UNKNOWN);
    sg_core_slot_gone(core, 0, slot);
    assert_false(strict_failed(NULL));
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_int_equal(device->clocks.state[slot], SG_SLOT_GONE);
    core->replay = NULL;
}

/* Of a context that ends they serve others, with work or without, and whether they were gone before or not. */
static void slots_of_a_context_that_ends(void **state)
{
    (void)state;
    sg_core_context_seen(core, 0, there);
    slot = add_stream(1, there);
    sg_slot other = add_stream(2, there), best_deferred = add_stream(3, here);
    sg_core_slot_submitted(core, 0, slot);
    sg_core_slot_gone(core, 0, slot);
    assert_int_equal(device->clocks.state[slot], SG_SLOT_GONE);
    sg_core_context_gone(core, 0, there);
    assert_int_equal(device->clocks.state[slot], SG_SLOT_UNUSED);
    assert_int_equal(device->clocks.state[other], SG_SLOT_UNUSED);
    assert_int_equal(device->clocks.state[best_deferred], SG_SLOT_ALIVE);
}

static uint64_t could_have_seen(sg_slot whose, uint64_t alloc_seq)
{
    return LOCKED(device, sg_clocks_possible_users(&device->clocks, whose, alloc_seq, 0, SG_USERS_POSSIBLE));
}

static void retire(sg_slot which)
{
    struct sg_vector_clock clock = {{0}};
    sg_core_slot_gone(core, 0, which);
    clock.at[which] = device->clocks.seq;
    sg_core_completed(core, 0, &clock);
    assert_int_equal(device->clocks.state[which], SG_SLOT_UNUSED);
}

/* What others have come after by way of a blocking stream is known no more once its slot is given up: they may have
   seen what there was. Of other streams it is known still. */
static void only_blocking_streams_leave_doubts(void **state)
{
    (void)state;
    sg_slot plain = add_stream(1, here), whose = add_stream(2, here), by = add_stream(3, here);
    const struct sg_stream_id id = {.key = 4, .context = here, .flags = SG_STREAM_BLOCKING};
    sg_slot blocking = sg_core_slot(core, 0, &id);
    struct sg_vector_clock unused;
    sg_core_clock(core, 0, by, &unused); /* in an event call: others are believed to be seen in any case */
    uint64_t alloc_seq = LOCKED(device, sg_clocks_tick_locked(device));
    sg_core_slot_submitted(core, 0, by);
    retire(plain);
    assert_int_equal(could_have_seen(whose, alloc_seq), 0);
    retire(blocking);
    assert_int_equal(could_have_seen(whose, alloc_seq), sg_slot_bit(by));
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
        cmocka_unit_test_setup_teardown(slot_goes_once, start, stop),
        cmocka_unit_test_setup_teardown(slot_that_goes_in_a_replay_asks_nothing_of_the_driver, start, stop),
        cmocka_unit_test_setup_teardown(slots_of_a_context_that_ends, start, stop),
        cmocka_unit_test_setup_teardown(only_blocking_streams_leave_doubts, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
