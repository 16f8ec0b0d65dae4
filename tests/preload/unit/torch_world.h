/* Stand-ins for PyTorch's libraries, a driver and a core made up for tests of what PyTorch is asked and told: they answer
   what they are told to, and keep what they heard. */
#ifndef TORCH_WORLD_H
#define TORCH_WORLD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "serve/callers.h"
#include "core/core.h"

#define CHECK_ENV "_ZN3c105utils9check_envEPKc"
#define CHECK_FAIL "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define CACHING "PYTORCH_NO_CUDA_MEMORY_CACHING"

/* The library's own of PyTorch's names. */
uint16_t ours_of_check_env(const char *name) __asm__(CHECK_ENV);

struct text { /* std::string */
    char *text;
    size_t length;
    char room[16];
};
void ours_of_check_fail(const char *function, const char *file, uint32_t line, const struct text *message)
    __asm__(CHECK_FAIL);

#define HAS_FAILED "_ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv"
bool ours_of_has_failed(const void *registry) __asm__(HAS_FAILED);

enum { BLOCK = 4096, DEVICE = 1 };

struct fake {
    struct sg_conf conf;
    bool interposed;                                    /* another preloaded library has cudaMalloc */
    bool none, passing, over, no_core, no_driver, ours; /* none of PyTorch's libraries; a block is ours */
    uint16_t environment;       /* what PyTorch's check_env answers */
    bool failed;                /* a kernel, as PyTorch's registry says */
    bool itself;                /* PyTorch's names are the library's own */
    const char *missing;        /* a name that PyTorch's libraries lack */
    const char *allocator_in;   /* the library of the allocator in force */
    bool has_switch, cache_on;  /* PyTorch's allocator can be told to cache, and does */
    bool routes, in_pool;       /* for one tensor and not for the next; the next is a pool's */
    int emptied, observed, ooms; /* times that its cache was, observers were called, a failure was counted */
    size_t observed_bytes;
    int follows, plugged, said;
    CUcontext current;
    int device;                 /* of that */
    CUresult current_answer, device_answer, retain, push, alloc, info, contexts;
    int retained, pushes, allocs, frees, passed;
    void (*meanwhile)(void);
    void (*at_thread_end)(void *);
    uint64_t limit, total;
    bool no_stats;
    int watches;                /* PyTorch's allocator was to be watched */
    int limits;                 /* asked for, of what PyTorch was told before */
    bool takes_text;            /* the error's constructor takes the text over */
    int deleted, errors_forgotten;
    char thrown[2048];
    jmp_buf caught;
};
extern struct fake fake;

/* In a child, cmocka's long jump would go on with the parent's tests. */
#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: error: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1); \
        } \
    } while (0)

/* PyTorch's cudaGetLastError. */
int get_last_error(void);

/* A test in a process of its own, where nothing has been found out yet, ends with `status`, or with -signal, and says so
   much. */
void expect_end(void (*test)(void), int status, const char *said);

/* The same of one that ends well, in direct mode and with nothing else changed. */
void apart(void (*test)(void));

#endif
