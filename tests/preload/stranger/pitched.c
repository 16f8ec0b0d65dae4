/* Pitched and three-dimensional memory. */
#include "stranger.h"

static void plane(size_t width, size_t height)
{
    unsigned char *device = NULL, *host = malloc(width * height), *back = calloc(width, height);
    size_t pitch = 0;
    fill(host, width * height, (unsigned)width);
    MUST(cudaMallocPitch((void **)&device, &pitch, width, height));
    printf("%zu x %zu: pitch %zu\n", width, height, pitch);
    MUST(cudaMemset2D(device, pitch, 0xff, width, height));
    MUST(cudaMemcpy2D(device, pitch, host, width, width, height, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy2D(back, width, device, pitch, width, height, cudaMemcpyDeviceToHost));
    FACT(memcmp(host, back, width * height) == 0);
    unsigned char *corner = device + (height - 1) * pitch + width - 1, byte;
    MUST(cudaMemcpy(&byte, corner, 1, cudaMemcpyDefault));
    FACT(byte == host[width * height - 1]);
    MUST(cudaFree(device));
    free(host);
    free(back);
}

int main(void)
{
    plane(1, 1);
    plane(100, 3);
    plane(512, 64);
    plane(513, 64);
    plane(4000, 777);

    struct cudaExtent extent = make_cudaExtent(60, 11, 5);
    struct cudaPitchedPtr box;
    MUST(cudaMalloc3D(&box, extent));
    printf("box: pitch %zu, xsize %zu, ysize %zu\n", box.pitch, box.xsize, box.ysize);
    static unsigned char host[5][11][60], back[5][11][60];
    fill(&host[0][0][0], sizeof host, 3);
    struct cudaMemcpy3DParms in = {0}, out = {0};
    in.srcPtr = make_cudaPitchedPtr(host, 60, 60, 11);
    in.dstPtr = box;
    in.extent = extent;
    in.kind = cudaMemcpyHostToDevice;
    MUST(cudaMemcpy3D(&in));
    out.srcPtr = box;
    out.dstPtr = make_cudaPitchedPtr(back, 60, 60, 11);
    out.extent = extent;
    out.kind = cudaMemcpyDeviceToHost;
    MUST(cudaMemcpy3D(&out));
    FACT(memcmp(host, back, sizeof host) == 0);
    MUST(cudaMemset3D(box, 7, make_cudaExtent(60, 2, 5)));
    MUST(cudaMemcpy3D(&out));
    FACT(back[4][1][59] == 7);
    FACT(back[4][2][0] == host[4][2][0]);
    printf("checksum %08x\n", checksum(&back[0][0][0], sizeof back));
    MUST(cudaFree(box.ptr));

    void *p = (void *)1;
    size_t pitch = 1;
    SHOW(cudaMallocPitch(&p, &pitch, (size_t)1 << 40, (size_t)1 << 40));
    SHOW(cudaMallocPitch(&p, &pitch, (size_t)1 << 30, 1 << 20));
    SHOW(cudaMemcpy2D(p, 10, host, 60, 20, 1, cudaMemcpyHostToDevice));
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    return 0;
}
