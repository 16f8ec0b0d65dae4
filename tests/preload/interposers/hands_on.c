/* A library to preload that defines functions of the runtime, or with DRIVER of the driver, and hands each call on to the
   next one. With LOCKED it holds a lock meanwhile that a second call of the thread would wait for, for ever. At exit it
   prints how many calls it got. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef DRIVER
typedef unsigned long long address_t;
#define MALLOC cuMemAlloc_v2
#define FREE cuMemFree_v2
#else
typedef void *address_t;
#define MALLOC cudaMalloc
#define FREE cudaFree
#endif
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define EXPORTED __attribute__((visibility("default")))

EXPORTED int MALLOC(address_t *ret, size_t bytes);
EXPORTED int FREE(address_t address);

static int mallocs, frees;
static __thread int depth;
#ifdef LOCKED
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

static void enter(void)
{
    if (++depth > 1) {
        fprintf(stderr, NAME ": calls itself\n");
        _exit(9);
    }
#ifdef LOCKED
    pthread_mutex_lock(&lock);
#endif
}

static void leave(void)
{
#ifdef LOCKED
    pthread_mutex_unlock(&lock);
#endif
    depth--;
}

int MALLOC(address_t *ret, size_t bytes)
{
    int (*next)(address_t *, size_t);
    void *symbol = dlsym(RTLD_NEXT, TEXT_OF(MALLOC));
    memcpy(&next, &symbol, sizeof next);
    enter();
    mallocs++;
    int error = symbol ? next(ret, bytes) : 999;
    leave();
    return error;
}

int FREE(address_t address)
{
    int (*next)(address_t);
    void *symbol = dlsym(RTLD_NEXT, TEXT_OF(FREE));
    memcpy(&next, &symbol, sizeof next);
    enter();
    frees++;
    int error = symbol ? next(address) : 999;
    leave();
    return error;
}

__attribute__((destructor)) static void tell(void)
{
    if (mallocs || frees)
        fprintf(stderr, NAME ": %d allocations, %d frees\n", mallocs, frees);
}
