/* Preloaded: contexts that are made while another thread allocates for the first time are known like all others, so
   that nobody gets what was freed before their work is done. Each child begins anew; how the threads meet is chance, so
   not each of them shows a fault. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { CHILDREN = 16, MAKERS = 3, KEPT = 4, EAGER = 6, ASKS = 8 };

static struct maker {
    pthread_t thread;
    CUcontext context[KEPT]; /* that it made last */
    unsigned made;
} makers[MAKERS];

static atomic_uint made;
static atomic_bool enough;

static void *make(void *user)
{
    struct maker *maker = user;
    for (; !atomic_load(&enough); maker->made++) {
        CUcontext *context = &maker->context[maker->made % KEPT], popped;
        if (maker->made >= KEPT)
            EXPECT(cuCtxDestroy_v2(*context) == CUDA_SUCCESS);
        EXPECT(cuCtxCreate_v2(context, 0, 0) == CUDA_SUCCESS && cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
        atomic_fetch_add(&made, 1);
    }
    return NULL;
}

static void hold(void *let_go)
{
    while (!atomic_load((atomic_bool *)let_go))
        usleep(50);
}

/* What is pending, once the library has asked how far work has come. */
static uint64_t pending(void)
{
    size_t available, total;
    usleep(200);
    EXPECT(cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS);
    return statistic(0, "pending_bytes");
}

static void free_beside(CUcontext own, CUcontext other)
{
    atomic_bool let_go = false;
    CUdeviceptr block;
    EXPECT(cuMemAlloc_v2(&block, 1000) == CUDA_SUCCESS && cuCtxSetCurrent(other) == CUDA_SUCCESS);
    EXPECT(cuLaunchHostFunc(NULL, hold, &let_go) == CUDA_SUCCESS && cuCtxSetCurrent(own) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(block) == CUDA_SUCCESS);
    for (int i = 0; i < ASKS; i++)
        EXPECT(pending() > 0);
    atomic_store(&let_go, true);
    EXPECT(cuCtxSetCurrent(other) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(own) == CUDA_SUCCESS);
    while (pending() > 0)
        ;
}

static int child(void)
{
    CUcontext own = NULL;
    CUdeviceptr first;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&own, 0) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(own) == CUDA_SUCCESS);
    for (int i = 0; i < MAKERS; i++)
        pthread_create(&makers[i].thread, NULL, make, &makers[i]);
    while (atomic_load(&made) < EAGER)
        ;
    EXPECT(cuMemAlloc_v2(&first, 1000) == CUDA_SUCCESS);
    atomic_store(&enough, true);
    for (int i = 0; i < MAKERS; i++)
        pthread_join(makers[i].thread, NULL);
    for (int i = 0; i < MAKERS; i++) {
        for (unsigned k = 0; k < KEPT && k < makers[i].made; k++)
            free_beside(own, makers[i].context[k]);
    }
    EXPECT(statistic(0, "allocs") > 1);
    return failures != 0;
}

int main(void)
{
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        pid_t process = fork();
        if (process == 0)
            exit(child());
        EXPECT(process > 0 && waitpid(process, &status, 0) == process && status == 0);
    }
    return failures != 0;
}
