/* The public interface of libsegalloc.so. A program needs none of it: the library answers cudaMalloc and cudaFree when
   it is named in LD_PRELOAD. These functions are for programs, and frameworks, that know of it.

   Versioning: functions are only ever added; structs only grow at the end in a new soname. */
#ifndef SEGALLOC_SEGALLOC_H
#define SEGALLOC_SEGALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SEGALLOC_API __attribute__((visibility("default")))
#else
#define SEGALLOC_API
#endif

/* "0.1.0": the version of the library that is loaded. */
SEGALLOC_API const char *segalloc_version(void);

/* Gives memory that nobody uses back to the driver, until at most `keep` bytes are held on `device` beyond what is
   allocated. Returns the bytes given back; 0 too where the library isn't in use. */
SEGALLOC_API size_t segalloc_trim(int device, size_t keep);

struct segalloc_stat {
    const char *name; /* as in `segalloc report --json`; static */
    const char *unit; /* "bytes", "count" or "ns"; static */
    uint64_t value;   /* now, or the total since the start */
    uint64_t peak;    /* the largest value so far; 0 for totals */
};

/* A consistent snapshot of the statistics of `device`: writes up to `count` of them to `ret` and returns how many there
   are. 0 where nothing was allocated on the device, or the library isn't in use. */
SEGALLOC_API int segalloc_stats(int device, struct segalloc_stat *ret, int count);

/* For torch.cuda.memory.CUDAPluggableAllocator and MemPool. `stream` (a cudaStream_t) is the one that the block belongs to.
   In this version it does not shorten anything: freed memory is given out again when all that its context had been
   given by then is done. Running out ends the process with a message, because PyTorch would use NULL. */
SEGALLOC_API void *segalloc_torch_malloc(size_t bytes, int device, void *stream);
SEGALLOC_API void segalloc_torch_free(void *pointer, size_t bytes, int device, void *stream);

#ifdef __cplusplus
}
#endif

#endif
