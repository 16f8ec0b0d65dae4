#include "work/memory_words.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/wrap.h"
#include "hazard/hazard.h"
#include "space/span.h"
#include "streams/capture.h"
#include "work/program_stream.h"
#include "work/submit.h"

enum { OPERATIONS_MAX = 256 }; /* in one call, as documented */

struct words {
    CUcontext context; /* that a node was made with */
    unsigned count;
    CUstreamBatchMemOpParams op[];
};

/* Both kinds of operation have their members at the same places. */
typedef struct CUstreamMemOpValueParams operation;

static bool operation_is_wait(const operation *op)
{
    return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool operation_is_wide(const operation *op)
{
    return op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* Barriers and flushes say something of other writes, which are all seen at once here. */
static bool operation_has_word(const operation *op)
{
    return op->operation != CU_STREAM_MEM_OP_BARRIER && op->operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
}

static void operation_write(const operation *op)
{
    if (operation_is_wide(op))
        atomic_store((_Atomic uint64_t *)(uintptr_t)op->address, op->value64);
    else
        atomic_store((_Atomic uint32_t *)(uintptr_t)op->address, op->value);
}

static bool operation_is_satisfied(const operation *op)
{
    uint64_t now, want = operation_is_wide(op) ? op->value64 : op->value;
    int64_t ahead;
    if (operation_is_wide(op)) {
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
        return (~(now | want) & (operation_is_wide(op) ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void operation_wait(const operation *op)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (!operation_is_satisfied(op) && sim_state_now() == SIM_READY)
        nanosleep(&pause, NULL);
}

static void words_run(struct sim_work *work)
{
    const struct words *words = (const struct words *)work->payload;
    for (unsigned i = 0; i < words->count; i++) {
        const operation *op = &words->op[i].waitValue;
        if (operation_is_wait(op))
            operation_wait(op);
        else if (operation_has_word(op))
            operation_write(op);
    }
}

/* For a single operation: those before a wait in a batch have to run first. */
static bool words_are_blocked(const struct sim_work *work)
{
    return !operation_is_satisfied(&((const struct words *)work->payload)->op[0].waitValue);
}

/* Locked. */
static CUresult operation_check(const operation *op)
{
    if (op->operation < CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation > CU_STREAM_MEM_OP_BARRIER)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned bytes = operation_is_wide(op) ? 8 : 4;
    if (!operation_has_word(op))
        return CUDA_SUCCESS;
    enum sim_span span = op->address % bytes ? SIM_SPAN_BAD : sim_span(op->address, bytes, !operation_is_wait(op), NULL);
    return span == SIM_SPAN_DEVICE || span == SIM_SPAN_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Locked. */
static CUresult words_make(CUcontext context, unsigned count, const CUstreamBatchMemOpParams *ops, struct sim_work **ret)
{
    if (!ops || count == 0 || count > OPERATIONS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = operation_check(&ops[i].waitValue);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_work *work = sim_work_new(sizeof(struct words) + count * sizeof *ops, words_run, NULL);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct words *words = (struct words *)work->payload;
    words->context = context;
    words->count = count;
    memcpy(words->op, ops, count * sizeof *ops);
    for (unsigned i = 0; i < count; i++) {
        const operation *op = &ops[i].waitValue;
        work->may_wait |= operation_is_wait(op);
        /* An allocator's own words are not the program's to look at. */
        work->host_sees |= operation_has_word(op) && !operation_is_wait(op) && !sim_hazard_is_upkeep();
        if (operation_has_word(op))
            sim_work_touch(work, op->address, operation_is_wide(op) ? 8 : 4, !operation_is_wait(op));
    }
    if (count == 1 && operation_is_wait(&ops->waitValue))
        work->blocked = words_are_blocked;
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    *ret = work;
    return CUDA_SUCCESS;
}

CUresult sim_words_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret)
{
    return params->flags ? CUDA_ERROR_INVALID_VALUE : words_make(params->ctx, params->count, params->paramArray, ret);
}

void sim_words_params(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
    struct words *words = (struct words *)(uintptr_t)work->payload;
    *ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = words->context, .count = words->count, .paramArray = words->op};
}

/* Each operation is a piece of work of its own, all or none of them. A capture makes one node of them. */
CUresult sim_words(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops)
{
    sim_lock();
    CUstream stream;
    struct sim_work *work;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = words_make(NULL, count, ops, &work);
    if (result == CUDA_SUCCESS && (count == 1 || sim_capturing(stream))) {
        result = sim_submit(stream, work, NULL);
    } else if (result == CUDA_SUCCESS) {
        sim_work_free(work);
        sim_stream_ref(stream);
        for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
            result = words_make(NULL, 1, &ops[i], &work);
            if (result == CUDA_SUCCESS)
                result = sim_submit(stream, work, NULL);
        }
        sim_stream_unref(stream);
    }
    sim_unlock();
    return result;
}
