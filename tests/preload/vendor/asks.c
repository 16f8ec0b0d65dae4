/* Preloaded, over a driver that answers every name: who looks names up, as NVIDIA's runtimes and Python's bindings do at
   their first call, loses nothing by it; who then calls what no table has does.
   usage: asks [RUNTIME]…   (paths of NVIDIA's libcudart)
          asks --watched      (beside a tool that looks at memory) */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_abi.h"

static int failures;

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s (untracked by %s)\n", __FILE__, __LINE__, #condition, untracked()); \
            failures++; \
        } \
    } while (0)

static const struct name {
    const char *base, *symbol;
    int version;
} names[] = {
#define HOOK(symbol, base, version, threads, parameters) {#base, #symbol, version},
#include "process/hooks.def"
#define ENTRY(base, symbol, version) {#base, #symbol, version},
#define ENTRY_STREAM(base, symbol, version, variant) {#base, #symbol, version}, {#base, #variant, version},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(base, symbol, version) {#base, #symbol, version},
#define UNSUPPORTED_STREAM(base, symbol, version, variant) {#base, #symbol, version}, {#base, #variant, version},
#include "unsupported.def"
};

static const char *untracked(void)
{
    static const char *(*by)(void);
    void *symbol = by ? NULL : dlsym(RTLD_DEFAULT, "segalloc_untracked_by");
    if (symbol)
        memcpy(&by, &symbol, sizeof by);
    return by ? by() : "?";
}

typedef CUresult ask_fn(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* Every name, in every meaning that a caller can give it, and as a symbol. */
static void ask_for_all(void *driver, ask_fn *ask)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (cuuint64_t flags = 0; flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM; flags++) {
            void *function = NULL;
            EXPECT(ask(names[i].base, &function, names[i].version, flags, NULL) == CUDA_SUCCESS && function);
            EXPECT(ask(names[i].base, &function, 13050, flags, NULL) == CUDA_SUCCESS && function);
        }
        (void)dlsym(driver, names[i].symbol);
        (void)dlsym(RTLD_DEFAULT, names[i].base);
    }
    EXPECT(untracked() == NULL);
}

enum { NAMES_OF_A_RUNTIME = 300 }; /* 409 to 475 at the first call of versions 12.4 to 13.5 */

static void start(const char *path, const int *asked)
{
    int before = *asked;
    void *runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!runtime) {
        fprintf(stderr, "%s\n", dlerror());
        failures++;
        return;
    }
    int count = -1;
    int (*get_count)(int *);
    void *symbol = dlsym(runtime, "cudaGetDeviceCount");
    memcpy(&get_count, &symbol, sizeof get_count);
    int result = get_count(&count);
    printf("%s: cudaGetDeviceCount says %d, %d names were asked for\n", path, result, *asked - before);
    EXPECT(*asked - before > NAMES_OF_A_RUNTIME);
    EXPECT(untracked() == NULL);
}

static int is_in(const void *function, const char *library)
{
    Dl_info info;
    return function && dladdr(function, &info) && strstr(info.dli_fname, library) != NULL;
}

/* Asked for, a call is nothing; called, it ends order, and gets what it was given. */
static void call_unknown(void *driver, ask_fn *ask)
{
    void *function = NULL, *later = NULL;
    long (*tomorrow)(long, long);
    EXPECT(ask("cuLaunchHostFunc", &later, 14000, 0, NULL) == CUDA_SUCCESS);
    EXPECT(later && later != dlsym(driver, "cuLaunchHostFunc")); /* our function is of an older form */
    EXPECT(ask("cuStreamOfTomorrow", &function, 14000, 0, NULL) == CUDA_SUCCESS && function);
    EXPECT(dlsym(driver, "cuStreamOfTomorrow") == function);
    EXPECT(untracked() == NULL);
    memcpy(&tomorrow, &function, sizeof tomorrow);
    EXPECT(tomorrow(4, 2) == 42);
    EXPECT(untracked() && strcmp(untracked(), "cuStreamOfTomorrow") == 0);
}

/* One that may remember pages is told from one that orders work, and gets what it was given too. */
static void bind_unknown(void *driver, ask_fn *ask)
{
    void *function = NULL;
    long (*tomorrow)(long, long);
    EXPECT(ask("cuMulticastBindTomorrow", &function, 14000, 0, NULL) == CUDA_SUCCESS && function);
    EXPECT(is_in(function, "libsegalloc") && dlsym(driver, "cuMulticastBindTomorrow") == function);
    memcpy(&tomorrow, &function, sizeof tomorrow);
    EXPECT(tomorrow(4, 2) == 402);
    EXPECT(untracked() == NULL);
}

