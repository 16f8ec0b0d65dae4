/* Preloaded, on the simulator: an allocation that comes by any of the five routes is served by the library. Linked with
   libcudart and libcuda, so that routes 4 and 5 are the loader's. */
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

typedef CUresult alloc_fn(CUdeviceptr *, size_t);
typedef CUresult free_fn(CUdeviceptr);

/* Allocates and frees by these, and expects that both arrived. */
static void use(const char *route, void *alloc_symbol, void *free_symbol)
{
    alloc_fn *alloc;
    free_fn *give_back;
    CUdeviceptr address = 0;
    memcpy(&alloc, &alloc_symbol, sizeof alloc);
    memcpy(&give_back, &free_symbol, sizeof give_back);
    uint64_t allocs = statistic(0, "allocs"), frees = statistic(0, "frees");
    if (!alloc_symbol || !free_symbol || alloc(&address, 4096) != CUDA_SUCCESS ||
        give_back(address) != CUDA_SUCCESS || statistic(0, "allocs") != allocs + 1 ||
        statistic(0, "frees") != frees + 1) {
        fprintf(stderr, "not served: %s\n", route);
        failures++;
    }
}

/* The rows of the table, as the driver in use knows them. */
static const struct row {
    const char *symbol, *base;
    int version;
    enum { ANY, LEGACY, PER_THREAD } threads;
} rows[] = {
#define HOOK(symbol, base, version, threads, parameters) {#symbol, #base, version, threads},
#include "process/hooks.def"
};

enum { ROWS = sizeof rows / sizeof *rows };

static void by_dlsym(void *cuda)
{
    use("dlsym on libcuda's handle", dlsym(cuda, "cuMemAlloc_v2"), dlsym(cuda, "cuMemFree_v2"));
    use("dlsym on RTLD_DEFAULT", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    use("dlsym on RTLD_NEXT", dlsym(RTLD_NEXT, "cuMemAlloc_v2"), dlsym(RTLD_NEXT, "cuMemFree_v2"));
    void *self = dlopen(NULL, RTLD_LAZY);
    use("dlsym on the program", dlsym(self, "cuMemAlloc_v2"), dlsym(self, "cuMemFree_v2"));
    for (int i = 0; i < ROWS; i++) {
        void *function = dlsym(cuda, rows[i].symbol);
        if (function && !is_ours(function)) {
            fprintf(stderr, "dlsym answers the driver's %s\n", rows[i].symbol);
            failures++;
        }
    }
    EXPECT(!is_ours(dlsym(cuda, "cuMemHostGetFlags")) && dlsym(cuda, "cuMemHostGetFlags"));
    EXPECT(!dlsym(cuda, "cuMemAlloc_v7") && dlerror());
    EXPECT(!dlsym(cuda, "c") && !dlsym(cuda, "_") && !dlsym(cuda, "_Znone") && !dlsym(cuda, "cvMemAlloc_v2"));
    EXPECT(!is_ours(dlsym(cuda, "cuStreamGetId")) && dlsym(cuda, "cuStreamGetId"));
    EXPECT(!is_ours(dlsym(cuda, "cuMemHostUnregister")));
}

/* The newest row for a request, as the documentation of cuGetProcAddress has it. */
static const struct row *wanted(void *cuda, const char *base, int version, int threads)
{
    const struct row *best = NULL;
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].base, base) == 0 && rows[i].version <= version &&
            (rows[i].threads == ANY || (int)rows[i].threads == threads) && dlsym(cuda, rows[i].symbol) &&
            (!best || rows[i].version > best->version))
            best = &rows[i];
    }
    return best;
}

