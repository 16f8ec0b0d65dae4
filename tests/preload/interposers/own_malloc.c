/* A library to preload in the way of jemalloc: malloc and its kin, from memory of its own that is never given back. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORTED __attribute__((visibility("default")))
enum { ARENA = 256 << 20, HEADER = 16 };

EXPORTED void *malloc(size_t bytes);
EXPORTED void free(void *address);
EXPORTED void *calloc(size_t count, size_t bytes);
EXPORTED void *realloc(void *address, size_t bytes);
EXPORTED void *memalign(size_t align, size_t bytes);
EXPORTED void *aligned_alloc(size_t align, size_t bytes);
EXPORTED int posix_memalign(void **ret, size_t align, size_t bytes);

static _Atomic(char *) start;
static atomic_size_t used;

static char *arena(void)
{
    char *known = atomic_load(&start), *mapped;
    if (known)
        return known;
    mapped = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return atomic_compare_exchange_strong(&start, &known, mapped) ? mapped : known;
}

static void *take(size_t align, size_t bytes)
{
    char *base = arena();
    size_t whole = bytes + align + HEADER, at = atomic_fetch_add(&used, (whole + 15) / 16 * 16);
    if (at + whole > ARENA)
        return NULL;
    uintptr_t address = ((uintptr_t)base + at + HEADER + align - 1) / align * align;
    memcpy((char *)address - sizeof bytes, &bytes, sizeof bytes);
    return (void *)address;
}

void *malloc(size_t bytes)
{
    return take(16, bytes);
}

void free(void *address)
{
    (void)address;
}

void *calloc(size_t count, size_t bytes)
{
    return take(16, count * bytes);
}

void *realloc(void *address, size_t bytes)
{
    size_t before = 0;
    void *moved = take(16, bytes);
    if (address)
        memcpy(&before, (char *)address - sizeof before, sizeof before);
    if (moved && address)
        memcpy(moved, address, before < bytes ? before : bytes);
    return moved;
}

void *memalign(size_t align, size_t bytes)
{
    return take(align < 16 ? 16 : align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
    *ret = memalign(align, bytes);
    return *ret ? 0 : 12;
}
