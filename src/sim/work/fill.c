#include "work/fill.h"

#include <string.h>
#include <sys/mman.h>

#include "hazard/hazard.h"
#include "space/memory_table.h"
#include "space/span.h"
#include "streams/queue.h"
#include "work/lost.h"
#include "work/program_stream.h"
#include "work/submit.h"

enum { PAGE = 4096, PUNCH_MIN = 1 << 20 };

static uint64_t fill_extent(const struct sim_fill *fill)
{
    uint64_t row;
    return __builtin_mul_overflow(fill->width, fill->element, &row) ? UINT64_MAX
                                                                    : sim_extent(fill->height, fill->pitch, row);
}

static void fill_row(unsigned char *row, const struct sim_fill *fill)
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

static void fill_run(struct sim_work *work)
{
    struct sim_fill *fill = (struct sim_fill *)work->payload;
    sim_lock();
    enum sim_span span = sim_span(fill->address, fill_extent(fill), true, NULL);
    uint64_t lost = sim_span_lost(fill->address, fill_extent(fill), true);
    sim_unlock();
    if (span != SIM_SPAN_DEVICE && span != SIM_SPAN_PINNED)
        fill->lost = lost ? lost : fill->address;
    if (fill->lost)
        return;
    unsigned char *base = (unsigned char *)(uintptr_t)fill->address;
    bool contiguous = fill->height == 1 || fill->pitch == fill->width * fill->element;
    SIM_BYTES_BEGIN();
    if (fill->value == 0 && fill->sparse && contiguous && fill_extent(fill) >= PUNCH_MIN)
        zero_sparse(base, fill_extent(fill));
    else if (fill_extent(fill) <= sim.config.drop_bytes)
        for (uint64_t y = 0; y < fill->height; y++)
            fill_row(base + y * fill->pitch, fill);
    SIM_BYTES_END();
}

static void fill_finish(struct sim_work *work)
{
    struct sim_fill *fill = (struct sim_fill *)work->payload;
    if (fill->lost)
        sim_work_lost(work, fill->lost);
}

static CUresult fill_check(const struct sim_fill *fill, enum sim_span *ret)
{
    *ret = sim_span(fill->address, fill_extent(fill), true, NULL);
    return *ret == SIM_SPAN_DEVICE || *ret == SIM_SPAN_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool fill_is_aligned(const struct sim_fill *fill)
{
    return fill->address % fill->element == 0 &&
           (fill->height <= 1 || (fill->pitch % fill->element == 0 && fill->pitch >= fill->width * fill->element));
}

/* The work of setting `fill`, which has been checked. */
static struct sim_work *fill_new_work(struct sim_fill fill)
{
    enum sim_memory_kind kind = sim_memory_find(fill.address)->kind;
    fill.sparse = kind == SIM_MEMORY_DEVICE || kind == SIM_MEMORY_POOL || kind == SIM_MEMORY_RESERVATION;
    struct sim_work *work = sim_work_new(sizeof fill, fill_run, fill_finish);
    if (work) {
        *(struct sim_fill *)work->payload = fill;
        if (fill.height)
            sim_work_touch_rows(work, fill.address, fill.width * fill.element, fill.pitch, fill.height, true);
        work->capturable = true;
        work->node = CU_GRAPH_NODE_TYPE_MEMSET;
    }
    return work;
}

CUresult sim_set_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret)
{
    struct sim_fill fill = {.address = params->dst,
        .pitch = params->pitch,
        .width = params->width,
        .height = params->height,
        .value = params->value,
        .element = params->elementSize};
    if ((fill.element != 1 && fill.element != 2 && fill.element != 4) || !fill.width || !fill.height ||
        !fill_is_aligned(&fill))
        return CUDA_ERROR_INVALID_VALUE;
    enum sim_span span;
    CUresult result = fill_check(&fill, &span);
    if (result == CUDA_SUCCESS && !(*ret = fill_new_work(fill)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

void sim_set_params(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret)
{
    const struct sim_fill *fill = (const struct sim_fill *)work->payload;
    *ret = (CUDA_MEMSET_NODE_PARAMS){.dst = fill->address,
        .pitch = fill->pitch,
        .value = fill->value,
        .elementSize = fill->element,
        .width = fill->width,
        .height = fill->height};
}

/* A set that waits waits only for memory of the host; one of device memory is asynchronous all the same. */
CUresult sim_fill(struct sim_fill fill, CUstream handle, bool blocking)
{
    bool empty = !fill.width || !fill.height;
    if (!fill_is_aligned(&fill))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    enum sim_span span = SIM_SPAN_BAD;
    struct sim_work *work = NULL;
    if (result == CUDA_SUCCESS && !empty)
        result = fill_check(&fill, &span);
    if (result == CUDA_SUCCESS && !empty && !(work = fill_new_work(fill)))
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
