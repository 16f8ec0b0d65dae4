/* What the tests of the simulated driver share. They are linked with libcuda.so.1 as any program is. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_proto.h"

#define ENTRY(name, symbol, version)
#define ENTRY_STREAM(name, symbol, version, variant) __typeof__(symbol) variant;
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define PAGE (2 * MIB)

static inline const char *error_name(CUresult result)
{
    const char *name = NULL;
    cuGetErrorName(result, &name);
    return name ? name : "(no such error)";
}

static inline void check_result(CUresult want, CUresult got, const char *call, const char *file, int line)
{
    if (want == got)
        return;
    print_error("%s: %s, not %s\n", call, error_name(got), error_name(want));
    _fail(file, line);
}

#define ok(call) check_result(CUDA_SUCCESS, call, #call, __FILE__, __LINE__)
#define expect_error(want, call) check_result(want, call, #call, __FILE__, __LINE__)

static inline int use_device_0(void **state)
{
    (void)state;
    CUcontext context;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    return 0;
}

static inline int leave_device_0(void **state)
{
    (void)state;
    ok(cuCtxSynchronize());
    ok(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}

static inline size_t free_bytes(void)
{
    size_t bytes;
    ok(cuMemGetInfo_v2(&bytes, NULL));
    return bytes;
}

static inline void *host(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static inline CUmemAllocationProp on_device(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static inline CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

/* A gate that a host function waits at, so that a test decides when a stream goes on. */
struct gate {
    _Atomic bool open, reached;
};

void wait_at_gate(void *gate);
void sleep_ms(unsigned ms);

#endif
