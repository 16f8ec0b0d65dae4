/* Preloaded, over a driver that answers every name: who looks names up, as NVIDIA's runtimes and Python's bindings do at
   their first call, loses nothing by it; who then calls what no table has does.
   usage: asks [RUNTIME]…   (paths of NVIDIA's libcudart) */
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
#include "hooks.def"
#define ENTRY(base, symbol, version) {#base, #symbol, version},
#define ENTRY_STREAM(base, symbol, version, variant) {#base, #symbol, version}, {#base, #variant, version},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(base, version) {#base, #base, version},
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
    for (int i = 1; i < argc; i++)
        start(argv[i], dlsym(driver, "vendor_asked"));
    ask_for_all(driver, ask);
    call_unknown(driver, ask);
    return failures != 0;
}
