/* Slots with a state FREE, TAKEN, LIVE. A slot is TAKEN while its members are written or destroyed. A reader that finds
   it LIVE after it has counted itself may call the filter. */
#include "torch/torch_pools.h"

#include <sched.h>
#include <string.h>

#include "process/process.h"
#include "torch/torch_current.h"

/* Natively PyTorch looks through all of them at each allocation; more than a few at a time are not seen. */
enum { UNDER_WAY_MAX = 256 };

/* A slot's functor is called without a lock: the call may ask the driver about a capture, whose lock comes before those
   of this layer. The thread that ends the pool waits for the calls that are under way. */
enum { FREE, TAKEN, LIVE };
static struct under_way {
    atomic_int state;
    atomic_uint callers;
    int device;
    struct sg_torch_pool pool;
    struct sg_cxx_function filter;
} under_way[UNDER_WAY_MAX];
static atomic_int live_count, slots_used; /* slots below that have been in use */
static atomic_int without_slot;           /* pools for which there was none: then everything is taken for theirs */
static atomic_bool seen;

/* Takes a free slot; `slots_used` is raised before anybody may look for it. NULL: more pools than slots. */
static struct under_way *free_slot(void)
{
    for (int i = 0; i < UNDER_WAY_MAX; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&under_way[i].state, &expected, TAKEN))
            continue;
        int used = atomic_load(&slots_used);
        while (used <= i && !atomic_compare_exchange_weak(&slots_used, &used, i + 1)) {
        }
        return &under_way[i];
    }
    return NULL;
}

/* Without a free slot the filter is destroyed, and the pool only counted. */
void sg_torch_pools_begin(int device, struct sg_torch_pool pool, struct sg_cxx_function filter)
{
    struct under_way *slot = free_slot();
    if (slot) {
        slot->device = device;
        slot->pool = pool;
        slot->filter = filter;
        atomic_store(&slot->state, LIVE);
    } else {
        sg_cxx_function_destroy(&filter);
        atomic_fetch_add(&without_slot, 1);
    }
    atomic_store(&seen, true);
    atomic_fetch_add(&live_count, 1);
}

/* Ends a slot if it is that pool's: no call of its filter begins from here on, and those under way are waited for. */
static bool pool_ends(struct under_way *slot, int device, struct sg_torch_pool pool)
{
    if (atomic_load(&slot->state) != LIVE || slot->device != device || slot->pool.first != pool.first ||
        slot->pool.second != pool.second)
        return false;
    atomic_store(&slot->state, TAKEN);
    while (atomic_load(&slot->callers) != 0)
        sched_yield();
    sg_cxx_function_destroy(&slot->filter);
    atomic_store(&slot->state, FREE);
    return true;
}

/* The slot of that pool, or one less of those without. */
void sg_torch_pools_end(int device, struct sg_torch_pool pool)
{
    bool found = false;
    for (int i = 0; i < atomic_load(&slots_used) && !found; i++)
        found = pool_ends(&under_way[i], device, pool);
    if (!found && atomic_load(&without_slot) > 0) {
        atomic_fetch_sub(&without_slot, 1);
        found = true;
    }
    if (found)
        atomic_fetch_sub(&live_count, 1);
}

bool sg_torch_pools_seen(void)
{
    return atomic_load_explicit(&seen, memory_order_acquire);
}

bool sg_torch_pools_under_way(int device)
{
    bool any = atomic_load(&without_slot) > 0;
    for (int i = 0; i < atomic_load(&slots_used) && !any; i++)
        any = atomic_load(&under_way[i].state) == LIVE && under_way[i].device == device;
    return any;
}

typedef bool filter_fn(const void *storage, CUstream *stream);

/* Asks a pool's filter about a stream. The count of callers is raised before the state is looked at again, so the
   filter can't be destroyed during the call. */
static bool pool_accepts(struct under_way *slot, int device, CUstream stream)
{
    bool accepted = false;
    filter_fn *call;
    atomic_fetch_add(&slot->callers, 1);
    if (atomic_load(&slot->state) == LIVE && slot->device == device && slot->filter.manager) {
        memcpy(&call, &slot->filter.call, sizeof call);
        accepted = call(&slot->filter, &stream);
    }
    atomic_fetch_sub(&slot->callers, 1);
    return accepted;
}

/* True for all where a pool had no slot, or nothing can be asked. A pool's tensor that is served here would be lost to
   the pool, while a tensor too many in it does no harm. */
bool sg_torch_pools_route(void)
{
    if (__builtin_expect(atomic_load_explicit(&live_count, memory_order_acquire) == 0, 1))
        return false;
    const struct sg_driver *driver = sg_process_driver();
    CUstream stream;
    CUdevice device;
    if (atomic_load(&without_slot) > 0 || !driver || driver->ctx_get_device(&device) != CUDA_SUCCESS ||
        !sg_torch_stream(&stream))
        return true;
    bool accepted = false;
    for (int i = 0; i < atomic_load(&slots_used) && !accepted; i++)
        accepted = pool_accepts(&under_way[i], (int)device, stream);
    return accepted;
}
