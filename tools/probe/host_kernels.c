/* The kernels of kernels.cu as functions of the host, for the simulator, where kernels do what was declared. */
#include <dlfcn.h>
#include <string.h>

#include "extra.h"
#include "probe.h"
#include "start.h"

static uint32_t *words_of(void **arguments)
{
    return *(uint32_t **)arguments[0];
}

static uint64_t count_of(void **arguments)
{
    return *(uint64_t *)arguments[1];
}

static void host_put(void **arguments)
{
    uint32_t *words = words_of(arguments), value = *(uint32_t *)arguments[2];
    for (uint64_t i = 0; i < count_of(arguments); i++)
        words[i] = value ^ (uint32_t)i;
}

static void host_put_part(void **arguments)
{
    uint32_t *words = words_of(arguments), value = *(uint32_t *)arguments[2];
    uint32_t sector = *(uint32_t *)arguments[3], which = *(uint32_t *)arguments[4];
    for (uint64_t i = 0; i < count_of(arguments); i++)
        if (i / sector % 2 == which)
            words[i] = value ^ (uint32_t)i;
}

static void host_judge(void **arguments)
{
    const uint32_t *words = words_of(arguments);
    uint32_t value = *(uint32_t *)arguments[2], *bad = *(uint32_t **)arguments[3], found = 0;
    for (uint64_t i = 0; i < count_of(arguments); i++)
        found += words[i] != (value ^ (uint32_t)i);
    __atomic_fetch_add(bad, found, __ATOMIC_RELAXED); /* kernels of several streams count there, as on a GPU */
}

void probe_declare_kernels(void)
{
    static const char *const judges[] = {"judge", "judge_cached", "judge_read_only", "judge_asynchronous", "judge_bulk",
        "judge_programmatic"};
    segalloc_sim_kernel_fn declare;
    *(void **)&declare = dlsym(probe.cu.library, "segalloc_sim_kernel");
    if (!declare)
        return;
    declare("put", "w words[4*count], u64 count, u32 value", host_put);
    declare("put_programmatic", "w words[4*count], u64 count, u32 value", host_put);
    declare("put_part", "rw words[4*count], u64 count, u32 value, u32 sector, u32 which", host_put_part);
    for (size_t i = 0; i < sizeof judges / sizeof *judges; i++)
        declare(judges[i], "r words[4*count], u64 count, u32 value, rw bad[4]", host_judge);
}
