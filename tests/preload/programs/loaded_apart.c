/* Preloaded: the program opens the driver and a runtime for itself alone. What the program finds among all libraries is what
   it finds natively: nothing, until they are opened for all. Exit status 0, or 1 and a line. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int good, const char *what, const char *when)
{
    if (!good)
        printf("not so: %s %s\n", what, when);
    failures += !good;
}

static const char *const of_driver[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuCtxSynchronize", NULL};
static const char *const of_runtime[] = {"cudaMalloc", "cudaFree", NULL};

static void look(const char *const *names, void *handle, int is_global)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    for (; *names; names++) {
        dlerror();
        expect(!dlsym(RTLD_DEFAULT, *names) == !is_global, *names, "by RTLD_DEFAULT");
        const char *error = dlerror();
        expect(is_global ? !error : error && strstr(error, *names), *names, "has dlerror's text");
        expect(!dlsym(RTLD_NEXT, *names) == !is_global, *names, "by RTLD_NEXT");
        expect(!dlsym(program, *names) == !is_global, *names, "by dlopen(NULL)");
        expect(dlsym(handle, *names) != NULL, *names, "by its handle");
    }
    dlclose(program);
}

static void try_library(const char *path, const char *const *names)
{
    void *apart = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    expect(apart != NULL, path, "opens");
    look(names, apart, 0);
    void *global = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    look(names, global, 1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    try_library("libcuda.so.1", of_driver);
    try_library(argv[1], of_runtime);
    return failures != 0;
}
