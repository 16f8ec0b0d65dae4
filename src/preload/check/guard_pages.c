/* Each device is probed once, by the thread that first guards a block there; others find it unknown meanwhile and guard
   nothing. Its pages are fit for the same uses as the core's own (driver/pages.h). */
#include "check/guard_pages.h"

#include <stdatomic.h>

#include "check/state.h"
#include "driver/pages.h"
#include "process/locks.h"
#include "process/hooks.h"
#include "services/outside_trace.h"
#include "track/contexts.h"
#include "track/held_outside.h"

enum { SHARE = 32 }; /* of a device's memory, that guarded blocks may take one */

enum { UNKNOWN, PROBED, NONE };

/* A device; constant once `state` is PROBED or NONE. */
struct place {
    atomic_int state;
    atomic_flag begun;
    uint8_t kind;
    uint64_t granule, most; /* bytes */
};
static struct place places[SG_DEVICES_MAX];
static uint64_t errors; /* calls that were refused; for pages.h */

/* The struct is made anew for each call, because threads that place blocks at once would share its last error. */
static struct sg_pages pages_of(int device)
{
    return (
        struct sg_pages){.driver = sg_check_driver, .ordinal = device, .kind = places[device].kind, .errors = &errors};
}

/* One granule is created, mapped and taken back, as the core does once for itself: a device on which that fails guards
   nothing. */
static void pages_probe(struct place *place, int device)
{
    struct sg_pages pages = pages_of(device);
    size_t total = 0;
    bool has = sg_pages_probe(&pages, /* plain */ false, &place->granule) &&
               sg_check_driver->device_total(&total, device) == CUDA_SUCCESS;
    place->kind = pages.kind;
    place->most = total / SHARE;
    atomic_store_explicit(&place->state, has ? PROBED : NONE, memory_order_release);
}

bool sg_guard_pages_serve(int device, CUdeviceptr inner)
{
    int legacy = 0;
    if (device < 0 || device >= SG_DEVICES_MAX)
        return false;
    struct place *place = &places[device];
    if (atomic_load_explicit(&place->state, memory_order_acquire) == UNKNOWN && !atomic_flag_test_and_set(&place->begun))
        pages_probe(place, device);
    return atomic_load_explicit(&place->state, memory_order_acquire) == PROBED &&
           (sg_real()->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inner) !=
                   CUDA_SUCCESS ||
               !legacy);
}

/* Bytes of the pages for a block: whole granules. 5,000 bytes take 2 MiB, and 2 MiB and 1 byte take 4 MiB. */
static uint64_t pages_bytes(int device, size_t bytes)
{
    uint64_t granule = places[device].granule;
    return (bytes + granule - 1) / granule * granule;
}

bool sg_guard_pages_have_room(int device, size_t bytes)
{
    uint64_t most = places[device].most, held = sg_guards_bytes(device);
    return bytes <= most && held <= most && pages_bytes(device, bytes) <= most - held;
}

/* Four calls of the driver, of which each may be refused. For example, cuMemMap is: the page is released, the addresses are
   freed, and the block stays where the core has it. One granule more than the pages is reserved, so that nobody else can map
   anything behind them. */
bool sg_guard_pages_take(struct sg_guard *guard, int device, size_t bytes)
{
    struct sg_pages pages = pages_of(device);
    uint64_t mapped = pages_bytes(device, bytes), reserved = mapped + places[device].granule;
    CUdeviceptr begin;
    CUmemGenericAllocationHandle page;
    if (sg_pages_reserve(&pages, reserved, 0, &begin) != CUDA_SUCCESS)
        return false;
    bool created = sg_pages_create(&pages, mapped, &page) == CUDA_SUCCESS;
    bool there = created && sg_pages_map(&pages, begin, mapped, page) == CUDA_SUCCESS;
    bool done = there && sg_pages_set_access(&pages, begin, mapped, sg_contexts_peers(device)) == CUDA_SUCCESS;
    if (!done) {
        if (there)
            (void)sg_pages_unmap(&pages, begin, mapped);
        if (created)
            (void)sg_pages_release(&pages, page);
        (void)sg_check_driver->address_free(begin, reserved);
        return false;
    }
    guard->at.begin = begin;
    guard->at.bytes = reserved;
    guard->page = page;
    guard->mapped = mapped;
    sg_guards_add_bytes(device, (int64_t)mapped);
    sg_outside_taken(SEGALLOC_OUTSIDE_GUARDS, page, device, mapped);
    return true;
}

/* The handle goes in any case: pages that could not be unmapped live on by their mapping, and are counted as held. */
void sg_guard_pages_give(struct sg_guard *guard, int device)
{
    struct sg_pages pages = pages_of(device);
    bool unmapped = sg_pages_unmap(&pages, guard->at.begin, guard->mapped) == CUDA_SUCCESS;
    if (sg_pages_release(&pages, guard->page) == CUDA_SUCCESS && unmapped) {
        sg_guards_add_bytes(device, -(int64_t)guard->mapped);
        (void)sg_outside_given(SEGALLOC_OUTSIDE_GUARDS, guard->page);
    }
    sg_process_lock(SG_LOCK_GUARD);
    guard->mapped = unmapped ? 0 : guard->mapped;
    sg_process_unlock(SG_LOCK_GUARD);
}

void sg_guard_pages_end(const struct sg_stand_in *at)
{
    if (at->bytes)
        (void)sg_check_driver->address_free(at->begin, at->bytes);
}

/* Pages that go back meanwhile answer with an error, which is none of the program's. */
CUresult sg_guard_pages_peer(int home, int device, bool enable)
{
    struct sg_pages pages = pages_of(home);
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr at = 0;
    uint64_t bytes;
    while (enable && result == CUDA_SUCCESS && sg_guards_next_pages(home, &at, &bytes)) {
        CUdeviceptr before = at - 1, again = before;
        uint64_t left = 0;
        result = sg_pages_set_access(&pages, at, bytes, sg_contexts_peers(home) | UINT64_C(1) << device);
        if (result != CUDA_SUCCESS && !(sg_guards_next_pages(home, &again, &left) && again == at && left == bytes))
            result = CUDA_SUCCESS;
    }
    return result;
}

void sg_guard_pages_note(struct sg_core *core, int device)
{
    sg_outside_note(core, device);
}
