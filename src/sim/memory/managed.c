#include "memory/managed.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "extra.h"

/* What is fetched and evicted as one: UVM's root chunks. Of the last piece of an allocation it is a multiple of its
   smallest page but one. Source: UVM_CHUNK_SIZE_MAX and UVM_PAGE_SIZE_64K of the open kernel modules (nvidia-uvm). */
enum { CHUNK = 2 << 20, LEAST = 64 << 10 };

enum { ON_HOST = 0, ON_DEVICE = 1 /* and the ordinal */ };

struct sim_managed {
    struct sim_memory *memory;
    struct sim_managed *older, *newer; /* by when a device last used it */
    uint64_t chunks, first; /* first: none before that one is on a device */
    unsigned char place[];
};

static atomic_bool any;
static struct sim_managed *oldest, *newest;

bool sim_managed_any(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

static uint64_t bytes_of(const struct sim_managed *managed, uint64_t chunk)
{
    uint64_t left = managed->memory->range.size - chunk * CHUNK;
    return left < CHUNK ? (left + LEAST - 1) / LEAST * LEAST : CHUNK;
}

static void leave_list(struct sim_managed *managed)
{
    *(managed->older ? &managed->older->newer : &oldest) = managed->newer;
    *(managed->newer ? &managed->newer->older : &newest) = managed->older;
}

static void append(struct sim_managed *managed)
{
    managed->newer = NULL;
    managed->older = newest;
    *(newest ? &newest->newer : &oldest) = managed;
    newest = managed;
}

bool sim_managed_begin(struct sim_memory *memory)
{
    if (sim.config.managed_apart)
        return true;
    uint64_t chunks = (memory->range.size + CHUNK - 1) / CHUNK;
    struct sim_managed *managed = calloc(1, sizeof *managed + chunks);
    if (!managed)
        return false;
    managed->memory = memory;
    managed->chunks = managed->first = chunks;
    append(managed);
    memory->managed = managed;
    atomic_store(&any, true);
    return true;
}

static void to_host(struct sim_managed *managed, uint64_t chunk)
{
    if (managed->place[chunk] == ON_HOST)
        return;
    struct sim_device *device = &sim.devices[managed->place[chunk] - ON_DEVICE];
    managed->place[chunk] = ON_HOST;
    device->managed.resident_bytes -= bytes_of(managed, chunk);
    sim_device_discharge(device, bytes_of(managed, chunk));
}

void sim_managed_end(struct sim_memory *memory)
{
    struct sim_managed *managed = memory->managed;
    if (!managed)
        return;
    for (uint64_t chunk = managed->first; chunk < managed->chunks; chunk++)
        to_host(managed, chunk);
    leave_list(managed);
    free(managed);
    memory->managed = NULL;
}

/* What finds no room stays where the device reaches it over the bus. */
static void to_device(struct sim_managed *managed, uint64_t chunk, struct sim_device *device)
{
    unsigned char place = (unsigned char)(ON_DEVICE + device->ordinal);
    if (managed->place[chunk] == place)
        return;
    to_host(managed, chunk);
    if (!sim_device_charge(device, bytes_of(managed, chunk))) {
        device->managed.kept_out_pages++;
        return;
    }
    managed->place[chunk] = place;
    managed->first = chunk < managed->first ? chunk : managed->first;
    device->managed.resident_bytes += bytes_of(managed, chunk);
}

void sim_managed_fetch(uint64_t address, uint64_t bytes, struct sim_device *device)
{
    struct sim_memory *memory = sim_memory_find(address);
    struct sim_managed *managed = memory ? memory->managed : NULL;
    if (!managed || !bytes)
        return;
    uint64_t offset = address - memory->range.base, room = memory->range.size - offset;
    uint64_t last = (offset + (bytes < room ? bytes : room) - 1) / CHUNK;
    leave_list(managed);
    append(managed);
    for (uint64_t chunk = offset / CHUNK; chunk <= last; chunk++) {
        if (device)
            to_device(managed, chunk, device);
        else
            to_host(managed, chunk);
    }
}

void sim_managed_work(const struct sim_work *work)
{
    for (unsigned i = 0; sim_managed_any() && i < work->touch_count; i++)
        sim_managed_fetch(work->touches[i].address, work->touches[i].bytes, work->context->device);
}

bool sim_managed_evict(struct sim_device *device)
{
    unsigned char place = (unsigned char)(ON_DEVICE + device->ordinal);
    for (struct sim_managed *managed = oldest; managed; managed = managed->newer) {
        while (managed->first < managed->chunks && managed->place[managed->first] == ON_HOST)
            managed->first++;
        for (uint64_t chunk = managed->first; chunk < managed->chunks; chunk++) {
            if (managed->place[chunk] != place)
                continue;
            to_host(managed, chunk);
            device->managed.evicted_pages++;
            return true;
        }
    }
    return false;
}

int segalloc_sim_managed(int ordinal, struct segalloc_sim_managed *ret)
{
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device)
        *ret = device->managed;
    sim_unlock();
    return device ? 0 : -1;
}
