/* The driver's calls that allocate, free, and say how much there is.

   cuMemGetInfo is the delicate one: programs plan with it. The answer is what an allocation could get: the driver's
   free bytes, idle memory of ours, idle memory of other processes, up to the limit. For example, a card of 24 GiB has 2
   GiB free, and 5 GiB of ours are idle: the answer is 7 GiB. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "check/faults.h"
#include "check/guard.h"
#include "inspect/core_state.h"
#include "serve/callers.h"
#include "serve/deferred_frees.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/make_room.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "process/capture_mode.h"
#include "process/environment.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "track/pool_streams.h"
#include "process/hooks.h"
#include "process/host_limits.h"
#include "process/process.h"
#include "process/rehearsal.h"
#include "services/trim.h"
#include "serve/alloc.h"
#include "report/refusals.h"
#include "serve/fast_path.h"
#include "services/outside_trace.h"
#include "base/rest.h"
#include "base/size.h"
#include "track/streams.h"
#include "track/torch_mode.h"
#include "base/wrap.h"

/* The module that this call belongs to. It is the one that called the runtime, or, if it links the runtime statically,
   the one at the return address. */
static enum sg_caller memory_caller_at(const void *code)
{
    enum sg_caller caller = sg_caller_current();
    return caller == SG_CALLER_UNKNOWN ? sg_caller_kind(code) : caller;
}

static CUresult memory_hook_allocate(struct sg_core *core, size_t bytes, enum sg_caller caller, CUdeviceptr *ret)
{
    struct sg_request request = sg_memory_origin(caller);
    return sg_caller_passes(caller) ? sg_memory_passthrough(core, bytes, ret)
        : sg_memory_alloc(core, bytes, &request, ret);
}

/* The error of an allocation that the fast path has tried in vain comes first. The runtime asks here once more, so that
   its own error slot is set. Then the core, or the driver where there is none. */
CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
    CUresult result = sg_fast_path_take_error();
    if (result != CUDA_SUCCESS)
        return result;
    struct sg_core *core = sg_enter_allocation();
    if (!core)
        return sg_real()->cuMemAlloc_v2(ret, bytes);
    result = memory_hook_allocate(core, bytes, memory_caller_at(__builtin_return_address(0)), ret);
    sg_leave();
    sg_fault_seen(result, "cuMemAlloc");
    return result;
}

/* The driver has freed what it had served. */
static void note_freed(CUdeviceptr address)
{
    int device = sg_outside_given(SEGALLOC_OUTSIDE_DRIVER, address);
    if (device < 0)
        device = sg_outside_given(SEGALLOC_OUTSIDE_MANAGED, address);
    if (device >= 0)
        sg_outside_changed(sg_outside_bit(device), /* starts */ false);
    else
        sg_outside_waited();
}

/* Memory of ours goes to the core, any other to the driver. After the process's end a free succeeds and does nothing.
   */
CUresult cuMemFree_v2(CUdeviceptr address)
{
    if (!sg_process_owns(address)) {
        (void)sg_graphs_retain(address, NULL, /* waited */ true);
        if (sg_caller_current() == SG_CALLER_TORCH && sg_torch_direct())
            sg_memory_wait_cross_device();
        CUresult result = sg_real()->cuMemFree_v2(address);
        if (result == CUDA_SUCCESS && sg_following() && address)
            sg_streams_host_may_observe_all(); /* it has waited */
        if (result == CUDA_SUCCESS && address)
            note_freed(address);
        return result;
    }
    if (sg_process_over())
        return CUDA_SUCCESS;
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_request request = sg_memory_origin(sg_caller_current());
    CUresult result = sg_memory_free(core, address, &request);
    sg_leave();
    sg_fault_seen(result, "cuMemFree");
    return result;
}

