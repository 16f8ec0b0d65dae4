/* Contexts: made, taken up, ended; and access between devices.

   A call that may end a context does four things. It gives idle pages back if this is the device's last context. It
   waits until nobody names the context. It asks the driver. It announces the end, or takes the second step back. A
   context that the driver can't make for lack of memory is asked for again after idle pages have gone back. */
#include <stddef.h>
#include <stdint.h>

#include "check/check_run.h"
#include "check/guard_pages.h"
#include "check/state.h"
#include "hooks/context_end.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/make_room.h"
#include "track/context_pins.h"
#include "track/contexts.h"

/* Idle pages go back before the last context of their device may end. No reference says whether a driver unmaps memory
   of a device that has no context. Blocks that are not freed yet go back after the end. `ends`: however often a primary
   context was retained. */
static void context_trim_before_end(struct sg_core *core, CUcontext context, bool ends)
{
    int device;
    if (sg_check_on())
        sg_check_context_ends(context);
    if (sg_contexts_is_last(context, ends, &device) && core) {
        (void)sg_core_trim(core, device, 0);
        (void)sg_core_return_from(core, device);
    }
}

/* The driver has just made it, or said that it is there. Its handle may be that of a context which another thread's
   call has ended and not yet forgotten here. Then that is done now, before anything of this one is noted. Without
   numbers that call is waited for, but not for long. One that lets a primary context go may itself wait in the
   driver, for work that ends only when this thread goes on. */
static void context_came(struct sg_core *core, CUcontext context, int device, bool primary)
{
    enum { RESTS = 1000 };
    uint64_t id = sg_contexts_id(context), noted = sg_contexts_noted_id(context);
    for (int i = 0; i < RESTS && core && !id && sg_context_is_ending(context); i++)
        sg_context_pins_rest();
    if (id && noted && id != noted)
        sg_context_gone(core, context, noted);
    sg_contexts_seen(core, context, device, primary);
}

/* A context needs some hundred MiB of the device. A driver that has run out is asked again after idle pages have gone
   back, those of this process first. */
CUresult cuCtxCreate_v2(CUcontext *ret, unsigned flags, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_SUCCESS && ret)
        context_came(core, *ret, device, false);
    if (core)
        sg_leave();
    return result;
}

