#include "libcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "error.h"

struct sg_rt_driver sg_rt_legacy, sg_rt_per_thread;

enum progress { NOT_OPEN, OPEN, LOADED };

static struct {
    pthread_mutex_t lock;
    atomic_int progress;
    cudaError_t failure;
    int version;
    int devices;
    bool initialised;
    __typeof__(cuGetProcAddress) *ask;
    __typeof__(cuGetProcAddress_v2) *ask_v2;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult libcuda_missing(void)
{
    return (CUresult)cudaErrorCallRequiresNewerDriver;
}

/* Arrays: no question of age, a simulated driver may do without. */
static CUresult libcuda_unsupported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sg_rt_proc_address(const char *symbol, void **ret, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status)
{
    if (library.ask_v2)
        return library.ask_v2(symbol, ret, version, flags, status);
    CUresult result = library.ask(symbol, ret, version, flags);
    *status = result == CUDA_SUCCESS && *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
}

/* A function pointer is stored through its bytes: C has no conversion from void *. */
static void libcuda_resolve(void *slot, const char *name, int version, cuuint64_t flags, CUresult (*absent)(void))
{
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    if (sg_rt_proc_address(name, &address, version, flags, &status) != CUDA_SUCCESS || !address) {
        memcpy(slot, &absent, sizeof absent);
        return;
    }
    memcpy(slot, &address, sizeof address);
}

static void resolve_all(struct sg_rt_driver *table, cuuint64_t flags)
{
#define DRIVER(name, version, symbol) libcuda_resolve(&table->name, #name, version, flags, libcuda_missing);
#define OTHER(name, version, parameters) libcuda_resolve(&table->name, #name, version, flags, libcuda_unsupported);
#include "libcuda.def"
#undef DRIVER
#undef OTHER
}

/* The driver's two functions to ask for others, as the loader finds them. NULL: it has none. */
struct asks {
    void *ask, *ask_v2;
};

/* Its lock may be held by a thread within dlopen() whose constructor calls the runtime, and waits for ours: asked without it. */
static struct asks ask_loader(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    void *ask_v2 = handle ? dlsym(handle, "cuGetProcAddress_v2") : NULL;
    return (struct asks){.ask_v2 = ask_v2, .ask = handle && !ask_v2 ? dlsym(handle, "cuGetProcAddress") : NULL};
}

static cudaError_t open_library(const struct asks *asks)
{
    memcpy(&library.ask_v2, &asks->ask_v2, sizeof asks->ask_v2);
    memcpy(&library.ask, &asks->ask, sizeof asks->ask);
    if (!library.ask && !library.ask_v2)
        return cudaErrorInsufficientDriver;
    resolve_all(&sg_rt_legacy, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    resolve_all(&sg_rt_per_thread, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if (sg_rt_legacy.cuDriverGetVersion(&library.version) != CUDA_SUCCESS)
        library.version = 0;
    return cudaSuccess;
}

static cudaError_t libcuda_initialise(void)
{
    if (library.version < CUDART_MAJOR * 1000)
        return cudaErrorInsufficientDriver;
    cudaError_t error = sg_rt_translate(sg_rt_legacy.cuInit(0));
    if (error != cudaSuccess)
        return error;
    error = sg_rt_translate(sg_rt_legacy.cuDeviceGetCount(&library.devices));
    if (error != cudaSuccess)
        return error;
    library.initialised = true;
    return library.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

/* The driver does not work in a child that was forked after cuInit: what the parent had is gone, and no lock of it
   may be taken. */
static void libcuda_after_fork(void)
{
    pthread_mutex_init(&library.lock, NULL);
    if (!library.initialised)
        return;
    library.failure = cudaErrorInitializationError;
    library.devices = 0;
}

static void libcuda_reach(enum progress target)
{
    if (atomic_load_explicit(&library.progress, memory_order_acquire) >= (int)target)
        return;
    struct asks asks = {NULL, NULL};
    if (atomic_load_explicit(&library.progress, memory_order_acquire) == NOT_OPEN)
        asks = ask_loader();
    pthread_mutex_lock(&library.lock);
    int progress = atomic_load(&library.progress);
    if (progress == NOT_OPEN) {
        pthread_atfork(NULL, NULL, libcuda_after_fork);
        library.failure = open_library(&asks);
        progress = OPEN;
    }
    if (progress < (int)target) {
        if (library.failure == cudaSuccess)
            library.failure = libcuda_initialise();
        progress = LOADED;
    }
    atomic_store_explicit(&library.progress, progress, memory_order_release);
    pthread_mutex_unlock(&library.lock);
}

cudaError_t sg_rt_load(void)
{
    libcuda_reach(LOADED);
    return library.failure;
}

int sg_rt_device_count(void)
{
    return library.devices;
}

int sg_rt_driver_version(void)
{
    libcuda_reach(OPEN);
    return library.version;
}

cudaError_t sg_rt_translate(CUresult result)
{
    return result == CUDA_SUCCESS || sg_rt_error_known((int)result) ? (cudaError_t)result : cudaErrorUnknown;
}
