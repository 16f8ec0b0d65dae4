/* What NVIDIA's runtime answers on a machine with a driver and no device. Prints it.
   usage: runtime LIBCUDART HOW
   HOW  now, lazy, global, deepbind: flags of dlopen(); namespace: dlmopen(); thread: four threads; fork: before, in and after a
        child; close: closed and opened again; driver: with the program's own handle of the driver, which it closes */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNTOUCHED = 1, BYTES = 4096, THREADS = 4, NAMES = 6, FLAGS = 3 };

static void *runtime;

typedef int call_fn(void *, void *, void *, void *, void *);

/* The result of a call; -1 where the runtime has none by that name. */
static int ask(const char *name, void *a, void *b, void *c, void *d, void *e)
{
    call_fn *call;
    void *symbol = dlsym(runtime, name);
    memcpy(&call, &symbol, sizeof call);
    return symbol ? call(a, b, c, d, e) : -1;
}

static void *number(size_t value)
{
    return (void *)value;
}

static const char *what(void *function)
{
    Dl_info info;
    if (!function || function == number(UNTOUCHED))
        return function ? "untouched" : "NULL";
    return dladdr(function, &info) && info.dli_sname ? info.dli_sname : "?";
}

static void say(const char *name, int result)
{
    printf(" %s %d", name, result);
}

static void memory(void)
{
    void *pointer = number(UNTOUCHED);
    size_t room[2];
    char handle[64] = {0};
    int count = -1, version = -1;
    say("runtime", ask("cudaRuntimeGetVersion", &version, NULL, NULL, NULL, NULL));
    say("is", version);
    say("driver", ask("cudaDriverGetVersion", &version, NULL, NULL, NULL, NULL));
    say("is", version);
    say("count", ask("cudaGetDeviceCount", &count, NULL, NULL, NULL, NULL));
    say("is", count);
    say("malloc", ask("cudaMalloc", &pointer, number(BYTES), NULL, NULL, NULL));
    printf(" %s", what(pointer));
    say("last", ask("cudaGetLastError", NULL, NULL, NULL, NULL, NULL));
    say("free of NULL", ask("cudaFree", NULL, NULL, NULL, NULL, NULL));
    say("free", ask("cudaFree", number(BYTES), NULL, NULL, NULL, NULL));
    say("async", ask("cudaMallocAsync", &pointer, number(BYTES), NULL, NULL, NULL));
    say("info", ask("cudaMemGetInfo", &room[0], &room[1], NULL, NULL, NULL));
    say("synchronize", ask("cudaDeviceSynchronize", NULL, NULL, NULL, NULL, NULL));
    say("device", ask("cudaSetDevice", NULL, NULL, NULL, NULL, NULL));
    say("reset", ask("cudaDeviceReset", NULL, NULL, NULL, NULL, NULL));
    say("stream", ask("cudaStreamCreate", &pointer, NULL, NULL, NULL, NULL));
    say("event", ask("cudaEventCreate", &pointer, NULL, NULL, NULL, NULL));
    say("host", ask("cudaMallocHost", &pointer, number(BYTES), NULL, NULL, NULL));
    say("managed", ask("cudaMallocManaged", &pointer, number(BYTES), number(1), NULL, NULL));
    say("ipc", ask("cudaIpcGetMemHandle", handle, number(BYTES), NULL, NULL, NULL));
    say("last", ask("cudaPeekAtLastError", NULL, NULL, NULL, NULL, NULL));
    putchar('\n');
}

static void entry_points(void)
{
    static const char *const names[NAMES] = {"cuMemAlloc", "cuStreamSynchronize", "cuCtxRecordEvent", "cuFoo",
        "cuGetProcAddress", "cuMemAlloc_v2"};
    static const size_t versions[] = {2000, 11000, 12000, 12050, 13000, 13050};
    for (int i = 0; i < NAMES; i++) {
        for (size_t flags = 0; flags < FLAGS; flags++) {
            void *function = number(UNTOUCHED);
            int status = -1, result = ask("cudaGetDriverEntryPoint", (void *)(size_t)names[i], &function, number(flags),
                                 &status, NULL);
            printf(" %s/%zu:%d,%d,%s", names[i], flags, result, status, what(function));
        }
    }
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        void *function = number(UNTOUCHED);
        int status = -1;
        int result =
            ask("cudaGetDriverEntryPointByVersion", "cuMemAlloc", &function, number(versions[i]), NULL, &status);
        printf(" %zu:%d,%d,%s", versions[i], result, status, what(function));
    }
    putchar('\n');
}

static void *all(void *user)
{
    if (runtime) {
        memory();
        entry_points();
    }
    fflush(stdout);
    return user;
}

static void in_threads(void)
{
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, all, NULL) == 0)
            pthread_join(thread, NULL);
    }
}

static void in_child(void)
{
    int status = -1;
    all(NULL);
    pid_t child = fork();
    if (child == 0) {
        all(NULL);
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    all(NULL);
}

static void reopened(const char *path)
{
    all(NULL);
    printf("dlclose %d\n", dlclose(runtime));
    runtime = dlopen(path, RTLD_NOW);
    all(NULL);
}

static void beside_own_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    all(NULL);
    printf("dlclose %d\n", driver ? dlclose(driver) : -1);
    printf("still loaded: %d\n", dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW) != NULL);
    all(NULL);
}

static void *open_as(const char *path, const char *how)
{
    if (strcmp(how, "namespace") == 0)
        return dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    return dlopen(path, strcmp(how, "lazy") == 0       ? RTLD_LAZY
                        : strcmp(how, "global") == 0   ? RTLD_NOW | RTLD_GLOBAL
                        : strcmp(how, "deepbind") == 0 ? RTLD_NOW | RTLD_DEEPBIND
                                                       : RTLD_NOW);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    runtime = open_as(argv[1], argv[2]);
    if (!runtime) {
        puts(dlerror());
        return 1;
    }
    if (strcmp(argv[2], "thread") == 0)
        in_threads();
    else if (strcmp(argv[2], "fork") == 0)
        in_child();
    else if (strcmp(argv[2], "close") == 0)
        reopened(argv[1]);
    else if (strcmp(argv[2], "driver") == 0)
        beside_own_driver();
    else
        all(NULL);
    return 0;
}
