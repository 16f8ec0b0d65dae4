#include <string.h>
#include <sys/mman.h>

#include "graphs/graph.h"
#include "hazard/hazard.h"

enum { PAGE = 4096, PUNCH_MIN = 1 << 20 };

struct fill {
    uint64_t address, pitch, width, height; /* width in elements */
    unsigned value, element;
    bool sparse; /* lies in the device's memory file */
    bool bad;
};

static uint64_t extent(const struct fill *fill)
{
    uint64_t row;
    return __builtin_mul_overflow(fill->width, fill->element, &row) ? UINT64_MAX
                                                                     : sim_extent(fill->height, fill->pitch, row);
}

static void fill_row(unsigned char *row, const struct fill *fill)
{
    uint64_t bytes = fill->width * fill->element;
    if (fill->element == 1 || fill->value == 0) {
        memset(row, (int)fill->value, bytes);
    } else if (fill->element == 2) {
        for (uint64_t i = 0; i < fill->width; i++)
            ((uint16_t *)(void *)row)[i] = (uint16_t)fill->value;
    } else {
        for (uint64_t i = 0; i < fill->width; i++)
            ((uint32_t *)(void *)row)[i] = fill->value;
    }
}

/* Zeroes a long stretch by giving its pages back, which read as zero again, so that it costs no host memory. */
static void zero_sparse(unsigned char *base, uint64_t bytes)
{
    uint64_t low = ((uint64_t)(uintptr_t)base + PAGE - 1) / PAGE * PAGE;
    uint64_t high = ((uint64_t)(uintptr_t)base + bytes) / PAGE * PAGE;
    if (low >= high || madvise((void *)(uintptr_t)low, high - low, MADV_REMOVE) != 0) {
        memset(base, 0, bytes);
        return;
    }
    memset(base, 0, low - (uint64_t)(uintptr_t)base);
    memset((void *)(uintptr_t)high, 0, (uint64_t)(uintptr_t)base + bytes - high);
}

static void run(struct sim_work *work)
{
    struct fill *fill = (struct fill *)work->payload;
    sim_lock();
    enum sim_span span = sim_span(fill->address, extent(fill), true, NULL);
    sim_unlock();
    fill->bad = span != SIM_SPAN_DEVICE && span != SIM_SPAN_PINNED;
    if (fill->bad)
        return;
    unsigned char *base = (unsigned char *)(uintptr_t)fill->address;
    bool contiguous = fill->height == 1 || fill->pitch == fill->width * fill->element;
    SIM_BYTES_BEGIN();
    if (fill->value == 0 && fill->sparse && contiguous && extent(fill) >= PUNCH_MIN)
        zero_sparse(base, extent(fill));
    else if (extent(fill) <= sim.config.drop_bytes)
        for (uint64_t y = 0; y < fill->height; y++)
            fill_row(base + y * fill->pitch, fill);
    SIM_BYTES_END();
}

static void finish(struct sim_work *work)
{
    struct fill *fill = (struct fill *)work->payload;
    if (fill->bad && !work->dropped && work->context->error == CUDA_SUCCESS) {
        work->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        sim_hazard_lost(work);
    }
}

