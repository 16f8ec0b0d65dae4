#include "registry.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/wrap.h"

/* All keys are addresses of things: their low bits say little. */
static unsigned hash_address(const void *key)
{
    uintptr_t value;
    memcpy(&value, key, sizeof value);
    return (unsigned)(sg_hash(value >> 3) >> 32);
}
#define HASH_FUNCTION(key, length, hash) ((hash) = hash_address(key))
#include <uthash.h>

#include "context.h"
#include "entry.h"
#include "error.h"

/* nvcc wraps each image in a structure whose third member is the image (fatbinary_section.h). */
enum { WRAPPER_MAGIC = 0x466243b1 };
struct wrapper {
    int magic;
    int version;
    const void *image;
    void *more;
};

/* An image as it was loaded into one context. Those of before a reset stay in the list, and are not used again. */
struct loaded {
    struct loaded *next;
    CUcontext context;
    int era;
    CUmodule module;
};

struct binary {
    const void *image;
    struct loaded *loaded;
    struct kernel *kernels;
    struct variable *variables;
};

struct kernel {
    struct sg_rt_kernel shown;
    const void *host;
    const void *handle;
    struct binary *binary;
    struct kernel *next;
    /* the function last used, and where */
    CUcontext context;
    int era;
    CUfunction function;
    UT_hash_handle by_host, by_handle;
};

struct variable {
    const void *host;
    void **pointer; /* of a managed variable: where the program looks for its address */
    size_t bytes;
    struct variable *next;
    int era;
    CUdeviceptr address;
    UT_hash_handle hh;
};

static struct {
    pthread_rwlock_t lock;
    struct kernel *by_host, *by_handle;
    struct variable *variables;
} registry = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* A forked child ends by unregistering its images: the lock must not have stayed with a thread of the parent. */
static void registry_before_fork(void)
{
    pthread_rwlock_wrlock(&registry.lock);
}

static void registry_in_parent(void)
{
    pthread_rwlock_unlock(&registry.lock);
}

