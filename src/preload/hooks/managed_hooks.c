/* Managed memory. A driver never refuses it for want of device memory: what does not fit moves to the host's memory
   and is reached over the bus. Idle pages of ours cannot move there. So they are given back before managed memory is
   made, or fetched to a device. Source: "Improving GPU Memory Oversubscription Performance", NVIDIA's developer
   blog. */
#include <stddef.h>

#include "inspect/core_state.h"
#include "serve/deferred_frees.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "report/refusals.h"
#include "hooks/work_note.h"
#include "track/streams.h"
#include "track/context_pins.h"
#include "track/held_outside.h"

/* Bytes of the current context's device that lack for `bytes` to be free. */
static size_t managed_lacking(size_t bytes)
{
    size_t available, total;
    if (sg_process_driver()->mem_info(&available, &total) != CUDA_SUCCESS || available >= bytes)
        return 0;
    return bytes - available;
}

/* Gives idle pages of the device, a context of which is current, back until so many bytes are free, or none is idle. */
static void give_back(struct sg_core *core, int device, size_t bytes)
{
    struct sg_stats stats;
    size_t lacks, given = 1;
    while (given && sg_core_stats(core, device, &stats)) {
        size_t spare = stats.value[SG_STAT_reserved_bytes] - stats.value[SG_STAT_allocated_bytes];
        if (!spare || !(lacks = managed_lacking(bytes)))
            return;
        given = sg_core_trim(core, device, spare > lacks ? spare - lacks : 0);
    }
}

/* Gives idle memory of `device` back until `bytes` more are free, where the driver would otherwise evict managed
   memory. */
static void make_room_on(struct sg_core *core, int device, size_t bytes)
{
    CUcontext context;
    int current;
    if (sg_contexts_current(core, &context, &current) == CUDA_SUCCESS && current == device) {
        give_back(core, device, bytes);
        return;
    }
    int use = sg_context_pin_current(sg_contexts_any(device));
    if (use < 0)
        return;
    give_back(core, device, bytes);
    sg_context_unpin_current(use);
}

/* Nothing while a capture is active: what is pending may not be asked about then. */
static struct sg_core *managed_begin(void)
{
    struct sg_core *core = sg_captures_active() ? NULL : sg_enter();
    if (core)
        sg_memory_settle(core);
    return core;
}

/* Idle pages go back first, as many as lack, since the driver will not say that it has run out. */
CUresult cuMemAllocManaged(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
    struct sg_core *core = managed_begin();
    CUcontext context;
    int device;
    if (core) {
        if (sg_contexts_current(core, &context, &device) == CUDA_SUCCESS)
            give_back(core, device, bytes);
        sg_leave();
    }
    CUresult result = sg_real()->cuMemAllocManaged(ret, bytes, flags);
    SG_MAKE_ROOM_FOR(result, sg_real()->cuMemAllocManaged(ret, bytes, flags))
    if (result == CUDA_SUCCESS) {
        sg_refusals_note_elsewhere(bytes);
        sg_outside_taken_here(SEGALLOC_OUTSIDE_MANAGED, *ret, bytes);
        sg_outside_took(0);
    } else {
        sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MANAGED, bytes);
    }
    return result;
}

/* A program that was refused, and takes the host's memory in its place, has lost nothing. */
CUresult cuMemAllocHost_v2(void **ret, size_t bytes)
{
    CUresult result = sg_real()->cuMemAllocHost_v2(ret, bytes);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_elsewhere(bytes);
    return result;
}

CUresult cuMemHostAlloc(void **ret, size_t bytes, unsigned flags)
{
    CUresult result = sg_real()->cuMemHostAlloc(ret, bytes, flags);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_elsewhere(bytes);
    return result;
}

/* Memory of the program's own that a device is to reach, such as that of malloc(). */
CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    CUresult result = sg_real()->cuMemHostRegister_v2(memory, bytes, flags);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_elsewhere(bytes);
    return result;
}

/* Makes room on the device to which the driver is about to move managed memory. */
static void before_fetching(CUmemLocation to, size_t bytes)
{
    struct sg_core *core = to.type == CU_MEM_LOCATION_TYPE_DEVICE && to.id >= 0 ? managed_begin() : NULL;
    if (!core)
        return;
    make_room_on(core, to.id, bytes);
    sg_leave();
}

/* Each location is that of the ranges from its first one up to the next location's. */
static void before_fetching_all(const size_t *bytes, size_t count, const CUmemLocation *locations, const size_t *firsts,
    size_t location_count)
{
    for (size_t i = 0; bytes && locations && firsts && i < location_count; i++) {
        size_t all = 0, end = i + 1 < location_count ? firsts[i + 1] : count;
        for (size_t range = firsts[i]; range < end && range < count; range++)
            if (__builtin_add_overflow(all, bytes[range], &all))
                return; /* the driver's to refuse */
        before_fetching(locations[i], all);
    }
}

#define FETCH(symbol, per_thread, parameters, arguments, before)          \
    CUresult symbol parameters                                            \
    {                                                                     \
        before;                                                           \
        CUresult result = sg_real()->symbol arguments;                    \
        SG_MAKE_ROOM_FOR(result, sg_real()->symbol arguments)             \
        sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MANAGED, 0); \
        sg_work_note(stream, per_thread);                                 \
        return result;                                                    \
    }
#define FETCH_BOTH(symbol, parameters, arguments, before) \
    FETCH(symbol, false, parameters, arguments, before) \
    FETCH(symbol##_ptsz, true, parameters, arguments, before)

FETCH_BOTH(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
    (address, bytes, device, stream),
    before_fetching((CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, bytes))
FETCH_BOTH(cuMemPrefetchAsync_v2,
    (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
    (address, bytes, location, flags, stream), before_fetching(location, bytes))
FETCH_BOTH(cuMemPrefetchBatchAsync,
    (CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations, size_t *firsts,
        size_t location_count, unsigned long long flags, CUstream stream),
    (addresses, bytes, count, locations, firsts, location_count, flags, stream),
    before_fetching_all(bytes, count, locations, firsts, location_count))
FETCH_BOTH(cuMemDiscardAndPrefetchBatchAsync,
    (CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations, size_t *firsts,
        size_t location_count, unsigned long long flags, CUstream stream),
    (addresses, bytes, count, locations, firsts, location_count, flags, stream),
    before_fetching_all(bytes, count, locations, firsts, location_count))
