/* A libcuda.so.1 behind which the simulator cannot be recognized: programs, the library and tests/gpu/run find an H100's
   driver. Environment:
   HIDDEN_SIM     what the device is like, as SEGALLOC_SIM takes it (device=h100)
   HIDDEN_FAULT   hang:TEXT, slow:TEXT or crash:TEXT: a process whose command line has TEXT hangs at its first cuInit with a
                  child in a session of its own, or takes three seconds more, or ends by a signal
                  unordered: a stream does not wait for an event, though the call succeeds */
#include "hidden.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_SECONDS = 3 };

#define EXPORT __attribute__((visibility("default")))

/* Beside the build folder's simulator, or beside a copy of it. */
static void *open_simulator(void)
{
    char path[4096];
    Dl_info own;
    if (!dladdr((void *)hidden_names, &own) || strlen(own.dli_fname) > sizeof path - 64)
        return NULL;
    strcpy(path, own.dli_fname);
    char *file = strrchr(path, '/');
    if (!file)
        return NULL;
    strcpy(file, "/simulator/libcuda.so.1");
    if (access(path, R_OK) != 0)
        strcpy(file, "/../../../src/sim/libcuda.so.1");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

__attribute__((constructor)) static void load(void)
{
    const char *spec = getenv("HIDDEN_SIM");
    setenv("SEGALLOC_SIM", spec ? spec : "device=h100", 1);
    void *simulator = open_simulator();
    if (!simulator) {
        fprintf(stderr, "the hidden simulator: %s\n", dlerror());
        abort();
    }
    for (unsigned i = 0; i < hidden_count; i++)
        *hidden_names[i].inner = dlsym(simulator, hidden_names[i].name);
}

static int command_has(const char *text)
{
    char line[8192];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n; i++)
        line[i] = line[i] ? line[i] : ' ';
    line[n < 0 ? 0 : n] = '\0';
    return strstr(line, text) != NULL;
}

static void hang(void)
{
    if (fork() == 0)
        setsid();
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static void be_faulty(const char *fault)
{
    const char *text = fault ? strchr(fault, ':') : NULL;
    if (!text || !command_has(text + 1))
        return;
    if (strncmp(fault, "hang", 4) == 0)
        hang();
    if (strncmp(fault, "crash", 5) == 0)
        raise(SIGSEGV);
    sleep(SLOW_SECONDS);
}

static void *inner_of(const char *name)
{
    for (unsigned i = 0; i < hidden_count; i++)
        if (strcmp(hidden_names[i].name, name) == 0)
            return *hidden_names[i].inner;
    return NULL;
}

EXPORT int cuInit(unsigned flags)
{
    static int asked;
    if (!asked) {
        asked = 1;
        be_faulty(getenv("HIDDEN_FAULT"));
    }
    int (*init)(unsigned) = (int (*)(unsigned))inner_of("cuInit");
    return init(flags);
}

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    int (*wait)(void *, void *, unsigned) = (int (*)(void *, void *, unsigned))inner_of("cuStreamWaitEvent");
    const char *fault = getenv("HIDDEN_FAULT");
    return fault && strcmp(fault, "unordered") == 0 ? 0 : wait(stream, event, flags);
}

static void *outer_of(void *inner)
{
    for (unsigned i = 0; inner && i < hidden_count; i++)
        if (*hidden_names[i].inner == inner)
            return hidden_names[i].outer;
    return inner;
}

EXPORT int cuGetProcAddress(const char *name, void **ret, int version, unsigned long long flags)
{
    int (*ask)(const char *, void **, int, unsigned long long) =
        (int (*)(const char *, void **, int, unsigned long long))inner_of("cuGetProcAddress");
    int result = ask(name, ret, version, flags);
    if (result == 0 && ret)
        *ret = outer_of(*ret);
    return result;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long long flags, int *status)
{
    int (*ask)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))inner_of("cuGetProcAddress_v2");
    int result = ask(name, ret, version, flags, status);
    if (result == 0 && ret)
        *ret = outer_of(*ret);
    return result;
}
