/* See hooks_world.h. */
#include "inspect/core_state.h"
#include "hooks_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/callers.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "serve/alloc.h"
#include "services/trim.h"
#include "serve/fast_path.h"
#include "track/streams.h"
#include "track/torch_mode.h"

struct fake fake;
struct allocation allocation;
struct flags flags;

atomic_bool sg_following_order, sg_captures_begun;
atomic_int sg_captures_deferred, sg_graphs_blocks, sg_graphs_gone;

static CUresult answer(const char *name, CUdeviceptr address)
{
    CUresult result = fake.calls++ == 0 && fake.once ? fake.once : fake.answer;
    fake.called = name;
    fake.asked = address;
    return result;
}

/* The driver's own functions. */
#define ONE(symbol, parameters, address) \
    static CUresult real_##symbol parameters { return answer(#symbol, (CUdeviceptr)(uintptr_t)(address)); }
/* With the place that is bound to something. */
#define BIND(symbol, parameters, address) \
    static CUresult real_##symbol parameters \
    { \
        assert_true(offset == OFFSET && bytes == BYTES); \
        return answer(#symbol, (CUdeviceptr)(uintptr_t)(address)); \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ONE(cuMemAlloc_v2, (CUdeviceptr *ret, size_t bytes), 0)
ONE(cuMemFree_v2, (CUdeviceptr address), address)
ONE(cuMemFreeAsync, (CUdeviceptr address, CUstream of), address)
ONE(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream of), address)
ONE(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *ret, void *address), address)
ONE(cuMemGetHandleForAddressRange, (void *ret, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
    unsigned long long how), address)
BIND(cuMulticastBindAddr, (CUmemGenericAllocationHandle to, size_t offset, CUdeviceptr address, size_t bytes,
    unsigned long long how), address)
BIND(cuMulticastBindAddr_v2, (CUmemGenericAllocationHandle to, CUdevice device, size_t offset, CUdeviceptr address,
    size_t bytes, unsigned long long how), address)
BIND(cuLogicalEndpointBindAddr, (cuuint32_t to, CUdevice device, cuuint64_t offset, void *address, cuuint64_t bytes,
    unsigned long long how), address)
ONE(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr address), address)
ONE(cuMemUnmap, (CUdeviceptr address, size_t bytes), address)
ONE(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count), address)
ONE(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr address), address)
ONE(cuPointerGetAttributes, (unsigned count, CUpointer_attribute *list, void **data, CUdeviceptr address), address)
#pragma GCC diagnostic pop

static CUresult real_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    if (data && attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
        *(int *)data = allocation.legacy;
        return allocation.attribute;
    }
    return answer("cuPointerGetAttribute", address);
}

static CUresult real_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    if (base)
        *base = allocation.base;
    if (bytes)
        *bytes = 2 * BYTES;
    return allocation.range ? allocation.range : answer("cuMemGetAddressRange_v2", address);
}

static CUresult real_cuMemAllocPitch_v2(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)width, (void)height, (void)element;
    CUresult result = answer("cuMemAllocPitch_v2", 0);
    if (result != CUDA_SUCCESS)
        return result;
    *ret = THEIRS;
    *pitch = fake.pitch;
    return result;
}

static CUresult real_cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CUresult result = answer("cuMemGetInfo_v2", 0);
    if (result == CUDA_SUCCESS && available)
        *available = 1000;
    if (result == CUDA_SUCCESS && total)
        *total = 4000;
    return result;
}

static CUresult real_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    CUresult result = answer("cuDeviceTotalMem_v2", 0);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = 2 * LIMIT;
    return result;
}

const struct sg_real *sg_real(void)
{
#define TAKE(symbol) .symbol = real_##symbol
    static const struct sg_real real = {TAKE(cuMemAlloc_v2), TAKE(cuMemFree_v2), TAKE(cuMemFreeAsync),
        TAKE(cuMemFreeAsync_ptsz), TAKE(cuMemRetainAllocationHandle), TAKE(cuMemGetHandleForAddressRange),
        TAKE(cuMulticastBindAddr), TAKE(cuMulticastBindAddr_v2), TAKE(cuLogicalEndpointBindAddr),
        TAKE(cuPointerSetAttribute), TAKE(cuMemUnmap), TAKE(cuMemSetAccess),
        TAKE(cuIpcGetMemHandle), TAKE(cuPointerGetAttribute), TAKE(cuPointerGetAttributes),
        TAKE(cuMemGetAddressRange_v2), TAKE(cuMemAllocPitch_v2), TAKE(cuMemGetInfo_v2), TAKE(cuDeviceTotalMem_v2)};
    return &real;
}

