#include "nvrtc.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels_source.h"

struct nvrtc {
    int (*create)(void **program, const char *source, const char *name, int headers, const char *const *texts, const char *const *names);
    int (*compile)(void *program, int count, const char *const *options);
    int (*size)(void *program, size_t *bytes);
    int (*image)(void *program, char *image);
    int (*destroy)(void **program);
};

static bool nvrtc_open(struct nvrtc *ret)
{
    static const char *const libraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !library; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&ret->create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&ret->compile = dlsym(library, "nvrtcCompileProgram");
    *(void **)&ret->size = dlsym(library, "nvrtcGetCUBINSize");
    *(void **)&ret->image = dlsym(library, "nvrtcGetCUBIN");
    *(void **)&ret->destroy = dlsym(library, "nvrtcDestroyProgram");
    return ret->create && ret->compile && ret->size && ret->image && ret->destroy;
}

char *probe_compile_kernels(int major, int minor)
{
    struct nvrtc nvrtc = {0};
    char architecture[48], *image = NULL;
    const char *options[] = {architecture, "--std=c++17"};
    void *program = NULL;
    size_t bytes = 0;
    if (!nvrtc_open(&nvrtc) || nvrtc.create(&program, kernels_source, "kernels.cu", 0, NULL, NULL))
        return NULL;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
    if (!nvrtc.compile(program, sizeof options / sizeof *options, options) && !nvrtc.size(program, &bytes) && bytes &&
        (image = malloc(bytes)) && nvrtc.image(program, image)) {
        free(image);
        image = NULL;
    }
    (void)nvrtc.destroy(&program);
    return image;
}
