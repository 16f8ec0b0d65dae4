#include "track/contexts.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "track/make_room.h"
#include "track/captures.h"
#include "track/events.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/streams.h"
#include "track/context_pins.h"
#include "track/context_table.h"

/* Guarded by SG_LOCK_CONTEXTS, but for what is atomic. */
static struct {
    uint64_t peers[SG_DEVICES_MAX]; /* by owner: the devices that may access its memory */
    uint32_t retained[SG_DEVICES_MAX]; /* of the primary context: how often the program has, and has not released */
    _Atomic(CUcontext) only;
    atomic_bool devices; /* they are of several */
    atomic_bool greens;  /* there was a green one */
    atomic_uint changes;            /* of what a handle means: a destroyed context's handle is used again */
} contexts;

/* A handle is used again, that of a primary context always. 0: the driver gives no numbers, or the context is gone. */
static uint64_t id_of(CUcontext context)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned long long id = 0;
    return driver && driver->ctx_get_id && driver->ctx_get_id(context, &id) == CUDA_SUCCESS ? id : 0;
}

static uint64_t noted_id(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    uint64_t id = entry ? entry->id : 0;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return id;
}

static void contexts_note_only_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    const struct sg_context_info *first = sg_context_alive_locked(0), *other;
    bool several = false;
    for (int i = 1; (other = sg_context_alive_locked(i)); i++)
        several |= other->device != first->device;
    atomic_store(&contexts.only, sg_context_table.alive == 1 ? first->context : NULL);
    atomic_store(&contexts.devices, several);
}

/* Announces a context to the core, and takes that back if another thread has ended the context meanwhile. The core would
   wait for an ended one for good. */
static void contexts_announce(struct sg_core *core, const struct sg_context_info *context)
{
    sg_core_context_seen(core, context->device, context->context);
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context->context);
    bool still = entry ? !entry->end_announced : sg_context_table.alive == SG_CONTEXTS_KNOWN;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (!still)
        sg_core_context_forget(core, context->context);
}

/* Green contexts are not announced to the core: the primary one stands for them. */
static void seen_as(struct sg_core *core, const struct sg_context_info *context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context->context);
    bool known = entry != NULL, several = !known && sg_context_table.alive > 0,
         green = (known ? entry : context)->green != NULL;
    if (green)
        atomic_store(&contexts.greens, true);
    if (!known)
        (void)sg_context_add_locked(context);
    contexts_note_only_locked();
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (several)
        sg_context_pins_use_membarrier();
    if (!core) /* made since the call began, without this context */
        core = sg_process_core();
    if (!core || green)
        return;
    /* A known context is announced again: the thread that noted it may not have announced it yet, and the caller's
       work in it counts already. */
    contexts_announce(core, context);
}

static void contexts_seen(struct sg_core *core, CUcontext context, int device, bool primary)
{
    uint64_t id = noted_id(context) ? 0 : id_of(context);
    seen_as(core, &(struct sg_context_info){.context = context, .id = id, .device = device, .primary = primary});
}

/* Idle pages go back before the last context of their device may end. What a driver answers that is asked to unmap memory
   of a device without a context is in no reference. Blocks that are not freed yet go back after the end. `ends`: however
   often a primary context was retained. */
static void trim_before_end(struct sg_core *core, CUcontext context, bool ends)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context), *other;
    int device = entry && !entry->green ? entry->device : -1;
    bool last = device >= 0 && (ends || !entry->primary || contexts.retained[device] <= 1);
    for (int i = 0; last && (other = sg_context_alive_locked(i)); i++)
        last = other == entry || other->green || other->device != device;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (core && last)
        (void)sg_core_trim(core, device, 0);
}

static void note_retained(CUdevice device)
{
    if (device < 0 || device >= SG_DEVICES_MAX)
        return;
    sg_process_lock(SG_LOCK_CONTEXTS);
    contexts.retained[device]++;
    sg_process_unlock(SG_LOCK_CONTEXTS);
}

static void note_released(CUdevice device, bool wholly)
{
    if (device < 0 || device >= SG_DEVICES_MAX)
        return;
    sg_process_lock(SG_LOCK_CONTEXTS);
    if (wholly)
        contexts.retained[device] = 0;
    else if (contexts.retained[device])
        contexts.retained[device]--;
    sg_process_unlock(SG_LOCK_CONTEXTS);
}

/* A call that may end the context is about to be made. When this returns, calls of ours that name it are over, and
   no other one begins. The driver destroys a context only when nobody uses it. Returns its id. */