static CUresult stream_id(CUstream asked, unsigned long long *ret)
{
    (void)asked;
    *ret = 1;
    return fake.stream_id;
}

static CUresult push(CUcontext pushed)
{
    assert_ptr_equal(pushed, CONTEXT);
    flags.pushes += flags.push == CUDA_SUCCESS;
    return flags.push;
}

static CUresult pop(CUcontext *ret)
{
    *ret = CONTEXT;
    flags.pushes--;
    return CUDA_SUCCESS;
}

static CUresult get_flags(unsigned *ret)
{
    *ret = flags.flags;
    return flags.get;
}

static CUresult set_flags(unsigned set)
{
    flags.flags = set;
    return flags.set;
}

const struct sg_driver *sg_process_driver(void)
{
    static struct sg_driver driver;
    driver = (struct sg_driver){.ctx_push = push, .ctx_pop = pop, .stream_get_id = stream_id,
        .ctx_get_flags = flags.lacks_get ? NULL : get_flags, .ctx_set_flags = flags.lacks_set ? NULL : set_flags};
    return fake.no_driver ? NULL : &driver;
}

/* The rest of the library. */
static struct sg_core *const core = (struct sg_core *)&fake;

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.inside || fake.over || fake.early ? NULL : core);
}

struct sg_core *sg_enter_allocation(void)
{
    return sg_enter();
}

struct sg_core *sg_enter_traced(void)
{
    return sg_enter_allocation();
}

bool sg_process_owns(CUdeviceptr address)
{
    return address >= OURS && address < THEIRS;
}

bool sg_process_over(void)
{
    return fake.over;
}

bool sg_process_is_passthrough(void)
{
    return fake.passing;
}

bool sg_thread_inside(void)
{
    return fake.inside;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    conf = (struct sg_conf){.limit_visible = fake.limited, .limit_bytes = LIMIT, .per_process_memory_fraction = 1};
    return &conf;
}

CUresult sg_ipc_refused(bool legacy)
{
    fake.refused++;
    fake.refused_legacy = legacy;
    return CUDA_ERROR_INVALID_VALUE;
}

enum sg_caller sg_caller_kind(const void *code)
{
    assert_non_null(code);
    return fake.passes ? SG_CALLER_NCCL : SG_CALLER_OTHER;
}

enum sg_caller sg_caller_current(void)
{
    return fake.torch && !fake.plugged ? SG_CALLER_TORCH : SG_CALLER_UNKNOWN;
}

uint64_t sg_core_limit(struct sg_core *asked, int device)
{
    (void)asked, (void)device;
    return fake.limit ? fake.limit : UINT64_MAX;
}

bool sg_torch_counts(void)
{
    return fake.torch;
}

bool sg_torch_direct(void)
{
    return fake.torch;
}

bool sg_captures_active(void)
{
    return fake.live;
}

CUresult sg_contexts_current(struct sg_core *asked, CUcontext *ret, int *ret_device)
{
    (void)asked;
    *ret = CONTEXT;
    *ret_device = fake.device;
    return fake.current;
}

CUresult sg_core_block(struct sg_core *asked, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)asked, (void)address;
    if (fake.block == CUDA_SUCCESS)
        *ret =
            (struct sg_block_info){.base = OURS, .bytes = BYTES, .context = CONTEXT, .buffer_id = 7, .plain = fake.plain};
    return fake.block;
}

bool sg_core_pin_all(struct sg_core *asked)
{
    (void)asked;
    fake.pinned_all++;
    return fake.any_pages;
}

void sg_log_line(const char *line)
{
    assert_non_null(strstr(line, "cuMulticastBindTomorrow, "));
    fake.said++;
}

void sg_core_pin(struct sg_core *asked, CUdeviceptr address, size_t bytes)
{
    (void)asked, (void)address, (void)bytes;
    fake.pinned++;
}

