/* The types of the CUDA runtime that its entries take by layout, as in CUDA 12.9 and 13.0 (driver_types.h,
   vector_types.h). Opaque handles are the driver's own: the runtime's are the same pointers. Enumerations are int. */
#ifndef SG_RT_RUNTIME_ABI_H
#define SG_RT_RUNTIME_ABI_H

#include <stddef.h>

#include "driver/cuda_abi.h"
#include "majors.h"

typedef int cudaError_t;

enum {
#define DRIVER(number, name) name = number,
#define RUNTIME(number, name, text) name = number,
#include "error.def"
#undef DRIVER
#undef RUNTIME
};

enum sg_rt_copy_kind {
    COPY_HOST_TO_HOST, COPY_HOST_TO_DEVICE, COPY_DEVICE_TO_HOST, COPY_DEVICE_TO_DEVICE, COPY_DEFAULT
};
enum sg_rt_memory_type { MEMORY_UNREGISTERED, MEMORY_HOST, MEMORY_DEVICE, MEMORY_MANAGED };
enum { DEVICE_INVALID = -2 };

typedef struct {
    unsigned x, y, z;
} dim3;

struct cudaDeviceProp {
#define INT(majors, field, attribute) IN_##majors(int field;)
#define UINT(majors, field, attribute) IN_##majors(unsigned field;)
#define SIZE(majors, field, attribute) IN_##majors(size_t field;)
#define INT2(majors, field, a, b) IN_##majors(int field[2];)
#define INT3(majors, field, a, b, c) IN_##majors(int field[3];)
#define BYTES(majors, type, field, count) IN_##majors(type field[count];)
#define PLAIN(majors, type, field) IN_##majors(type field;)
#include "device_prop.def"
#undef INT
#undef UINT
#undef SIZE
#undef INT2
#undef INT3
#undef BYTES
#undef PLAIN
};
_Static_assert(sizeof(struct cudaDeviceProp) == (CUDART_MAJOR == 12 ? 1032 : 1008), "cudaDeviceProp");
_Static_assert(offsetof(struct cudaDeviceProp, totalGlobalMem) == 288, "cudaDeviceProp.totalGlobalMem");
_Static_assert(offsetof(struct cudaDeviceProp, multiProcessorCount) == (CUDART_MAJOR == 12 ? 388 : 384),
               "cudaDeviceProp.multiProcessorCount");

struct cudaPointerAttributes {
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
    IN_V13(long reserved[8];)
};
_Static_assert(sizeof(struct cudaPointerAttributes) == (CUDART_MAJOR == 12 ? 24 : 88), "cudaPointerAttributes");

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth;
    int requiredClusterHeight;
    int requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
};
_Static_assert(sizeof(struct cudaFuncAttributes) == 144, "cudaFuncAttributes");

struct cudaLaunchConfig_st {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    CUstream stream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
};
_Static_assert(sizeof(struct cudaLaunchConfig_st) == 56, "cudaLaunchConfig_t");

struct cudaChannelFormatDesc {
    int x, y, z, w;
    int f;
};

struct cudaPitchedPtr {
    void *ptr;
    size_t pitch;
    size_t xsize;
    size_t ysize;
};

struct cudaExtent {
    size_t width, height, depth;
};

struct cudaPos {
    size_t x, y, z;
};

struct cudaMemcpy3DParms {
    CUarray srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    CUarray dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    struct cudaExtent extent;
    int kind;
};
_Static_assert(sizeof(struct cudaMemcpy3DParms) == 160, "cudaMemcpy3DParms");

struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim;
    dim3 blockDim;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
};
_Static_assert(sizeof(struct cudaKernelNodeParams) == 56, "cudaKernelNodeParams");

/* The parameters of cudaGraphAddNode. But for kernels and copies it is the driver's own CUgraphNodeParams. */
struct cudaMemcpyNodeParams {
    int flags, reserved[3];
    struct cudaMemcpy3DParms copyParams;
};
_Static_assert(sizeof(struct cudaMemcpyNodeParams) == 176, "cudaMemcpyNodeParams");
struct cudaGraphNodeParams {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        struct cudaKernelNodeParams kernel;
        struct cudaMemcpyNodeParams memcpy;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUDA_CONDITIONAL_NODE_PARAMS conditional;
    };
    long long reserved2;
};
_Static_assert(sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams), "cudaGraphNodeParams");

struct cudaMemcpy3DPeerParms {
    CUarray srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    int srcDevice;
    CUarray dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    int dstDevice;
    struct cudaExtent extent;
};
_Static_assert(sizeof(struct cudaMemcpy3DPeerParms) == 168, "cudaMemcpy3DPeerParms");

/* CUDA_ARRAY3D_DESCRIPTOR of the driver. */
struct sg_rt_array_shape {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
};
_Static_assert(sizeof(struct sg_rt_array_shape) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

#endif
