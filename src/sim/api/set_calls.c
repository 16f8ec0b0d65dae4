/* Entry points of sets, by the size of an element and the number of rows. */
#include "calls.h"
#include "work/fill.h"
#include "work/program_stream.h"

static struct sim_fill set_row(CUdeviceptr dst, unsigned value, size_t count, unsigned element)
{
    return (struct sim_fill){.address = dst, .value = value, .width = count, .height = 1, .element = element};
}

static struct sim_fill set_rows(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height,
    unsigned element)
{
    return (struct sim_fill){.address = dst,
        .pitch = pitch,
        .value = value,
        .width = width,
        .height = height,
        .element = element};
}

#define SETS(name, type, element)                                                                   \
    CUresult cuMemset##name##_v2(CUdeviceptr dst, type value, size_t count)                         \
    {                                                                                               \
        SIM_ENTER(cuMemset##name##_v2);                                                             \
        return sim_fill(set_row(dst, value, count, element), CU_STREAM_LEGACY, true);               \
    }                                                                                               \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr dst, type value, size_t count)                    \
    {                                                                                               \
        SIM_ENTER(cuMemset##name##_v2);                                                             \
        return sim_fill(set_row(dst, value, count, element), CU_STREAM_PER_THREAD, true);           \
    }                                                                                               \
    CUresult cuMemset##name##Async(CUdeviceptr dst, type value, size_t count, CUstream stream)      \
    {                                                                                               \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, value, count, stream);                           \
        return sim_fill(set_row(dst, value, count, element), stream, false);                        \
    }                                                                                               \
    CUresult cuMemset##name##Async_ptsz(CUdeviceptr dst, type value, size_t count, CUstream stream) \
    {                                                                                               \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, value, count, stream);                           \
        return sim_fill(set_row(dst, value, count, element), sim_per_thread(stream), false);        \
    }

#define SETS_2D(name, type, element)                                                                            \
    CUresult cuMemset##name##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)        \
    {                                                                                                           \
        SIM_ENTER(cuMemset##name##_v2);                                                                         \
        return sim_fill(set_rows(dst, pitch, value, width, height, element), CU_STREAM_LEGACY, true);           \
    }                                                                                                           \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)   \
    {                                                                                                           \
        SIM_ENTER(cuMemset##name##_v2);                                                                         \
        return sim_fill(set_rows(dst, pitch, value, width, height, element), CU_STREAM_PER_THREAD, true);       \
    }                                                                                                           \
    CUresult cuMemset##name##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,      \
        CUstream stream)                                                                                        \
    {                                                                                                           \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, pitch, value, width, height, stream);                        \
        return sim_fill(set_rows(dst, pitch, value, width, height, element), stream, false);                    \
    }                                                                                                           \
    CUresult cuMemset##name##Async_ptsz(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, \
        CUstream stream)                                                                                        \
    {                                                                                                           \
        SIM_ENTER_WITH(cuMemset##name##Async, dst, pitch, value, width, height, stream);                        \
        return sim_fill(set_rows(dst, pitch, value, width, height, element), sim_per_thread(stream), false);    \
    }

SETS(D8, unsigned char, 1)
SETS(D16, unsigned short, 2)
SETS(D32, unsigned int, 4)

SETS_2D(D2D8, unsigned char, 1)
SETS_2D(D2D16, unsigned short, 2)
SETS_2D(D2D32, unsigned int, 4)