CUresult cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuCtxCreate_v3(ret, params, count, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuCtxCreate_v3(ret, params, count, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuCtxCreate_v3(ret, params, count, flags, device);
    if (result == CUDA_SUCCESS && ret)
        context_came(core, *ret, device, false);
    if (core)
        sg_leave();
    return result;
}

CUresult cuCtxCreate_v4(CUcontext *ret, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuCtxCreate_v4(ret, params, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuCtxCreate_v4(ret, params, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuCtxCreate_v4(ret, params, flags, device);
    if (result == CUDA_SUCCESS && ret)
        context_came(core, *ret, device, false);
    if (core)
        sg_leave();
    return result;
}

/* Ends a call of ours that may have ended a context. Every table forgets a context that has ended. One that goes on may be
   named by calls of ours again. `id`: sg_contexts_begin_ending()'s. */
static void context_settle(struct sg_core *core, CUcontext context, uint64_t id, bool ended)
{
    if (ended)
        sg_context_gone(core, context, id);
    else
        sg_contexts_end_ending(core, context);
    if (core)
        sg_leave();
}

/* Destroys a context by the driver's function `real`. */
static CUresult context_destroy(CUresult (*real)(CUcontext), CUcontext context)
{
    struct sg_core *core = sg_enter();
    context_trim_before_end(core, context, false);
    uint64_t id = sg_contexts_begin_ending(core, context);
    CUresult result = real(context);
    context_settle(core, context, id, result == CUDA_SUCCESS);
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return context_destroy(sg_real()->cuCtxDestroy, context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return context_destroy(sg_real()->cuCtxDestroy_v2, context);
}

/* True if the driver says that a context which was alive has ended. Drivers before CUDA 12.0 have no numbers. */
static bool context_is_gone(CUcontext context, uint64_t id)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned version;
    if (driver && driver->ctx_get_id && id)
        return sg_contexts_id(context) != id;
    return driver && driver->ctx_api_version && driver->ctx_api_version(context, &version) != CUDA_SUCCESS;
}

/* Ends the context once its usage count is 0: cuCtxCreate and each cuCtxAttach have raised it. PyCUDA ends all of its
   contexts by this. */
CUresult cuCtxDetach(CUcontext context)
{
    struct sg_core *core = sg_enter();
    context_trim_before_end(core, context, false);
    uint64_t id = sg_contexts_begin_ending(core, context);
    CUresult result = sg_real()->cuCtxDetach(context);
    context_settle(core, context, id, result == CUDA_SUCCESS && context && context_is_gone(context, id));
    return result;
}

/* Retains are counted, because the last release ends the context. For example, a runtime retains device 0 and a library
   does: the first release ends nothing. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_SUCCESS)
        sg_contexts_retained(device);
    if (result == CUDA_SUCCESS && ret)
        context_came(core, *ret, device, true);
    if (core)
        sg_leave();
    return result;
}

/* True if a primary context is there and still that one; another thread may have ended it, or taken up the next one
   since. */
static bool primary_is_still(int device, CUcontext context, uint64_t id)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned flags;
    int active = 1;
    if (driver && driver->primary_state(device, &flags, &active) == CUDA_SUCCESS && !active)
        return false;
    uint64_t now = id ? sg_contexts_id(context) : 0;
    return !now || now == id;
}

/* The last release of a primary context ends it, a reset does so at once. */
static CUresult primary_end(CUresult (*real)(CUdevice), CUdevice device, bool reset)
{
    struct sg_core *core = sg_enter();
    CUcontext context = sg_contexts_primary_of(device);
    if (context)
        context_trim_before_end(core, context, reset);
    uint64_t id = sg_contexts_begin_ending(core, context);
    CUresult result = real(device);
    if (result == CUDA_SUCCESS)
        sg_contexts_released(device, reset);
    context_settle(core, context, id,
        result == CUDA_SUCCESS && context && (reset || !primary_is_still(device, context, id)));
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return primary_end(sg_real()->cuDevicePrimaryCtxRelease, device, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return primary_end(sg_real()->cuDevicePrimaryCtxRelease_v2, device, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return primary_end(sg_real()->cuDevicePrimaryCtxReset, device, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return primary_end(sg_real()->cuDevicePrimaryCtxReset_v2, device, true);
}

/* The context made of a green one is its device's. The primary context is there as long as the green one. */
CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    CUresult result = sg_real()->cuCtxFromGreenCtx(ret, green);
    const struct sg_driver *driver = result == CUDA_SUCCESS && ret && !sg_thread_inside() ? sg_process_driver() : NULL;
    struct sg_context_info made = {.green = green};
    CUcontext primary;
    if (!driver || sg_contexts_ask_device(driver, *ret, &made.device) != CUDA_SUCCESS)
        return result;
    made.context = *ret;
    made.id = sg_contexts_id(*ret);
    struct sg_core *core = sg_enter();
    if (driver->primary_retain(&primary, made.device) == CUDA_SUCCESS) {
        sg_contexts_seen(core, primary, made.device, true);
        driver->primary_release(made.device);
    }
    sg_contexts_seen_as(core, &made);
    if (core)
        sg_leave();
    return result;
}

/* Ends the context that was made of the green one, which has streams but no memory. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context = sg_contexts_of_green(green);
    struct sg_core *core = sg_enter();
    uint64_t id = sg_contexts_begin_ending(core, context);
    CUresult result = sg_real()->cuGreenCtxDestroy(green);
    context_settle(core, context, id, result == CUDA_SUCCESS && context);
    return result;
}

/* The current context's device gets, or loses, access to the memory of the peer's. */
static CUresult context_set_peer_access(CUcontext peer, bool enable)
{
    const struct sg_driver *driver = sg_process_driver();
    if (!driver || sg_thread_inside())
        return CUDA_SUCCESS;
    CUdevice device;
    int home;
    CUresult result = driver->ctx_get_device(&device);
    if (result == CUDA_SUCCESS)
        result = sg_contexts_ask_device(driver, peer, &home);
    if (result != CUDA_SUCCESS || home == device || home >= SG_DEVICES_MAX || device >= SG_DEVICES_MAX)
        return result;
    sg_contexts_set_peer(home, device, enable);
    struct sg_core *core = sg_enter();
    if (core) {
        result = sg_core_peer_access(core, home, device, enable);
        if (result == CUDA_SUCCESS)
            result = sg_guard_pages_peer(home, device, enable);
        sg_leave();
    }
    return result;
}

/* The core maps its pages for the peer too. If it can't, the driver's access is taken back, so that the program gets
   the error instead of memory that it can't reach. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    const struct sg_real *real = sg_real();
    CUresult result = real->cuCtxEnablePeerAccess(peer, flags);
    if (result != CUDA_SUCCESS)
        return result;
    result = context_set_peer_access(peer, true);
    if (result != CUDA_SUCCESS)
        real->cuCtxDisablePeerAccess(peer);
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult result = sg_real()->cuCtxDisablePeerAccess(peer);
    if (result == CUDA_SUCCESS)
        context_set_peer_access(peer, false);
    return result;
}
