/* Stand-ins for PyTorch's libraries, and one block, for tests of what PyTorch is asked and answered. All else are fakes
   (fakes.h). */
#ifndef TORCH_FAKES_H
#define TORCH_FAKES_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "expect_in_child.h"
#include "fakes.h"
#include "inspect/core_state.h"
#include "process/environment.h"
#include "process/interposers.h"
#include "process/process.h"
#include "process/symbols.h"
#include "serve/alloc.h"
#include "serve/callers.h"
#include "serve/free.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_observers.h"
#include "torch/torch_overrides.h"
#include "torch/torch_pools.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/free_policy.h"
#include "track/streams.h"

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
    bool none, no_core, no_driver, ours; /* none of PyTorch's libraries; a block is ours */
    uint16_t environment;       /* what PyTorch's check_env answers */
    bool failed;                /* a kernel, as PyTorch's registry says */
    bool itself;                /* PyTorch's names are the library's own */
    const char *missing;        /* a name that PyTorch's libraries lack */
    const char *allocator_in;   /* the library of the allocator in force */
    bool has_switch, cache_on;  /* PyTorch's allocator can be told to cache, and does */
    CUcontext current;
    int device;                 /* of that */
    CUresult current_answer, device_answer, retain, push, alloc, info, contexts;
    int retained, pushes, allocs;
    void (*meanwhile)(void);
    void (*at_thread_end)(void *);
    uint64_t total;
    bool no_stats;
    bool takes_text;            /* the error's constructor takes the text over */
    int deleted, errors_forgotten;
    char thrown[2048];
    jmp_buf caught;
};
extern struct fake fake;

/* Nothing of the test before is left. */
void start_afresh(void);

/* PyTorch's cudaGetLastError. */
int get_last_error(void);

/* A test in a process of its own, where nothing has been found out yet, ends with `status`, or with -signal, and says so
   much. */
void expect_end(void (*test)(void), int status, const char *said);

/* The same of one that ends well, in direct mode and with nothing else changed. */
void apart(void (*test)(void));

#endif
