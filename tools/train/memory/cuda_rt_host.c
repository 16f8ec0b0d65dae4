/* A CUDA runtime in host memory, whose one stream does everything at once: for the CPU's arithmetic where it is the
   reference of a GPU's. */
#include "memory/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int host_success(void)
{
    return CUDA_SUCCESS_VALUE;
}

static int get_device_count(int *count)
{
    *count = 1;
    return host_success();
}

static int set_device(int device)
{
    (void)device;
    return host_success();
}

static int host_alloc(void **pointer, size_t bytes)
{
    size_t rounded = (bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    void *memory = rounded < bytes ? NULL : aligned_alloc(TENSOR_ALIGNMENT, rounded);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = memory;
    return host_success();
}

static int host_free(void *pointer)
{
    free(pointer);
    return host_success();
}

static int mem_get_info(size_t *unused, size_t *total)
{
    *unused = *total = SIZE_MAX / 4;
    return host_success();
}

static int host_copy(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind, (void)stream;
    memcpy(to, from, bytes);
    return host_success();
}

static int host_call_function(void *stream, void (*function)(void *), void *argument)
{
    (void)stream;
    function(argument);
    return host_success();
}

static int host_create(void **object, unsigned flags)
{
    (void)flags;
    static char any;
    *object = &any;
    return host_success();
}

static int on_object(void *object)
{
    (void)object;
    return host_success();
}

static int host_record(void *event, void *stream)
{
    (void)event, (void)stream;
    return host_success();
}

static int wait_event(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return host_success();
}

static const char *error_string(int error)
{
    return error == CUDA_ERROR_OUT_OF_MEMORY ? "the host's memory is used up" : "no error";
}

const struct cuda_rt cuda_rt_host = {
    .cudaGetDeviceCount = get_device_count,
    .cudaSetDevice = set_device,
    .cudaMalloc = host_alloc,
    .cudaFree = host_free,
    .cudaMemGetInfo = mem_get_info,
    .cudaMallocHost = host_alloc,
    .cudaFreeHost = host_free,
    .cudaMemcpyAsync = host_copy,
    .cudaLaunchHostFunc = host_call_function,
    .cudaEventCreateWithFlags = host_create,
    .cudaEventDestroy = on_object,
    .cudaEventRecord = host_record,
    .cudaEventSynchronize = on_object,
    .cudaStreamCreateWithFlags = host_create,
    .cudaStreamDestroy = on_object,
    .cudaStreamWaitEvent = wait_event,
    .cudaStreamSynchronize = on_object,
    .cudaGetLastError = host_success,
    .cudaGetErrorString = error_string,
};
