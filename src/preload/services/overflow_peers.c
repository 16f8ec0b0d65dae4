#include "services/overflow_peers.h"

#include <stdatomic.h>

#include "inspect/core_state.h"
#include "process/process.h"
#include "services/trim.h"
#include "track/context_pins.h"
#include "track/contexts.h"

enum { RESERVE_SHARE = 16 }; /* of all that the neighbour has: its own program grows too */

static struct {
    _Atomic uint64_t asked;                   /* bit by ordinal: `reached` is known */
    _Atomic uint64_t reached[SG_DEVICES_MAX]; /* the devices whose memory it reaches, a bit each */
    _Atomic uint64_t spare[SG_DEVICES_MAX];   /* bytes, at the last look */
} peers_book;

static uint64_t peers_bit(int device)
{
    return UINT64_C(1) << device;
}

static int peers_devices(const struct sg_driver *driver)
{
    int count = 0;
    (void)driver->device_count(&count);
    return count < SG_DEVICES_MAX ? count : SG_DEVICES_MAX;
}

/* True if work of `device` reads, writes and does atomics on memory of `other`. */
static bool peers_is_native(const struct sg_driver *driver, int device, int other)
{
    int access = 0, atomics = 0;
    return driver->p2p_attribute &&
           driver->p2p_attribute(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, other) == CUDA_SUCCESS &&
           driver->p2p_attribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, other) ==
               CUDA_SUCCESS &&
           access && atomics;
}

/* The devices that a device reaches, a bit each. They stay the same, so the driver is asked once. */
static uint64_t peers_reached(int device)
{
    const struct sg_driver *driver = sg_process_driver();
    if (atomic_load(&peers_book.asked) & peers_bit(device))
        return atomic_load(&peers_book.reached[device]);
    uint64_t reached = 0;
    for (int other = 0, count = peers_devices(driver); other < count; other++)
        if (other != device && peers_is_native(driver, device, other))
            reached |= peers_bit(other);
    atomic_store(&peers_book.reached[device], reached);
    atomic_fetch_or(&peers_book.asked, peers_bit(device));
    return reached;
}

/* Bytes of a device that the option `limit` leaves beside what is held there: blocks, and pages of other
   devices. Where the latter are is not asked, so they all count. */
static uint64_t peers_allowed(struct sg_core *core, int device, uint64_t total)
{
    uint64_t limit = sg_conf_limit(sg_process_conf(), total), held = sg_core_reserved(core, device);
    struct sg_stats stats;
    for (int i = 0; i < SG_DEVICES_MAX && limit < total; i++)
        held += sg_core_stats(core, i, &stats) ? stats.value[SG_STAT_overflow_peer_bytes] : 0;
    return limit >= total ? UINT64_MAX : limit > held ? limit - held : 0;
}

/* Bytes that a device has to spare, as a context of it says. */
static uint64_t peers_spare(struct sg_core *core, int device, CUcontext context)
{
    size_t available = 0, total = 0;
    int use = sg_context_pin_current(context);
    if (use < 0)
        return 0;
    bool known = sg_process_driver()->mem_info(&available, &total) == CUDA_SUCCESS;
    sg_context_unpin_current(use);
    uint64_t reserve = total / RESERVE_SHARE, allowed = known ? peers_allowed(core, device, total) : 0;
    uint64_t spare = known && available > reserve ? available - reserve : 0;
    return spare < allowed ? spare : allowed;
}

/* Makes a context of a device, which is kept. */
static CUcontext peers_make_context(struct sg_core *core, int device)
{
    CUcontext context = NULL;
    if (sg_process_driver()->primary_retain(&context, device) != CUDA_SUCCESS)
        return NULL;
    sg_contexts_retained(device);
    sg_contexts_seen(core, context, device, /* primary */ true);
    return context;
}

/* Notes what a device has to spare, and returns it. Other processes that run out there may ask for what will be
   taken. */
static uint64_t peers_note(struct sg_core *core, int device, CUcontext context)
{
    uint64_t spare = context ? peers_spare(core, device, context) : 0;
    if (spare)
        sg_trim_use(device);
    atomic_store(&peers_book.spare[device], spare);
    return spare;
}

void sg_overflow_peers_look(struct sg_core *core, int device)
{
    uint64_t reached = peers_reached(device), spare = 0;
    int without = -1; /* the next device in which there is no context */
    for (int i = SG_DEVICES_MAX - 1; i > 0; i--) {
        int other = (device + i) % SG_DEVICES_MAX;
        CUcontext context = reached & peers_bit(other) ? sg_contexts_any(other) : NULL;
        if (context)
            spare += peers_note(core, other, context);
        else if (reached & peers_bit(other))
            without = other;
    }
    if (!spare && without >= 0)
        (void)peers_note(core, without, peers_make_context(core, without));
}

bool sg_overflow_peers_find(int device, uint64_t peers, uint64_t among, int *ret_device, uint64_t *ret_room)
{
    bool found = false;
    among &= peers_reached(device);
    for (int other = 0; other < SG_DEVICES_MAX; other++) /* theirs too, but the neighbour's own work needs no peer */
        if (peers & peers_bit(other))
            among &= peers_reached(other) | peers_bit(other);
    for (int other = 0; other < SG_DEVICES_MAX; other++) {
        uint64_t spare = among & peers_bit(other) ? atomic_load(&peers_book.spare[other]) : 0;
        if (!(among & peers_bit(other)) || (found && spare <= *ret_room))
            continue;
        *ret_device = other;
        *ret_room = spare;
        found = true;
    }
    return found;
}
