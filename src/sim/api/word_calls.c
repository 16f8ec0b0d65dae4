/* Entry points of words of memory that a stream writes, or waits for. */
#include "calls.h"
#include "work/memory_words.h"
#include "work/program_stream.h"

/* Both ABI versions have the same meaning and the same parameters. */
#define MEMOP(symbol, type, member, kind)                                                          \
    CUresult symbol(CUstream stream, CUdeviceptr address, type word, unsigned int flags)           \
    {                                                                                              \
        SIM_ENTER_WITH(symbol, stream);                                                            \
        CUstreamBatchMemOpParams op = {                                                            \
            .waitValue = {.operation = kind, .address = address, .member = word, .flags = flags}}; \
        return sim_words(stream, 1, &op);                                                          \
    }                                                                                              \
    CUresult symbol##_ptsz(CUstream stream, CUdeviceptr address, type word, unsigned int flags)    \
    {                                                                                              \
        return symbol(sim_per_thread(stream), address, word, flags);                               \
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
        return flags ? CUDA_ERROR_INVALID_VALUE : sim_words(stream, count, params);                                   \
    }                                                                                                                 \
    CUresult symbol##_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags) \
    {                                                                                                                 \
        return symbol(sim_per_thread(stream), count, params, flags);                                                  \
    }

BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)
