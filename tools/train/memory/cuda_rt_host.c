/* A CUDA runtime in host memory, whose one stream does everything at once: for the CPU's arithmetic where it is the
   reference of a GPU's. */
#include "memory/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int success(void)
{
    return CUDA_SUCCESS_VALUE;
}

static int get_device_count(int *count)
{
    *count = 1;
    return success();
}

static int set_device(int device)
{
    (void)device;
    return success();
}

static int take(void **pointer, size_t bytes)
{
    size_t rounded = (bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    void *memory = rounded < bytes ? NULL : aligned_alloc(TENSOR_ALIGNMENT, rounded);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = memory;
    return success();
}

static int give(void *pointer)
{
    free(pointer);
    return success();
}

static int mem_get_info(size_t *unused, size_t *total)
{
    *unused = *total = SIZE_MAX / 4;
    return success();
}

static int copy(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind, (void)stream;
    memcpy(to, from, bytes);
    return success();
}

static int call(void *stream, void (*function)(void *), void *argument)
{
    (void)stream;
    function(argument);
    return success();
}

static int create(void **object, unsigned flags)
{
    (void)flags;
    static char any;
    *object = &any;
    return success();
}

static int on_object(void *object)
{
    (void)object;
    return success();
}

static int record(void *event, void *stream)
{
    (void)event, (void)stream;
    return success();
}

static int wait_event(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return success();
}

static const char *error_string(int error)
{
    return error == CUDA_ERROR_OUT_OF_MEMORY ? "the host's memory is used up" : "no error";
}

const struct cuda_rt cuda_rt_host = {
    .cudaGetDeviceCount = get_device_count, .cudaSetDevice = set_device, .cudaMalloc = take, .cudaFree = give,
    .cudaMemGetInfo = mem_get_info, .cudaMallocHost = take, .cudaFreeHost = give, .cudaMemcpyAsync = copy,
    .cudaLaunchHostFunc = call, .cudaEventCreateWithFlags = create, .cudaEventDestroy = on_object,
    .cudaEventRecord = record, .cudaEventSynchronize = on_object, .cudaStreamCreateWithFlags = create,
    .cudaStreamDestroy = on_object, .cudaStreamWaitEvent = wait_event, .cudaStreamSynchronize = on_object,
    .cudaGetLastError = success, .cudaGetErrorString = error_string,
};
