#include "inspect/core_state.h"
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "strict_driver.h"
#include "locked.h"

struct scene scene;

static struct sg_driver driver;
static CUcontext below[4]; /* what was current before each push */
static unsigned pushed;

static void meanwhile(void)
{
    void (*what)(void) = scene.meanwhile;
    scene.meanwhile = NULL;
    if (what)
        what();
}

static CUresult ctx_get_current(CUcontext *ret)
{
    if (scene.current_unknown)
        return CUDA_ERROR_NOT_INITIALIZED;
    *ret = scene.current;
    return CUDA_SUCCESS;
}

static CUresult ctx_push(CUcontext context)
{
    if (scene.push_fails)
        return CUDA_ERROR_INVALID_CONTEXT;
    assert_true(pushed < sizeof below / sizeof *below);
    below[pushed++] = scene.current;
    scene.current = context;
    return CUDA_SUCCESS;
}

static CUresult ctx_pop(CUcontext *ret)
{
    assert_true(pushed > 0);
    *ret = scene.current;
    scene.current = below[--pushed];
    return CUDA_SUCCESS;
}

static CUresult ctx_synchronize(void)
{
    scene.waited |= UINT64_C(1) << (uintptr_t)scene.current % 64;
    meanwhile();
    return strict_driver.ctx_synchronize();
}

static CUresult ctx_record_event(CUcontext context, CUevent event)
{
    scene.recorded++;
    scene.over_contexts++;
    meanwhile();
    if (scene.unrecordable && scene.unrecordable == context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = strict_driver.ctx_record_event(context, event);
    if (scene.prompt)
        strict_complete(UINT32_MAX);
    return result;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    scene.recorded++;
    meanwhile();
    return strict_driver.event_record(event, stream);
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    scene.made++;
    CUresult result = strict_driver.event_create(ret, flags);
    scene.latest = *ret;
    scene.made_in = scene.current;
    return result;
}

static CUresult event_query(CUevent event)
{
    scene.queried++;
    return strict_driver.event_query(event);
}

static CUresult event_synchronize(CUevent event)
{
    scene.event_waits++;
    meanwhile();
    return strict_driver.event_synchronize(event);
}

static bool record_begin(void)
{
    return !scene.capturing;
}

static void record_end(void)
{
}

static bool begin_aside(CUresult (*run)(void *user), void *user)
{
    scene.aside = run;
    scene.user = user;
    return true;
}

static int enter_context(CUcontext context)
{
    (void)ctx_push(context);
    return 0;
}

static void leave_context(int use)
{
    CUcontext popped;
    (void)use;
    (void)ctx_pop(&popped);
}

static int start(bool records_contexts)
{
    struct sg_conf conf;
    strict_reset(2, 512 << 20, 2 << 20);
    sg_conf_init(&conf);
    driver = strict_driver;
    driver.ctx_get_current = ctx_get_current;
    driver.ctx_push = ctx_push;
    driver.ctx_pop = ctx_pop;
    driver.ctx_synchronize = ctx_synchronize;
    driver.ctx_record_event = records_contexts ? ctx_record_event : NULL;
    driver.event_record = event_record;
    driver.event_create = event_create;
    driver.event_query = event_query;
    driver.event_synchronize = event_synchronize;
    pushed = 0;
    scene = (struct scene){0};
    scene.core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &driver,
        .callbacks = {.record_begin = record_begin,
            .record_end = record_end,
            .begin_aside = begin_aside,
            .enter_context = enter_context,
            .leave_context = leave_context}});
    assert_non_null(scene.core);
    scene.device = sg_device_get(scene.core, 0);
    assert_non_null(scene.device);
    return 0;
}

int scene_start(void **state)
{
    (void)state;
    return start(true);
}

int scene_start_on_older_driver(void **state)
{
    (void)state;
    return start(false);
}

int scene_stop(void **state)
{
    (void)state;
    scene.meanwhile = NULL;
    strict_complete(UINT32_MAX);
    sg_core_destroy(scene.core);
    return strict_leaks() ? -1 : 0;
}

CUcontext scene_context(unsigned number)
{
    return (CUcontext)(uintptr_t)number;
}

CUcontext scene_add_context(unsigned number, int device)
{
    sg_core_context_seen(scene.core, device, scene_context(number));
    return scene_context(number);
}

sg_slot scene_add_stream(uintptr_t key, unsigned flags, CUcontext context)
{
    const struct sg_stream_id id = {.key = key, .handle = (CUstream)key, .flags = flags, .context = context};
    sg_slot slot = sg_core_slot(scene.core, 0, &id);
    assert_true(slot);
    return slot;
}

CUdeviceptr scene_allocate(sg_slot slot)
{
    const struct sg_tag tag = {.context = scene.current, .slot = slot, .sync = SG_FREE_SYNC_STREAM};
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(scene.core, 0, SCENE_BLOCK, &tag, &address), CUDA_SUCCESS);
    return address;
}

void scene_free(CUdeviceptr address, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.context = scene.current, .sync = sync};
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_SUCCESS);
}

uint64_t scene_pending_bytes(void)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(scene.core, 0, &stats));
    return stats.value[SG_STAT_pending_bytes];
}

struct sg_after scene_freed(sg_slot slot)
{
    bool was_used;
    uint64_t seq = LOCKED(scene.device, sg_clocks_freed_locked(scene.device, slot, 0, false, &was_used));
    DO_LOCKED(scene.device, sg_clocks_need_fence_locked(scene.device, sg_slot_bit(slot)));
    return (struct sg_after){sg_slot_bit(slot), seq};
}

bool scene_is_complete(struct sg_after after)
{
    return sg_after_complete(&scene.device->clocks, after);
}
