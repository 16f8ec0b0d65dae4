/* Preloaded, on the simulator: the process ends while other threads allocate. It must end, with the status it asked
   for. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "runtime.h"
#include "served.h"

static void *work(void *user)
{
    (void)user;
    for (;;) {
        void *address;
        if (cudaMalloc(&address, 5000) == cudaSuccess)
            cudaFree(address);
    }
    return NULL;
}

/* The same as PyTorch does it, which has no way to hear that the driver has ended before this thread. */
static void *work_as_pytorch(void *user)
{
    void *(*allocate)(size_t, int, void *), *symbol = dlsym(RTLD_DEFAULT, "segalloc_torch_malloc");
    void (*release)(void *, size_t, int, void *);
    memcpy(&allocate, &symbol, sizeof symbol);
    symbol = dlsym(RTLD_DEFAULT, "segalloc_torch_free");
    memcpy(&release, &symbol, sizeof symbol);
    (void)user;
    for (;;)
        release(allocate(5000, 0, NULL), 5000, 0, NULL);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    EXPECT(cudaSetDevice(0) == cudaSuccess);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, i % 2 ? work : work_as_pytorch, NULL);
    while (statistic(0, "allocs") < 1000)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    exit(7);
}
