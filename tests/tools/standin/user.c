/* Loads the library that it is given as Python loads an extension, and calls its test. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    int (*test)(void) = library ? (int (*)(void))dlsym(library, "torch_test") : NULL;
    if (!test) {
        fprintf(stderr, "user: %s\n", dlerror());
        return 2;
    }
    return test();
}
