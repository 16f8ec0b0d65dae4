/* Preloaded: pauses at the edges of what can be paused. Pages that others remember keep the whole order from beginning, and
   nothing is lost. A device that reaches another's memory is waited for, and reaches it again. Memory for other processes is refused with
   the reason. Memory that a graph holds leaves with the rest. A device that is reset has none, and its tags can be resumed and used
   again. A child that is forked beside an order waits for nobody. The argument says which. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "extra.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*discard_tag)(const char *tag), (*resume_tag)(const char *tag);

static unsigned char *filled(const char *tag, unsigned flags, size_t bytes, int value)
{
    void *address = NULL;
    EXPECT(push(tag, flags) == 0 && cudaMalloc(&address, bytes) == cudaSuccess && pop() == 0);
    EXPECT(cudaMemset(address, value, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    return address;
}

static bool all_are(const void *address, size_t bytes, int value)
{
    unsigned char *host = malloc(bytes);
    bool right = host && cudaMemcpy(host, address, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; right && i < bytes; i++)
        right = host[i] == value;
    free(host);
    return right;
}

/* Others remember a page of the last of three tags: no order for it begins, and those before it have all that they had. */
static void pinned(void)
{
    CUmemGenericAllocationHandle handle;
    unsigned char *kv = filled("kv", SEGALLOC_TAG_DISCARD, 4 * MIB, 3), *weights = filled("weights", 0, 4 * MIB, 4),
                  *scores = filled("scores", SEGALLOC_TAG_DISCARD, 4 * MIB, 5);
    EXPECT(cuMemRetainAllocationHandle(&handle, scores + MIB) == CUDA_SUCCESS);
    uint64_t reserved = statistic(0, "reserved_bytes");
    EXPECT(pause_tag(NULL) == 800 && discard_tag(NULL) == 800 && pause_tag("scores") == 800 &&
           discard_tag("scores") == 800);
    EXPECT(statistic(0, "reserved_bytes") == reserved && statistic(0, "paused_bytes") == 0);
    EXPECT(all_are(kv, 4 * MIB, 3) && all_are(weights, 4 * MIB, 4) && all_are(scores, 4 * MIB, 5));
    EXPECT(pause_tag("weights") == 0 && pause_tag("kv") == 0 && pause_tag("kv") == 0 && pause_tag(NULL) == 800);
    EXPECT(statistic(0, "paused_bytes") == 8 * MIB && all_are(scores, 4 * MIB, 5));
    EXPECT(resume_tag(NULL) == 0 && all_are(kv, 4 * MIB, 0) && all_are(weights, 4 * MIB, 4));
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    EXPECT(cudaFree(kv) == cudaSuccess && cudaFree(weights) == cudaSuccess && cudaFree(scores) == cudaSuccess);
}

/* The current device reaches device 0. */
static bool enable_access_to_first(void)
{
    CUcontext first;
    bool fine = cuDevicePrimaryCtxRetain(&first, 0) == CUDA_SUCCESS && cuCtxEnablePeerAccess(first, 0) == CUDA_SUCCESS;
    return fine && cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS;
}

/* Device 1 writes to device 0's memory while that is to be paused, and reads it after the resume. */
static void peers(void)
{
    cudaStream_t stream;
    void *copy;
    unsigned char *weights = filled("weights", 0, 6 * MIB, 4);
    EXPECT(cudaSetDevice(1) == cudaSuccess && enable_access_to_first());
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
           cudaMalloc(&copy, 6 * MIB) == cudaSuccess);
    for (int round = 0; round < 3; round++) {
        EXPECT(cudaMemsetAsync(weights, 10 + round, 6 * MIB, stream) == cudaSuccess);
        EXPECT(pause_tag("weights") == 0 && statistic(0, "reserved_bytes") == 0);
        EXPECT(resume_tag("weights") == 0);
        EXPECT(cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy, (CUdeviceptr)(uintptr_t)weights, 6 * MIB, stream) ==
               CUDA_SUCCESS);
        EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && all_are(copy, 6 * MIB, 10 + round));
    }
    EXPECT(cudaFree(copy) == cudaSuccess && cudaSetDevice(0) == cudaSuccess && cudaFree(weights) == cudaSuccess);
}

/* A handle for another process is refused. From then on memory is the driver's own, which is never paused: a line says so. Memory
   that was allocated before leaves and comes back, and a paused tag has no more of either kind. */
static void shared(void)
{
    CUipcMemHandle handle;
    void *refused;
    unsigned char *before = filled("weights", 0, 6 * MIB, 4);
    EXPECT(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)before) != CUDA_SUCCESS);
    EXPECT(pause_tag("weights") == 0 && resume_tag("weights") == 0 && all_are(before, 6 * MIB, 4));
    unsigned char *after = filled("weights", 0, 6 * MIB, 5);
    EXPECT(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)after) == CUDA_SUCCESS);
    EXPECT(pause_tag("weights") == 0 && statistic(0, "paused_bytes") == 6 * MIB && all_are(after, 6 * MIB, 5));
    EXPECT(push("weights", 0) == 0 && cudaMalloc(&refused, MIB) == 800 && pop() == 0);
    EXPECT(resume_tag("weights") == 0 && pause_tag(NULL) == 0 && resume_tag(NULL) == 0);
    EXPECT(all_are(before, 6 * MIB, 4) && all_are(after, 6 * MIB, 5));
    EXPECT(cudaFree(before) == cudaSuccess && cudaFree(after) == cudaSuccess);
}

