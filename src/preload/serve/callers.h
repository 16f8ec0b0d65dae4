/* Modules that call the runtime's cudaMalloc and cudaFree, and the runtime of each.

   Nouns. A *module* is a loaded library or the program. Its *kind* decides how it is served: PyTorch's frees follow
   streams, NCCL's memory must be the driver's own.

   Why. One process may have several runtimes: PyTorch's own libcudart.so.12 and the program's .so.13. A call must go on
   to the one that its caller was linked with.

   How. The return address gives the module (loaded_code.h). It is found out once and kept until a library is unloaded.

   For example, libtorch_cuda.so calls cudaMalloc. The address lies in it, the kind is TORCH, and its runtime is the
   libcudart.so.12 beside it. The second call finds the module by a look at a table, without the loader. */
#ifndef SG_CALLERS_H
#define SG_CALLERS_H

#include <stdbool.h>
#include <stddef.h>

/* The kinds of modules.def; DRIVER: what it allocates has to be the driver's own memory. */
enum sg_caller { SG_CALLER_UNKNOWN, SG_CALLER_OTHER, SG_CALLER_TORCH, SG_CALLER_NCCL, SG_CALLER_DRIVER };

/* True if what a module of this kind allocates is passed on to the driver. */
static inline bool sg_caller_passes(enum sg_caller kind)
{
    return kind >= SG_CALLER_NCCL;
}

typedef int sg_cuda_malloc_fn(void **ret, size_t bytes);
typedef int sg_cuda_free_fn(void *address);
typedef int sg_cuda_last_error_fn(void);

/* One loaded module that calls the runtime. */
struct sg_module {
    enum sg_caller kind;
    sg_cuda_malloc_fn *malloc; /* of its own libcudart; NULL where no libcudart is loaded */
    sg_cuda_free_fn *free;
    sg_cuda_last_error_fn *get_last_error; /* NULL where it is not to be had */
    bool fast_path; /* that runtime sets its device at cudaSetDevice(), not in its first call: fast_path.h */
};

/* The module that `code` belongs to, for as long as it is loaded, or in *spare. Found out once a module, and again after
   any library was unloaded, taking the loader's lock; no lock is taken otherwise. */
const struct sg_module *sg_caller_module(const void *code, struct sg_module *spare);

/* The module kind alone, by file name; for callers of the driver. Found out once a module too. */
enum sg_caller sg_caller_kind(const void *code);

/* The kind of the module whose cudaMalloc or cudaFree this thread is in; SG_CALLER_UNKNOWN where the driver was called
   in another way. */
enum sg_caller sg_caller_current(void);

#endif
