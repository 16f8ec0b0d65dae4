/* Several devices: copies every way there is between them, events across them, frees with another one current. */
#include "stranger.h"

enum { BYTES = 640 * 480, ROUNDS = 12 };

static int middle_of(int device, const unsigned char *block)
{
    unsigned char byte = 0;
    MUST(cudaSetDevice(device));
    MUST(cudaMemcpy(&byte, block + BYTES / 2, 1, cudaMemcpyDeviceToHost));
    return byte;
}

int main(void)
{
    int count = 0;
    cudaStream_t stream[2];
    cudaEvent_t event[2];
    unsigned char *block[2], *small;
    need_devices(2);
    MUST(cudaGetDeviceCount(&count));
    FACT(count >= 2);
    for (int i = 0; i < 2; i++) {
        MUST(cudaSetDevice(i));
        MUST(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
        MUST(cudaMalloc((void **)&block[i], BYTES));
    }
    for (int round = 0; round < ROUNDS; round++) {
        int from = round % 2, to = 1 - from;
        MUST(cudaSetDevice(from));
        MUST(cudaMemsetAsync(block[from], 10 + round, BYTES, stream[from]));
        MUST(cudaEventRecord(event[from], stream[from]));
        MUST(cudaSetDevice(to));
        MUST(cudaStreamWaitEvent(stream[to], event[from], 0)); /* of another device */
        switch (round % 6) {
        case 0:
            MUST(cudaMemcpyAsync(block[to], block[from], BYTES, cudaMemcpyDefault, stream[to]));
            break;
        case 1:
            MUST(cudaMemcpyPeerAsync(block[to], to, block[from], from, BYTES, stream[to]));
            break;
        case 2:
            MUST(cudaMemcpyAsync(block[to], block[from], BYTES, cudaMemcpyDeviceToDevice, stream[to]));
            break;
        case 3:
            MUST(cudaMemcpy2DAsync(block[to], 640, block[from], 640, 640, 480, cudaMemcpyDefault, stream[to]));
            break;
        case 4:
            MUST(cudaStreamSynchronize(stream[to]));
            MUST(cudaMemcpy(block[to], block[from], BYTES, cudaMemcpyDefault));
            break;
        default:
            MUST(cudaStreamSynchronize(stream[to]));
            MUST(cudaMemcpyPeer(block[to], to, block[from], from, BYTES));
            break;
        }
        MUST(cudaStreamSynchronize(stream[to]));
        MUST(cudaDeviceSynchronize());
        printf("round %d: %d\n", round, middle_of(to, block[to]));
        /* made on one device, freed with the other one current */
        MUST(cudaSetDevice(from));
        MUST(cudaMalloc((void **)&small, 70000));
        MUST(cudaMemsetAsync(small, 1, 70000, stream[from]));
        MUST(cudaSetDevice(to));
        SHOW(cudaFree(small));
    }
    for (int i = 0; i < 2; i++) {
        MUST(cudaSetDevice(1 - i));
        SHOW(cudaFree(block[i]));
        SHOW(cudaEventDestroy(event[i]));
        SHOW(cudaStreamDestroy(stream[i]));
    }
    MUST(cudaSetDevice(1));
    SHOW(cudaDeviceReset());
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc((void **)&small, 70000));
    SHOW(cudaMemset(small, 2, 70000));
    SHOW(cudaFree(small));
    SHOW(cudaGetLastError());
    return 0;
}