/* The driver's word on a stream that a caller names. */
static CUresult valid_stream(CUstream stream)
{
    const struct sg_driver *driver = sg_process_driver();
    unsigned long long id;
    if (!driver->stream_get_id || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_SUCCESS;
    return driver->stream_get_id(stream, &id);
}

/* cuMemFreeAsync. Memory of ours is freed in the stream's order; the driver's goes to the driver. The stream is checked
   first, because the driver would answer an invalid one with an error. */
static CUresult free_async(CUresult (*real)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream)
{
    if (!sg_process_owns(address)) {
        CUresult result = real(address, stream);
        if (result == CUDA_SUCCESS && address) {
            sg_pool_streams_note(stream, false);
            note_freed(address);
        }
        return result;
    }
    if (sg_process_over())
        return CUDA_SUCCESS;
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sg_request request = {.stream = stream, .has_stream = true, .stream_order = true};
    CUresult result = valid_stream(stream);
    sg_follow_as_configured();
    if (result == CUDA_SUCCESS)
        result = sg_memory_free(core, address, &request);
    sg_leave();
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return free_async(sg_real()->cuMemFreeAsync, address, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return free_async(sg_real()->cuMemFreeAsync_ptsz, address, stream ? stream : CU_STREAM_PER_THREAD);
}

/* How the driver aligns rows on this device, learnt from one small allocation of its own, for which what we hold idle
   makes room. In relaxed mode during a capture, as the allocation itself will be. 0 where it gave none. */
static size_t pitch_alignment(struct sg_core *core, int device, unsigned element)
{
    static _Atomic(size_t) known[SG_DEVICES_MAX];
    size_t alignment = device < SG_DEVICES_MAX ? atomic_load_explicit(&known[device], memory_order_relaxed) : 0;
    CUdeviceptr probe;
    if (alignment)
        return alignment;
    const struct sg_real *real = sg_real();
    CUstreamCaptureMode mode;
    bool relaxed = sg_captures_active() && sg_capture_mode_relax(&mode);
    CUresult result = real->cuMemAllocPitch_v2(&probe, &alignment, 1, 1, element);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = real->cuMemAllocPitch_v2(&probe, &alignment, 1, 1, element);
    if (result == CUDA_SUCCESS)
        real->cuMemFree_v2(probe);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    if (result != CUDA_SUCCESS)
        return 0;
    if (sg_has_several_bits(alignment))
        return 0;
    if (device < SG_DEVICES_MAX)
        atomic_store_explicit(&known[device], alignment, memory_order_relaxed);
    return alignment;
}

/* Rows are padded as the driver pads them, then it is an allocation like any other. For example, rows of 1,000 bytes
   with an alignment of 512 are 1,024 apart, and 100 of them are 102,400 bytes. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height, unsigned element)
{
    struct sg_core *core = sg_enter_allocation();
    if (!core)
        return sg_real()->cuMemAllocPitch_v2(ret, pitch, width, height, element);
    CUcontext context;
    int device;
    size_t alignment = 0, row, bytes;
    bool valid = ret && pitch && width && height && (element == 4 || element == 8 || element == 16);
    if (valid && sg_contexts_current(core, &context, &device) == CUDA_SUCCESS)
        alignment = pitch_alignment(core, device, element);
    CUresult result;
    if (!alignment || __builtin_add_overflow(width, alignment - 1, &row) ||
        __builtin_mul_overflow(row &= ~(alignment - 1), height, &bytes)) {
        result = sg_real()->cuMemAllocPitch_v2(ret, pitch, width, height, element);
    } else {
        result = memory_hook_allocate(core, bytes, memory_caller_at(__builtin_return_address(0)), ret);
        if (result == CUDA_SUCCESS)
            *pitch = row;
    }
    sg_leave();
    return result;
}

/* The memory of a device by the answer to the program; 0: the device's own. A rehearsal simulates a card without end,
   and the program plans with the card of its user. */
static uint64_t reported_bytes(void)
{
    const char *text = sg_environment("SEGALLOC_TOLD_BYTES");
    uint64_t bytes;
    return text && sg_size_parse(text, &bytes) ? bytes : 0;
}

/* Shows a smaller card than there is: used bytes stay as they are, free ones are what the smaller card has left. */
static void report_card(uint64_t reported, size_t *available, size_t *total)
{
    uint64_t used = *total - *available;
    if (!reported || reported >= *total)
        return;
    *total = reported;
    *available = reported > used ? reported - used : 0;
}

/* The size of a page that the core will have on the current device; 1: it will have none. */
static size_t page_to_come(const struct sg_conf *conf, size_t capacity)
{
    const struct sg_driver *driver = sg_process_driver();
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdevice device;
    int vmm = 0;
    size_t granule = 0;
    if (!driver || !conf->expandable_segments || conf->ipc == SG_IPC_ALWAYS || !sg_driver_has_vmm(driver) ||
        driver->ctx_get_device(&device) != CUDA_SUCCESS ||
        driver->device_attribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != CUDA_SUCCESS ||
        !vmm)
        return 1;
    prop.location.id = device;
    if (driver->granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || !granule)
        return 1;
    if (conf->page_size != SG_AUTO)
        return (conf->page_size + granule - 1) / granule * granule;
    return sg_core_page_bytes(granule, capacity, (uint64_t)conf->mapping_limit);
}

/* Before the first allocation on a device, whichever others there were: programs ask early how much they may plan with.
   The answer is rounded as the core will round it. Example: a card of 80 GiB with 4102 MiB free, and pages of 8 MiB.
   4096 MiB are free before the first allocation and after the last free, and an allocation of those succeeds. */
static void mem_info_early(size_t *available, size_t *total)
{
    const struct sg_conf *conf = sg_process_conf();
    size_t limit = sg_conf_limit(conf, *total);
    *available = *available < limit ? *available : limit;
    if (*available <= limit / 2 && !sg_torch_counts())
        *available -= *available % page_to_come(conf, limit);
    if (conf->limit_visible)
        *total = limit;
}

/* Natively, freed memory is free when the program queries it. Here the work on it must be known to be complete. An idle
   device reaches our newest events some microseconds after they were recorded, so this waits for them. An event that
   outlasts the wait stands behind the program's own work; then the next wait comes only after another free. */
static void wait_for_completions(struct sg_core *core, int device)
{
    enum { FIRST_NS = 10000, MOST_NS = 1000000, ALL_NS = 100000000 };
    static _Atomic uint64_t in_vain[SG_DEVICES_MAX]; /* one more than the frees that there had been by then */
    struct sg_stats stats;
    long slice = FIRST_NS, waited = 0;
    sg_core_poll(core, device);
    if (!sg_core_awaits(core, device))
        return;
    (void)sg_core_stats_recent(core, device, &stats); /* the core knows a device that it awaits something of */
    uint64_t frees = 1 + stats.value[SG_STAT_frees];
    bool again = atomic_load_explicit(&in_vain[device], memory_order_relaxed) == frees;
    for (; !again && waited < ALL_NS && sg_core_awaits(core, device) && !sg_captures_active(); waited += slice) {
        sg_rest(slice);
        slice = slice < MOST_NS ? 2 * slice : slice;
        sg_core_poll(core, device);
    }
    if (waited >= ALL_NS)
        atomic_store_explicit(&in_vain[device], frees, memory_order_relaxed);
}

/* A program with PyTorch's statistics counts idle memory of the cache as used, until it empties the cache. So do
   estimates of what may still be allocated. Source: torch.cuda.memory_reserved(), and vllm/utils/mem_utils.py. */
static size_t beyond_what_is_held(struct sg_core *core, int device, size_t free_bytes)
{
    struct sg_stats stats;
    if (!sg_core_stats_recent(core, device, &stats))
        return free_bytes;
    uint64_t limit = sg_core_limit(core, device), held = stats.value[SG_STAT_reserved_bytes];
    uint64_t allowed = limit > held ? limit - held : 0;
    return free_bytes < allowed ? free_bytes : (size_t)allowed;
}

/* Free is what an allocation could get: the driver's free bytes, idle memory of other processes, idle memory here.
   Frees that are due are made first. Where PyTorch's statistics are ours, idle memory here counts as used, as its own
   cache's would. */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    enum { GUARD_WAIT_NS = 100000000 }; /* as wait_for_completions() */
    const struct sg_real *real = sg_real();
    if (sg_thread_inside())
        return real->cuMemGetInfo_v2(free_bytes, total_bytes);
    bool ours = !sg_process_over() && !sg_process_is_passthrough();
    sg_rehearsal_note_question(ours);
    if (!ours)
        return real->cuMemGetInfo_v2(free_bytes, total_bytes);
    sg_refusals_ask();
    struct sg_stats stats;
    size_t available, total;
    CUcontext context;
    int device;
    sg_guard_polls(GUARD_WAIT_NS);
    CUresult result = real->cuMemGetInfo_v2(&available, &total);
    if (result != CUDA_SUCCESS)
        return result;
    sg_host_limits_bound(&available);
    uint64_t of_others = sg_trim_idle_of_others();
    available += of_others < total - available ? of_others : total - available;
    struct sg_core *core = sg_enter();
    if (core)
        sg_memory_settle(core);
    if (!core) {
        mem_info_early(&available, &total);
    } else if (sg_contexts_current(core, &context, &device) == CUDA_SUCCESS) {
        sg_refusals_count_questions(core, device);
        if (!sg_core_stats_recent(core, device, &stats)) /* nothing was allocated there yet */
            mem_info_early(&available, &total);
        size_t of_driver = available;
        bool torch = sg_torch_counts(); /* its answer does not depend on what else is free */
        if (!torch)
            wait_for_completions(core, device);
        sg_core_mem_info(core, device, &available, &total);
        if (torch)
            available = beyond_what_is_held(core, device, of_driver);
    }
    if (core)
        sg_leave();
    report_card(reported_bytes(), &available, &total);
    if (free_bytes)
        *free_bytes = available;
    if (total_bytes)
        *total_bytes = total;
    return CUDA_SUCCESS;
}

/* With limit_visible:True the limit is the card's size. Programs that size themselves by it adapt to their card, so a
   rehearsal is told of the question. */
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = sg_real()->cuDeviceTotalMem_v2(bytes, device);
    if (result != CUDA_SUCCESS || !bytes || sg_thread_inside())
        return result;
    sg_rehearsal_note_question(!sg_process_is_passthrough());
    if (sg_process_is_passthrough())
        return result;
    const struct sg_conf *conf = sg_process_conf();
    if (conf->limit_visible)
        *bytes = sg_conf_limit(conf, *bytes);
    report_card(reported_bytes(), &(size_t){*bytes}, bytes);
    return result;
}