static uint64_t begin_ending(struct sg_core *core, CUcontext context)
{
    uint64_t id = context ? noted_id(context) : 0;
    if (!core || !context)
        return id;
    sg_process_lock(SG_LOCK_CONTEXTS);
    sg_context_ending_locked(context, 1);
    sg_process_unlock(SG_LOCK_CONTEXTS);
    while (sg_context_is_pinned(context))
        sg_context_pins_rest();
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    bool ours = entry && !entry->green;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (ours)
        sg_core_context_ending(core, context, true);
    return id;
}

/* It has not ended. */
static void end_ending(struct sg_core *core, CUcontext context)
{
    if (!core || !context)
        return;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    bool ours = entry && !entry->green;
    sg_context_ending_locked(context, -1);
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (ours)
        sg_core_context_ending(core, context, false);
}

/* Claims the announcement of a context's end. False: another thread has announced it, or has taken up or made
   another context of this handle, which comes to the same. The announcement is complete then. */
static bool claim_end(CUcontext context, uint64_t id, struct sg_context_info *ret)
{
    for (;; sg_context_pins_rest()) {
        sg_process_lock(SG_LOCK_CONTEXTS);
        struct sg_context_info *entry = sg_context_info_locked(context);
        bool other = id && (!entry || entry->id != id), mine = entry && !other && !entry->end_announced;
        if (mine) {
            entry->end_announced = true;
            *ret = *entry;
        }
        sg_process_unlock(SG_LOCK_CONTEXTS);
        if (mine || other || !entry)
            return mine || !other;
    }
}

/* It is not known any more. True if it was its device's last. */
static bool forget_ended(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    struct sg_context_info *entry = sg_context_info_locked(context);
    int device = entry ? entry->device : -1;
    bool last = entry != NULL;
    sg_context_remove_locked(context);
    for (int i = 0; (entry = sg_context_alive_locked(i)); i++)
        last = last && entry->device != device;
    contexts_note_only_locked();
    atomic_fetch_add(&contexts.changes, 1);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return last;
}

/* `core`: when the call began. `id`: the context's, 0 where it is not known. */
static void contexts_gone(struct sg_core *core, CUcontext context, uint64_t id)
{
    struct sg_context_info was = {0};
    if (!claim_end(context, id, &was))
        return;
    sg_streams_context_gone(context);
    sg_events_context_gone(context);
    sg_captures_context_gone(context);
    sg_graphs_context_gone(context);
    struct sg_core *now = core ? core : sg_process_core_made(); /* made since then, perhaps with this context */
    sg_process_recover();
    if (now)
        sg_streams_host_observed_all(now); /* the driver has waited for what it was given */
    if (was.context && now && !was.green)
        sg_core_context_gone(now, was.device, context);
    if (forget_ended(context) && core) /* plain memory ends with its context: others may want it */
        (void)sg_core_trim(core, was.device, 0);
}

/* The driver has just made it, or said that it is there. Its handle may be that of a context which another thread's
   call has ended and not yet forgotten here. Then that is done now, before anything of this one is noted. Without
   numbers that call is waited for, but not for long. One that lets a primary context go may itself wait in the
   driver, for work that ends only when this thread goes on. */
static void contexts_came(struct sg_core *core, CUcontext context, int device, bool primary)
{
    enum { RESTS = 1000 };
    uint64_t id = id_of(context), noted = noted_id(context);
    for (int i = 0; i < RESTS && core && !id && sg_context_is_ending(context); i++)
        sg_context_pins_rest();
    if (id && noted && id != noted)
        contexts_gone(core, context, noted);
    contexts_seen(core, context, device, primary);
}

CUcontext sg_contexts_primary_of(int device)
{
    CUcontext context = NULL;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *info;
    for (int i = 0; !context && (info = sg_context_alive_locked(i)); i++) {
        if (info->primary && info->device == device)
            context = info->context;
    }
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return context;
}

CUcontext sg_contexts_any(int device)
{
    CUcontext context = sg_contexts_primary_of(device);
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *info;
    for (int i = 0; !context && (info = sg_context_alive_locked(i)); i++) {
        if (info->device == device)
            context = info->context;
    }
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return context;
}

void sg_contexts_announce_all(struct sg_core *core)
{
    struct sg_context_info list[SG_CONTEXTS_KNOWN];
    uint64_t peers[SG_DEVICES_MAX];
    sg_process_lock(SG_LOCK_CONTEXTS);
    int count = sg_context_table.alive;
    for (int i = 0; i < count; i++)
        list[i] = *sg_context_alive_locked(i);
    memcpy(peers, contexts.peers, sizeof peers);
    sg_process_unlock(SG_LOCK_CONTEXTS);
    for (int i = 0; i < count; i++) {
        if (!list[i].green)
            contexts_announce(core, &list[i]);
    }
    for (int home = 0; home < SG_DEVICES_MAX; home++) {
        for (int peer = 0; peer < 64 && peers[home] >> peer; peer++) {
            if (peers[home] >> peer & 1)
                sg_core_peer_access(core, home, peer, true);
        }
    }
}

CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret_context, int *ret_device)
{
    const struct sg_driver *driver = sg_process_driver();
    struct sg_thread *self = &sg_self;
    CUcontext context = NULL;
    CUresult result = driver->ctx_get_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    unsigned changes = atomic_load(&contexts.changes);
    if (self->last.context != context || self->last.changes != changes) {
        CUdevice device;
        result = driver->ctx_get_device(&device);
        if (result != CUDA_SUCCESS)
            return result;
        contexts_seen(core, context, device, false);
        self->last.context = context;
        self->last.device = device;
        self->last.changes = changes;
    }
    *ret_context = context;
    *ret_device = self->last.device;
    return CUDA_SUCCESS;
}

bool sg_contexts_primary(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    bool primary = entry && entry->primary;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return primary;
}

CUcontext sg_contexts_only(void)
{
    return atomic_load_explicit(&contexts.only, memory_order_acquire);
}

bool sg_contexts_devices(void)
{
    return atomic_load_explicit(&contexts.devices, memory_order_relaxed);
}

bool sg_contexts_stands_for_all(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    bool all = entry && entry->primary && sg_context_table.alive < SG_CONTEXTS_KNOWN;
    const struct sg_context_info *other;
    for (int i = 0; all && (other = sg_context_alive_locked(i)); i++) {
        all = other == entry || other->green || other->device != entry->device;
    }
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return all;
}

bool sg_contexts_green(CUcontext context)
{
    if (!atomic_load_explicit(&contexts.greens, memory_order_relaxed))
        return false;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    bool green = entry && entry->green;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return green;
}

CUcontext sg_contexts_of_green(CUgreenCtx green)
{
    CUcontext context = NULL;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *info;
    for (int i = 0; green && (info = sg_context_alive_locked(i)); i++) {
        if (info->green == green)
            context = info->context;
    }
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return context;
}

CUresult cuCtxCreate_v2(CUcontext *ret, unsigned flags, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuCtxCreate_v2(ret, flags, device);
    if (result == CUDA_SUCCESS && ret)
        contexts_came(core, *ret, device, false);
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
        contexts_came(core, *ret, device, false);
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
        contexts_came(core, *ret, device, false);
    if (core)
        sg_leave();
    return result;
}

static CUresult contexts_destroy(CUresult (*real)(CUcontext), CUcontext context)
{
    struct sg_core *core = sg_enter();
    trim_before_end(core, context, false);
    uint64_t id = begin_ending(core, context);
    CUresult result = real(context);
    if (result == CUDA_SUCCESS)
        contexts_gone(core, context, id);
    else
        end_ending(core, context);
    if (core)
        sg_leave();
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return contexts_destroy(sg_real()->cuCtxDestroy, context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return contexts_destroy(sg_real()->cuCtxDestroy_v2, context);
}

/* True if the driver says that a context which was alive has ended. Drivers before CUDA 12.0 have no numbers. */
static bool is_gone(CUcontext context, uint64_t id)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned version;
    if (driver && driver->ctx_get_id && id)
        return id_of(context) != id;
    return driver && driver->ctx_api_version && driver->ctx_api_version(context, &version) != CUDA_SUCCESS;
}

/* Ends the context once its usage count is 0: cuCtxCreate and each cuCtxAttach have raised it. PyCUDA ends all of its
   contexts by this. */
CUresult cuCtxDetach(CUcontext context)
{
    struct sg_core *core = sg_enter();
    trim_before_end(core, context, false);
    uint64_t id = begin_ending(core, context);
    CUresult result = sg_real()->cuCtxDetach(context);
    if (result == CUDA_SUCCESS && context && is_gone(context, id))
        contexts_gone(core, context, id);
    else
        end_ending(core, context);
    if (core)
        sg_leave();
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device)
{
    struct sg_core *core = sg_enter();
    CUresult result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(device))
        result = sg_real()->cuDevicePrimaryCtxRetain(ret, device);
    if (result == CUDA_SUCCESS)
        note_retained(device);
    if (result == CUDA_SUCCESS && ret)
        contexts_came(core, *ret, device, true);
    if (core)
        sg_leave();
    return result;
}

