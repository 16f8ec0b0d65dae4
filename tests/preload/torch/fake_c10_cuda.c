/* libc10_cuda.so as far as the library deals with it: a current stream a thread, and tensors, which come from
   cudaMalloc one by one where the cache is off, else from one segment. */
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

struct stream {
    uint64_t device, id;
};

uint16_t _ZN3c105utils9check_envEPKc(const char *name);
int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);

EXPORT struct stream _ZN3c104cuda20getCurrentCUDAStreamEa(int8_t device);
EXPORT void *_ZNK3c104cuda10CUDAStream6streamEv(const struct stream *stream);
EXPORT void set_current_stream(void *stream);
EXPORT int is_caching(void);
EXPORT void *tensor(size_t bytes);
EXPORT int release(void *address);

static __thread void *current;

void set_current_stream(void *stream)
{
    current = stream;
}

/* PyTorch's variable is gone when the thread's destructors have run; asked then, it throws. */
int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *module);
static __thread enum { UNUSED, IN_USE, GONE } streams;

static void destroy_streams(void *unused)
{
    (void)unused;
    streams = GONE;
}

struct stream _ZN3c104cuda20getCurrentCUDAStreamEa(int8_t device)
{
    if (streams == GONE)
        abort();
    if (streams == UNUSED) {
        streams = IN_USE;
        __cxa_thread_atexit_impl(destroy_streams, NULL, &streams);
    }
    return (struct stream){(uint64_t)(uint8_t)device, (uint64_t)(uintptr_t)current};
}

void *_ZNK3c104cuda10CUDAStream6streamEv(const struct stream *stream)
{
    return (void *)(uintptr_t)stream->id;
}

#ifdef ASKS_ENVIRONMENT
EXPORT void _ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig9parseArgsEPKc(const char *settings);

/* Which PyTorch exports that asks so. */
void _ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig9parseArgsEPKc(const char *settings)
{
    (void)settings;
}

int is_caching(void)
{
    return !getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
}
#else
int is_caching(void)
{
    static int answer = -1;
    if (answer < 0)
        answer = _ZN3c105utils9check_envEPKc("PYTORCH_NO_CUDA_MEMORY_CACHING") != 0x101;
    return answer;
}
#endif

/* A static object that every check of a call asks, also after its end: what it says then is that a kernel has failed. */
EXPORT __attribute__((weak)) int8_t _ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv(const void *registry);
static enum { NOT_MADE, MADE, ENDED } registry;

static void end_registry(void)
{
    registry = ENDED;
}

int8_t _ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv(const void *its)
{
    return *(const volatile int *)its == ENDED;
}

/* PyTorch throws, which ends the process where a destructor is to free. */
static void check(void)
{
    if (registry == NOT_MADE) {
        registry = MADE;
        atexit(end_registry);
    }
    if (_ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv(&registry))
        abort();
}

/* Calls are followed by something, so that the return address is in this library. */
void *tensor(size_t bytes)
{
    static char *segment;
    static size_t used;
    enum { SEGMENT_BYTES = 20 << 20 };
    void *address = NULL;
    if (!is_caching())
        return cudaMalloc(&address, bytes) == 0 ? address : NULL;
    if (!segment && cudaMalloc((void **)&segment, SEGMENT_BYTES) != 0)
        return NULL;
    used += (bytes + 511) / 512 * 512;
    return used <= SEGMENT_BYTES ? segment + used - (bytes + 511) / 512 * 512 : NULL;
}

int release(void *address)
{
    volatile int result = 0;
    if (!is_caching())
        result = cudaFree(address), check();
    return result;
}
