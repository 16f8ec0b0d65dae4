/* A libcuda.so.1 that has loaded the driver and jumps into it, as the one of Windows' Linux is said to. With HANDS_OUT_INNER
   cuGetProcAddress answers with the functions of that driver, else with its own. Included by what jumps.py writes. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern void *inner_function[COUNT] __attribute__((visibility("hidden")));
void *inner_function[COUNT];
static const char *const names[COUNT];

/* The number of the function is put where none expects a parameter. */
#if defined(__x86_64__)
#define JUMP(name, at)                                                                   \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\nendbr64\n" \
            "leaq inner_function(%rip), %r11\njmp *8*" #at "(%r11)\n.size " #name ", . - " #name "\n");
#else
#define JUMP(name, at)                                                                    \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\nhint #34\n" \
            "adrp x16, inner_function\nadd x16, x16, :lo12:inner_function\n"              \
            "ldr x16, [x16, 8*" #at "]\nbr x16\n.size " #name ", . - " #name "\n");
#endif

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("INNER_DRIVER");
    void *inner = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (int i = 0; inner && i < COUNT; i++)
        inner_function[i] = dlsym(inner, names[i]);
}

static void hand_out(void **ret)
{
#ifndef HANDS_OUT_INNER
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; i < COUNT; i++) {
        if (*ret && inner_function[i] == *ret) {
            *ret = dlsym(self, names[i]);
            return;
        }
    }
#else
    (void)ret;
#endif
}

#define EXPORTED __attribute__((visibility("default")))

/* With SAYS_VERSION it says that it is that one. */
EXPORTED int cuDriverGetVersion(int *ret);
int cuDriverGetVersion(int *ret)
{
    int (*inner)(int *);
    memcpy(&inner, &inner_function[AT_cuDriverGetVersion], sizeof inner);
    int result = inner(ret);
#ifdef SAYS_VERSION
    if (result == 0)
        *ret = SAYS_VERSION;
#endif
    return result;
}

EXPORTED int cuGetProcAddress(const char *symbol, void **ret, int version, unsigned long long flags);
int cuGetProcAddress(const char *symbol, void **ret, int version, unsigned long long flags)
{
    int (*inner)(const char *, void **, int, unsigned long long);
    memcpy(&inner, &inner_function[AT_cuGetProcAddress], sizeof inner);
    int result = inner(symbol, ret, version, flags);
    if (result == 0 && ret)
        hand_out(ret);
    return result;
}

EXPORTED int cuGetProcAddress_v2(const char *symbol, void **ret, int version, unsigned long long flags, int *status);
int cuGetProcAddress_v2(const char *symbol, void **ret, int version, unsigned long long flags, int *status)
{
    int (*inner)(const char *, void **, int, unsigned long long, int *);
    memcpy(&inner, &inner_function[AT_cuGetProcAddress_v2], sizeof inner);
    int result = inner(symbol, ret, version, flags, status);
    if (result == 0 && ret)
        hand_out(ret);
    return result;
}
