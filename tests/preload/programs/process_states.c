/* Preloaded, on the simulator: what becomes of the library when the process forks, ends or is ended. The argument
   says which. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

/* Children that no handler of fork() hears of: what they do, and how they end, is none of the parent's. */
enum child { CHILD_CLONE, CHILD_FORK, CHILD_VFORK, CHILD_SHARES, CHILD_SPAWN, CHILD_COUNT };

#ifdef __SANITIZE_ADDRESS__ /* whose account of the stack is shared then, and taken for a fault */
enum { SHARES_FLAGS = 0 };
#else
enum { SHARES_FLAGS = CLONE_VM | CLONE_VFORK };
#endif

static int shares_memory(void *unused)
{
    (void)unused;
    syscall(SYS_exit_group, 3); /* by way of nothing that looks at the stack */
    return 3;
}

static int spawn(void)
{
    char *arguments[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"exit 3"}, NULL};
    pid_t child = -1;
    EXPECT(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    return child_status(child);
}

/* `busy`: other threads are in the midst of something. Then a handler of the driver's may find in the child of a clone,
   which nobody prepared for, a lock that stays held: such a child ends without them. */
static int begin_child(enum child how, bool busy)
{
    static _Alignas(16) char stack[1 << 16];
    pid_t child = -1;
    switch (how) {
    case CHILD_CLONE:
        child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        break;
    case CHILD_FORK:
        child = fork();
        break;
    case CHILD_VFORK:
        child = vfork();
        if (child == 0)
            _exit(3);
        return child_status(child);
    case CHILD_SHARES:
        return child_status(clone(shares_memory, stack + sizeof stack, SHARES_FLAGS | SIGCHLD, NULL));
    case CHILD_SPAWN:
        return spawn();
    case CHILD_COUNT:
        break;
    }
    if (child == 0 && busy && how == CHILD_CLONE)
        _exit(3);
    if (child == 0)
        exit(3); /* handlers and destructors run, of a process that is another one */
    return child_status(child);
}

/* Others allocate meanwhile; the parent's files say afterwards that it went on to its own end. */
static void children(void)
{
    enum { ROUNDS = 12, THREADS = 2 };
    pthread_t thread[THREADS];
    CUcontext context = NULL;
    work();
    EXPECT(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, keep_busy, context) == 0);
    for (int i = 0; i < ROUNDS; i++)
        for (int how = 0; how < CHILD_COUNT; how++)
            EXPECT(begin_child((enum child)how, true) == 3);
    atomic_store(&forked_enough, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    work();
}

/* Without others, so that it is known how much there is to say. */
static void lone_children(void)
{
    for (int how = 0; how < CHILD_COUNT; how++)
        EXPECT(begin_child((enum child)how, false) == 3);
}

static void live_children(void)
{
    char page[64];
    snprintf(page, sizeof page, "/dev/shm/segalloc-live-%ld", (long)getpid());
    work();
    EXPECT(access(page, R_OK) == 0);
    lone_children();
    EXPECT(access(page, R_OK) == 0);
}

static void *end_process(void *unused)
{
    (void)unused;
    work();
    exit(0);
}

/* The process ends with another thread than its first one, which has ended or still waits. */
static void end_by_thread(bool alone)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, end_process, NULL) == 0);
    if (alone)
        pthread_exit(NULL);
    pthread_join(thread, NULL);
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
    } else if (strcmp(how, "children") == 0) {
        children();
    } else if (strcmp(how, "lone_children") == 0) {
        work();
        lone_children();
        work();
    } else if (strcmp(how, "children_and_kill") == 0) {
        work();
        lone_children();
        kill(getpid(), SIGKILL);
    } else if (strcmp(how, "live_children") == 0) {
        live_children();
    } else if (strcmp(how, "thread") == 0 || strcmp(how, "last_thread") == 0) {
        end_by_thread(strcmp(how, "last_thread") == 0);
    } else if (strcmp(how, "abort") == 0) {
        work();
        abort();
    } else if (strcmp(how, "quick_exit") == 0) {
        work();
        quick_exit(5);
    } else if (strcmp(how, "fault") == 0) {
        work();
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it */
        raise(SIGSEGV);
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
