/* On the simulator, natively and preloaded: a program has used CUDA, and confines itself then, all its threads, to the
   system calls that it still needs. Others fail ("refuse") or end the process ("kill").
   Usage: filtered refuse|kill [LOOKED] (LOOKED: a line on stderr just before) */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"

enum { OURS = 8 /* instructions: two a call */, BLOCKS = 64, STEPS = 4000, UNSUPPORTED = 77, MIB = 1 << 20 };

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What libc and the simulated driver need for memory, locks, time, output and an end. A thread made just before asks for
   rseq; glibc aborts without. A filter that ends the process has what the library needs, too (docs/interception.md,
   "Process states"). */
static bool confine(bool kill)
{
    /* clang-format off */
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect),
        ALLOW(madvise), ALLOW(getrandom), ALLOW(exit), ALLOW(exit_group), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask),
        ALLOW(futex), ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(clock_gettime), ALLOW(sched_yield),
        ALLOW(getpid), ALLOW(gettid), ALLOW(fallocate), /* the last is the simulated driver's */
        ALLOW(set_robust_list), ALLOW(rseq),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JA, kill ? 0 : OURS, 0, 0),
        ALLOW(membarrier), ALLOW(clone), ALLOW(clone3), ALLOW(prctl),
        BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM),
    };
    /* clang-format on */
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 8;
}

/* Results, and nothing that depends on where things lie. */
static void work(const char *when, cudaStream_t *stream)
{
    void *block[BLOCKS] = {NULL};
    unsigned seed = 1;
    int wrong = 0, full = 0;
    for (int i = 0; i < STEPS; i++) {
        unsigned at = next(&seed) % BLOCKS;
        if (block[at])
            wrong += cudaFree(block[at]) != cudaSuccess;
        block[at] = NULL;
        size_t bytes = i % 7 ? 1 + next(&seed) % 100000 : (size_t)(1 + next(&seed) % 40) * MIB;
        int result = cudaMalloc(&block[at], bytes);
        full += result == cudaErrorMemoryAllocation;
        wrong += result != cudaSuccess && result != cudaErrorMemoryAllocation;
        if (!block[at])
            continue;
        wrong += cudaMemsetAsync(block[at], i, 1, stream[i % 2]) != cudaSuccess;
        if (i % 50 == 0)
            wrong += cudaStreamSynchronize(stream[i % 2]) != cudaSuccess;
    }
    wrong += cudaDeviceSynchronize() != cudaSuccess;
    for (int i = 0; i < BLOCKS; i++)
        wrong += block[i] && cudaFree(block[i]) != cudaSuccess;
    int much = cudaMalloc(&block[0], (size_t)8192 * MIB); /* more than the card has */
    printf("%s: %d wrong, %d; %s\n", when, wrong, much, full ? "the card was full" : "all had room");
    fflush(stdout);
}

int main(int count, char **argument)
{
    cudaStream_t stream[2];
    CUcontext second, first;
    bool kill = count > 1 && strcmp(argument[1], "kill") == 0;
    if (cudaSetDevice(0) != cudaSuccess || cudaStreamCreateWithFlags(&stream[0], 0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking) != cudaSuccess)
        return 1;
    work("before", stream);
    if (count > 2)
        fprintf(stderr, "%s\n", argument[2]);
    if (!getenv("UNCONFINED") && !confine(kill))
        return UNSUPPORTED; /* this kernel has none */
    work("confined", stream);
    if (cuCtxGetCurrent(&first) != CUDA_SUCCESS || cuCtxCreate_v2(&second, 0, 0) != CUDA_SUCCESS)
        return 1;
    cudaStream_t others[2] = {NULL, NULL};
    work("second context", others);
    printf("%d\n", cuCtxDestroy_v2(second));
    if (cuCtxSetCurrent(first) != CUDA_SUCCESS)
        return 1;
    work("at last", stream);
    printf("%d\n", cudaDeviceReset());
    return 5;
}
