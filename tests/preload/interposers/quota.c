/* A library to preload that limits the device memory of a process, in the way of HAMi-core. It defines dlsym and functions
   of the driver, and answers a question for one of those with its own. The limit is QUOTA_MIB. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
enum { OUT_OF_MEMORY = 2, HELD = 4096 };

typedef unsigned long long address_t;
typedef void *dlsym_fn(void *handle, const char *name);

EXPORTED void *dlsym(void *handle, const char *name);
EXPORTED int cuMemAlloc_v2(address_t *ret, size_t bytes);
EXPORTED int cuMemFree_v2(address_t address);
EXPORTED int cuMemCreate(address_t *ret, size_t bytes, const void *prop, unsigned long long flags);
EXPORTED int cuMemRelease(address_t handle);
EXPORTED int cuGetProcAddress(const char *name, void **ret, int version, unsigned long long flags);
EXPORTED int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long long flags, int *status);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    address_t key;
    size_t bytes;
} held[HELD];
static size_t used;

static dlsym_fn *real_dlsym(void)
{
    static dlsym_fn *function;
    if (!function) {
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!symbol)
            symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        memcpy(&function, &symbol, sizeof function);
    }
    return function;
}

static void *driver(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    return real_dlsym()(handle, name);
}

static int take(size_t bytes)
{
    const char *mib = getenv("QUOTA_MIB");
    size_t limit = (mib ? strtoul(mib, NULL, 10) : 1 << 20) << 20;
    pthread_mutex_lock(&lock);
    int fits = used + bytes <= limit;
    used += fits ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void give_back(address_t key, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < HELD && key; i++) {
        if (held[i].key == key) {
            bytes = held[i].bytes;
            held[i].key = 0;
            break;
        }
    }
    used -= bytes;
    pthread_mutex_unlock(&lock);
}

static void keep(address_t key, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < HELD; i++) {
        if (!held[i].key) {
            held[i].key = key;
            held[i].bytes = bytes;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

#define REAL(name, ...)                   \
    int (*real)(__VA_ARGS__);             \
    void *symbol = driver(#name);         \
    memcpy(&real, &symbol, sizeof real)

int cuMemAlloc_v2(address_t *ret, size_t bytes)
{
    REAL(cuMemAlloc_v2, address_t *, size_t);
    if (!take(bytes))
        return OUT_OF_MEMORY;
    int error = real(ret, bytes);
    if (error)
        give_back(0, bytes);
    else
        keep(*ret, bytes);
    return error;
}

int cuMemFree_v2(address_t address)
{
    REAL(cuMemFree_v2, address_t);
    int error = real(address);
    if (!error)
        give_back(address, 0);
    return error;
}

int cuMemCreate(address_t *ret, size_t bytes, const void *prop, unsigned long long flags)
{
    REAL(cuMemCreate, address_t *, size_t, const void *, unsigned long long);
    if (!take(bytes))
        return OUT_OF_MEMORY;
    int error = real(ret, bytes, prop, flags);
    if (error)
        give_back(0, bytes);
    else
        keep(*ret, bytes);
    return error;
}

int cuMemRelease(address_t handle)
{
    REAL(cuMemRelease, address_t);
    int error = real(handle);
    if (!error)
        give_back(handle, 0);
    return error;
}

static void *own(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } list[] = {{"cuMemAlloc_v2", (void *)cuMemAlloc_v2}, {"cuMemFree_v2", (void *)cuMemFree_v2},
        {"cuMemCreate", (void *)cuMemCreate}, {"cuMemRelease", (void *)cuMemRelease},
        {"cuMemAlloc", (void *)cuMemAlloc_v2}, {"cuMemFree", (void *)cuMemFree_v2},
        {"cuGetProcAddress", (void *)cuGetProcAddress}, {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2}};
    for (size_t i = 0; name && i < sizeof list / sizeof *list; i++) {
        if (strcmp(list[i].name, name) == 0)
            return list[i].function;
    }
    return NULL;
}

int cuGetProcAddress(const char *name, void **ret, int version, unsigned long long flags)
{
    REAL(cuGetProcAddress, const char *, void **, int, unsigned long long);
    int error = real(name, ret, version, flags);
    if (!error && strncmp(name, "cuGetProcAddress", 16) != 0 && own(name))
        *ret = own(name);
    return error;
}

int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long long flags, int *status)
{
    REAL(cuGetProcAddress_v2, const char *, void **, int, unsigned long long, int *);
    int error = real(name, ret, version, flags, status);
    if (!error && strncmp(name, "cuGetProcAddress", 16) != 0 && own(name))
        *ret = own(name);
    return error;
}

/* The loader knows its caller by the return address, which a jump leaves in place. A build for coverage does not count here:
   a count behind the call would keep it from being a jump. */
__attribute__((no_profile_instrument_function)) void *dlsym(void *handle, const char *name)
{
    if (handle == RTLD_NEXT)
        return real_dlsym()(handle, name);
    void *symbol = real_dlsym()(handle, name);
    return symbol && strncmp(name, "cu", 2) == 0 && own(name) ? own(name) : symbol;
}
