/* Host memory of the core, in place of base/meta.c: can be made to fail, and is counted. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "meta.h"
#include "play.h"

static uint64_t fail_after, bytes_out, failed;
static bool armed;

void host_fail(uint64_t after)
{
    armed = true;
    fail_after = after;
}

uint64_t host_heal(void)
{
    uint64_t before = failed;
    armed = false;
    failed = 0;
    return before;
}

uint64_t host_bytes(void)
{
    return bytes_out;
}

/* Memory is kept for the next core, by powers of two, which would have to ask the kernel for each of its pages again.
   Only what was touched of it has to be cleared. The table of nodes asks for less where it is refused: it is never as
   large here that it would need more than the least. */
enum { CLASSES = 24, KEPT_OF_CLASS = 32, PAGE = 4096 };
static const size_t LEAST_NODES = 1 << 23, MOST_NODES = UINT64_C(1) << 31;
static struct {
    void *memory[KEPT_OF_CLASS];
    unsigned count;
} kept[CLASSES];

static unsigned class_of_size(size_t bytes)
{
    return bytes <= PAGE ? 12 : 64 - (unsigned)__builtin_clzll(bytes - 1);
}

static void clear(unsigned char *memory, size_t bytes)
{
    static unsigned char is_there[(1 << CLASSES) / PAGE];
    size_t pages = (bytes + PAGE - 1) / PAGE;
    if (pages <= 8 || mincore(memory, pages * PAGE, is_there)) {
        memset(memory, 0, bytes);
        return;
    }
    for (size_t i = 0; i < pages; i++)
        if (is_there[i] & 1)
            memset(memory + i * PAGE, 0, PAGE);
}

void *sg_meta_map(size_t bytes)
{
    unsigned class = class_of_size(bytes);
    bool is_nodes = (bytes & (bytes - 1)) == 0 && bytes > LEAST_NODES && bytes <= MOST_NODES, keeps = class < CLASSES;
    if (armed && fail_after-- == 0) {
        armed = false;
        failed++;
        return NULL;
    }
    if (is_nodes)
        return NULL;
    bytes_out += bytes;
    if (keeps && kept[class].count)
        return kept[class].memory[--kept[class].count];
    void *memory = mmap(NULL, keeps ? (size_t)1 << class : bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

void sg_meta_unmap(void *memory, size_t bytes)
{
    unsigned class = class_of_size(bytes);
    if (!memory)
        return;
    bytes_out -= bytes;
    if (class >= CLASSES) {
        munmap(memory, bytes);
    } else if (kept[class].count == KEPT_OF_CLASS) {
        munmap(memory, (size_t)1 << class);
    } else {
        clear(memory, bytes);
        kept[class].memory[kept[class].count++] = memory;
    }
}

/* Nobody here decides by it whether a figure counts. */
void *sg_meta_noted(void *memory)
{
    return memory;
}

bool sg_meta_ran_out(void)
{
    return false;
}
