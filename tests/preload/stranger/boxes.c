/* Pitched rows, boxes and arrays: filled, copied into one another, freed in another order than they were made. */
#include "stranger.h"

enum { WIDTH = 333, HEIGHT = 41, DEPTH = 7 };

static unsigned char host[DEPTH][HEIGHT][WIDTH], back[DEPTH][HEIGHT][WIDTH];

static struct cudaPitchedPtr box_of_host(void *of)
{
    return make_cudaPitchedPtr(of, WIDTH, WIDTH, HEIGHT);
}

static void copy(struct cudaPitchedPtr to, struct cudaPitchedPtr from, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms parms = {.srcPtr = from, .dstPtr = to, .extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH),
        .kind = kind};
    MUST(cudaMemcpy3D(&parms));
}

static void boxes(int round)
{
    struct cudaPitchedPtr first, second;
    unsigned char *rows;
    size_t pitch = 0;
    fill(&host[0][0][0], sizeof host, (unsigned)round);
    memset(back, 0, sizeof back);
    MUST(cudaMalloc3D(&first, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    MUST(cudaMallocPitch((void **)&rows, &pitch, WIDTH, HEIGHT));
    MUST(cudaMalloc3D(&second, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    FACT(first.pitch >= WIDTH && first.pitch == second.pitch && pitch >= WIDTH && first.ysize == HEIGHT);
    copy(first, box_of_host(host), cudaMemcpyHostToDevice);
    MUST(cudaMemset2D(rows, pitch, 9, WIDTH, HEIGHT));
    copy(second, first, cudaMemcpyDeviceToDevice);
    MUST(cudaMemcpy2D((char *)second.ptr, second.pitch, rows, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice));
    copy(box_of_host(back), second, cudaMemcpyDeviceToHost);
    memset(host[0], 9, sizeof host[0]);
    FACT(memcmp(host, back, sizeof host) == 0);
    MUST(cudaFree(first.ptr));
    MUST(cudaMemset3D(second, 5, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    copy(box_of_host(back), second, cudaMemcpyDeviceToHost);
    FACT(back[DEPTH - 1][HEIGHT - 1][WIDTH - 1] == 5);
    MUST(cudaFree(second.ptr));
    MUST(cudaFree(rows));
}

static void arrays(void)
{
    cudaArray_t flat;
    struct cudaChannelFormatDesc byte = cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindUnsigned), got;
    struct cudaExtent extent;
    unsigned flags = 99;
    unsigned char *plain;
    if (cudaMallocArray(&flat, &byte, WIDTH, HEIGHT, 0) != cudaSuccess) {
        SHOW(cudaGetLastError());
        return;
    }
    MUST(cudaMalloc((void **)&plain, WIDTH * HEIGHT));
    MUST(cudaMemcpy(plain, host[1], sizeof host[1], cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy2DToArray(flat, 0, 0, plain, WIDTH, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice));
    MUST(cudaFree(plain));
    SHOW(cudaMemcpy2DFromArray(back[0], WIDTH, flat, 0, 0, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    FACT(memcmp(back[0], host[1], sizeof host[1]) == 0);
    MUST(cudaArrayGetInfo(&got, &extent, &flags, flat));
    FACT(got.x == 8 && extent.width == WIDTH && extent.height == HEIGHT && flags == 0);
    SHOW(cudaFreeArray(flat));
    SHOW(cudaFreeArray(NULL));
}

int main(void)
{
    struct cudaPitchedPtr box;
    void *rows = (void *)1;
    size_t pitch = 0;
    for (int round = 0; round < 6; round++)
        boxes(round);
    arrays();
    SHOW(cudaMallocPitch(&rows, &pitch, 0, 10));
    SHOW(cudaMalloc3D(&box, make_cudaExtent(0, 0, 0)));
    SHOW(cudaMallocPitch(&rows, &pitch, (size_t)1 << 44, 1 << 20));
    SHOW(cudaGetLastError());
    return 0;
}
