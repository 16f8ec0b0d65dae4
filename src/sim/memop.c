/* Words of memory that a stream writes, or waits for. */
#include <stdatomic.h>
#include <time.h>

#include "mem.h"

struct memop {
    uint64_t address, value;
    unsigned flags;
    bool wide;
};

static void write_value(struct sim_work *work)
{
    const struct memop *op = (const struct memop *)work->payload;
    if (op->wide)
        atomic_store((_Atomic uint64_t *)(uintptr_t)op->address, op->value);
    else
        atomic_store((_Atomic uint32_t *)(uintptr_t)op->address, (uint32_t)op->value);
}

static bool satisfied(const struct memop *op)
{
    uint64_t now, want = op->value;
    int64_t ahead;
    if (op->wide) {
        now = atomic_load((_Atomic uint64_t *)(uintptr_t)op->address);
        ahead = (int64_t)(now - want);
    } else {
        uint32_t word = atomic_load((_Atomic uint32_t *)(uintptr_t)op->address);
        now = word;
        ahead = (int32_t)(word - (uint32_t)want); /* cyclic, as documented */
    }
    switch (op->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ahead >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & want) != 0;
    default:
        return (~(now | want) & (op->wide ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void wait_value(struct sim_work *work)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (!satisfied((const struct memop *)work->payload) && sim_state_now() == SIM_READY)
        nanosleep(&pause, NULL);
}

static bool blocked(const struct sim_work *work)
{
    return !satisfied((const struct memop *)work->payload);
}

static CUresult submit(CUstream handle, struct memop op, sim_work_fn run)
{
    if (op.address % (op.wide ? 8 : 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(sizeof op, run, NULL);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(struct memop *)work->payload = op;
    work->may_wait = run == wait_value;
    work->blocked = run == wait_value ? blocked : NULL;
    work->host_sees = run == write_value;
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    enum sim_span span = sim_span(op.address, op.wide ? 8 : 4, run == write_value, NULL);
    if (result == CUDA_SUCCESS && span != SIM_SPAN_DEVICE && span != SIM_SPAN_PINNED)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, work, NULL);
    else
        sim_work_free(work);
    sim_unlock();
    return result;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* Both ABI versions have the same meaning and the same parameters. */
#define MEMOP(symbol, type, wide, run)                                                          \
    CUresult symbol(CUstream stream, CUdeviceptr address, type value, unsigned int flags)       \
    {                                                                                           \
        SIM_ENTER(symbol);                                                                      \
        return submit(stream, (struct memop){address, value, flags, wide}, run);                \
    }                                                                                           \
    CUresult symbol##_ptsz(CUstream stream, CUdeviceptr address, type value, unsigned int flags) \
    {                                                                                           \
        return symbol(PER_THREAD(stream), address, value, flags);                               \
    }

MEMOP(cuStreamWriteValue32, cuuint32_t, false, write_value)
MEMOP(cuStreamWriteValue32_v2, cuuint32_t, false, write_value)
MEMOP(cuStreamWriteValue64, cuuint64_t, true, write_value)
MEMOP(cuStreamWriteValue64_v2, cuuint64_t, true, write_value)
MEMOP(cuStreamWaitValue32, cuuint32_t, false, wait_value)
MEMOP(cuStreamWaitValue32_v2, cuuint32_t, false, wait_value)
MEMOP(cuStreamWaitValue64, cuuint64_t, true, wait_value)
MEMOP(cuStreamWaitValue64_v2, cuuint64_t, true, wait_value)
