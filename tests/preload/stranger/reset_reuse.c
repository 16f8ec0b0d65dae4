/* The device is reset in the middle of everything, by the runtime and by the driver, with limits and flags set, on each
   of two devices, while a second thread has nothing to do but go on afterwards. */
#include "stranger.h"

#include <pthread.h>

static pthread_barrier_t barrier;

static void use(int device, int value)
{
    unsigned char *block[6], byte = 0;
    MUST(cudaSetDevice(device));
    for (int i = 0; i < 6; i++) {
        MUST(cudaMalloc((void **)&block[i], (size_t)(1 + 3 * i) * 200000));
        MUST(cudaMemset(block[i], value + i, (size_t)(1 + 3 * i) * 200000));
    }
    MUST(cudaFree(block[2]));
    MUST(cudaMemcpy(&byte, block[5] + 100, 1, cudaMemcpyDeviceToHost));
    FACT(byte == (unsigned char)(value + 5)); /* and the rest stays to the reset */
}

static void *second(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* device 0 has been reset */
    use(0, 100);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    size_t heap = 0, total, first, before, after;
    int devices = 0, device = -1;
    unsigned flags = 0;
    unsigned char *kept, byte = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, second, NULL);
    MUST(cudaGetDeviceCount(&devices));
    SHOW(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    SHOW(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 * MiB));
    SHOW(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    MUST(cudaMemGetInfo(&first, &total));
    MUST(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    FACT(heap >= 16 * MiB);
    for (int round = 0; round < 3; round++) {
        MUST(cudaSetDevice(devices - 1));
        MUST(cudaMemGetInfo(&before, &total));
        MUST(cudaMalloc((void **)&kept, MiB));
        MUST(cudaMemset(kept, 40 + round, MiB));
        use(0, round);
        MUST(cudaGetDeviceFlags(&flags));
        SHOW(cudaDeviceReset()); /* of device 0 alone */
        MUST(cudaGetDevice(&device));
        FACT(device == 0);
        if (devices > 1) {
            MUST(cudaSetDevice(devices - 1));
            MUST(cudaMemcpy(&byte, kept, 1, cudaMemcpyDeviceToHost));
            FACT(byte == 40 + round);
            SHOW(cudaFree(kept));
            MUST(cudaMemGetInfo(&after, &total));
            FACT(within_a_page(after, before));
        }
        use(0, 50 + round);
        MUST(cudaSetDevice(0));
    }
    pthread_barrier_wait(&barrier);
    SHOW(cudaDeviceReset());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    SHOW(cudaDeviceReset());
    SHOW(cudaDeviceReset());
    MUST(cudaMemGetInfo(&after, &total));
    FACT(within_a_page(after, first));
    return 0;
}
