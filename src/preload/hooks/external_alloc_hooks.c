/* Memory that the program takes from the driver itself, and gives back, by all calls of
   process/external_alloc_hooks.def.

   Each hook makes the call, gives idle memory back and makes it again if the driver has run out, and books the result
   (track/held_outside.h). For example, cuMemCreate of 2 GiB is refused with 3 GiB idle here. The 3 GiB go back, and the
   second call succeeds. 2 GiB are booked as physical memory of that device. */
#include "process/hooks.h"
#include "process/host_limits.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "report/refusals.h"
#include "track/captures.h"
#include "track/held_outside.h"
#include "serve/make_room.h"

/* Physical memory may be the host's. */
static bool is_on_device(const CUmemAllocationProp *prop)
{
    return prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* The device, as a bit. */
static uint64_t note_physical(CUmemGenericAllocationHandle handle, size_t bytes, const CUmemAllocationProp *prop)
{
    if (!is_on_device(prop))
        return 0;
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, handle, prop->location.id, bytes);
    return sg_outside_bit(prop->location.id);
}

static uint64_t note_pool(uint64_t devices)
{
    sg_outside_use_pools(devices);
    return devices;
}

/* Bytes in use before a call whose memory nobody states. Modules are many, so the question is asked for a trace only.
   */
static uint64_t before_measured(enum segalloc_outside what)
{
    return what != SEGALLOC_OUTSIDE_MODULES || sg_outside_traced() ? sg_outside_used() : 0;
}

static void note_measured(enum segalloc_outside what, uint64_t before)
{
    if (before)
        sg_outside_measured(what, before, sg_outside_used());
}

/* True if a device has the host's memory, whose end the driver does not answer for. */
static bool is_guarded(void)
{
    return sg_process_driver() && sg_host_limits_integrated() && !sg_process_is_passthrough();
}

/* A pool takes nothing in a capture. `devices` is one as a bit; 0: the current context's. */
static bool is_pool_refused(uint64_t devices, CUmemoryPool pool, size_t bytes)
{
    return !sg_captures_active() && sg_host_limits_refuse_pool(devices ? __builtin_ctzll(devices) : -1, pool, bytes);
}

/* Calls that are refused before the driver is asked: those whose size is known, and taken at once (process/host_limits.h). */
#define HOST_REFUSES_PHYSICAL (is_guarded() && is_on_device(prop) && sg_host_limits_refuse(prop->location.id, bytes))
#define HOST_REFUSES_ASYNC (is_guarded() && is_pool_refused(sg_outside_stream_device(stream), NULL, bytes))
#define HOST_REFUSES_FROM_POOL \
    (is_guarded() && is_pool_refused(sg_outside_bit(sg_outside_pool_device(pool)), pool, bytes))
#define HOST_REFUSES_NODE false
#define HOST_REFUSES_ARRAYS false
#define HOST_REFUSES_MODULES false
#define HOST_REFUSES_IMPORTED false

/* How a call is booked, before it and after its success. `devices`: bits of those whose memory it is; 0: the current
   context's. Arrays, modules and external memory do not say how much they take. */
#define BEFORE_NODE
#define AFTER_NODE devices = note_pool(params ? sg_outside_bit(params->poolProps.location.id) : 0)
#define BEFORE_GRAPHS_TRIM
#define AFTER_GRAPHS_TRIM devices = note_pool(sg_outside_bit(device))
#define BEFORE_ASYNC
#define AFTER_ASYNC devices = note_pool(sg_outside_stream_device(stream)); sg_refusals_note_elsewhere(bytes)
#define BEFORE_FROM_POOL
#define AFTER_FROM_POOL devices = note_pool(sg_outside_bit(sg_outside_pool_device(pool))); sg_refusals_note_elsewhere(bytes)
#define BEFORE_POOL_TRIM
#define AFTER_POOL_TRIM devices = note_pool(sg_outside_bit(sg_outside_pool_device(pool)))
#define BEFORE_POOL_END devices = sg_outside_bit(sg_outside_pool_device(pool));
#define AFTER_POOL_END sg_outside_pool_gone(pool)
#define BEFORE_PHYSICAL
#define AFTER_PHYSICAL devices = note_physical(*ret, bytes, prop); sg_refusals_note_elsewhere(bytes)
#define BEFORE_PHYSICAL_END
#define AFTER_PHYSICAL_END devices = sg_outside_bit(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, handle))
#define BEFORE_ARRAYS uint64_t before = before_measured(SEGALLOC_OUTSIDE_ARRAYS);
#define AFTER_ARRAYS                                \
    note_measured(SEGALLOC_OUTSIDE_ARRAYS, before); \
    sg_refusals_note_elsewhere(0)
