/* Preloaded, on the simulator: what becomes of the library when the process forks, ends or is ended. The argument
   says which. */
#include <signal.h>
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
