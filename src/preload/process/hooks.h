/* The hooked functions of libcuda, all made from hooks.def: their numbers, our functions of the same names, and the
   table of the driver's own.

   Why one .def. A hook has six places: an enum, a prototype, an exported name, a row by name, a pointer to the driver's
   function and the tests. A row in hooks.def makes all of them.

   For example, the row HOOK(cuMemFree_v2, cuMemFree, 3020, ANY, (CUdeviceptr address)) makes SG_HOOK_cuMemFree_v2, the
   exported prototype, and sg_real()->cuMemFree_v2, which calls the driver's own. */
#ifndef SG_HOOKS_H
#define SG_HOOKS_H

#include "driver/cuda_abi.h"

#define SG_EXPORT __attribute__((visibility("default")))

enum sg_hook {
#define HOOK(symbol, base, version, threads, parameters) SG_HOOK_##symbol,
#include "process/hooks.def"
    SG_HOOK_COUNT
};

struct sg_real {
#define HOOK(symbol, base, version, threads, parameters) CUresult(*symbol) parameters;
#include "process/hooks.def"
};

#define HOOK(symbol, base, version, threads, parameters) SG_EXPORT CUresult symbol parameters;
#include "process/hooks.def"

/* The driver's own functions. Never NULL: where libcuda isn't loaded, or lacks a function, the entry answers
   CUDA_ERROR_NOT_INITIALIZED. May take the loader's lock the first time: not to be called holding a lock of ours. */
const struct sg_real *sg_real(void);

/* The driver's function of a row of the table (hook_table.h); NULL where the driver has none. Takes the loader's lock the
   first time. */
struct sg_hook_row;
void *sg_hook_real(const struct sg_hook_row *hook);

#endif