static void by_proc_address(void *cuda)
{
    static const cuuint64_t flags[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    CUdriverProcAddressQueryResult status;
    void *alloc, *give_back;
    EXPECT(cuGetProcAddress_v2("cuMemAlloc", &alloc, 12000, 0, &status) == CUDA_SUCCESS);
    EXPECT(cuGetProcAddress_v2("cuMemFree", &give_back, 12000, 0, &status) == CUDA_SUCCESS);
    use("cuGetProcAddress_v2", alloc, give_back);
    EXPECT(cuGetProcAddress("cuMemAlloc", &alloc, 11030, 0) == CUDA_SUCCESS);
    EXPECT(cuGetProcAddress("cuMemFree", &give_back, 11030, 0) == CUDA_SUCCESS);
    use("cuGetProcAddress", alloc, give_back);
    for (int i = 0; i < ROWS; i++) {
        for (int f = 0; f < 3; f++) {
            int version = rows[i].version;
            int threads = flags[f] == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PER_THREAD : LEGACY;
            const struct row *row = wanted(cuda, rows[i].base, version, threads);
            void *function = NULL;
            CUresult result = cuGetProcAddress_v2(rows[i].base, &function, version, flags[f], &status);
            if (result != CUDA_SUCCESS || !function || !row)
                continue;
            if (function != dlsym(cuda, row->symbol)) {
                fprintf(stderr, "cuGetProcAddress(%s, %d, %d) is not %s\n", rows[i].base, version, (int)flags[f],
                        row->symbol);
                failures++;
            }
        }
    }
    /* Too old for the 64-bit function: not ours to answer. */
    alloc = NULL;
    EXPECT(cuGetProcAddress_v2("cuMemAlloc", &alloc, 2000, 0, &status) != CUDA_SUCCESS || !alloc || !is_ours(alloc));
    EXPECT(cuGetProcAddress_v2("cuNoSuchThing", &alloc, 12000, 0, &status) != CUDA_SUCCESS || !alloc);
    EXPECT(cuGetProcAddress_v2("cuMemAlloc", &alloc, 12000, 0, NULL) == CUDA_SUCCESS && is_ours(alloc));
}

static void by_entry_point(void)
{
    void *alloc = NULL, *give_back = NULL;
    int status;
    EXPECT(cudaGetDriverEntryPointByVersion("cuMemAlloc", &alloc, 12000, 0, &status) == cudaSuccess);
    EXPECT(cudaGetDriverEntryPointByVersion("cuMemFree", &give_back, 12000, 0, &status) == cudaSuccess);
    use("cudaGetDriverEntryPointByVersion", alloc, give_back);
    int (*entry_point)(const char *, void **, unsigned long long, int *);
    void *symbol = dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPoint");
    memcpy(&entry_point, &symbol, sizeof entry_point);
    if (!symbol)
        return; /* the runtime of CUDA 13 has it no more */
    EXPECT(entry_point("cuMemAlloc", &alloc, 0, &status) == cudaSuccess);
    EXPECT(entry_point("cuMemFree", &give_back, 0, &status) == cudaSuccess);
    use("cudaGetDriverEntryPoint", alloc, give_back);
}

static void by_runtime(void)
{
    void *address = NULL;
    uint64_t allocs = statistic(0, "allocs"), frees = statistic(0, "frees");
    EXPECT(is_ours((void *)cudaMalloc) && is_ours((void *)cudaFree));
    EXPECT(cudaMalloc(&address, 5000) == cudaSuccess && cudaFree(address) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == allocs + 1 && statistic(0, "frees") == frees + 1);

    /* By the runtime's own function, past ours. */
    void *handle = dlopen(getenv("CUDART"), RTLD_LAZY | RTLD_NOLOAD);
    int (*theirs)(void **, size_t);
    void *symbol = handle ? dlsym(handle, "cudaMalloc") : NULL;
    memcpy(&theirs, &symbol, sizeof theirs);
    EXPECT(symbol && !is_ours(symbol));
    EXPECT(symbol && theirs(&address, 5000) == cudaSuccess && cudaFree(address) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == allocs + 2 && statistic(0, "frees") == frees + 2);
}

int main(void)
{
    void *address;
    EXPECT(cudaMalloc(&address, 1 << 20) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == 1);
    EXPECT(cudaFree(address) == cudaSuccess);
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    EXPECT(cuda);
    use("libcuda's own symbol", (void *)cuMemAlloc_v2, (void *)cuMemFree_v2);
    by_dlsym(cuda);
    by_proc_address(cuda);
    by_entry_point();
    by_runtime();
    EXPECT(statistic(0, "passed_on") == 0);
    return failures != 0;
}
