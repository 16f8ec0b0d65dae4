/* Copies between two addresses of unified space: work for a stream like any other. */
#include <stddef.h>

#include "hooks.h"
#include "streams.h"

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = sg_real()->cuMemcpy(dst, src, bytes);
    sg_touched(NULL, false);
    return result;
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = sg_real()->cuMemcpy_ptds(dst, src, bytes);
    sg_touched(NULL, true);
    return result;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = sg_real()->cuMemcpyDtoD_v2(dst, src, bytes);
    sg_touched(NULL, false);
    return result;
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    CUresult result = sg_real()->cuMemcpyDtoD_v2_ptds(dst, src, bytes);
    sg_touched(NULL, true);
    return result;
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = sg_real()->cuMemcpyAsync(dst, src, bytes, stream);
    sg_touched(stream, false);
    return result;
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = sg_real()->cuMemcpyAsync_ptsz(dst, src, bytes, stream);
    sg_touched(stream, true);
    return result;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = sg_real()->cuMemcpyDtoDAsync_v2(dst, src, bytes, stream);
    sg_touched(stream, false);
    return result;
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = sg_real()->cuMemcpyDtoDAsync_v2_ptsz(dst, src, bytes, stream);
    sg_touched(stream, true);
    return result;
}
