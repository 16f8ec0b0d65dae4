/* Another library to preload: counts cuMemAlloc and hands it on to the next one. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

__attribute__((visibility("default"))) int cuMemAlloc_v2(unsigned long long *ret, size_t bytes);
__attribute__((visibility("default"))) int interposer_calls(void);
__attribute__((visibility("default"))) void *next_of(const char *name);

static int calls;

int cuMemAlloc_v2(unsigned long long *ret, size_t bytes)
{
    static int (*next)(unsigned long long *, size_t);
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
        memcpy(&next, &symbol, sizeof next);
    }
    calls++;
    return next ? next(ret, bytes) : 999;
}

int interposer_calls(void)
{
    return calls;
}

/* What this library, and nobody else, gets for RTLD_NEXT: with a jump in place of a call it would be its caller. */
void *next_of(const char *name)
{
    void *volatile found = dlsym(RTLD_NEXT, name);
    return found;
}
