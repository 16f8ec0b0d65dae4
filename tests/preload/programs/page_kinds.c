/* What libraries of communication find out about memory. Preloaded; the argument says of which kind pages are:
   "exportable" (and fit for network cards), "fabric" (and for other machines too), "fabric_refused" (not that, though the
   device says that it can), "rdma" (for network cards alone) or "plain". */
#include <stdlib.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

CUresult nccl_range(CUdeviceptr *, size_t *, CUdeviceptr);

enum { BYTES = 5 << 20, PAGE = 2 << 20 };

static unsigned long long attribute(CUpointer_attribute which, CUdeviceptr address)
{
    unsigned long long value = 0;
    EXPECT(cuPointerGetAttribute(&value, which, address) == CUDA_SUCCESS);
    return value;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "plain";
    int fabric = strcmp(kind, "fabric") == 0;
    int exportable = fabric || strcmp(kind, "exportable") == 0 || strcmp(kind, "fabric_refused") == 0;
    int rdma = exportable || strcmp(kind, "rdma") == 0;
    void *block;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    size_t bytes;
    int fd = -1;
    EXPECT(cudaMalloc(&block, BYTES) == cudaSuccess);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)block;
    EXPECT(statistic(0, "allocs") == 1);
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) ==
           ((exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u) | (fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0u)));
    EXPECT((attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address) & 1) == (unsigned)rdma);
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address) == (unsigned)(exportable ? PAGE : BYTES));
    EXPECT((attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address + BYTES - 1) == address) == !exportable);
    EXPECT(nccl_range(&base, &bytes, address + BYTES - 1) == CUDA_SUCCESS);
    EXPECT(bytes == (size_t)(exportable ? PAGE : BYTES) && (base == address) == !exportable);
    EXPECT(cuMemRetainAllocationHandle(&handle, block) == CUDA_SUCCESS);
    CUresult result = cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    EXPECT((result == CUDA_SUCCESS) == exportable);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    if (fd >= 0)
        close(fd);
    EXPECT(cudaFree(block) == cudaSuccess);
    return failures != 0;
}
