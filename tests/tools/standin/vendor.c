/* The vendor's libraries as a linker and a loader see them. None of these may ever be called: each returns 77. */
#define FUNCTION(name) \
    int name(void); \
    __attribute__((visibility("default"))) int name(void) \
    { \
        return 77; \
    }
#ifdef NCCL
FUNCTION(ncclGetVersion)
FUNCTION(ncclCommInitRank)
FUNCTION(ncclCommCount)
FUNCTION(ncclCommSplit)
FUNCTION(ncclAllReduce)
FUNCTION(ncclBroadcast)
FUNCTION(ncclAllGather)
FUNCTION(ncclReduceScatter)
FUNCTION(ncclSend)
FUNCTION(ncclRecv)
FUNCTION(ncclGroupStart)
FUNCTION(ncclGroupEnd)
#else
FUNCTION(cublasCreate_v2)
FUNCTION(cublasGetMathMode)
FUNCTION(cublasLtMatmulAlgoGetHeuristic)
FUNCTION(cublasSgemm_v2)
#endif
