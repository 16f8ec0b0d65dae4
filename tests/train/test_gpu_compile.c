/* The GPU's kernels compile by NVRTC. Skipped where that is not. */
#include "backend/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };

int main(void)
{
    static const int capabilities[][2] = {{9, 0}};
    if (!dlopen("libnvrtc.so.13", RTLD_NOW) && !dlopen("libnvrtc.so.12", RTLD_NOW)) {
        puts("no NVRTC here");
        return SKIPPED;
    }
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
        char *image, error[256];
        size_t bytes;
        if (gpu_compile(capabilities[i][0], capabilities[i][1], &image, &bytes, error, sizeof error)) {
            fprintf(stderr, "%s\n", error);
            return 1;
        }
        printf("compute capability %d.%d: %zu bytes\n", capabilities[i][0], capabilities[i][1], bytes);
        /* A cubin is an ELF file with the kernels' names in it. */
        bool kernels = bytes > 4 && !memcmp(image, "\177ELF", 4);
#define KERNEL(name, text) kernels = kernels && memmem(image, bytes, ".text.gpu_" #name, sizeof ".text.gpu_" #name);
#include "backend/kernels.def"
#undef KERNEL
        free(image);
        if (!kernels) {
            fputs("a kernel is missing from what was compiled\n", stderr);
            return 1;
        }
    }
    return 0;
}