#define BEFORE_MODULES uint64_t before = before_measured(SEGALLOC_OUTSIDE_MODULES);
#define AFTER_MODULES                                \
    note_measured(SEGALLOC_OUTSIDE_MODULES, before); \
    sg_refusals_note_elsewhere(0)
#define BEFORE_IMPORTED uint64_t before = before_measured(SEGALLOC_OUTSIDE_IMPORTED);
#define AFTER_IMPORTED                                \
    note_measured(SEGALLOC_OUTSIDE_IMPORTED, before); \
    sg_refusals_note_elsewhere(0)

/* The note that is made of it. It may be the first call that the process asks memory by. Libraries load modules before
   anything is known of the program. */
#define NOTE_NODE sg_outside_took(devices)
#define NOTE_ASYNC sg_outside_took(devices)
#define NOTE_FROM_POOL sg_outside_took(devices)
#define NOTE_PHYSICAL if (devices) sg_outside_took(devices)
#define NOTE_ARRAYS sg_outside_took(devices)
#define NOTE_IMPORTED sg_outside_took(devices)
#define NOTE_MODULES sg_outside_changed(devices, /* starts */ false)

/* Its record, if it stays refused. */
#define REFUSED_NODE                                                                             \
    sg_refusals_note_outside(result, params ? sg_outside_bit(params->poolProps.location.id) : 0, \
        SEGALLOC_OUTSIDE_GRAPHS, 0)
#define REFUSED_ASYNC sg_refusals_note_outside(result, sg_outside_stream_device(stream), SEGALLOC_OUTSIDE_POOLS, bytes)
#define REFUSED_FROM_POOL \
    sg_refusals_note_outside(result, sg_outside_bit(sg_outside_pool_device(pool)), SEGALLOC_OUTSIDE_POOLS, bytes)
#define REFUSED_PHYSICAL \
    if (is_on_device(prop)) \
    sg_refusals_note_outside(result, sg_outside_bit(prop->location.id), SEGALLOC_OUTSIDE_PHYSICAL, bytes)
#define REFUSED_ARRAYS sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_ARRAYS, 0)
#define REFUSED_IMPORTED sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_IMPORTED, 0)
#define REFUSED_MODULES sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MODULES, 0)

#define ASK(symbol, noted, arguments) (HOST_REFUSES_##noted ? CUDA_ERROR_OUT_OF_MEMORY : sg_real()->symbol arguments)
#define TAKES(symbol, base, version, threads, noted, parameters, arguments) \
    CUresult symbol parameters                                              \
    {                                                                       \
        uint64_t devices = 0;                                               \
        BEFORE_##noted CUresult result = ASK(symbol, noted, arguments);     \
        SG_MAKE_ROOM_FOR(result, ASK(symbol, noted, arguments))             \
        if (result == CUDA_SUCCESS) {                                       \
            AFTER_##noted;                                                  \
            NOTE_##noted;                                                   \
        } else {                                                            \
            REFUSED_##noted;                                                \
        }                                                                   \
        return result;                                                      \
    }
#define GIVES(symbol, base, version, threads, noted, parameters, arguments) \
    CUresult symbol parameters                                              \
    {                                                                       \
        uint64_t devices = 0;                                               \
        BEFORE_##noted                                                      \
        CUresult result = sg_real()->symbol arguments;                      \
        if (result == CUDA_SUCCESS) {                                       \
            AFTER_##noted;                                                  \
            sg_outside_changed(devices, /* starts */ false);                \
        }                                                                   \
        return result;                                                      \
    }
#include "process/external_alloc_hooks.def"

CUresult cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
    CUresult result = sg_real()->cuMemPoolCreate(ret, props);
    if (result == CUDA_SUCCESS && props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        sg_outside_pool(*ret, props->location.id);
    return result;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result = sg_real()->cuDeviceGetGraphMemAttribute(device, attribute, value);
    if (result == CUDA_SUCCESS && value)
        *(cuuint64_t *)value = sg_outside_graphs_most(device, attribute, *(cuuint64_t *)value);
    return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result = sg_real()->cuDeviceSetGraphMemAttribute(device, attribute, value);
    if (result == CUDA_SUCCESS)
        sg_outside_graphs_most_reset(device, attribute);
    return result;
}
