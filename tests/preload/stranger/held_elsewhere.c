/* Work of another device that goes on only after memory of this one has been freed: a cudaFree that waited for it would
   never return. With the devices apart, after copies between them, and with access to each other's memory. */
#include "stranger.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { BYTES = 3 << 20, BLOCKS = 6 };

static atomic_int freed; /* rounds in which the memory has been freed */

static void CUDART_CB until_freed(void *round)
{
    while (atomic_load(&freed) < *(int *)round)
        usleep(100);
}

struct device {
    int number;
    cudaStream_t stream, second;
    cudaEvent_t event;
    unsigned char *kept;
};

static void make(struct device *device, int number)
{
    device->number = number;
    MUST(cudaSetDevice(number));
    MUST(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreate(&device->second));
    MUST(cudaEventCreateWithFlags(&device->event, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&device->kept, BYTES));
}

/* The other device's streams wait: one in a function of the host, one for what is behind that. */
static void hold(struct device *other, int *round)
{
    MUST(cudaSetDevice(other->number));
    MUST(cudaLaunchHostFunc(other->stream, until_freed, round));
    MUST(cudaMemsetAsync(other->kept, *round, BYTES, other->stream));
    MUST(cudaEventRecord(other->event, other->stream));
    MUST(cudaStreamWaitEvent(other->second, other->event, 0));
    MUST(cudaMemsetAsync(other->kept, 100 + *round, 1000, other->second));
}

static int byte_at(const unsigned char *address)
{
    unsigned char byte = 0;
    MUST(cudaMemcpy(&byte, address, 1, cudaMemcpyDefault));
    return byte;
}

/* Frees blocks of `own` that both devices have worked on, while the other one is held. `current`: while freeing. */
static void check(const char *how, struct device *own, struct device *other, int current, bool copies)
{
    static int round;
    unsigned char *block[BLOCKS];
    int wrong = 0;
    round++;
    MUST(cudaSetDevice(own->number));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cudaMalloc((void **)&block[i], BYTES));
        MUST(cudaMemsetAsync(block[i], i, BYTES, own->stream));
        if (copies) {
            MUST(cudaStreamSynchronize(own->stream));
            MUST(cudaMemcpyPeerAsync(other->kept, other->number, block[i], own->number, BYTES, other->stream));
        }
    }
    MUST(cudaStreamSynchronize(other->stream));
    hold(other, &round);
    MUST(cudaSetDevice(own->number));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cudaMemsetAsync(block[i], 50 + i, BYTES, own->stream));
    MUST(cudaSetDevice(current));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cudaFree(block[i]));
    MUST(cudaSetDevice(own->number));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cudaMalloc((void **)&block[i], BYTES));
        MUST(cudaMemsetAsync(block[i], 30 + i, BYTES, own->stream));
        MUST(cudaStreamSynchronize(own->stream));
        wrong += byte_at(block[i] + BYTES - 1) != 30 + i;
    }
    MUST(cudaSetDevice(other->number));
    wrong += cudaStreamQuery(other->second) != cudaErrorNotReady;
    atomic_store(&freed, round);
    MUST(cudaDeviceSynchronize());
    wrong += byte_at(other->kept) != 100 + round || byte_at(other->kept + BYTES - 1) != round;
    for (int i = 0; i < BLOCKS; i++)
        MUST(cudaFree(block[i]));
    printf("%s, of %d, %d current: %d wrong\n", how, own->number, current, wrong);
}

static void check_all(const char *how, struct device *device, bool copies)
{
    for (int i = 0; i < 2; i++)
        for (int current = 0; current < 2; current++)
            check(how, &device[i], &device[1 - i], current, copies);
}

int main(void)
{
    struct device device[2];
    size_t before[2], after, total;
    int can = 0;
    need_devices(2);
    for (int i = 0; i < 2; i++)
        make(&device[i], i);
    for (int i = 0; i < 2; i++) {
        MUST(cudaSetDevice(i));
        MUST(cudaMemGetInfo(&before[i], &total));
    }
    check_all("apart", device, false);
    check_all("after copies", device, true);
    MUST(cudaDeviceCanAccessPeer(&can, 0, 1));
    for (int i = 0; i < 2 && can; i++) {
        MUST(cudaSetDevice(i));
        MUST(cudaDeviceEnablePeerAccess(1 - i, 0));
    }
    check_all("with access", device, true);
    for (int i = 0; i < 2; i++) {
        MUST(cudaSetDevice(i));
        MUST(cudaDeviceSynchronize());
        MUST(cudaMemGetInfo(&after, &total));
        FACT(within_a_page(before[i], after));
    }
    SHOW(cudaGetLastError());
    return 0;
}
