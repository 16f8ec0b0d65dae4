/* Modules, libraries and kernels. No code is read: a module has every kernel and variable that it is asked for, and
   such a kernel does nothing, in stream order. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "kernels/integers.h"
#include "sim.h"

/* A variable of a module: memory of a context. */
struct sim_global {
    struct sim_global *next;
    CUdeviceptr address;
    CUcontext context;
    char name[];
};

/* A module (of a context) or a library (of none). CUmodule and CUlibrary both point at one. */
struct sim_code {
    struct sim_handle handle;
    CUcontext context;
    CUfunction functions;
    struct sim_global *globals;
    struct sim_code *next; /* in context->modules */
};

/* CUfunction and CUkernel both point at one, as the driver too takes one for the other at a launch. */
struct CUfunc_st {
    struct sim_handle handle;
    struct sim_code *code;
    CUfunction next;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    struct sim_integers integers; /* what its name says */
    char name[];
};

/* Locked, here and below. The code of a module's or a library's handle; NULL: there is none. */
struct sim_code *sim_code_of(const void *handle);
/* A module of the context, a library with NULL. NULL when out of host memory. */
struct sim_code *sim_code_new(CUcontext context);
/* The end of a module, which is in no list any more, or of a library. */
void sim_code_drop(struct sim_code *code);
/* The end of all modules of a context, with that. */
void sim_module_drop_context(CUcontext context);
/* CUDA_ERROR_INVALID_HANDLE for what is no function. */
CUresult sim_function_get(CUfunction handle, CUfunction *ret);

#endif
