/* Programs that end in various ways after one mistake, or in the middle of work that check looks at.

   Usage: ends MISTAKE END [FILE]. MISTAKE: none, twice (a double free, told at once), late (a write after a free, told when a copy
   has arrived), behind (the same, and the copy is behind work that never ends), held (behind work that may wait for the program),
   many (so many frees behind work that never ends that no batch is left). END: how the process ends, or `closed`: FILE is opened as
   descriptor 2 before the mistake. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { BYTES = 5000, MANY = 1000 };

static CUstream one, held;

static CUdeviceptr taken_on(CUstream stream)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)malloc_on(BYTES, stream);
    if (!address)
        exit(2);
    MUST(cuMemsetD8Async(address, 1, BYTES, stream));
    return address;
}

static CUdeviceptr freed_on(CUstream stream)
{
    CUdeviceptr address = taken_on(stream);
    MUST((CUresult)free_on((void *)(uintptr_t)address));
    return address;
}

static void mistake_none(void)
{
    freed_on(one);
}

static void mistake_twice(void)
{
    (void)free_on((void *)(uintptr_t)freed_on(one));
}

static void mistake_late(void)
{
    MUST(cuMemsetD8Async(freed_on(one) + 100, 8, 8, one));
    MUST(cuMemsetD8Async(taken_on(one), 1, 8, one));
    MUST(cuStreamSynchronize(one));
}

static atomic_bool begun;

static void never_ends(void *unused)
{
    (void)unused;
    begun = true;
    for (;;)
        pause();
}

/* Kernels that the simulator's `kernel_us` keeps at work for longer than anybody waits. Nothing says of a kernel that it waits for the
   program, so `check` gives its stream work. */
static void launch_for_very_long(CUstream stream)
{
    CUmodule module;
    CUfunction kernel;
    MUST(cuModuleLoadData(&module, "no code is read"));
    MUST(cuModuleGetFunction(&kernel, module, "touch"));
    for (int i = 0; i < 10; i++)
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* The copy of bytes that are freed and serve again there never comes. */
static void mistake_behind(void)
{
    freed_on(held);
    MUST(cuStreamSynchronize(held));
    launch_for_very_long(held);
    MUST(cuMemsetD8Async(freed_on(held), 8, 8, held));
    MUST(cuMemsetD8Async(taken_on(held), 1, 8, held));
}

/* A function of the host that runs may wait for the program: `check` looks at nothing behind it. */
static void mistake_held(void)
{
    freed_on(one);
    MUST(cuLaunchHostFunc(held, never_ends, NULL));
    while (!begun)
        usleep(100);
    MUST(cuMemsetD8Async(freed_on(held), 8, 8, held));
}

static void mistake_many(void)
{
    mistake_behind();
    for (int i = 0; i < MANY; i++)
        freed_on(held);
}

static void end_by_signal(int signal)
{
    raise(signal);
}

static void *end_within_thread(void *unused)
{
    (void)unused;
    exit(0);
}

static void end_as(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "exit7") == 0)
        exit(7);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "kill") == 0)
        end_by_signal(SIGKILL);
    if (strcmp(how, "term") == 0)
        end_by_signal(SIGTERM);
    if (strcmp(how, "segv") == 0)
        end_by_signal(SIGSEGV);
    if (strcmp(how, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_within_thread, NULL);
        pause();
    }
}

/* A child in front of all CUDA; the parent passes over its status. */
static void be_child(const char *how)
{
    int status;
    if (strncmp(how, "child", 5) != 0)
        return;
    pid_t child = fork();
    if (child == 0)
        return;
    waitpid(child, &status, 0);
    exit(0);
}

static void be_closed(const char *how, const char *file)
{
    if (strcmp(how, "closed") == 0 &&
        (close(2) != 0 || open(file, O_RDWR | O_CREAT, 0600) != 2 || write(2, "mine\n", 5) != 5))
        exit(2);
}

/* No descriptor but those of the driver's own making, no environment, another root: all after the first allocation. */
static void be_bare(const char *how)
{
    if (strcmp(how, "bare") != 0)
        return;
    freed_on(one);
    clearenv();
    MUST(cuStreamSynchronize(one));
    (void)!chroot("/proc");
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*make)(void);
    } mistakes[] = {{"none", mistake_none}, {"twice", mistake_twice}, {"late", mistake_late},
        {"behind", mistake_behind}, {"held", mistake_held}, {"many", mistake_many}};
    if (count < 3)
        return 2;
    be_child(argument[2]);
    be_closed(argument[2], argument[3]);
    begin_program();
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    be_bare(argument[2]);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (strcmp(argument[1], mistakes[i].name) == 0) {
            mistakes[i].make();
            end_as(argument[2]);
            return 0;
        }
    }
    return 2;
}