static CUresult check(const struct fill *fill, enum sim_span *ret)
{
    *ret = sim_span(fill->address, extent(fill), true, NULL);
    return *ret == SIM_SPAN_DEVICE || *ret == SIM_SPAN_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool aligned(const struct fill *fill)
{
    return fill->address % fill->element == 0 &&
           (fill->height <= 1 || (fill->pitch % fill->element == 0 && fill->pitch >= fill->width * fill->element));
}

/* The work of setting `fill`, which has been checked. */
static struct sim_work *new_work(struct fill fill)
{
    enum sim_memory_kind kind = sim_memory_find(fill.address)->kind;
    fill.sparse = kind == SIM_MEMORY_DEVICE || kind == SIM_MEMORY_POOL || kind == SIM_MEMORY_RESERVATION;
    struct sim_work *work = sim_work_new(sizeof fill, run, finish);
    if (work) {
        *(struct fill *)work->payload = fill;
        sim_work_touch(work, fill.address, extent(&fill), true);
        work->capturable = true;
        work->node = CU_GRAPH_NODE_TYPE_MEMSET;
    }
    return work;
}

CUresult sim_set_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret)
{
    struct fill fill = {.address = params->dst, .pitch = params->pitch, .width = params->width,
        .height = params->height, .value = params->value, .element = params->elementSize};
    if ((fill.element != 1 && fill.element != 2 && fill.element != 4) || !fill.width || !fill.height || !aligned(&fill))
        return CUDA_ERROR_INVALID_VALUE;
    enum sim_span span;
    CUresult result = check(&fill, &span);
    if (result == CUDA_SUCCESS && !(*ret = new_work(fill)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

void sim_set_params(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret)
{
    const struct fill *fill = (const struct fill *)work->payload;
    *ret = (CUDA_MEMSET_NODE_PARAMS){.dst = fill->address, .pitch = fill->pitch, .value = fill->value,
        .elementSize = fill->element, .width = fill->width, .height = fill->height};
}

/* A set that waits waits only for memory of the host; one of device memory is asynchronous all the same. */
static CUresult submit(struct fill fill, CUstream handle, bool blocking)
{
    bool empty = !fill.width || !fill.height;
    if (!aligned(&fill))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    enum sim_span span = SIM_SPAN_BAD;
    struct sim_work *work = NULL;
    if (result == CUDA_SUCCESS && !empty)
        result = check(&fill, &span);
    if (result == CUDA_SUCCESS && !empty && !(work = new_work(fill)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (work) {
        uint64_t position;
        work->capturable = !blocking;
        result = sim_submit(stream, work, &position);
        if (result == CUDA_SUCCESS && blocking && span == SIM_SPAN_PINNED)
            result = sim_wait(stream, position);
    }
    sim_unlock();
    return result;
}

static struct fill row(CUdeviceptr dst, unsigned value, size_t count, unsigned element)
{
    return (struct fill){.address = dst, .value = value, .width = count, .height = 1, .element = element};
}

static struct fill rows(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, unsigned element)
{
    return (struct fill){
        .address = dst, .pitch = pitch, .value = value, .width = width, .height = height, .element = element};
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define SETS(name, type, element)                                                                   \
    CUresult cuMemset##name##_v2(CUdeviceptr dst, type value, size_t count)                         \
    {                                                                                               \
        SIM_ENTER(cuMemset##name##_v2);                                                             \
        return submit(row(dst, value, count, element), CU_STREAM_LEGACY, true);                     \
    }                                                                                               \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr dst, type value, size_t count)                    \
    {                                                                                               \
        SIM_ENTER(cuMemset##name##_v2);                                                             \
        return submit(row(dst, value, count, element), CU_STREAM_PER_THREAD, true);                 \
    }                                                                                               \
    CUresult cuMemset##name##Async(CUdeviceptr dst, type value, size_t count, CUstream stream)      \
    {                                                                                               \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, value, count, stream);                           \
        return submit(row(dst, value, count, element), stream, false);                              \
    }                                                                                               \
    CUresult cuMemset##name##Async_ptsz(CUdeviceptr dst, type value, size_t count, CUstream stream) \
    {                                                                                               \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, value, count, stream);                           \
        return submit(row(dst, value, count, element), PER_THREAD(stream), false);                  \
    }

#define SETS_2D(name, type, element)                                                                            \
    CUresult cuMemset##name##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)        \
    {                                                                                                           \
        SIM_ENTER(cuMemset##name##_v2);                                                                         \
        return submit(rows(dst, pitch, value, width, height, element), CU_STREAM_LEGACY, true);                 \
    }                                                                                                           \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)   \
    {                                                                                                           \
        SIM_ENTER(cuMemset##name##_v2);                                                                         \
        return submit(rows(dst, pitch, value, width, height, element), CU_STREAM_PER_THREAD, true);             \
    }                                                                                                           \
    CUresult cuMemset##name##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,      \
        CUstream stream)                                                                                        \
    {                                                                                                           \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, pitch, value, width, height, stream);                        \
        return submit(rows(dst, pitch, value, width, height, element), stream, false);                          \
    }                                                                                                           \
    CUresult cuMemset##name##Async_ptsz(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, \
        CUstream stream)                                                                                        \
    {                                                                                                           \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, pitch, value, width, height, stream);                        \
        return submit(rows(dst, pitch, value, width, height, element), PER_THREAD(stream), false);              \
    }

SETS(D8, unsigned char, 1)
SETS(D16, unsigned short, 2)
SETS(D32, unsigned int, 4)
SETS_2D(D2D8, unsigned char, 1)
SETS_2D(D2D16, unsigned short, 2)
SETS_2D(D2D32, unsigned int, 4)
