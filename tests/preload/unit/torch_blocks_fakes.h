/* PyTorch's blocks and its statistics, made up for tests of both. To be included by one file of a program. */
#ifndef TORCH_BLOCKS_FAKES_H
#define TORCH_BLOCKS_FAKES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "balance.h"
#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/symbols.h"
#include "torch/torch_current.h"
#include "track/torch_mode.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_peaks.h"
#include "torch/torch_segments.h"
#include "torch/torch_sent.h"
#include "process/stand_ins.h"

/* No block is shown elsewhere than the core has it. */
atomic_bool sg_stand_ins_any;

CUdeviceptr sg_stand_ins_inner(CUdeviceptr shown)
{
    return shown;
}

CUdeviceptr sg_stand_ins_shown(CUdeviceptr inner)
{
    return inner;
}

enum { BYTES = 5000, MORE = 64 << 20, COPIES = 4096, DEVICE = 3 };
#define BLOCK_AT(number) ((void *)(uintptr_t)(0x100000 + 0x10000 * (uintptr_t)(number)))
#define COPY_AT(number) ((void *)(uintptr_t)(0x40000000 + 0x10000 * (uintptr_t)(number)))

atomic_bool sg_captures_begun;

static struct {
    bool no_core, inside_block, fixed, pushes, no_copy;
    CUresult block, wait, free, full; /* full: what the driver answers until PyTorch has emptied its cache */
    CUresult then;                    /* and after that */
    int waits, waits_before, gets, puts, copies, resets, probes, frees, pushed, popped, found, closed;
    int device;
    size_t probed, got, copied;
    void *put, *to;
    const void *from;
    bool direct, switched;
    int reset_peaks;
    size_t noted_sent; /* bytes, for a rehearsal */
    bool unknown;
    struct sg_stats stats;
    bool intervals; /* the core keeps peaks of intervals by itself; else those of `stats` are an interval's too */
    uint64_t interval_peak[SG_STAT_COUNT];
} fake;

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : (struct sg_core *)&fake);
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    assert_ptr_equal(core, &fake);
    *ret = (struct sg_block_info){.base = address - (fake.inside_block ? 512 : 0), .bytes = BYTES, .device = DEVICE};
    return fake.block;
}

bool sg_core_stats_recent(struct sg_core *core, int device, struct sg_stats *ret)
{
    assert_ptr_equal(core, &fake);
    fake.device = device;
    *ret = fake.stats;
    return !fake.unknown;
}

void sg_rehearsal_note_sent(size_t bytes);
void sg_rehearsal_note_sent(size_t bytes)
{
    fake.noted_sent += bytes;
}

/* An interval's peaks begin again at what there is now. */
bool sg_core_interval_peaks(struct sg_core *core, int device, bool ends, struct sg_stats *ret)
{
    assert_ptr_equal(core, &fake);
    if (device != DEVICE && device != 1)
        return false;
    *ret = fake.stats;
    if (fake.intervals)
        memcpy(ret->peak, fake.interval_peak, sizeof ret->peak);
    if (ends)
        memcpy(fake.interval_peak, fake.stats.value, sizeof fake.interval_peak);
    return !fake.unknown;
}

void segalloc_reset_peaks(int device);
void segalloc_reset_peaks(int device)
{
    fake.device = device;
    fake.reset_peaks++;
}

static inline CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
    fake.probes++;
    fake.probed = bytes;
    *ret = 77;
    return fake.resets ? fake.then : fake.full;
}

static inline CUresult free_it(CUdeviceptr address)
{
    assert_int_equal(address, 77);
    fake.frees++;
    return fake.free;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuMemAlloc_v2 = allocate, .cuMemFree_v2 = free_it};
    return &real;
}

static inline CUresult current_device(CUdevice *ret)
{
    *ret = DEVICE;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_device = current_device};
    return &driver;
}

CUresult sg_captures_wait(CUcontext context)
{
    assert_null(context);
    assert_int_equal(fake.pushed, 1);
    assert_int_equal(fake.popped, 0);
    fake.waits++;
    fake.waits_before += fake.copies == 0;
    return fake.wait;
}

void segalloc_torch_reset(void);
void segalloc_torch_reset(void)
{
    fake.resets++;
}

bool sg_torch_switchable(void)
{
    return !fake.fixed;
}

bool sg_torch_switched(void)
{
    return fake.switched;
}

bool sg_torch_direct(void)
{
    return fake.direct;
}

bool sg_torch_push_device(const struct sg_driver *driver, int device)
{
    assert_ptr_equal(driver, sg_process_driver());
    fake.device = device;
    fake.pushed++;
    return fake.pushes;
}

void sg_torch_pop_device(const struct sg_driver *driver, bool pushed)
{
    assert_ptr_equal(driver, sg_process_driver());
    assert_int_equal(pushed, fake.pushes);
    fake.popped++;
}

void *sg_torch_allocator_get(size_t bytes)
{
    fake.got = bytes;
    return fake.no_copy ? NULL : COPY_AT(fake.gets++);
}

void sg_torch_allocator_put(void *block)
{
    fake.put = block;
    fake.puts++;
}

void sg_torch_allocator_copy(void *to, const void *from, size_t bytes)
{
    fake.to = to;
    fake.from = from;
    fake.copied = bytes;
    fake.copies++;
}

/* PyTorch's own function of the same name as ours. */
struct data_ptr {
    uintptr_t words[4];
};
struct data_ptr sent_data(void *data, uint16_t device) __asm__("_ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE");

static inline struct data_ptr theirs(void *data, uint16_t device)
{
    return (struct data_ptr){{(uintptr_t)data, device, 3, 4}};
}

void *sg_library_find(const char *prefix)
{
    assert_string_equal(prefix, "libtorch_cuda.so");
    fake.found++;
    return &fake;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &fake);
    fake.closed++;
    return 0;
}

static inline void *look_up(void *handle, const char *name)
{
    struct data_ptr (*function)(void *, uint16_t) = theirs;
    void *symbol;
    assert_ptr_equal(handle, &fake);
    assert_string_equal(name, "_ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE");
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

/* All that the tests before have sent was freed. */
static inline int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.pushes = true;
    fake.intervals = true;
    sg_torch_peaks_reset(DEVICE);
    sg_torch_peaks_reset(1);
    fake.intervals = false;
    atomic_store(&sg_torch_segments_seen, false);
    atomic_store(&sg_captures_begun, false);
    return 0;
}

/* Statistics. A family of PyTorch's has three counts of four numbers each: of all, the small and the large pool. */
enum { CURRENT, PEAK, ALLOCATED, FREED, NUMBERS };
enum { ALLOCATION, SEGMENT, ACTIVE, SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES, SPLIT_BYTES, REQUESTED_BYTES,
    FAMILIES };
/* Behind the families: retries, failures, eight numbers about oversize blocks, waits, and the driver's calls. */
enum { RETRIES_AT = 0, OOMS_AT = 1, SYNCS_AT = 10, DEVICE_ALLOCS_AT = 11, DEVICE_FREES_AT = 12, MORE_ROOM = 2 };
typedef int64_t statistics[FAMILIES + MORE_ROOM][3][NUMBERS];

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

#endif