static void *asked_for(ask_fn *ask, const char *base, int version, cuuint64_t flags)
{
    void *function = NULL;
    EXPECT(ask(base, &function, version, flags, NULL) == CUDA_SUCCESS && function);
    return function;
}

/* Functions that the driver does not export are told by what was asked for: ours for a form that our tables have, its
   own for the 32-bit forms of CUDA 2. */
static void ask_for_hidden(void *driver, ask_fn *ask)
{
    enum { PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
    int *hides = dlsym(driver, "vendor_hides");
    void *other = *(void **)dlsym(driver, "vendor_other");
    *hides = 1;
    EXPECT(asked_for(ask, "cuMemAlloc", 3020, 0) == dlsym(driver, "cuMemAlloc_v2"));
    EXPECT(asked_for(ask, "cuCtxCreate", 12000, 0) == dlsym(driver, "cuCtxCreate_v3"));
    EXPECT(asked_for(ask, "cuCtxCreate", 13000, 0) == dlsym(driver, "cuCtxCreate_v4"));
    EXPECT(asked_for(ask, "cuStreamSynchronize", 12000, 0) == dlsym(driver, "cuStreamSynchronize"));
    EXPECT(asked_for(ask, "cuStreamSynchronize", 12000, PER_THREAD) == dlsym(driver, "cuStreamSynchronize_ptsz"));
    EXPECT(asked_for(ask, "cuMemcpyDtoD", 2000, 0) == other);
    void *later = asked_for(ask, "cuMemcpyDtoD", 14000, 0);
    EXPECT(later != other && later != dlsym(driver, "cuMemcpyDtoD_v2"));
    EXPECT(asked_for(ask, "cuMemAlloc", 14000, 0) == other); /* which gives no stream any work */
    *hides = 0;
}

/* An answer that is none stays as the driver left it. */
static void be_refused(void *driver, ask_fn *ask)
{
    int *refuses = dlsym(driver, "vendor_refuses");
    void *function = NULL;
    *refuses = 1;
    EXPECT(ask("cuMemAlloc", &function, 12000, 0, NULL) == CUDA_ERROR_NOT_FOUND);
    EXPECT(function && function != dlsym(driver, "cuMemAlloc_v2"));
    EXPECT(ask("cuMemAlloc", NULL, 12000, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
    *refuses = 0;
}

/* What is not there is not found, and dlerror() says so; what is not the driver's is what the loader finds. */
static void look_elsewhere(void *driver)
{
    static const char *const absent[] = {"cuStreamOfYesterday", "cuMemOfYesterday", "_ZN3c105utils9check_envEPKc",
        "no_such_name"};
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        (void)dlerror();
        EXPECT(!dlsym(driver, absent[i]));
        const char *error = dlerror();
        EXPECT(error && strstr(error, absent[i]));
        EXPECT(!dlsym(RTLD_DEFAULT, absent[i]));
    }
    EXPECT(libc && !dlsym(libc, "cuMemAlloc_v2") && !dlsym(libc, "cuStreamSynchronize"));
    EXPECT(dlerror() && dlsym(libc, "qsort"));
    EXPECT(is_in(dlsym(driver, "cuMemAlloc_v2"), "libsegalloc"));
    EXPECT(is_in(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "libsegalloc"));
    EXPECT(is_in(dlsym(RTLD_NEXT, "cuMemAlloc_v2"), "libsegalloc"));
    EXPECT(is_in(dlsym(driver, "cuStreamGetId"), "libcuda") || !dlsym(driver, "cuStreamGetId"));
}

/* A tool that looks at memory sees the driver's own calls. */
static int be_watched(void *driver, ask_fn *ask)
{
    EXPECT(is_in(dlsym(driver, "cuMemAlloc_v2"), "libcuda"));
    EXPECT(is_in(asked_for(ask, "cuMemAlloc", 12000, 0), "libcuda"));
    EXPECT(is_in(dlsym(driver, "cuStreamOfTomorrow"), "libcuda"));
    return failures != 0;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = driver ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    ask_fn *ask;
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    memcpy(&ask, &symbol, sizeof ask);
    EXPECT(untracked() == NULL);
    if (argc == 2 && strcmp(argv[1], "--watched") == 0)
        return be_watched(driver, ask);
    look_elsewhere(driver);
    be_refused(driver, ask);
    for (int i = 1; i < argc; i++)
        start(argv[i], dlsym(driver, "vendor_asked"));
    ask_for_all(driver, ask);
    ask_for_hidden(driver, ask);
    bind_unknown(driver, ask);
    call_unknown(driver, ask);
    dlclose(driver);
    EXPECT(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)); /* what was found in it is in use */
    return failures != 0;
}
