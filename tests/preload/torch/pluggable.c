/* segalloc_torch_malloc and segalloc_torch_free as PyTorch calls them: by dlsym in a library that is loaded late or was
   preloaded. The argument is the library. */
#include <pthread.h>
#include <stdlib.h>

#include "../programs/runtime.h"
#include "../programs/served.h"

static void *(*plug_malloc)(size_t, int, cudaStream_t);
static void (*plug_free)(void *, size_t, int, cudaStream_t);
static int (*plug_stats)(int, struct segalloc_stat *, int);

static struct segalloc_stat plug_stat(int device, const char *name)
{
    struct segalloc_stat list[128];
    int count = plug_stats(device, list, 128);
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0)
            return list[i];
    }
    return (struct segalloc_stat){0};
}

static uint64_t plug_statistic(int device, const char *name)
{
    return plug_stat(device, name).value;
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

/* The pieces cover what is reserved, and the block that begins at `address` is one of them. */
static void check_pieces(void *library, const void *address, size_t bytes)
{
    static struct segalloc_piece list[256];
    size_t (*pieces)(int, struct segalloc_piece *, size_t);
    void *symbol = of(library, "segalloc_pieces");
    memcpy(&pieces, &symbol, sizeof symbol);
    size_t count = pieces(0, list, 256), found = 0;
    uint64_t sum = 0;
    EXPECT(pieces(0, NULL, 0) == count && count <= 256);
    for (size_t i = 0; i < count && i < 256; i++) {
        sum += list[i].bytes;
        found += list[i].address == (uintptr_t)address && list[i].state == SEGALLOC_PIECE_ALLOCATED &&
            list[i].requested == bytes && list[i].bytes >= bytes;
        EXPECT(list[i].state >= SEGALLOC_PIECE_ALLOCATED && list[i].state <= SEGALLOC_PIECE_FREE);
    }
    EXPECT(sum == plug_statistic(0, "reserved_bytes") && found == 1);
    EXPECT(pieces(7, list, 256) == 0);
}

/* What the optional hooks do, and what the Python module asks. */
static void check_hooks(void *library, cudaStream_t stream)
{
    void (*reset)(void), (*fraction)(double, int), (*reset_peaks)(int);
    void *(*base)(void *, size_t *);
    size_t (*option)(const char *, char *, size_t), (*set_limit)(int, size_t);
    void *symbol = of(library, "segalloc_torch_reset");
    memcpy(&reset, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_torch_memory_fraction");
    memcpy(&fraction, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_torch_base");
    memcpy(&base, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_reset_peaks");
    memcpy(&reset_peaks, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_option");
    memcpy(&option, &symbol, sizeof symbol);
    symbol = of(library, "segalloc_set_limit");
    memcpy(&set_limit, &symbol, sizeof symbol);

    size_t bytes = 0;
    char *block = plug_malloc(300 << 20, 0, stream);
    EXPECT(base(block + 100, &bytes) == block && bytes == 300 << 20);
    EXPECT(base(&bytes, &bytes) == &bytes && bytes == 0);
    check_pieces(library, block, 300 << 20);
    plug_free(block, 300 << 20, 0, stream);
    EXPECT(plug_stat(0, "allocated_bytes").peak >= 300 << 20);
    reset_peaks(0);
    EXPECT(plug_stat(0, "allocated_bytes").peak == plug_statistic(0, "allocated_bytes"));
    EXPECT(plug_statistic(0, "reserved_bytes") >= 300 << 20);
    reset();
    EXPECT(plug_statistic(0, "reserved_bytes") < 300 << 20);

    fraction(0.25, 0);
    size_t available, total, preloaded = getenv("LD_PRELOAD") != NULL; /* else the driver's own answer comes */
    EXPECT(cudaMemGetInfo(&available, &total) == cudaSuccess && total == (size_t)4 << 30);
    EXPECT(available <= (size_t)1 << 30 || !preloaded);
    EXPECT(set_limit(0, (size_t)1 << 40) == (size_t)4 << 30);
    EXPECT(cudaMemGetInfo(&available, &total) == cudaSuccess && available > (size_t)3 << 30);
    EXPECT(set_limit(99, 1) == 0);
    char value[8];
    EXPECT(option("pytorch", value, sizeof value) == 4 && strcmp(value, "auto") == 0);
    EXPECT(option("expandable_segments", value, 3) == 4 && strcmp(value, "Tr") == 0);
    EXPECT(option("no_such", value, sizeof value) == 0 && option(NULL, NULL, 0) == 0);
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
    /* not its stream */
    EXPECT(first && cudaMemset(first, 1, 1 << 20) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    plug_free(first, 1 << 20, 0, stream);
    EXPECT(plug_statistic(0, "allocs") == 1 && plug_statistic(0, "frees") == 1);
    EXPECT(plug_statistic(0, "strict_frees") == 0);

    /* On a device that isn't current, freed in a thread that has none. */
    void *second = plug_malloc(1 << 20, 1, NULL);
    EXPECT(cudaGetDevice(&device) == cudaSuccess && device == 0);
    /* not its device */
    EXPECT(second && cudaMemset(second, 1, 1 << 20) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, free_elsewhere, second) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(plug_statistic(1, "allocs") == 1 && plug_statistic(1, "frees") == 1);
    check_hooks(library, stream);
    return failures != 0;
}
