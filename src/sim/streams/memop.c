/* Words of memory that a stream writes, or waits for. */
#include <stdatomic.h>
#include <time.h>

#include "graphs/graph.h"
#include "wrap.h"

enum { OPERATIONS_MAX = 256 }; /* in one call, as documented */

struct words {
    CUcontext context; /* that a node was made with */
    unsigned count;
    CUstreamBatchMemOpParams op[];
};

/* Both kinds of operation have their members at the same places. */
typedef struct CUstreamMemOpValueParams operation;

static bool is_wait(const operation *op)
{
    return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_wide(const operation *op)
{
    return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* Barriers and flushes say something of other writes, which are all seen at once here. */
static bool has_word(const operation *op)
{
    return op->operation != CU_STREAM_MEM_OP_BARRIER && op->operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
}

static void write_value(const operation *op)
{
    if (is_wide(op))
        atomic_store((_Atomic uint64_t *)(uintptr_t)op->address, op->value64);
    else
        atomic_store((_Atomic uint32_t *)(uintptr_t)op->address, op->value);
}

static bool satisfied(const operation *op)
{
    uint64_t now, want = is_wide(op) ? op->value64 : op->value;
    int64_t ahead;
    if (is_wide(op)) {
        now = atomic_load((_Atomic uint64_t *)(uintptr_t)op->address);
        ahead = sg_ahead64(now, want);
    } else {
        uint32_t word = atomic_load((_Atomic uint32_t *)(uintptr_t)op->address);
        now = word;
        ahead = sg_ahead32(word, (uint32_t)want); /* cyclic, as documented */
    }
    switch (op->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ahead >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & want) != 0;
    default:
        return (~(now | want) & (is_wide(op) ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void wait_value(const operation *op)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (!satisfied(op) && sim_state_now() == SIM_READY)
        nanosleep(&pause, NULL);
}

static void run(struct sim_work *work)
{
    const struct words *words = (const struct words *)work->payload;
    for (unsigned i = 0; i < words->count; i++) {
        const operation *op = &words->op[i].waitValue;
        if (is_wait(op))
            wait_value(op);
        else if (has_word(op))
            write_value(op);
    }
}

/* Of a single operation: what comes before a wait in a batch has to run first. */
static bool blocked(const struct sim_work *work)
{
    return !satisfied(&((const struct words *)work->payload)->op[0].waitValue);
}

/* Locked. */
static CUresult check(const operation *op)
{
    if (op->operation < CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation > CU_STREAM_MEM_OP_BARRIER)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned bytes = is_wide(op) ? 8 : 4;
    if (!has_word(op))
        return CUDA_SUCCESS;
    enum sim_span span = op->address % bytes ? SIM_SPAN_BAD : sim_span(op->address, bytes, !is_wait(op), NULL);
    return span == SIM_SPAN_DEVICE || span == SIM_SPAN_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Locked. */
static CUresult make(CUcontext context, unsigned count, const CUstreamBatchMemOpParams *ops, struct sim_work **ret)
{
    if (!ops || count == 0 || count > OPERATIONS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check(&ops[i].waitValue);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_work *work = sim_work_new(sizeof(struct words) + count * sizeof *ops, run, NULL);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct words *words = (struct words *)work->payload;
    words->context = context;
    words->count = count;
    memcpy(words->op, ops, count * sizeof *ops);
    for (unsigned i = 0; i < count; i++) {
        const operation *op = &ops[i].waitValue;
        work->may_wait |= is_wait(op);
        work->host_sees |= has_word(op) && !is_wait(op);
        if (has_word(op))
            sim_work_touch(work, op->address, is_wide(op) ? 8 : 4, !is_wait(op));
    }
    if (count == 1 && is_wait(&ops->waitValue))
        work->blocked = blocked;
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    *ret = work;
    return CUDA_SUCCESS;
}

CUresult sim_words_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret)
{
    return params->flags ? CUDA_ERROR_INVALID_VALUE : make(params->ctx, params->count, params->paramArray, ret);
}

void sim_words_params(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
    struct words *words = (struct words *)(uintptr_t)work->payload;
    *ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = words->context, .count = words->count, .paramArray = words->op};
}

/* Each operation is a piece of work of its own, all or none of them. A capture makes one node of them. */
static CUresult submit(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops)
{
    sim_lock();
    CUstream stream;
    struct sim_work *work;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = make(NULL, count, ops, &work);
    if (result == CUDA_SUCCESS && (count == 1 || sim_capturing(stream))) {
        result = sim_submit(stream, work, NULL);
    } else if (result == CUDA_SUCCESS) {
        sim_work_free(work);
        sim_stream_ref(stream);
        for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
            result = make(NULL, 1, &ops[i], &work);
            if (result == CUDA_SUCCESS)
                result = sim_submit(stream, work, NULL);
        }
        sim_stream_unref(stream);
    }
    sim_unlock();
    return result;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* Both ABI versions have the same meaning and the same parameters. */
#define MEMOP(symbol, type, member, kind)                                                          \
    CUresult symbol(CUstream stream, CUdeviceptr address, type word, unsigned int flags)           \
    {                                                                                              \
        SIM_ENTER_WITH(symbol, stream);                                                            \
        CUstreamBatchMemOpParams op = {                                                            \
            .waitValue = {.operation = kind, .address = address, .member = word, .flags = flags}}; \
        return submit(stream, 1, &op);                                                             \
    }                                                                                              \
    CUresult symbol##_ptsz(CUstream stream, CUdeviceptr address, type word, unsigned int flags)    \
    {                                                                                              \
        return symbol(PER_THREAD(stream), address, word, flags);                                   \
    }

MEMOP(cuStreamWriteValue32, cuuint32_t, value, CU_STREAM_MEM_OP_WRITE_VALUE_32)
MEMOP(cuStreamWriteValue32_v2, cuuint32_t, value, CU_STREAM_MEM_OP_WRITE_VALUE_32)
MEMOP(cuStreamWriteValue64, cuuint64_t, value64, CU_STREAM_MEM_OP_WRITE_VALUE_64)
MEMOP(cuStreamWriteValue64_v2, cuuint64_t, value64, CU_STREAM_MEM_OP_WRITE_VALUE_64)
MEMOP(cuStreamWaitValue32, cuuint32_t, value, CU_STREAM_MEM_OP_WAIT_VALUE_32)
MEMOP(cuStreamWaitValue32_v2, cuuint32_t, value, CU_STREAM_MEM_OP_WAIT_VALUE_32)
MEMOP(cuStreamWaitValue64, cuuint64_t, value64, CU_STREAM_MEM_OP_WAIT_VALUE_64)
MEMOP(cuStreamWaitValue64_v2, cuuint64_t, value64, CU_STREAM_MEM_OP_WAIT_VALUE_64)

#define BATCH(symbol)                                                                                                 \
    CUresult symbol(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags)        \
    {                                                                                                                 \
        SIM_ENTER_WITH(symbol, stream);                                                                               \
        return flags ? CUDA_ERROR_INVALID_VALUE : submit(stream, count, params);                                      \
    }                                                                                                                 \
    CUresult symbol##_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags) \
    {                                                                                                                 \
        return symbol(PER_THREAD(stream), count, params, flags);                                                      \
    }

BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)
