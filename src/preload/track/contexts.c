/* The table side of contexts: entries, the only context, peer access, and the steps of an end.

   No driver call and no call of the core is made under SG_LOCK_CONTEXTS. So each function takes what it needs from the
   table, gives the lock back, and acts. Another thread may have changed the table by then, which is why ends are
   claimed and announcements are looked at once more. */
#include "track/contexts.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "process/process.h"
#include "track/context_pins.h"

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
uint64_t sg_contexts_id(CUcontext context)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned long long id = 0;
    return driver && driver->ctx_get_id && driver->ctx_get_id(context, &id) == CUDA_SUCCESS ? id : 0;
}

/* The number in the entry; the driver is not asked. */
uint64_t sg_contexts_noted_id(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    uint64_t id = entry ? entry->id : 0;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return id;
}

/* Brings the two answers that are read without a lock up to date: the only context, and whether there are several
   devices. */
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
void sg_contexts_seen_as(struct sg_core *core, const struct sg_context_info *context)
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

void sg_contexts_seen(struct sg_core *core, CUcontext context, int device, bool primary)
{
    uint64_t id = sg_contexts_noted_id(context) ? 0 : sg_contexts_id(context);
    sg_contexts_seen_as(core,
        &(struct sg_context_info){.context = context, .id = id, .device = device, .primary = primary});
}

bool sg_contexts_is_last(CUcontext context, bool ends, int *ret_device)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context), *other;
    int device = entry && !entry->green ? entry->device : -1;
    bool last = device >= 0 && (ends || !entry->primary || contexts.retained[device] <= 1);
    for (int i = 0; last && (other = sg_context_alive_locked(i)); i++)
        last = other == entry || other->green || other->device != device;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    *ret_device = device;
    return last;
}

/* Counts as the driver does: a reset lets all of them go. */
void sg_contexts_retained(CUdevice device)
{
    if (device < 0 || device >= SG_DEVICES_MAX)
        return;
    sg_process_lock(SG_LOCK_CONTEXTS);
    contexts.retained[device]++;
    sg_process_unlock(SG_LOCK_CONTEXTS);
}

/* A release of a context that was retained before this library could see it counts for nothing. */
void sg_contexts_released(CUdevice device, bool wholly)
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
uint64_t sg_contexts_begin_ending(struct sg_core *core, CUcontext context)
{
    uint64_t id = context ? sg_contexts_noted_id(context) : 0;
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
void sg_contexts_end_ending(struct sg_core *core, CUcontext context)
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
bool sg_contexts_claim_end(CUcontext context, uint64_t id, struct sg_context_info *ret)
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
bool sg_contexts_forget(CUcontext context)
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

/* A look through the list, which has one primary context for each device at most. */
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

/* The primary one stands for all, and lives longest as a rule. */
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

/* Lists are copied under the lock and announced without it. A context that ends meanwhile is taken back by announce
   itself. */
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

/* The driver is asked for the context each time, which is cheap; its device and the notes only where it has changed. */
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
        sg_contexts_seen(core, context, device, false);
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

/* A primary context with no other of its device but green ones, in a table that is not full. */
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

/* One load for programs without green contexts. */
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

void sg_contexts_set_peer(int home, int device, bool enable)
{
    uint64_t bit = UINT64_C(1) << device;
    sg_process_lock(SG_LOCK_CONTEXTS);
    contexts.peers[home] = enable ? contexts.peers[home] | bit : contexts.peers[home] & ~bit;
    sg_process_unlock(SG_LOCK_CONTEXTS);
}

uint64_t sg_contexts_peers(int home)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    uint64_t peers = contexts.peers[home];
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return peers;
}

/* The driver has no call for the device of a given context, so it is made current for a moment. */
CUresult sg_contexts_ask_device(const struct sg_driver *driver, CUcontext context, int *ret_device)
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

/* From the entry, else by the driver. */
bool sg_contexts_device(CUcontext context, int *ret_device)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *entry = sg_context_info_locked(context);
    int device = entry ? entry->device : -1;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    if (device < 0 && sg_contexts_ask_device(sg_process_driver(), context, &device) != CUDA_SUCCESS)
        return false;
    *ret_device = device;
    return true;
}
