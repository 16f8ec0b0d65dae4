/* Prints what the memory calls answer, errors included. The same natively and preloaded; no addresses in it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

#define SAY(call) printf("%s: %d\n", #call, (int)(call))
#define SHOW(format, ...) printf(format "\n", __VA_ARGS__)

static atomic_int flag;

static void slow(void *value)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    atomic_store(&flag, (int)(intptr_t)value);
}

static void sizes(void)
{
    void *address = &address;
    SAY(cudaMalloc(&address, 0));
    SHOW("zero bytes: %s", address ? "something" : "NULL");
    SAY(cudaFree(NULL));
    SAY(cudaMalloc(&address, (size_t)1 << 62));
    SAY(cudaGetLastError());
    SAY(cudaMalloc(&address, SIZE_MAX));
    SAY(cudaPeekAtLastError());
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    CUdeviceptr device_address;
    SAY(cuMemAlloc_v2(&device_address, 0));
    SAY(cuMemAlloc_v2(NULL, 16));
    SAY(cuMemFree_v2(0));
}

static void frees(void)
{
    char *address;
    CUdeviceptr other;
    int local;
    SAY(cudaMalloc((void **)&address, 3 * MIB));
    SAY(cudaFree(address + 512));
    SAY(cudaFree(address));
    SAY(cudaFree(address));
    SAY(cudaFree(&local));
    SAY(cudaFree((void *)(uintptr_t)0x10));
    SAY(cudaGetLastError());
    SAY(cuMemAlloc_v2(&other, 100));
    SAY(cuMemFree_v2(other + 1));
    SAY(cuMemFree_v2(other));
    SAY(cuMemFree_v2(other));
}

static void bytes(void)
{
    enum { COUNT = 1000 };
    static unsigned char out[4096], in[4096];
    void *blocks[COUNT];
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        memset(out, i, sizeof out);
        wrong += cudaMalloc(&blocks[i], sizeof out) || cudaMemcpy(blocks[i], out, sizeof out, cudaMemcpyHostToDevice);
    }
    for (int i = 0; i < COUNT; i++) {
        wrong += cudaMemcpy(in, blocks[i], sizeof in, cudaMemcpyDeviceToHost) != cudaSuccess;
        wrong += in[0] != (i & 255) || in[4095] != (i & 255);
        wrong += cudaFree(blocks[i]);
    }
    SHOW("bytes: %d wrong", wrong);
}

static void pitches(void)
{
    static const size_t widths[] = {1, 100, 512, 513, 4000};
    void *address;
    CUdeviceptr device_address;
    size_t pitch;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        SAY(cudaMallocPitch(&address, &pitch, widths[i], 33));
        SHOW("pitch of %zu: %zu", widths[i], pitch);
        SAY(cudaMemset(address, 1, pitch * 33));
        SAY(cudaFree(address));
    }
    SAY(cuMemAllocPitch_v2(&device_address, &pitch, 0, 3, 4));
    SAY(cuMemAllocPitch_v2(&device_address, &pitch, 3, 0, 4));
    SAY(cuMemAllocPitch_v2(&device_address, &pitch, 3, 3, 3));
    SAY(cuMemAllocPitch_v2(&device_address, &pitch, SIZE_MAX / 4, 3, 4));
    SAY(cuMemAllocPitch_v2(&device_address, &pitch, SIZE_MAX, 3, 4));
}

/* What is free may differ by what a cache keeps back: whole pages count, and less than this is in others. */
#define ABOUT (64 * MIB)

static int is_about(size_t got, size_t expected)
{
    return got + ABOUT >= expected && got <= expected + ABOUT;
}

static void information(void)
{
    size_t free_before, free_after, total;
    void *address;
    SAY(cudaMemGetInfo(&free_before, &total));
    SAY(cudaMalloc(&address, 512 * MIB));
    SAY(cudaMemGetInfo(&free_after, &total));
    SHOW("so much less: %d", is_about(free_after, free_before - 512 * MIB));
    SAY(cudaFree(address));
    SAY(cudaMemGetInfo(&free_after, &total));
    SHOW("and back: %d of %zu", is_about(free_after, free_before), total);
    SAY(cuMemGetInfo_v2(&free_after, NULL));
    SAY(cuMemGetInfo_v2(NULL, &total));
    SAY(cuMemGetInfo_v2(NULL, NULL));
}

