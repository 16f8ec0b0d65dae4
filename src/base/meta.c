#include "meta.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Large tables are touched here and there, so most of their cost is address translation (tests/bench, "mix"). Their
   first part stays in small pages: most programs need no more of them. */
enum { HUGE_FROM = 16 << 20, HUGE_AFTER = 4 << 20 };

/* A program that locks all its memory (mlockall(MCL_FUTURE)) is given each page of a new mapping at once. Nearly nothing
   of a large table will be used, so that would be a waste. Pages that nobody may read are not given. So a large table is mapped without
   access first, taken out of the lock, and made readable then. */
enum { UNLOCKED_FROM = 1 << 20 };

static atomic_bool ran_out;

void *sg_meta_noted(void *memory)
{
    if (!memory)
        atomic_store_explicit(&ran_out, true, memory_order_relaxed);
    return memory;
}

bool sg_meta_ran_out(void)
{
    return atomic_load_explicit(&ran_out, memory_order_relaxed);
}

/* A mapping that mlockall() does not fill. NULL: the kernel refused one of the three calls, and nothing is left. */
static void *meta_map_unlocked(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (munlock(memory, bytes) == 0 && mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

static void *meta_map_at_once(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *sg_meta_map(size_t bytes)
{
    void *memory = sg_meta_noted(bytes < UNLOCKED_FROM ? meta_map_at_once(bytes) : meta_map_unlocked(bytes));
    if (!memory)
        return NULL;
    if (bytes >= HUGE_FROM) /* only advice: where it is refused the table is as good, only slower */
        (void)madvise((char *)memory + HUGE_AFTER, bytes - HUGE_AFTER, MADV_HUGEPAGE);
    return memory;
}

void sg_meta_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