static void registry_in_child(void)
{
    pthread_rwlock_init(&registry.lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(registry_before_fork, registry_in_parent, registry_in_child);
}

void **__cudaRegisterFatBinary(void *image)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct binary *binary = calloc(1, sizeof *binary);
    if (!binary)
        abort();
    const struct wrapper *wrapper = image;
    binary->image = wrapper && wrapper->magic == WRAPPER_MAGIC ? wrapper->image : image;
    return (void **)binary;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* The driver is not called: at this time of a process it may be gone already, and its modules with it. */
void __cudaUnregisterFatBinary(void **handle)
{
    struct binary *binary = (struct binary *)handle;
    if (!binary)
        return;
    pthread_rwlock_wrlock(&registry.lock);
    while (binary->kernels) {
        struct kernel *kernel = binary->kernels;
        binary->kernels = kernel->next;
        HASH_DELETE(by_host, registry.by_host, kernel);
        HASH_DELETE(by_handle, registry.by_handle, kernel);
        free(kernel);
    }
    while (binary->variables) {
        struct variable *variable = binary->variables;
        binary->variables = variable->next;
        HASH_DEL(registry.variables, variable);
        free(variable);
    }
    while (binary->loaded) {
        struct loaded *loaded = binary->loaded;
        binary->loaded = loaded->next;
        free(loaded);
    }
    pthread_rwlock_unlock(&registry.lock);
    free(binary);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            void *tid, void *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    struct binary *binary = (struct binary *)handle;
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        abort();
    kernel->shown = (struct sg_rt_kernel){.name = name, .max_dynamic_shared_bytes = 48 << 10, .shared_carveout = -1};
    kernel->host = host;
    kernel->handle = &kernel->shown;
    kernel->binary = binary;
    pthread_rwlock_wrlock(&registry.lock);
    struct kernel *same = NULL;
    HASH_FIND(by_host, registry.by_host, &host, sizeof host, same);
    if (same) {
        free(kernel);
    } else {
        kernel->next = binary->kernels;
        binary->kernels = kernel;
        HASH_ADD(by_host, registry.by_host, host, sizeof kernel->host, kernel);
        HASH_ADD(by_handle, registry.by_handle, handle, sizeof kernel->handle, kernel);
    }
    pthread_rwlock_unlock(&registry.lock);
}

static void add_variable(void **handle, const void *host, void **pointer, size_t bytes)
{
    struct binary *binary = (struct binary *)handle;
    struct variable *variable = calloc(1, sizeof *variable), *same = NULL;
    if (!variable)
        abort();
    *variable = (struct variable){.host = host, .pointer = pointer, .bytes = bytes, .next = binary->variables};
    pthread_rwlock_wrlock(&registry.lock);
    HASH_FIND_PTR(registry.variables, &variable->host, same);
    if (same) {
        free(variable);
    } else {
        binary->variables = variable;
        HASH_ADD_PTR(registry.variables, host, variable);
    }
    pthread_rwlock_unlock(&registry.lock);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global)
{
    (void)device, (void)name, (void)ext, (void)constant, (void)global;
    add_variable(handle, host, NULL, bytes);
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t bytes,
                              int constant, int global)
{
    (void)device, (void)name, (void)ext, (void)constant, (void)global;
    add_variable(handle, host, host, bytes);
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes)
{
    (void)handle, (void)name, (void)host, (void)bytes;
}

void __cudaRegisterUnifiedTable(void **handle, void *table)
{
    (void)handle, (void)table;
}

/* Called by the program before it first reads a managed variable. */
char __cudaInitModule(void **handle)
{
    struct binary *binary = (struct binary *)handle;
    for (struct variable *variable = binary->variables; variable; variable = variable->next) {
        CUdeviceptr address;
        if (variable->pointer && sg_rt_symbol(variable->host, &address, NULL) != cudaSuccess)
            return 0;
    }
    return 1;
}

cudaError_t sg_rt_kernel(const void *function, struct sg_rt_kernel **ret)
{
    struct kernel *found = NULL;
    pthread_rwlock_rdlock(&registry.lock);
    HASH_FIND(by_host, registry.by_host, &function, sizeof function, found);
    if (!found)
        HASH_FIND(by_handle, registry.by_handle, &function, sizeof function, found);
    pthread_rwlock_unlock(&registry.lock);
    if (!found)
        return cudaErrorInvalidDeviceFunction;
    *ret = &found->shown;
    return cudaSuccess;
}

/* Under `registry.lock`. */
static cudaError_t registry_load_module(struct binary *binary, CUcontext context, int era, CUmodule *ret)
{
    for (struct loaded *loaded = binary->loaded; loaded; loaded = loaded->next) {
        if (loaded->context == context && loaded->era == era) {
            *ret = loaded->module;
            return cudaSuccess;
        }
    }
    struct loaded *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        return cudaErrorMemoryAllocation;
    cudaError_t error = sg_rt_translate(sg_rt_legacy.cuModuleLoadData(&loaded->module, binary->image));
    if (error != cudaSuccess) {
        free(loaded);
        return error;
    }
    loaded->context = context;
    loaded->era = era;
    loaded->next = binary->loaded;
    binary->loaded = loaded;
    *ret = loaded->module;
    return cudaSuccess;
}

cudaError_t sg_rt_kernel_function(struct sg_rt_kernel *shown, CUfunction *ret)
{
    struct kernel *kernel = (struct kernel *)((char *)shown - offsetof(struct kernel, shown));
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    CUcontext context = NULL;
    error = sg_rt_translate(sg_rt_legacy.cuCtxGetCurrent(&context));
    if (error != cudaSuccess)
        return error;
    int era = sg_rt_era();
    pthread_rwlock_rdlock(&registry.lock);
    bool here = kernel->function && kernel->context == context && kernel->era == era;
    *ret = kernel->function;
    pthread_rwlock_unlock(&registry.lock);
    if (here)
        return cudaSuccess;
    pthread_rwlock_wrlock(&registry.lock);
    CUmodule module = NULL;
    CUfunction function = NULL;
    error = registry_load_module(kernel->binary, context, era, &module);
    if (error == cudaSuccess)
        error = sg_rt_translate(sg_rt_legacy.cuModuleGetFunction(&function, module, shown->name));
    if (error == cudaSuccess) {
        kernel->context = context;
        kernel->era = era;
        kernel->function = function;
        *ret = function;
    }
    pthread_rwlock_unlock(&registry.lock);
    return error;
}

/* Managed memory, because it has one address for all devices. Images are not read, so a variable starts with zeros
   whatever the program initialises it with. */
static cudaError_t registry_back_variable(struct variable *variable)
{
    CUdeviceptr address = 0;
    cudaError_t error =
        sg_rt_translate(sg_rt_legacy.cuMemAllocManaged(&address, variable->bytes, CU_MEM_ATTACH_GLOBAL));
    if (error != cudaSuccess)
        return error;
    error = sg_rt_translate(sg_rt_legacy.cuMemsetD8(address, 0, variable->bytes));
    if (error != cudaSuccess) {
        sg_rt_legacy.cuMemFree(address);
        return error;
    }
    variable->address = address;
    if (variable->pointer)
        *variable->pointer = (void *)(uintptr_t)address;
    return cudaSuccess;
}

cudaError_t sg_rt_symbol(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    int era = sg_rt_era();
    struct variable *variable = NULL;
    pthread_rwlock_wrlock(&registry.lock);
    HASH_FIND_PTR(registry.variables, &symbol, variable);
    if (!variable)
        error = cudaErrorInvalidSymbol;
    else if (!variable->address || variable->era != era) {
        error = registry_back_variable(variable);
        variable->era = era;
    }
    if (error == cudaSuccess) {
        *ret_address = variable->address;
        if (ret_bytes)
            *ret_bytes = variable->bytes;
    }
    pthread_rwlock_unlock(&registry.lock);
    return error;
}
