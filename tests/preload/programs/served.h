/* For programs that run under LD_PRELOAD: how many allocations were served, and saying what isn't so. */
#ifndef SERVED_H
#define SERVED_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "segalloc/segalloc.h"

static int failures;

#define EXPECT(condition) expect((condition) != 0, #condition, __FILE__, __LINE__)

static inline void expect(int good, const char *what, const char *file, int line)
{
    if (!good)
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    if (!good) /* threads call this too: nothing is written while all is well */
        failures++;
}

/* A statistic of a device, by name; 0 where the library isn't loaded or hasn't served anything. */
static inline uint64_t statistic(int device, const char *name)
{
    int (*stats)(int, struct segalloc_stat *, int);
    struct segalloc_stat list[128];
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_stats");
    memcpy(&stats, &symbol, sizeof stats);
    int count = symbol ? stats(device, list, 128) : 0;
    for (int i = 0; i < count && i < 128; i++) {
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    }
    return 0;
}

/* Has *ret, a pointer to a function, be what the process knows by a name. It has to know it. */
static inline void find(const char *name, void *ret)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    EXPECT(symbol);
    memcpy(ret, &symbol, sizeof symbol);
}

static inline int is_ours(const void *function)
{
    Dl_info info;
    return dladdr(function, &info) && strstr(info.dli_fname, "libsegalloc.so") != NULL;
}

#endif
