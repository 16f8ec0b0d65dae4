/* Preloaded, on a machine without CUDA: it doesn't look as if there were any. Exit status 0, or 1 and a line. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern int cudaMalloc(void **, size_t) __attribute__((weak));
extern int cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));

static int failures;

static void expect(int good, const char *what)
{
    if (!good)
        printf("not so: %s\n", what);
    failures += !good;
}

static const char *const names[] = {
#define HOOK(symbol, base, version, threads, parameters) #symbol,
#include "process/hooks.def"
    "cudaMalloc",
    "cudaFree",
    "_ZN3c105utils9check_envEPKc",
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv",
    "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm",
    ("_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11"
     "CUstream_stEE"),
};

int main(void)
{
    void *self = dlopen(NULL, RTLD_LAZY);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dlerror();
        expect(!dlsym(RTLD_DEFAULT, names[i]), names[i]);
        const char *error = dlerror();
        expect(error && strstr(error, names[i]), error ? error : "dlerror names the symbol");
        expect(!dlsym(self, names[i]), names[i]);
        expect(!dlsym(RTLD_NEXT, names[i]), names[i]);
    }
    expect(dlsym(RTLD_DEFAULT, "cudnnCreate") == NULL, "cudnnCreate");
    expect(dlsym(RTLD_DEFAULT, "cuInit2") == NULL, "cuInit2");
    expect(dlsym(RTLD_DEFAULT, "segalloc_version") != NULL, "segalloc_version can be found");
    expect(dlsym(RTLD_DEFAULT, "printf") == (void *)printf, "printf is found");
    expect(dlsym(RTLD_NEXT, "printf") != NULL, "printf is found as the next");
    expect(dlsym(RTLD_DEFAULT, "no_such_function") == NULL && dlerror(), "what isn't there");

    /* Weak references do see the preloaded functions: a call says that there is no driver. */
    void *address = NULL;
    unsigned long long device_address = 0;
    expect(cudaMalloc && cudaMalloc(&address, 1) == 35 && !address, "cudaMalloc: insufficient driver");
    expect(cuMemAlloc_v2 && cuMemAlloc_v2(&device_address, 1) == 3 && !device_address, "cuMemAlloc: not initialised");
    return failures != 0;
}
