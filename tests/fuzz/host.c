/* Host memory of the core, in place of base/meta.c: can be made to fail, and is counted. */
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

void *sg_meta_map(size_t bytes)
{
    if (armed && fail_after-- == 0) {
        armed = false;
        failed++;
        return NULL;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    bytes_out += bytes;
    return memory;
}

void sg_meta_unmap(void *memory, size_t bytes)
{
    if (!memory)
        return;
    bytes_out -= bytes;
    munmap(memory, bytes);
}
