/* Steps of tests of fixed segments. */
#ifndef SEGMENTS_STEPS_H
#define SEGMENTS_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "rooms.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "inspect.h"
#include "size.h"
#include "strict_kept.h"
#include "locked.h"

enum { BYTES = 20 * SG_MIB, SMALL = 3000, SMALL_SEGMENT = 3072 /* in steps of 512 bytes */ };

static const CUcontext first = (CUcontext)(uintptr_t)0x1000, second = (CUcontext)(uintptr_t)0x2000;
static struct sg_core *core;

static inline CUdeviceptr allocate(CUcontext context, size_t bytes)
{
    const struct sg_tag tag = {.context = context, .sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

static inline void release(CUcontext context, CUdeviceptr address)
{
    const struct sg_tag tag = {.context = context, .sync = SG_FREE_SYNC_COMPLETE};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static inline void expect_block(CUdeviceptr address, CUcontext context, size_t bytes)
{
    struct sg_block_info info;
    assert_int_equal(sg_core_block(core, address, &info), CUDA_SUCCESS);
    assert_int_equal(info.base, address);
    assert_int_equal(info.bytes, bytes);
    assert_ptr_equal(info.context, context);
}

static inline uint64_t statistic(enum sg_stat which)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[which];
}

static inline void start(const char *conf)
{
    core = inspect_start(conf, 256 * SG_MIB);
    sg_core_context_seen(core, 0, first);
    sg_core_context_seen(core, 0, second);
}

/* All is given back, and nothing was freed that was not ours to free. */
static inline void finish(void)
{
    sg_core_trim(core, 0, 0);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), 0);
    assert_int_equal(statistic(SG_STAT_allocations), 0);
    assert_int_equal(strict_used(0), 0);
    sg_core_destroy(core);
    strict_expect_over();
}

/* The driver has freed the segments of a context that ends. */
static inline void end_in_driver(const CUdeviceptr *segment, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(strict_driver.mem_free(segment[i]), CUDA_SUCCESS);
}

/* Frees of segments that are put off: another thread is to make them, and does not come to it. */
static inline CUresult put_off(CUresult (*run)(void *user), void *user)
{
    (void)run;
    (void)user;
    return CUDA_ERROR_NOT_READY;
}

static struct segalloc_trace_record told[256];
static size_t told_count;

static inline size_t count_of(enum segalloc_record_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < told_count; i++)
        count += told[i].kind == kind;
    return count;
}

#endif