/* The program has freed in its capture what it allocated there, so the graph holds it. Pauses copy it with the rest, which is nobody's
   hazard, and launches find it at its place. */
static void held(void)
{
    segalloc_sim_hazards_fn hazards;
    cudaStream_t stream;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *symbol = driver ? dlsym(driver, "segalloc_sim_hazards") : NULL,
         *inner = NULL;
    EXPECT(symbol);
    memcpy(&hazards, &symbol, sizeof hazards);
    unsigned char *weights = filled("weights", 0, 6 * MIB, 4);
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess && push("weights", 0) == 0);
    EXPECT(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(cudaMalloc(&inner, 3 * MIB) == cudaSuccess && cudaMemsetAsync(inner, 9, 3 * MIB, stream) == cudaSuccess);
    EXPECT(
        cuMemcpyAsync((CUdeviceptr)(uintptr_t)weights, (CUdeviceptr)(uintptr_t)inner, 3 * MIB, stream) == CUDA_SUCCESS);
    EXPECT(cudaFree(inner) == cudaSuccess && cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && pop() == 0);
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
    for (int round = 0; round < 3; round++) {
        EXPECT(pause_tag("weights") == 0 && statistic(0, "reserved_bytes") == 0 && resume_tag("weights") == 0);
        EXPECT(all_are(weights + 3 * MIB, 3 * MIB, 4) && all_are(weights, 3 * MIB, round ? 9 : 4));
        EXPECT(cuGraphLaunch(exec, stream) == CUDA_SUCCESS); /* which the next pause waits for */
    }
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    EXPECT(cudaFree(weights) == cudaSuccess && pause_tag(NULL) == 0 && resume_tag(NULL) == 0);
    EXPECT(statistic(0, "paused_bytes") == 0 && hazards() == 0);
}

/* The blocks of a paused tag end with their context. It stays paused, without a context too, until it is resumed. */
static void reset(void)
{
    void *refused;
    (void)filled("weights", 0, 6 * MIB, 4);
    EXPECT(pause_tag("weights") == 0 && cudaDeviceReset() == cudaSuccess && statistic(0, "paused_bytes") == 0);
    EXPECT(resume_tag("weights") == 0 && pause_tag("weights") == 0); /* there is no context */
    unsigned char *weights = filled("weights", 0, 6 * MIB, 5);
    EXPECT(all_are(weights, 6 * MIB, 5) && pause_tag("weights") == 0 && cudaDeviceReset() == cudaSuccess);
    EXPECT(push("weights", 0) == 0 && cudaMalloc(&refused, MIB) == 800 && pop() == 0);
    EXPECT(resume_tag(NULL) == 0);
    weights = filled("weights", 0, 6 * MIB, 6);
    EXPECT(pause_tag("weights") == 0 && resume_tag("weights") == 0 && all_are(weights, 6 * MIB, 6));
    EXPECT(cudaFree(weights) == cudaSuccess);
}

static atomic_bool ended;
static atomic_int orders;

static void *give_orders(void *unused)
{
    while (!atomic_load(&ended)) {
        EXPECT(pause_tag("weights") == 0 && resume_tag("weights") == 0);
        atomic_fetch_add(&orders, 1);
    }
    return unused;
}

/* Children of a process in which another thread gives orders: each ends, whatever it asks. One that hangs is ended by its alarm. */
static void forked(void)
{
    enum { CHILDREN = 24, DEADLINE_S = 60 };
    const void *(*backup)(const void *address, size_t bytes);
    int (*retain)(int on), status = -1;
    pthread_t thread;
    find("segalloc_backup", &backup);
    find("segalloc_backup_retain", &retain);
    unsigned char *weights = filled("weights", 0, 16 * MIB, 4);
    EXPECT(pthread_create(&thread, NULL, give_orders, NULL) == 0);
    for (int i = 0; i < CHILDREN && !failures; i++) {
        for (int before = atomic_load(&orders); atomic_load(&orders) == before && !failures;)
            usleep(100 * (useconds_t)i);
        pid_t child = fork();
        if (child == 0) {
            alarm(DEADLINE_S);
            (void)backup(weights, 4);
            (void)retain(0);
            (void)cudaFree(weights);
            _exit(pause_tag("weights") == 0);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&ended, true);
    EXPECT(pthread_join(thread, NULL) == 0 && pause_tag("weights") == 0);
    pid_t child = fork(); /* beside no order the copies are there */
    if (child == 0) {
        const unsigned char *copy = backup(weights, 16 * MIB);
        _exit(!copy || copy[0] != 4 || copy[16 * MIB - 1] != 4);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    EXPECT(resume_tag("weights") == 0 && all_are(weights, 16 * MIB, 4) && cudaFree(weights) == cudaSuccess);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_discard", &discard_tag);
    find("segalloc_resume", &resume_tag);
    if (failures)
        return 1;
    if (strcmp(what, "pinned") == 0)
        pinned();
    else if (strcmp(what, "peers") == 0)
        peers();
    else if (strcmp(what, "held") == 0)
        held();
    else if (strcmp(what, "reset") == 0)
        reset();
    else if (strcmp(what, "forked") == 0)
        forked();
    else
        shared();
    return failures != 0;
}
