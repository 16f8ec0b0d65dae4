/* The handles that a stream goes by. Why it is apart: captures and graphs compare handles and need nothing else of
   streams. */
#ifndef SG_STREAM_HANDLE_H
#define SG_STREAM_HANDLE_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* The handle that means the stream in any call. A call whose name ends in _ptsz or _ptds takes 0 for the thread's own
   stream, any other call for the legacy one. For example, 0 in cuMemcpyDtoHAsync_v2_ptsz is CU_STREAM_PER_THREAD, which
   is 2. */
static inline CUstream sg_stream_named(CUstream stream, bool per_thread)
{
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#endif
