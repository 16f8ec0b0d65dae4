/* The beginning of programs for `check`: a context, and the library's calls by stream. They are looked up by name, so that a
   program without the library ends with a line. */
#ifndef CHECK_PROGRAM_H
#define CHECK_PROGRAM_H

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_proto.h"

/* Neither inlined nor cloned, so that it stands on the stack under its own name. */
#if defined(__clang__)
#define APART __attribute__((noinline, visibility("default")))
#else
#define APART __attribute__((noipa, visibility("default")))
#endif

static void *(*malloc_on)(size_t bytes, void *stream);
static int (*free_on)(void *pointer);

static inline void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: %d\n", program_invocation_short_name, call, (int)result);
    exit(2);
}
#define MUST(call) must((call), #call)

/* Writes the function of a name to *ret, a pointer to one. */
static inline void find(const char *name, void *ret)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol) {
        fprintf(stderr, "%s: no %s: it runs by segalloc run\n", program_invocation_short_name, name);
        exit(2);
    }
    memcpy(ret, &symbol, sizeof symbol);
}

/* The primary context of device 0 is current afterwards. */
static inline void begin_program(void)
{
    CUcontext context;
    find("segalloc_malloc_on", &malloc_on);
    find("segalloc_free", &free_on);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

#endif