size_t sg_core_trim(struct sg_core *asked, int device, size_t keep)
{
    (void)asked, (void)device, (void)keep;
    return fake.idle;
}

void sg_core_mem_info(struct sg_core *asked, int device, size_t *available, size_t *total)
{
    (void)asked, (void)device;
    *available = 2000;
    *total = 3000;
}

void sg_core_poll(struct sg_core *asked, int device)
{
    (void)asked, (void)device;
    fake.polled++;
}

bool sg_core_awaits(struct sg_core *asked, int device)
{
    (void)asked, (void)device;
    return fake.awaits > fake.polled;
}

bool sg_core_stats_recent(struct sg_core *asked, int device, struct sg_stats *ret)
{
    (void)asked, (void)device;
    memset(ret, 0, sizeof *ret);
    ret->value[SG_STAT_frees] = fake.freed;
    ret->value[SG_STAT_reserved_bytes] = fake.reserved;
    return true;
}

bool sg_core_take_peaks(struct sg_core *asked, int device, struct sg_stats *ret)
{
    (void)asked, (void)device;
    memset(ret, 0, sizeof *ret);
    ret->peak[SG_STAT_requested_bytes] = 77;
    return true;
}

CUresult sg_memory_alloc(struct sg_core *asked, size_t bytes, const struct sg_request *request, CUdeviceptr *ret)
{
    (void)asked, (void)request;
    *ret = OURS;
    fake.allocated = bytes;
    return CUDA_SUCCESS;
}

CUresult sg_memory_passthrough(struct sg_core *asked, size_t bytes, CUdeviceptr *ret)
{
    (void)asked;
    *ret = THEIRS;
    fake.passed += (int)bytes;
    return CUDA_SUCCESS;
}

CUresult sg_memory_free(struct sg_core *asked, CUdeviceptr address, const struct sg_request *request)
{
    (void)asked, (void)address, (void)request;
    fake.frees++;
    return CUDA_SUCCESS;
}

CUresult sg_memory_free_passthrough(CUdeviceptr address, const struct sg_request *request)
{
    (void)address, (void)request;
    fake.passed++;
    return CUDA_SUCCESS;
}

struct sg_request sg_memory_origin(int caller)
{
    (void)caller;
    return (struct sg_request){0};
}

CUresult sg_memory_record_stream(struct sg_core *asked, CUdeviceptr address, CUstream of)
{
    (void)asked, (void)address, (void)of;
    fake.recorded++;
    return CUDA_SUCCESS;
}

void sg_memory_record_served(CUdeviceptr address, CUstream of)
{
    (void)address, (void)of;
    fake.served++;
}

void sg_memory_wait_cross_device(void)
{
    fake.abroad++;
}

void sg_memory_run_deferred(struct sg_core *asked)
{
    (void)asked;
    fake.settled++;
}

uint64_t sg_trim_idle_of_others(void)
{
    return fake.of_others;
}

void sg_memory_settle(struct sg_core *asked)
{
    (void)asked;
    fake.settled++;
}

void sg_follow_as_configured(void)
{
    fake.followed++;
}

void sg_memory_torch_records(void)
{
    fake.torch_records++;
}

void sg_memory_record_stream_hooked(void)
{
    fake.hooked++;
}

enum sg_graphs_answer sg_graphs_retain(CUdeviceptr address, const struct sg_request *request, bool waited)
{
    (void)address, (void)request, (void)waited;
    fake.kept++;
    return SG_GRAPHS_FREE;
}

const char *sg_streams_untracked_by(void)
{
    return NULL;
}

void sg_streams_host_may_observe_all(void)
{
    fake.told++;
}

bool sg_fast_malloc_on(size_t bytes, CUstream of, CUdeviceptr *ret)
{
    (void)bytes, (void)of, (void)ret;
    return false;
}

bool sg_fast_free_on(CUdeviceptr address)
{
    (void)address;
    return false;
}

void sg_fast_path_prepare_streams(void)
{
}

CUresult sg_fast_path_take_error(void)
{
    return CUDA_SUCCESS;
}

int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&flags, 0, sizeof flags);
    memset(&allocation, 0, sizeof allocation);
    sg_following_order = false;
    return 0;
}

uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings)
{
    (void)bytes, (void)mappings;
    return granularity;
}
