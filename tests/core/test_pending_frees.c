/* What waits for work: how it takes effect in a replay, what goes with a context, and how many pages would be free
   without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "inspect.h"
#include "scene.h"
#include "strict_driver.h"

static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};

static void work(sg_slot slot)
{
    sg_core_slot_submitted(scene.core, 0, slot);
}

static void settles_the_oldest(void **state)
{
    (void)state;
    apply(scene.core, 0, SEGALLOC_RECORD_DONE, 0, 0); /* there is none */
    for (int i = 0; i < 2; i++)
        scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    assert_int_equal(scene_pending_bytes(), 2 * SCENE_BLOCK);
    apply(scene.core, 0, SEGALLOC_RECORD_DONE, 0, 0);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    apply(scene.core, 0, SEGALLOC_RECORD_DONE, 0, 0);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* A block that two streams used is free when both are done. */
static CUdeviceptr free_after_both(sg_slot own, sg_slot other)
{
    const struct sg_tag after = {.context = scene.current, .sync = SG_FREE_SYNC_STREAM};
    CUdeviceptr address = scene_allocate(own);
    assert_int_equal(sg_core_record_stream(scene.core, address, other), CUDA_SUCCESS);
    work(own);
    work(other);
    assert_int_equal(sg_core_free(scene.core, address, &after), CUDA_SUCCESS);
    return address;
}

static void forget_events(const CUevent *event, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(strict_driver.event_destroy(event[i]), CUDA_SUCCESS);
}

/* Of a context that is gone, or of all: nobody is left who could be using it. A stream may have gone before. */
static void goes_with_its_context(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        CUevent event[16];
        uint32_t events = 0;
        unsigned of_own = 10 + 10 * (unsigned)all, of_other = of_own + 1;
        scene.current = scene_add_context(of_own, 0);
        sg_slot own = scene_add_stream(of_own, 0, scene.current), other = scene_add_stream(of_other, 0, scene.current),
                gone = scene_add_stream(of_other + 1, SG_STREAM_UNFENCEABLE, scene.current),
                elsewhere = scene_add_stream(of_other + 2, 0, scene_add_context(of_other, 1));
        work(gone);
        (void)scene_freed(gone);
        sg_core_slot_gone(scene.core, 0, gone);
        (void)free_after_both(own, other);
        (void)free_after_both(elsewhere, own);
        scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
        for (int i = 0; i < 2; i++) { /* some events are out, others are at hand */
            (void)sg_device_ask(scene.device, SG_ASK_FENCE);
            if (i == 0)
                strict_complete(UINT32_MAX);
            (void)sg_device_ask(scene.device, SG_ASK_QUERY);
            work(own);
            (void)scene_freed(own);
            work(elsewhere);
            (void)scene_freed(elsewhere);
        }
        assert_true(scene.device->fences.count && scene.device->fences.idle_count);
        uint32_t own_events = 0;
        for (uint32_t i = 0; i < scene.device->fences.count; i++) {
            event[events++] = scene.device->fences.fence[i].event;
            own_events += scene.device->fences.fence[i].context == scene.current;
        }
        for (uint32_t i = 0; i < scene.device->fences.idle_count; i++) {
            event[events++] = scene.device->fences.idle_event[i].event;
            own_events += scene.device->fences.idle_event[i].context == scene.current;
        }
        assert_true(own_events > 0 && own_events < events && events <= 16);
        sg_core_context_gone(scene.core, 0, all ? NULL : scene.current);
        assert_int_equal(scene.device->fences.count + scene.device->fences.idle_count, all ? 0 : events - own_events);
        assert_int_equal(scene_pending_bytes(), 0);
        sg_core_context_gone(scene.core, 1, scene_context(of_other));
        assert_int_equal(scene.device->fences.count + scene.device->fences.idle_count, 0);
        forget_events(event, events);
        scene.current = NULL;
    }
}

