/* A script's own allocator: it counts what it is asked for, and asks the runtime. */
#include <stddef.h>

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);
void *own_malloc(size_t bytes, int device, void *stream);
void own_free(void *address, size_t bytes, int device, void *stream);
size_t own_live(void), own_calls(void);

static size_t live, calls;

void *own_malloc(size_t bytes, int device, void *stream)
{
    void *address = NULL;
    (void)device, (void)stream;
    if (cudaMalloc(&address, bytes) != 0)
        return NULL;
    calls++;
    live += bytes;
    return address;
}

void own_free(void *address, size_t bytes, int device, void *stream)
{
    (void)device, (void)stream;
    live -= bytes;
    (void)cudaFree(address);
}

size_t own_live(void)
{
    return live;
}

size_t own_calls(void)
{
    return calls;
}