/* True if a primary context is there and still that one; another thread may have ended it, or taken up the next one
   since. */
static bool is_still(int device, CUcontext context, uint64_t id)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned flags;
    int active = 1;
    if (driver && driver->primary_state(device, &flags, &active) == CUDA_SUCCESS && !active)
        return false;
    uint64_t now = id ? id_of(context) : 0;
    return !now || now == id;
}

/* The last release of a primary context ends it, a reset does so at once. */
static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice device, bool reset)
{
    struct sg_core *core = sg_enter();
    CUcontext context = sg_contexts_primary_of(device);
    if (context)
        trim_before_end(core, context, reset);
    uint64_t id = begin_ending(core, context);
    CUresult result = real(device);
    if (result == CUDA_SUCCESS)
        note_released(device, reset);
    if (result == CUDA_SUCCESS && context && (reset || !is_still(device, context, id)))
        contexts_gone(core, context, id);
    else
        end_ending(core, context);
    if (core)
        sg_leave();
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return end_primary(sg_real()->cuDevicePrimaryCtxRelease, device, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return end_primary(sg_real()->cuDevicePrimaryCtxRelease_v2, device, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return end_primary(sg_real()->cuDevicePrimaryCtxReset, device, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return end_primary(sg_real()->cuDevicePrimaryCtxReset_v2, device, true);
}

static CUresult device_of(const struct sg_driver *driver, CUcontext context, int *ret_device)
{
    CUcontext ignored;
    CUdevice device = 0;
    CUresult result = driver->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ctx_get_device(&device);
    driver->ctx_pop(&ignored);
    if (result == CUDA_SUCCESS)
        *ret_device = device;
    return result;
}

bool sg_contexts_device(CUcontext context, int *ret_device)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    int device = entry ? entry->device : -1;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (device < 0 && device_of(sg_process_driver(), context, &device) != CUDA_SUCCESS)
        return false;
    *ret_device = device;
    return true;
}

/* Of the same device as the primary context, which is there as long as the green one. */
CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    CUresult result = sg_real()->cuCtxFromGreenCtx(ret, green);
    const struct sg_driver *driver = result == CUDA_SUCCESS && ret && !sg_thread_inside() ? sg_process_driver() : NULL;
    struct sg_context_info made = {.green = green};
    CUcontext primary;
    if (!driver || device_of(driver, *ret, &made.device) != CUDA_SUCCESS)
        return result;
    made.context = *ret;
    made.id = id_of(*ret);
    struct sg_core *core = sg_enter();
    if (driver->primary_retain(&primary, made.device) == CUDA_SUCCESS) {
        contexts_seen(core, primary, made.device, true);
        driver->primary_release(made.device);
    }
    seen_as(core, &made);
    if (core)
        sg_leave();
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context = sg_contexts_of_green(green);
    struct sg_core *core = sg_enter();
    uint64_t id = begin_ending(core, context);
    CUresult result = sg_real()->cuGreenCtxDestroy(green);
    if (result == CUDA_SUCCESS && context)
        contexts_gone(core, context, id);
    else
        end_ending(core, context);
    if (core)
        sg_leave();
    return result;
}

/* The current context's device gets, or loses, access to the memory of the peer's. */
static CUresult peer_access(CUcontext peer, bool enable)
{
    const struct sg_driver *driver = sg_process_driver();
    if (!driver || sg_thread_inside())
        return CUDA_SUCCESS;
    CUdevice device;
    int home;
    CUresult result = driver->ctx_get_device(&device);
    if (result == CUDA_SUCCESS)
        result = device_of(driver, peer, &home);
    if (result != CUDA_SUCCESS || home == device || home >= SG_DEVICES_MAX || device >= SG_DEVICES_MAX)
        return result;
    sg_process_lock(SG_LOCK_CONTEXTS);
    uint64_t bit = UINT64_C(1) << device;
    contexts.peers[home] = enable ? contexts.peers[home] | bit : contexts.peers[home] & ~bit;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    struct sg_core *core = sg_enter();
    if (core) {
        result = sg_core_peer_access(core, home, device, enable);
        sg_leave();
    }
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    const struct sg_real *real = sg_real();
    CUresult result = real->cuCtxEnablePeerAccess(peer, flags);
    if (result != CUDA_SUCCESS)
        return result;
    result = peer_access(peer, true);
    if (result != CUDA_SUCCESS)
        real->cuCtxDisablePeerAccess(peer);
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult result = sg_real()->cuCtxDisablePeerAccess(peer);
    if (result == CUDA_SUCCESS)
        peer_access(peer, false);
    return result;
}