static void attributes(void)
{
    CUdeviceptr address, base;
    CUcontext context, current;
    size_t size, range_size;
    unsigned long long first_id = 0, second_id = 0;
    CUmemorytype type;
    int ordinal;
    SAY(cuMemAlloc_v2(&address, 10000));
    SAY(cuMemGetAddressRange_v2(&base, &size, address + 5000));
    SHOW("range: %d, %zu", base == address, size);
    SAY(cuMemGetAddressRange_v2(NULL, &size, address));
    SAY(cuMemGetAddressRange_v2(&base, NULL, address));
    SAY(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    SAY(cuCtxGetCurrent(&current));
    SHOW("context: %d", context == current);
    SAY(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 9999));
    SAY(cuPointerGetAttribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 9999));
    SHOW("attributes: %d, %zu", base == address, range_size);
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    SHOW("type %d, device %d", (int)type, ordinal);
    SAY(cuPointerGetAttribute(&first_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *data[] = {&context, &range_size, &type};
    SAY(cuPointerGetAttributes(3, wanted, data, address + 1));
    SHOW("several: %d, %zu, %d", context == current, range_size, (int)type);
    SAY(cuMemFree_v2(address));
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    SAY(cuMemGetAddressRange_v2(&base, &size, address));
    SAY(cuPointerGetAttributes(3, wanted, data, address));
    SHOW("several of freed memory: %d, %d", context == NULL, (int)type);
    SAY(cuMemAlloc_v2(&address, 10000));
    SAY(cuPointerGetAttribute(&second_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    SHOW("another buffer: %d", first_id != second_id);
    SAY(cuMemFree_v2(address));
}

static void asynchronous(void)
{
    cudaStream_t stream;
    void *address;
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaMallocAsync(&address, MIB, stream));
    SAY(cudaFree(address));
    SAY(cudaMalloc(&address, MIB));
    SAY(cudaMemsetAsync(address, 7, MIB, stream));
    SAY(cudaFreeAsync(address, stream));
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaFree(address));
    SAY(cudaGetLastError());
}

/* cudaFree waits for what was submitted before, on any stream. */
static void waiting(void)
{
    cudaStream_t stream;
    void *address;
    SAY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SAY(cudaMalloc(&address, MIB));
    SAY(cudaLaunchHostFunc(stream, slow, (void *)1));
    SAY(cudaFree(address));
    SHOW("work before cudaFree is done: %d", atomic_load(&flag));
    SAY(cudaStreamSynchronize(stream));
}

static void running_out(void)
{
    enum { MANY = 4096 };
    static void *blocks[MANY];
    size_t free_bytes, total;
    int count = 0, result = 0;
    void *address;
    while (count < MANY && (result = cudaMalloc(&blocks[count], 256 * MIB)) == cudaSuccess)
        count++;
    SHOW("full: %d, last error %d", result, cudaGetLastError());
    SAY(cudaMemGetInfo(&free_bytes, &total));
    SHOW("all but little was had: %d", (size_t)count * 256 * MIB >= total - 512 * MIB);
    SAY(cudaFree(blocks[--count]));
    SAY(cudaMalloc(&address, 200 * MIB));
    SAY(cudaMemset(address, 1, 200 * MIB));
    SAY(cudaFree(address));
    while (count)
        result |= cudaFree(blocks[--count]);
    SAY(cudaMalloc(&address, total / 4 * 3));
    SAY(cudaFree(address));
    SAY(cudaGetLastError());
}

static void contexts(void)
{
    CUcontext context, before;
    CUdevice device;
    CUdeviceptr address;
    SAY(cuCtxGetCurrent(&before));
    SAY(cuCtxGetDevice(&device));
    SAY(cuCtxCreate_v2(&context, 0, device));
    SAY(cuMemAlloc_v2(&address, MIB));
    SAY(cuMemsetD8_v2(address, 1, MIB));
    SAY(cuCtxDestroy_v2(context));
    SAY(cuCtxSetCurrent(before));
    SAY(cuMemFree_v2(address));
    SAY(cuMemAlloc_v2(&address, MIB));
    SAY(cuCtxSetCurrent(NULL));
    SAY(cuMemFree_v2(address));
    SAY(cuCtxSetCurrent(before));
    SAY(cuMemFree_v2(address));
}

static void reset(void)
{
    void *address, *other;
    SAY(cudaMalloc(&address, MIB));
    SAY(cudaDeviceReset());
    SAY(cudaMalloc(&other, MIB));
    SAY(cudaMemset(other, 3, MIB));
    SAY(cudaFree(other));
    SAY(cudaDeviceSynchronize());
}

int main(void)
{
    sizes();
    frees();
    bytes();
    pitches();
    information();
    attributes();
    asynchronous();
    waiting();
    contexts();
    running_out();
    reset();
    return 0;
}
