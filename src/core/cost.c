#include "cost.h"

#include "device.h"

void sg_cost_assume(struct sg_device *device)
{
    static const struct sg_cost assumed[] = {
#define COST(call, call_ns, handle_ns) {call_ns, handle_ns},
#include "cost.def"
    };
    for (int call = 0; call < SG_COST_CALLS; call++)
        device->cost[call] = assumed[call];
}

uint64_t sg_cost_ns(const struct sg_device *device, enum sg_cost_call call, uint64_t calls, uint64_t handles)
{
    const struct sg_cost *cost = &device->cost[call];
    return calls * cost->call_ns + handles * cost->handle_ns;
}

struct round {
    uint64_t ns[SG_COST_CALLS]; /* of the calls of one kind together */
};

static uint64_t lap(const struct sg_device *device, uint64_t *since)
{
    uint64_t now = device->core->callbacks.measure_ns(), ns = now - *since;
    *since = now;
    return ns;
}

/* Pages that were made go, whatever was done with them. */
static bool unmake(struct sg_device *device, const CUmemGenericAllocationHandle *page, uint32_t pages)
{
    bool fine = true;
    for (uint32_t i = 0; i < pages; i++)
        fine = sg_device_release_page(device, page[i]) == CUDA_SUCCESS && fine;
    return fine;
}

/* Makes `pages` pages, maps them at `address`, and takes all back. False: the driver refused, and nothing is left. */
static bool play(struct sg_device *device, CUdeviceptr address, uint32_t pages, struct round *ret)
{
    const struct sg_driver *driver = sg_core_driver(device->core);
    CUmemGenericAllocationHandle page[SG_COST_PAGES];
    uint64_t size = device->granularity, since = device->core->callbacks.measure_ns();
    uint32_t made = 0, mapped = 0;
    while (made < pages && sg_device_create_page(device, size, &page[made]) == CUDA_SUCCESS)
        made++;
    ret->ns[SG_COST_create] = lap(device, &since);
    while (mapped < made && sg_device_answered(device,
                                driver->map(address + mapped * size, size, 0, page[mapped], 0)) == CUDA_SUCCESS)
        mapped++;
    ret->ns[SG_COST_map] = lap(device, &since);
    bool fine = mapped == pages && sg_device_set_access(device, address, pages * size) == CUDA_SUCCESS;
    ret->ns[SG_COST_set_access] = lap(device, &since);
    if (mapped)
        fine = sg_device_unmap(device, address, mapped * size) == CUDA_SUCCESS && fine;
    ret->ns[SG_COST_unmap] = lap(device, &since);
    fine = unmake(device, page, made) && fine;
    ret->ns[SG_COST_release] = lap(device, &since);
    return fine;
}

static void keep_least(struct round *best, const struct round *round, bool first)
{
    for (int call = 0; call < SG_COST_CALLS; call++)
        if (first || round->ns[call] < best->ns[call])
            best->ns[call] = round->ns[call];
}

static uint32_t of_32_bits(uint64_t ns)
{
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* Of calls with one handle each there is nothing to tell apart. */
static struct sg_cost fit(enum sg_cost_call call, const struct round *one, const struct round *many)
{
    uint64_t least = one->ns[call], most = many->ns[call];
    if (call != SG_COST_set_access && call != SG_COST_unmap)
        return (struct sg_cost){0, of_32_bits(most / SG_COST_PAGES)};
    uint64_t handle = most > least ? (most - least) / (SG_COST_PAGES - 1) : 0;
    return (struct sg_cost){of_32_bits(least > handle ? least - handle : 0), of_32_bits(handle)};
}

void sg_cost_measure(struct sg_device *device)
{
    const struct sg_driver *driver = sg_core_driver(device->core);
    uint64_t bytes = SG_COST_PAGES * device->granularity;
    struct round one = {{0}}, many = {{0}}, round;
    CUdeviceptr address;
    bool fine = true;
    if (!device->core->callbacks.measure_ns || device->capacity_bytes / SG_COST_SHARE < bytes)
        return;
    if (sg_device_answered(device, driver->address_reserve(&address, bytes, 0, 0, 0)) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < SG_COST_ROUNDS && fine; i++) {
        fine = play(device, address, 1, &round);
        keep_least(&one, &round, i == 0);
        fine = fine && play(device, address, SG_COST_PAGES, &round);
        keep_least(&many, &round, i == 0);
    }
    fine = driver->address_free(address, bytes) == CUDA_SUCCESS && fine;
    for (int call = 0; call < SG_COST_CALLS && fine; call++) {
        device->cost[call] = fit((enum sg_cost_call)call, &one, &many);
        sg_emit(device, SEGALLOC_RECORD_COST, 0, sg_device_unknown_stream(device), (uint64_t)call,
            (uint64_t)device->cost[call].call_ns << 32 | device->cost[call].handle_ns);
    }
}
