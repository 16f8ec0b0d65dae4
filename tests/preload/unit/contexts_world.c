/* See contexts_world.h. */
#include "contexts_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "track/graph_blocks.h"
#include "process/process.h"
#include "track/streams.h"
#include "track/context_pins.h"

struct fake fake;

_Atomic unsigned sg_fast_path_epoch;
__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;

/* The driver. */
static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.current == LAST ? SG_DEVICES_MAX - 1 : fake.current == FAR;
    return fake.get_device;
}

static CUcontext below;

static CUresult push(CUcontext context)
{
    if (fake.push != CUDA_SUCCESS)
        return fake.push;
    below = fake.current;
    fake.current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
    *ret = fake.current;
    fake.current = below;
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = fake.active;
    return fake.state;
}

static CUresult get_id(CUcontext context, unsigned long long *ret)
{
    (void)context;
    *ret = fake.id;
    return fake.id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
    (void)device;
    if (fake.out-- > 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ret)
        *ret = PRIMARY;
    return fake.retained;
}

static CUresult end_primary(CUdevice device)
{
    (void)device;
    fake.during = fake.ending_calls > 0;
    fake.trims_before = fake.trims;
    return fake.destroyed;
}

static CUresult create(CUcontext *ret, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    if (fake.out-- > 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ret)
        *ret = fake.next;
    return fake.created;
}

static CUresult create_v3(CUcontext *ret, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device)
{
    (void)params, (void)count;
    return create(ret, flags, device);
}

static CUresult create_v4(CUcontext *ret, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    (void)params;
    return create(ret, flags, device);
}

static CUresult destroy(CUcontext context)
{
    (void)context;
    fake.during = fake.ending_calls > 0;
    fake.trims_before = fake.trims;
    return fake.destroyed;
}

static CUresult detach(CUcontext context)
{
    CUresult result = destroy(context);
    if (result == CUDA_SUCCESS && --fake.users == 0)
        fake.id = 0;
    return result;
}

static CUresult api_version(CUcontext context, unsigned *ret)
{
    (void)context;
    *ret = 3020;
    return fake.users > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult from_green(CUcontext *ret, CUgreenCtx asked)
{
    (void)asked;
    if (ret)
        *ret = OF_GREEN;
    return fake.from_green;
}

static CUresult destroy_green(CUgreenCtx asked)
{
    (void)asked;
    return fake.destroyed;
}

static CUresult enable(CUcontext peer, unsigned flags)
{
    (void)peer, (void)flags;
    return fake.enabled;
}

static CUresult disable(CUcontext peer)
{
    (void)peer;
    fake.disabled++;
    return fake.enabled;
}

const struct sg_driver *sg_process_driver(void)
{
    static struct sg_driver driver;
    driver = (struct sg_driver){.ctx_get_current = get_current,
        .ctx_get_device = get_device,
        .ctx_push = push,
        .ctx_pop = pop,
        .primary_state = primary_state,
        .primary_retain = retain,
        .primary_release = end_primary,
        .ctx_get_id = fake.ids ? get_id : NULL,
        .ctx_api_version = api_version};
    return fake.no_driver ? NULL : &driver;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuCtxCreate_v2 = create,
        .cuCtxCreate_v3 = create_v3,
        .cuCtxCreate_v4 = create_v4,
        .cuCtxDestroy = destroy,
        .cuCtxDestroy_v2 = destroy,
        .cuCtxDetach = detach,
        .cuDevicePrimaryCtxRelease = end_primary,
        .cuDevicePrimaryCtxReset = end_primary,
        .cuDevicePrimaryCtxRetain = retain,
        .cuDevicePrimaryCtxRelease_v2 = end_primary,
        .cuDevicePrimaryCtxReset_v2 = end_primary,
        .cuCtxFromGreenCtx = from_green,
        .cuGreenCtxDestroy = destroy_green,
        .cuCtxEnablePeerAccess = enable,
        .cuCtxDisablePeerAccess = disable};
    return &real;
}

/* The core. */
void sg_core_context_seen(struct sg_core *core, int device, CUcontext context)
{
    void (*meanwhile)(void) = fake.meanwhile;
    (void)core, (void)device;
    fake.seen = context;
    fake.told++;
    fake.meanwhile = NULL;
    if (meanwhile)
        balance_elsewhere(meanwhile);
}

void sg_core_context_forget(struct sg_core *core, CUcontext context)
{
    (void)core, (void)context;
    fake.forgotten++;
}

void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending)
{
    (void)core;
    fake.ending = context;
    fake.ending_calls += ending ? 1 : -1;
}

void sg_core_context_gone(struct sg_core *core, int device, CUcontext context)
{
    (void)core, (void)device;
    fake.streams_first = fake.streams == context;
    fake.ended = context;
    fake.gone++;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    (void)core, (void)device, (void)keep;
    fake.trims++;
    return 0;
}

CUresult sg_core_peer_access(struct sg_core *core, int device, int peer, bool allow)
{
    (void)core, (void)device, (void)peer;
    fake.peer_calls++;
    fake.peers = allow;
    return fake.peered;
}

/* The rest of the library. */
struct sg_core *sg_process_core(void)
{
    return fake.no_core ? NULL : (struct sg_core *)&fake;
}

struct sg_core *sg_process_core_made(void)
{
    return sg_process_core();
}

struct sg_core *sg_enter(void)
{
    return balance_begin(sg_process_core());
}

void sg_process_recover(void)
{
}

bool sg_thread_inside(void)
{
    return fake.inside;
}

bool sg_made_room_by_others(int device)
{
    (void)device;
    return false;
}

bool sg_made_room_by(struct sg_core *core)
{
    return core && fake.room-- > 0;
}

void sg_streams_host_observed_all(struct sg_core *core)
{
    (void)core;
}

void sg_streams_context_gone(CUcontext context)
{
    fake.streams = context;
}

void sg_events_context_gone(CUcontext context)
{
    fake.events = context;
}

void sg_captures_context_gone(CUcontext context)
{
    fake.captures = context;
}

void sg_graphs_context_gone(CUcontext context)
{
    fake.graphs = context;
}

bool sg_context_is_pinned(CUcontext context)
{
    (void)context;
    return false;
}

void sg_context_pins_rest(void)
{
    fake.rests++;
    if (fake.ending_elsewhere && !fake.ending_on) {
        sg_process_lock(SG_LOCK_CONTEXTS);
        sg_context_ending_locked(fake.ending_elsewhere, -1);
        sg_process_unlock(SG_LOCK_CONTEXTS);
        fake.ending_elsewhere = NULL;
    }
}

void sg_context_pins_use_membarrier(void)
{
}

int start(void **state)
{
    CUcontext context;
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&sg_self, 0, sizeof sg_self);
    fake.active = 1;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, PRIMARY);
    return 0;
}

int end(void **state)
{
    (void)state;
    fake.destroyed = CUDA_SUCCESS;
    (void)cuGreenCtxDestroy(GREEN);
    (void)cuCtxDestroy_v2(MADE);
    (void)cuCtxDestroy_v2(FAR);
    (void)cuCtxDestroy_v2(LAST);
    (void)cuDevicePrimaryCtxReset_v2(0);
    return sg_contexts_any(0) || sg_contexts_any(1) || sg_contexts_any(SG_DEVICES_MAX - 1);
}

void make(CUcontext context, int device)
{
    CUcontext ret;
    fake.next = context;
    assert_int_equal(cuCtxCreate_v2(&ret, 0, device), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, context);
}
