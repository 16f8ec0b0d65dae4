// Tensors of PyTorch with its cache off, or through a pluggable allocator, with what PyTorch does about errors.
#include "c10_cuda.hpp"

#include <atomic>
#include <cstdio>
#include <optional>

extern "C" int cudaMalloc(void **, size_t);
extern "C" int cudaFree(void *);
extern "C" int cudaGetLastError();

namespace c10::utils {
std::optional<bool> check_env(const char *name);
}

namespace c10::cuda::CUDACachingAllocator {
struct CUDAAllocator {
    virtual ~CUDAAllocator() {}
};
C10_API std::atomic<CUDAAllocator *> allocator;
static CUDAAllocator native;
}

namespace torch_standin {

void *tensor(size_t bytes)
{
    void *address = nullptr;
    if (c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") != true)
        throw std::runtime_error("the cache is on");
    int result = cudaMalloc(&address, bytes);
    if (result != 0) {
        (void)cudaGetLastError();
        throw std::runtime_error("CUDA error");
    }
    return address;
}

void release(void *address)
{
    volatile int result = cudaFree(address);
    (void)result;
}

void share(void *address)
{
    char text[64];
    std::snprintf(text, sizeof text, "invalid device pointer: %p", address);
    c10::detail::torchCheckFail(__func__, __FILE__, __LINE__, text);
}

void fail_a_check(const std::string &message)
{
    c10::detail::torchCheckFail(__func__, __FILE__, __LINE__, message);
}

void native_in_force(bool yes)
{
    using namespace c10::cuda::CUDACachingAllocator;
    allocator.store(yes ? &native : nullptr);
}

// So that this library has the class's table of functions, as PyTorch's has.
void run_out(const std::string &message)
{
    throw c10::OutOfMemoryError({__func__, __FILE__, 0}, message);
}

}
