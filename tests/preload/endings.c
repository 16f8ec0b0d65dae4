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

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, work, NULL);
    while (statistic(0, "allocs") < 1000)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    exit(7);
}
