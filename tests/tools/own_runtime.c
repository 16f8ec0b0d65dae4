/* Stands for a program that nvcc has linked with the runtime within itself: has that runtime's table of the names of errors,
   and like it asks the driver for private tables, which the simulated one lacks. */
#include <dlfcn.h>
#include <stdio.h>

static const char *const names[] = {"cudaErrorMemoryAllocation", "cudaErrorMapBufferObjectFailed"};

int main(int argc, char **argv)
{
    (void)argv;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const void *table;
    int (*start)(unsigned) = NULL, (*export_table)(const void **, const void *) = NULL;
    if (driver) {
        *(void **)&start = dlsym(driver, "cuInit");
        *(void **)&export_table = dlsym(driver, "cuGetExportTable");
    }
    if (!start || start(0) != 0 || !export_table || export_table(&table, "0123456789abcdef") != 0) {
        fprintf(stderr, "named symbol not found\n");
        return 3;
    }
    return names[argc % 2][0] != 'c';
}
