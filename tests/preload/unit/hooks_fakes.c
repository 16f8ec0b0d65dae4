/* See hooks_fakes.h. */
#include "hooks_fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "process/capture_mode.h"
#include "serve/callers.h"
#include "serve/fast_path.h"
#include "track/captures.h"
#include "track/torch_mode.h"

struct fake fake;
struct allocation allocation;
struct flags flags;

int settled(void)
{
    return CALLS(sg_memory_run_deferred) + CALLS(sg_memory_settle);
}

/* Which argument of the driver's function is an address; where it is bound to something, also which offset and bytes. */
static const struct address_at {
    const char *name;
    int address, offset, bytes;
} addresses[] = {{"cuMemFree_v2", 0, 0, 0}, {"cuMemFreeAsync", 0, 0, 0}, {"cuMemFreeAsync_ptsz", 0, 0, 0},
    {"cuMemRetainAllocationHandle", 1, 0, 0}, {"cuMemGetHandleForAddressRange", 1, 0, 0},
    {"cuMulticastBindAddr", 2, 1, 3}, {"cuMulticastBindAddr_v2", 3, 2, 4}, {"cuLogicalEndpointBindAddr", 3, 2, 4},
    {"cuPointerSetAttribute", 2, 0, 0}, {"cuMemUnmap", 0, 0, 0}, {"cuMemSetAccess", 0, 0, 0},
    {"cuIpcGetMemHandle", 1, 0, 0}, {"cuPointerGetAttributes", 3, 0, 0}, {"cuPointerGetAttribute", 2, 0, 0},
    {"cuMemGetAddressRange_v2", 2, 0, 0}};

static uint64_t answer(const struct fakes_function *function, uint64_t result)
{
    if (strcmp(function->name, "sg_log_line") == 0)
        assert_non_null(strstr((const char *)(uintptr_t)function->argument[0], "cuMulticastBindTomorrow, "));
    if (function->kind != FAKES_REAL)
        return result;
    fake.called = fakes_symbol(function);
    fake.asked = 0;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        const struct address_at *at = &addresses[i];
        if (strcmp(at->name, fake.called) != 0)
            continue;
        fake.asked = function->argument[at->address];
        if (at->offset)
            assert_true(function->argument[at->offset] == OFFSET && function->argument[at->bytes] == BYTES);
    }
    return fake.calls++ == 0 && fake.once ? fake.once : fake.answer;
}

/* The driver's functions with outputs. */
static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    if (data && attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
        *(int *)data = allocation.legacy;
        return allocation.attribute;
    }
    return (CUresult)RECORD(fake_real.cuPointerGetAttribute, 0, 0, address);
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    if (base)
        *base = allocation.base;
    if (bytes)
        *bytes = 2 * BYTES;
    return allocation.range ? allocation.range : (CUresult)RECORD(fake_real.cuMemGetAddressRange_v2, 0, 0, address);
}

static CUresult alloc_pitch(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    if (width == 1 && height == 1 && sg_captures_active()) /* the small one */
        assert_int_equal(CALLS(sg_capture_mode_relax), CALLS(sg_capture_mode_restore) + 1);
    CUresult result = (CUresult)RECORD(fake_real.cuMemAllocPitch_v2, 0);
    if (result != CUDA_SUCCESS)
        return result;
    *ret = THEIRS;
    *pitch = fake.pitch;
    return result;
}

static CUresult get_info(size_t *available, size_t *total)
{
    CUresult result = (CUresult)RECORD(fake_real.cuMemGetInfo_v2, 0);
    if (result == CUDA_SUCCESS && available)
        *available = 1000;
    if (result == CUDA_SUCCESS && total)
        *total = 4000;
    return result;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
    (void)device;
    CUresult result = (CUresult)RECORD(fake_real.cuDeviceTotalMem_v2, 0);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = 2 * LIMIT;
    return result;
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
    fake_driver.ctx_get_flags = flags.lacks_get ? NULL : get_flags;
    fake_driver.ctx_set_flags = flags.lacks_set ? NULL : set_flags;
    return fake.no_driver ? NULL : &fake_driver;
}

/* The rest of the library. */
static struct sg_core *const core = (struct sg_core *)&fake;

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.inside || fake.over || fake.early ? NULL : core);
}

bool sg_process_owns(CUdeviceptr address)
{
    return address >= OURS && address < THEIRS;
}

bool sg_process_over(void)
{
    return fake.over;
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

enum sg_caller sg_caller_kind(const void *code)
{
    assert_non_null(code);
    return fake.passes ? SG_CALLER_NCCL : fake.torch ? SG_CALLER_TORCH : SG_CALLER_OTHER;
}

enum sg_caller sg_caller_current(void)
{
    return fake.torch && !fake.plugged ? SG_CALLER_TORCH : SG_CALLER_UNKNOWN;
}

bool sg_torch_counts(void)
{
    return fake.torch;
}

bool sg_torch_direct(void)
{
    return fake.torch;
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

void sg_core_mem_info(struct sg_core *asked, int device, size_t *available, size_t *total)
{
    (void)asked, (void)device;
    *available = 2000;
    *total = 3000;
}

bool sg_core_awaits(struct sg_core *asked, int device)
{
    (void)asked, (void)device;
    return fake.awaits > CALLS(sg_core_poll);
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

CUresult sg_memory_free_passthrough(CUdeviceptr address, const struct sg_request *request)
{
    (void)address, (void)request;
    fake.passed++;
    return CUDA_SUCCESS;
}

uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings)
{
    (void)bytes, (void)mappings;
    return granularity;
}

int start_afresh(void **state)
{
    (void)state;
    fake = (struct fake){0};
    flags = (struct flags){0};
    allocation = (struct allocation){0};
    fakes_reset(answer);
    fake_driver.ctx_push = push;
    fake_driver.ctx_pop = pop;
    fake_driver.stream_get_id = stream_id;
    fake_driver.ctx_get_flags = get_flags;
    fake_driver.ctx_set_flags = set_flags;
    fake_real.cuPointerGetAttribute = pointer_attribute;
    fake_real.cuMemGetAddressRange_v2 = address_range;
    fake_real.cuMemAllocPitch_v2 = alloc_pitch;
    fake_real.cuMemGetInfo_v2 = get_info;
    fake_real.cuDeviceTotalMem_v2 = total_mem;
    ANSWER(sg_ipc_refused, CUDA_ERROR_INVALID_VALUE);
    ANSWER(sg_core_limit, UINT64_MAX);
    sg_following_order = false;
    return 0;
}
