/* On the simulator, natively and preloaded: threads allocate and free while signals come all the time, that restart no
   system call. The handler does nothing. Or it allocates and frees itself, as it must not. It leaves that out where it
   has interrupted the driver, which may hold a lock of its own then. Or the handler forks. Or threads are cancelled in
   the midst of it.
   Usage: interrupted nothing|calls|forks|cancel */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

enum {
    THREADS = 3,
    SIGNALS = 3000,
    EVERY_US = 150,
    BLOCKS = 16,
    CANCELLED = 120,
    FORKS = 700,
    SENT_MOST = 40000,
    LONGEST_S = 60
};

static atomic_bool over;
static atomic_uint signals, by_handler, forked;
static bool handler_calls, gives_work, has_library;
static __thread void *of_handler;

/* Whether one of two libraries is on the stack of what was interrupted. */
static bool is_inside(const char *library, const char *other)
{
    void *frame[64];
    Dl_info info;
    int count = backtrace(frame, 64);
    for (int i = 0; i < count; i++) {
        if (dladdr(frame[i], &info) && (strstr(info.dli_fname, library) || strstr(info.dli_fname, other)))
            return true;
    }
    return false;
}

static bool in_driver(void)
{
    return is_inside("libcuda.so", "libcudart.so");
}

static void handle(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
    if (!handler_calls || in_driver())
        return;
    if (!of_handler && cudaMalloc(&of_handler, 3000) != cudaSuccess)
        of_handler = NULL;
    else if (of_handler && cudaFree(of_handler) == cudaSuccess)
        of_handler = NULL; /* else within a call of the allocator's: the next signal tries again */
    atomic_fetch_add(&by_handler, 1);
}

static void *work(void *unused)
{
    void *block[BLOCKS] = {NULL};
    (void)unused;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        void **at = &block[i * 7 % BLOCKS];
        if (*at)
            EXPECT(cudaFree(*at) == cudaSuccess);
        *at = NULL;
        EXPECT(cudaMalloc(at, i % 11 ? 1 + i * 977 % 100000 : (size_t)(1 + i % 5) << 20) == cudaSuccess);
        if (gives_work && i % 3 == 0)
            EXPECT(cudaMemsetAsync(*at, 1, 1, NULL) == cudaSuccess);
    }
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(!block[i] || cudaFree(block[i]) == cudaSuccess);
    if (handler_calls) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        EXPECT(!of_handler || cudaFree(of_handler) == cudaSuccess);
    }
    return NULL;
}

static void interrupt(void)
{
    struct sigaction action = {.sa_handler = handle};
    struct itimerval every = {{.tv_usec = EVERY_US}, {.tv_usec = EVERY_US}};
    pthread_t thread[THREADS];
    (void)in_driver(); /* what that needs is loaded */
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, work, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (unsigned i = 0; atomic_load(&signals) < SIGNALS; i++)
        pthread_kill(thread[i % THREADS], SIGALRM);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(!handler_calls || atomic_load(&by_handler) > 0);
}

/* Without the library wherever it comes; with it only inside it, where locks of its own may be held. */
static void handle_by_fork(int number)
{
    (void)number;
    if (in_driver() || (has_library && !is_inside("libsegalloc.so", "libsegalloc.so")))
        return;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = 1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    atomic_fetch_add(&forked, 1);
}

/* Calls that take each of the library's locks. */
static void *work_of_all_kinds(void *unused)
{
    CUdevice device = 0;
    CUcontext context = NULL, other = NULL;
    CUstream stream[2] = {NULL};
    CUevent event = NULL;
    CUdeviceptr address;
    (void)unused;
    EXPECT(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
    EXPECT(cuStreamCreate(&stream[0], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    while (!atomic_load(&over)) {
        EXPECT(cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        EXPECT(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        EXPECT(cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS);
        EXPECT(cuMemsetD8Async(address, 1, 1, stream[0]) == CUDA_SUCCESS);
        EXPECT(cuEventRecord(event, stream[0]) == CUDA_SUCCESS);
        EXPECT(cuStreamWaitEvent(stream[1], event, 0) == CUDA_SUCCESS);
        EXPECT(cuMemFreeAsync(address, stream[1]) == CUDA_SUCCESS);
        EXPECT(cuEventDestroy_v2(event) == CUDA_SUCCESS && cuStreamDestroy_v2(stream[1]) == CUDA_SUCCESS);
        EXPECT(cuCtxCreate_v2(&other, 0, device) == CUDA_SUCCESS && cuCtxDestroy_v2(other) == CUDA_SUCCESS);
        EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
        /* Natively nearly all time goes by in the driver: a fork a round is had only by waiting for it out here. */
        for (unsigned before = atomic_load(&forked);
             !has_library && atomic_load(&forked) == before && !atomic_load(&over);)
            continue;
    }
    EXPECT(cuStreamDestroy_v2(stream[0]) == CUDA_SUCCESS);
    return NULL;
}

/* One thread: the driver's own locks would have to be free in all others. How many signals find it inside the library is
   chance, which a busy machine lowers, so the signals are counted too. */
static void fork_by_handler(void)
{
    struct sigaction action = {.sa_handler = handle_by_fork, .sa_flags = SA_RESTART};
    pthread_t thread;
    (void)in_driver(); /* what that needs is loaded */
    pthread_create(&thread, NULL, work_of_all_kinds, NULL);
    sigaction(SIGUSR1, &action, NULL);
    alarm(LONGEST_S);
    for (int sent = 0; sent < SENT_MOST && atomic_load(&forked) < FORKS; sent++) {
        pthread_kill(thread, SIGUSR1);
        usleep(50);
    }
    EXPECT(atomic_load(&forked) > 0);
    alarm(0);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
}

/* Allocates and frees until it is cancelled, which nothing here is a point for. */
static void *work_until_cancelled(void *unused)
{
    (void)unused;
    for (unsigned i = 0;; i++) {
        void *block;
        EXPECT(cudaMalloc(&block, 1 + i % 5000) == cudaSuccess && cudaFree(block) == cudaSuccess);
        if (i % 64 == 0)
            pthread_testcancel();
    }
    return NULL;
}

static void cancel(void)
{
    pthread_t going_on[2], cancelled[2];
    for (int i = 0; i < 2; i++) {
        pthread_create(&going_on[i], NULL, work, NULL);
        pthread_create(&cancelled[i], NULL, work_until_cancelled, NULL);
    }
    for (int i = 0; i < CANCELLED; i++) {
        usleep(500);
        pthread_cancel(cancelled[i % 2]);
        pthread_join(cancelled[i % 2], NULL);
        pthread_create(&cancelled[i % 2], NULL, work_until_cancelled, NULL);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(going_on[i], NULL);
        pthread_cancel(cancelled[i]);
        pthread_join(cancelled[i], NULL);
    }
}

int main(int count, char **argument)
{
    const char *how = count > 1 ? argument[1] : "";
    size_t available, total;
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaMemGetInfo(&available, &total) == cudaSuccess);
    handler_calls = strcmp(how, "calls") == 0;
    gives_work = strcmp(how, "cancel") != 0; /* a thread that the driver has wait could be cancelled in that */
    has_library = dlsym(RTLD_DEFAULT, "segalloc_stats") != NULL;
    if (strcmp(how, "forks") == 0)
        fork_by_handler();
    else if (!gives_work)
        cancel();
    else
        interrupt();
    if (statistic(0, "allocs"))
        EXPECT(statistic(0, "allocations") == 0);
    printf("%s: %s\n", how, failures ? "failed" : "went well");
    return failures != 0;
}
