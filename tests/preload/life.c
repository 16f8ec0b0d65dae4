/* Preloaded, on the simulator: what becomes of the library when the process forks, ends or is ended. The argument
   says which. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

enum { PAIRS = 1000 };

static void work(void)
{
    void *address;
    for (int i = 0; i < PAIRS; i++)
        EXPECT(cudaMalloc(&address, 1000 + (size_t)i) == cudaSuccess && cudaFree(address) == cudaSuccess);
}

static int child_status(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* CUDA doesn't work in the child; freeing what the parent had does no harm. */
static void fork_late(void)
{
    CUdeviceptr address;
    work();
    EXPECT(cuMemAlloc_v2(&address, 1 << 20) == CUDA_SUCCESS);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr other;
        EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
        EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
        EXPECT(cuMemAlloc_v2(&other, 1 << 20) != CUDA_SUCCESS);
        exit(failures != 0);
    }
    EXPECT(child_status(child) == 0);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
    work();
}

static atomic_bool forked_enough;

/* Has events of the library's recorded and asked about, for which it keeps captures from beginning. */
static void *keep_busy(void *context)
{
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    while (!atomic_load(&forked_enough)) {
        CUdeviceptr address;
        size_t free_bytes, total_bytes;
        EXPECT(cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS && cuMemFreeAsync(address, NULL) == CUDA_SUCCESS);
        EXPECT(cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS);
    }
    return NULL;
}

/* Whatever other threads were in the midst of, the child gets an answer to what it asks. */
static void fork_busy(void)
{
    enum { THREADS = 2, FORKS = 40, SECONDS = 120 };
    pthread_t thread[THREADS];
    CUcontext context = NULL;
    work();
    EXPECT(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, keep_busy, context) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
            _exit(failures != 0);
        }
        EXPECT(child_status(child) == 0);
    }
    atomic_store(&forked_enough, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

/* Forked before CUDA was used, the child is a process like any other. */
static void fork_early(void)
{
    pid_t child = fork();
    if (child == 0) {
        work();
        EXPECT(statistic(0, "allocs") == PAIRS);
        exit(failures != 0);
    }
    EXPECT(child_status(child) == 0);
    work();
    EXPECT(statistic(0, "allocs") == PAIRS);
}

static void handler_frees(void)
{
    static void *address;
    if (!address) {
        cudaMalloc(&address, 1 << 20);
        return;
    }
    EXPECT(cudaFree(address) == cudaSuccess);
    if (failures)
        _exit(1);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "fork_late") == 0) {
        fork_late();
    } else if (strcmp(how, "fork_busy") == 0) {
        fork_busy();
    } else if (strcmp(how, "fork_early") == 0) {
        fork_early();
    } else if (strcmp(how, "exec") == 0) {
        work();
        execl("/proc/self/exe", argv[0], "exit", (char *)NULL);
    } else if (strcmp(how, "_exit") == 0) {
        work();
        _exit(0);
    } else if (strcmp(how, "kill") == 0) {
        work();
        kill(getpid(), SIGKILL);
    } else if (strcmp(how, "terminate") == 0) {
        work();
        kill(getpid(), SIGTERM);
    } else {
        handler_frees();
        atexit(handler_frees);
        work();
    }
    return failures != 0;
}
