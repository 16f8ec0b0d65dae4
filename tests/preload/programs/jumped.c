/* On the simulator, preloaded: a signal handler leaves the library's code by a long jump, in the middle of an allocation or
   a free, as a time limit that is made of an alarm does. What that call held it holds for good. The process must end all
   the same, with the status that it asks for.
   Usage: jumped self|other DELAY_US: which thread asks for the end */
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime.h"
#include "served.h"

enum { BLOCKS = 8, STATUS = 7, AGAIN_US = 37 };

static sigjmp_buf out;
static pthread_t worker;
static atomic_bool left;

static void arm(long us)
{
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = us}, NULL);
}

/* In the library, and not in the driver beneath it: that would be left with its own locks held. */
static bool in_library(void)
{
    void *frame[64];
    Dl_info info;
    bool found = false;
    int count = backtrace(frame, 64);
    for (int i = 0; i < count; i++) {
        if (!dladdr(frame[i], &info))
            continue;
        if (strstr(info.dli_fname, "libcuda.so") || strstr(info.dli_fname, "libcudart.so"))
            return false;
        found |= strstr(info.dli_fname, "libsegalloc") != NULL;
    }
    return found;
}

static void handle(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), worker))
        pthread_kill(worker, SIGALRM);
    else if (in_library())
        siglongjmp(out, 1);
    else
        arm(AGAIN_US);
}

static void *end(void *unused)
{
    (void)unused;
    while (!atomic_load(&left))
        usleep(100);
    exit(STATUS);
}

int main(int count, char **argument)
{
    void *block[BLOCKS] = {NULL};
    pthread_t other;
    bool by_other = count > 1 && strcmp(argument[1], "other") == 0;
    (void)in_library(); /* what that needs is loaded */
    worker = pthread_self();
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaMalloc(&block[0], 1000) == cudaSuccess);
    EXPECT(!by_other || pthread_create(&other, NULL, end, NULL) == 0);
    signal(SIGALRM, handle);
    if (sigsetjmp(out, 1) == 0) {
        arm(count > 2 ? atol(argument[2]) : 1000);
        for (unsigned i = 0;; i++) {
            void **at = &block[i % BLOCKS];
            EXPECT(!*at || cudaFree(*at) == cudaSuccess);
            *at = NULL;
            EXPECT(cudaMalloc(at, i % 5 ? 1 + i * 977 % 100000 : (size_t)(1 + i % 7) << 20) == cudaSuccess);
        }
    }
    atomic_store(&left, true);
    if (by_other)
        pause();
    exit(STATUS);
}
