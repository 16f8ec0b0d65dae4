/* segalloc_torch_malloc and segalloc_torch_free as PyTorch calls them: by dlsym in a library that is loaded late or was
   preloaded. The argument is the library. */
#include <pthread.h>
#include <stdlib.h>

#include "../runtime.h"
#include "../served.h"

static void *(*plug_malloc)(size_t, int, cudaStream_t);
static void (*plug_free)(void *, size_t, int, cudaStream_t);
static int (*plug_stats)(int, struct segalloc_stat *, int);

static uint64_t plug_statistic(int device, const char *name)
{
    struct segalloc_stat list[128];
    int count = plug_stats(device, list, 128);
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    }
    return 0;
}

static void *of(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        exit(99);
    return symbol;
}

/* A thread that has no context current. */
static void *free_elsewhere(void *address)
{
    plug_free(address, 1 << 20, 1, NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    void *library = dlopen(argv[1], RTLD_NOW), *symbol;
    if (!library)
        return 99;
    symbol = of(library, "segalloc_torch_malloc");
    memcpy(&plug_malloc, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_torch_free");
    memcpy(&plug_free, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_stats");
    memcpy(&plug_stats, &symbol, sizeof symbol);

    cudaStream_t stream;
    int device = -1;
    EXPECT(cudaSetDevice(0) == cudaSuccess);
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(plug_malloc(0, 0, stream) == NULL);
    void *first = plug_malloc(1 << 20, 0, stream);
    EXPECT(first && cudaMemset(first, 1, 1 << 20) == cudaSuccess);
    plug_free(first, 1 << 20, 0, stream);
    EXPECT(plug_statistic(0, "allocs") == 1 && plug_statistic(0, "frees") == 1);
    EXPECT(plug_statistic(0, "strict_frees") == 0);

    /* On a device that isn't current, freed in a thread that has none. */
    void *second = plug_malloc(1 << 20, 1, NULL);
    EXPECT(cudaGetDevice(&device) == cudaSuccess && device == 0);
    EXPECT(second && cudaMemset(second, 1, 1 << 20) == cudaSuccess);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, free_elsewhere, second) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(plug_statistic(1, "allocs") == 1 && plug_statistic(1, "frees") == 1);
    return failures != 0;
}