/* Where another context of the device stays, its work may still be using what is pending. */
static void stays_beside_other_contexts(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    CUdeviceptr address = scene_allocate(0);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_context_gone(scene.core, 0, scene_context(1));
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_context_gone(scene.core, 0, scene_context(2));
    assert_int_equal(scene_pending_bytes(), 0);
    scene.current = NULL;
}

/* What waits for other contexts' work alone counts as free, whole pages of it, and once. */
static size_t free_bytes(void)
{
    size_t free_bytes = (512 << 20) - strict_used(0), total = 512 << 20;
    sg_core_mem_info(scene.core, 0, &free_bytes, &total);
    return free_bytes;
}

static void counts_as_free(void **state)
{
    (void)state;
    CUdeviceptr block[5], huge;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    scene.capturing = true; /* nothing is learnt */
    for (int i = 0; i < 5; i++)
        block[i] = scene_allocate(0);
    assert_int_equal(free_bytes(), (512 << 20) - 5 * SCENE_BLOCK);
    for (int i = 1; i < 4; i++)
        scene_free(block[i], i == 2 ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), 2 * SCENE_BLOCK);
    assert_int_equal(free_bytes(), (512 << 20) - 2 * SCENE_BLOCK);
    assert_int_equal(sg_core_malloc(scene.core, 0, 300 << 20, &tag, &huge), CUDA_SUCCESS);
    assert_int_equal(free_bytes(), (212 << 20) - 2 * SCENE_BLOCK);
    scene_free(huge, SG_FREE_SYNC_STRICT); /* to the end of its region */
    assert_int_equal(scene_pending_bytes(), 2 * SCENE_BLOCK + (300 << 20));
    assert_int_equal(free_bytes(), (512 << 20) - 2 * SCENE_BLOCK);
    scene.capturing = false;
}

/* What is free but for work that may still use it is waited for by whoever wants to know how much there is. */
static void awaits_work(void **state)
{
    (void)state;
    const struct sg_tag after = {.context = scene_add_context(2, 0), .sync = SG_FREE_SYNC_STREAM};
    scene.current = after.context;
    sg_slot own = scene_add_stream(1, 0, scene.current), other = scene_add_stream(2, 0, scene.current);
    CUdeviceptr block = scene_allocate(own);
    assert_false(sg_core_awaits(scene.core, 0) || sg_core_awaits(scene.core, 1) || sg_core_awaits(scene.core, -1));
    work(own);
    assert_int_equal(sg_core_free(scene.core, block, &after), CUDA_SUCCESS);
    apply(scene.core, 0, SEGALLOC_RECORD_MERGE, 0, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(sg_core_awaits(scene.core, 0));
        size_t before = free_bytes();
        for (int asked = 0; asked < 2; asked++) { /* about each stream's work once */
            strict_complete(UINT32_MAX);
            sg_core_poll(scene.core, 0);
        }
        assert_false(sg_core_awaits(scene.core, 0));
        assert_int_equal(free_bytes() - before, SCENE_BLOCK);
        if (i == 0)
            scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
        else
            (void)free_after_both(own, other);
    }
    assert_true(sg_core_awaits(scene.core, 0));
    sg_core_disable(scene.core); /* nothing can be learnt */
    assert_false(sg_core_awaits(scene.core, 0));
    sg_core_enable(scene.core);
    for (int asked = 0; asked < 2; asked++) {
        strict_complete(UINT32_MAX);
        sg_core_poll(scene.core, 0);
    }
    block = scene_allocate(own);
    sg_core_pin(scene.core, block, SCENE_BLOCK);
    work(own);
    assert_int_equal(sg_core_free(scene.core, block, &after), CUDA_SUCCESS);
    apply(scene.core, 0, SEGALLOC_RECORD_MERGE, 0, 0);
    assert_false(sg_core_awaits(scene.core, 0)); /* a page that may not move is none of what is free */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(settles_the_oldest), TEST(goes_with_its_context), TEST(stays_beside_other_contexts), TEST(counts_as_free),
        TEST(awaits_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
