#include "space/managed.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "device/card.h"
#include "device/context.h"
#include "device/device.h"
#include "device/peaks.h"
#include "space/physical.h"
#include "streams/work.h"

/* Bytes that are fetched and evicted as one: UVM's root chunks. The last piece of an allocation is a multiple of its
   smallest page but one. Source: UVM_CHUNK_SIZE_MAX and UVM_PAGE_SIZE_64K of the open kernel modules (nvidia-uvm). */
enum { CHUNK = 2 << 20, LEAST = 64 << 10 };

enum { ON_HOST = 0, ON_DEVICE = 1 /* and the ordinal */ };

struct sim_managed {
    struct sim_memory *memory;
    struct sim_managed *older, *newer; /* by when a device last used it */
    uint64_t chunks, first; /* first: none before that one is on a device */
    unsigned char place[];
};

static atomic_bool any_managed;
static struct sim_managed *oldest, *newest;
static uint64_t all_bytes; /* of managed memory that there is */

bool sim_managed_any(void)
{
    return atomic_load_explicit(&any_managed, memory_order_relaxed);
}

static uint64_t managed_bytes(const struct sim_managed *managed, uint64_t chunk)
{
    uint64_t left = managed->memory->range.size - chunk * CHUNK;
    return left < CHUNK ? (left + LEAST - 1) / LEAST * LEAST : CHUNK;
}

static void managed_unlist(struct sim_managed *managed)
{
    *(managed->older ? &managed->older->newer : &oldest) = managed->newer;
    *(managed->newer ? &managed->newer->older : &newest) = managed->older;
}

static void managed_append(struct sim_managed *managed)
{
    managed->newer = NULL;
    managed->older = newest;
    *(newest ? &newest->newer : &oldest) = managed;
    newest = managed;
}

bool sim_managed_begin(struct sim_memory *memory)
{
    all_bytes += memory->range.size;
    sim_peaks_managed(all_bytes);
    if (sim.config.managed_apart)
        return true;
    uint64_t chunks = (memory->range.size + CHUNK - 1) / CHUNK;
    struct sim_managed *managed = calloc(1, sizeof *managed + chunks);
    if (!managed) {
        all_bytes -= memory->range.size;
        return false;
    }
    managed->memory = memory;
    managed->chunks = managed->first = chunks;
    managed_append(managed);
    memory->managed = managed;
    atomic_store(&any_managed, true);
    return true;
}

static void managed_to_host(struct sim_managed *managed, uint64_t chunk)
{
    if (managed->place[chunk] == ON_HOST)
        return;
    struct sim_device *device = &sim.devices[managed->place[chunk] - ON_DEVICE];
    managed->place[chunk] = ON_HOST;
    sim_card_discharge_managed(device, managed_bytes(managed, chunk));
}

void sim_managed_end(struct sim_memory *memory)
{
    struct sim_managed *managed = memory->managed;
    if (memory->kind == SIM_MEMORY_MANAGED)
        all_bytes -= memory->range.size;
    if (!managed)
        return;
    for (uint64_t chunk = managed->first; chunk < managed->chunks; chunk++)
        managed_to_host(managed, chunk);
    managed_unlist(managed);
    free(managed);
    memory->managed = NULL;
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
            managed_to_host(managed, chunk);
            device->managed.evicted_pages++;
            return true;
        }
    }
    return false;
}

void sim_managed_settle(struct sim_device *device)
{
    while (sim_card_evicted(device) && sim_managed_evict(device))
        ;
}

/* This process's own pieces go first, then those of others. */
static bool managed_make_room(struct sim_device *device, uint64_t bytes,
    bool (*charge)(struct sim_device *device, uint64_t bytes))
{
    sim_physical_sweep();
    bool fits = charge(device, bytes);
    while (!fits && bytes <= device->bytes && (sim_managed_evict(device) || sim_card_evict_others(device, bytes)))
        fits = charge(device, bytes);
    return fits;
}

/* A piece that finds no room stays where the device reaches it over the bus. */
static void managed_to_device(struct sim_managed *managed, uint64_t chunk, struct sim_device *device)
{
    unsigned char place = (unsigned char)(ON_DEVICE + device->ordinal);
    if (managed->place[chunk] == place)
        return;
    managed_to_host(managed, chunk);
    if (!managed_make_room(device, managed_bytes(managed, chunk), sim_card_charge_managed)) {
        device->managed.kept_out_pages++;
        return;
    }
    managed->place[chunk] = place;
    managed->first = chunk < managed->first ? chunk : managed->first;
}

void sim_managed_fetch(uint64_t address, uint64_t bytes, struct sim_device *device)
{
    struct sim_memory *memory = sim_memory_find(address);
    struct sim_managed *managed = memory ? memory->managed : NULL;
    if (!managed || !bytes)
        return;
    uint64_t offset = address - memory->range.base, room = memory->range.size - offset;
    uint64_t last = (offset + (bytes < room ? bytes : room) - 1) / CHUNK;
    for (int i = 0; i < sim.device_count; i++)
        sim_managed_settle(&sim.devices[i]);
    managed_unlist(managed);
    managed_append(managed);
    for (uint64_t chunk = offset / CHUNK; chunk <= last; chunk++) {
        if (device)
            managed_to_device(managed, chunk, device);
        else
            managed_to_host(managed, chunk);
    }
}

void sim_managed_work(const struct sim_work *work)
{
    for (unsigned i = 0; sim_managed_any() && i < work->touch_count; i++)
        sim_managed_fetch(work->touches[i].address, work->touches[i].bytes, work->context->device);
}

bool sim_device_charge(struct sim_device *device, uint64_t bytes)
{
    bool fits = managed_make_room(device, bytes, sim_card_charge);
    sim_peaks_charged(bytes, fits);
    return fits;
}
