/* The book of memory that the core does not serve: holdings by number, and two maps that lead to them.

   One map has the ids (address or handle, with the category in its upper bits), the other the addresses of mappings. A
   holding counts the handles and mappings that lead to it, and its bytes are held until none does. Pools and graphs are
   not in the book: the driver is asked when somebody wants to know.

   For example, one cuMemCreate of 2 GiB is mapped twice. Its holding has 3 references. cuMemRelease takes one, each
   cuMemUnmap one more, and with the last the 2 GiB are out of the book. If a file descriptor of it was imported before,
   the second handle has kept them in. */
#include "track/held_outside.h"

#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "base/idmap.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "track/pool_streams.h"

atomic_bool sg_outside_any;
static _Atomic uint64_t guarded[SG_DEVICES_MAX];

enum { POOLS_MOST = 64, OFFERS_MOST = 64, KIND_SHIFT = 58, MAPPING = 63, AGAIN = 62 };

/* Pools that the program has made; NULL: a free row. */
struct pool {
    CUmemoryPool pool;
    int device;
};

/* Physical memory that a file descriptor of this process leads to. No call tells when the file is closed, so an offer
   holds nothing: an import of it does. */
struct offer {
    int file; /* the number under which it was exported */
    int device;
    uint64_t bytes;        /* 0: a free row */
    uint64_t number, made; /* of the holding, while that is the one that was made then */
};

/* Guarded by SG_LOCK_OUTSIDE. */
static struct {
    bool ready;
    struct sg_idmap entry; /* key of an id -> number of its holding; and key of how often the driver gave that id again */
    struct sg_idmap mapping; /* address -> number of the holding; and key of an address -> bytes that are mapped */
    struct holding {
        uint64_t bytes;
        uint32_t refs; /* handles and mappings; 0: a free row */
        uint8_t what, device;
        uint64_t made; /* differs for each */
    } *holding;
    uint64_t made; /* of the latest one */
    size_t count, room;
    uint64_t unused; /* number of a free row from which to look; 0: none */
    struct pool pool[POOLS_MOST];
    struct offer offer[OFFERS_MOST];
    unsigned offers; /* that were made; a further one takes the place of the oldest */
    struct sg_outside held[SG_DEVICES_MAX];
    struct sg_outside most[SG_DEVICES_MAX]; /* that was held at one moment since it was last asked for */
    bool rose[SG_DEVICES_MAX];              /* false: that was the moment when it was asked for */
} book;

static atomic_bool uses_pools;
static _Atomic uint64_t pool_devices; /* bits */

/* False: this is a signal handler, and the call that it has interrupted holds the lock. It would wait for ever, so its own
   allocations and frees go unnoted. */
static bool outside_lock(void)
{
    if (sg_this_thread()->guards >> SG_LOCK_OUTSIDE & 1)
        return false;
    sg_process_lock(SG_LOCK_OUTSIDE);
    return true;
}

static uint64_t outside_key(enum segalloc_outside what, uint64_t id)
{
    return id ^ (uint64_t)(what + 1) << KIND_SHIFT;
}

/* Keys of mapped lengths, beside those of what they are of. */
static uint64_t length_key(CUdeviceptr address)
{
    return address ^ (uint64_t)MAPPING << KIND_SHIFT;
}

/* Keys of how often an id was given again, beside those of the ids. */
static uint64_t again_key(enum segalloc_outside what, uint64_t id)
{
    return outside_key(what, id) ^ (uint64_t)AGAIN << KIND_SHIFT;
}

static bool open_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    if (!book.ready)
        book.ready = sg_idmap_init(&book.entry) && sg_idmap_init(&book.mapping);
    return book.ready;
}

/* The number of a free row, from 1; 0: no host memory. */
static uint64_t new_row_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    for (; book.unused && book.unused <= book.count; book.unused++)
        if (!book.holding[book.unused - 1].refs)
            return book.unused++;
    book.unused = 0;
    if (book.count == book.room) {
        size_t room = book.room ? 2 * book.room : 64;
        struct holding *holding = realloc(book.holding, room * sizeof *holding);
        if (!holding)
            return 0;
        book.holding = holding;
        book.room = room;
    }
    return ++book.count;
}

/* One handle or mapping less; with the last one the holding's bytes are free and its row may serve again. */
static void unref_locked(uint64_t number)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    struct holding *holding = &book.holding[number - 1];
    if (--holding->refs)
        return;
    book.held[holding->device].bytes[holding->what] -= holding->bytes;
    book.unused = !book.unused || number < book.unused ? number : book.unused;
}

/* One handle less. Returns the device that it was of; -1: it is not in the book. */
static int take_locked(enum segalloc_outside what, uint64_t id)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    uint64_t again = book.ready ? sg_idmap_take(&book.entry, again_key(what, id)) : 0;
    uint64_t number = again        ? sg_idmap_get(&book.entry, outside_key(what, id))
                      : book.ready ? sg_idmap_take(&book.entry, outside_key(what, id))
                                   : 0;
    int device = number ? book.holding[number - 1].device : -1;
    if (again > 1)
        (void)sg_idmap_put(&book.entry, again_key(what, id), again - 1);
    if (number)
        unref_locked(number);
    return device;
}

/* One more handle of physical memory leads to a holding. It may be the same id again. */
static void lead_locked(uint64_t handle, uint64_t number)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    enum segalloc_outside what = SEGALLOC_OUTSIDE_PHYSICAL;
    bool again = sg_idmap_get(&book.entry, outside_key(what, handle)) == number;
    while (!again && take_locked(what, handle) >= 0)
        ; /* ends that were not seen */
    uint64_t key = again ? again_key(what, handle) : outside_key(what, handle);
    if (sg_idmap_put(&book.entry, key, again ? sg_idmap_get(&book.entry, key) + 1 : number))
        book.holding[number - 1].refs++;
}

static void rose_locked(int device)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    if (sg_outside_stays(&book.held[device]) <= sg_outside_stays(&book.most[device]))
        return;
    book.most[device] = book.held[device];
    book.rose[device] = true;
}

/* A holding that nothing leads to yet; 0: no host memory. */
static uint64_t hold_locked(enum segalloc_outside what, int device, uint64_t bytes)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    uint64_t number = open_locked() ? new_row_locked() : 0;
    if (number)
        book.holding[number - 1] = (struct holding){bytes, 0, (uint8_t)what, (uint8_t)device, ++book.made};
    return number;
}

/* The bytes of a holding count from its first reference on. */
static void begin_locked(uint64_t number)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_OUTSIDE);
    const struct holding *holding = &book.holding[number - 1];
    if (!holding->refs)
        return;
    book.held[holding->device].bytes[holding->what] += holding->bytes;
    rose_locked(holding->device);
}

void sg_outside_taken(enum segalloc_outside what, uint64_t id, int device, uint64_t bytes)
{
    if (device < 0 || device >= SG_DEVICES_MAX)
        return;
    if (!outside_lock())
        return;
    while (take_locked(what, id) >= 0)
        ; /* ends that were not seen */
    uint64_t number = hold_locked(what, device, bytes);
    if (number) {
        book.holding[number - 1].refs = sg_idmap_put(&book.entry, outside_key(what, id), number);
        begin_locked(number);
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
    atomic_store_explicit(&sg_outside_any, true, memory_order_relaxed);
}

/* -1: there is none. */
static int device_here(void)
{
    CUdevice device;
    const struct sg_driver *driver = sg_process_driver();
    bool known = driver && driver->ctx_get_device(&device) == CUDA_SUCCESS && device >= 0 && device < SG_DEVICES_MAX;
    return known ? device : -1;
}

void sg_outside_taken_here(enum segalloc_outside what, uint64_t id, uint64_t bytes)
{
    sg_outside_taken(what, id, device_here(), bytes);
}

int sg_outside_given(enum segalloc_outside what, uint64_t id)
{
    if (!atomic_load_explicit(&sg_outside_any, memory_order_relaxed))
        return -1;
    if (!outside_lock())
        return -1;
    int device = take_locked(what, id);
    sg_process_unlock(SG_LOCK_OUTSIDE);
    return device;
}

/* The address leads to the holding, and another key to the length: an unmapping names the range alone. */
void sg_outside_mapped(CUdeviceptr address, size_t bytes, uint64_t handle)
{
    if (!outside_lock())
        return;
    uint64_t number = book.ready ? sg_idmap_get(&book.entry, outside_key(SEGALLOC_OUTSIDE_PHYSICAL, handle)) : 0;
    if (number && sg_idmap_put(&book.mapping, address, number)) {
        book.holding[number - 1].refs++;
        (void)sg_idmap_put(&book.mapping, length_key(address), bytes);
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
}

/* The key is the address at which a mapping begins, as it was noted by sg_outside_mapped(). PyTorch's segments take
   their pages away one by one, each as it was mapped. A range that begins between two mappings is not found, and
   counts as memory that is in no book. */
int sg_outside_mapped_on(CUdeviceptr address)
{
    if (!outside_lock())
        return -1;
    uint64_t number = book.ready ? sg_idmap_get(&book.mapping, address) : 0;
    int device = number ? book.holding[number - 1].device : -1;
    sg_process_unlock(SG_LOCK_OUTSIDE);
    return device;
}

/* A range may hold several mappings: each is taken by its address, and its length leads to the next. */
uint64_t sg_outside_unmapped(CUdeviceptr address, size_t bytes)
{
    uint64_t devices = 0;
    if (!outside_lock())
        return devices;
    for (uint64_t length = 1, done = 0; book.ready && length && done < bytes; done += length) {
        uint64_t number = sg_idmap_take(&book.mapping, address + done);
        length = sg_idmap_take(&book.mapping, length_key(address + done));
        if (!number)
            continue;
        unref_locked(number);
        devices |= book.holding[number - 1].refs ? 0 : sg_outside_bit(book.holding[number - 1].device);
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
    return devices;
}

void sg_outside_exported(uint64_t handle, int file)
{
    if (!outside_lock())
        return;
    uint64_t number = book.ready ? sg_idmap_get(&book.entry, outside_key(SEGALLOC_OUTSIDE_PHYSICAL, handle)) : 0;
    if (number) {
        struct offer *offer = &book.offer[book.offers++ % OFFERS_MOST];
        const struct holding *holding = &book.holding[number - 1];
        for (int i = 0; i < OFFERS_MOST; i++)
            if (book.offer[i].file == file)
                book.offer[i].bytes = 0; /* that file was closed */
        *offer = (struct offer){file, holding->device, holding->bytes, number, holding->made};
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
}

/* Where nothing holds the memory any more but the file, the import is a new holding. */
int sg_outside_imported(uint64_t handle, int file)
{
    int device = -1;
    if (!outside_lock())
        return device;
    for (int i = 0; i < OFFERS_MOST && device < 0; i++) {
        struct offer *offer = &book.offer[i];
        if (!offer->bytes || offer->file != file)
            continue;
        bool there = book.holding[offer->number - 1].refs && book.holding[offer->number - 1].made == offer->made;
        uint64_t number = there ? offer->number : hold_locked(SEGALLOC_OUTSIDE_PHYSICAL, offer->device, offer->bytes);
        if (!number)
            break;
        device = offer->device;
        lead_locked(handle, number);
        if (!there)
            begin_locked(number);
        offer->number = number;
        offer->made = book.holding[number - 1].made;
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
    return device;
}

void sg_outside_retained(uint64_t handle, CUdeviceptr address)
{
    if (!outside_lock())
        return;
    uint64_t number = book.ready ? sg_idmap_get(&book.mapping, address) : 0;
    if (number)
        lead_locked(handle, number);
    sg_process_unlock(SG_LOCK_OUTSIDE);
}

void sg_outside_pool(CUmemoryPool pool, int device)
{
    if (!outside_lock())
        return;
    for (int i = 0; i < POOLS_MOST; i++) {
        if (book.pool[i].pool)
            continue;
        book.pool[i] = (struct pool){pool, device};
        break;
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
}

/* Memory that the pool still holds is the driver's to count from here on. */
void sg_outside_pool_gone(CUmemoryPool pool)
{
    if (!outside_lock())
        return;
    for (int i = 0; i < POOLS_MOST; i++)
        if (book.pool[i].pool == pool)
            book.pool[i].pool = NULL;
    sg_process_unlock(SG_LOCK_OUTSIDE);
}

int sg_outside_pool_device(CUmemoryPool pool)
{
    const struct sg_driver *driver = sg_process_driver();
    CUmemoryPool own;
    int device = -1, count = 0;
    if (!outside_lock())
        return -1;
    for (int i = 0; i < POOLS_MOST && device < 0; i++)
        if (book.pool[i].pool == pool)
            device = book.pool[i].device;
    sg_process_unlock(SG_LOCK_OUTSIDE);
    if (device >= 0 || !driver || !driver->default_pool || driver->device_count(&count) != CUDA_SUCCESS)
        return device;
    for (int i = 0; i < count; i++)
        if (driver->default_pool(&own, i) == CUDA_SUCCESS && own == pool)
            return i;
    return -1;
}

uint64_t sg_outside_pool_devices(void)
{
    return atomic_load_explicit(&pool_devices, memory_order_relaxed);
}

uint64_t sg_outside_devices(void)
{
    uint64_t devices = sg_outside_pool_devices();
    if (!outside_lock())
        return devices;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        devices |= sg_outside_sum(&book.held[i]) || sg_outside_sum(&book.most[i]) ? sg_outside_bit(i) : 0;
    sg_process_unlock(SG_LOCK_OUTSIDE);
    return devices;
}

void sg_outside_use_pools(uint64_t devices)
{
    devices = devices ? devices : sg_outside_bit(device_here());
    if (devices & ~sg_outside_pool_devices())
        atomic_fetch_or_explicit(&pool_devices, devices, memory_order_relaxed);
    atomic_store_explicit(&uses_pools, true, memory_order_relaxed);
    atomic_store_explicit(&sg_outside_any, true, memory_order_relaxed);
}

/* Up to its release threshold a pool keeps what was freed; more goes back when the host next waits. */
static void add_pool(const struct sg_driver *driver, CUmemoryPool pool, struct sg_outside *ret)
{
    cuuint64_t used = 0, reserved = 0, threshold = 0;
    if (driver->pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS ||
        driver->pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
        return;
    if (driver->pool_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS)
        threshold = 0;
    used = used < reserved ? used : reserved;
    threshold = threshold < used ? used : threshold < reserved ? threshold : reserved;
    ret->bytes[SEGALLOC_OUTSIDE_POOLS] += used;
    ret->bytes[SEGALLOC_OUTSIDE_POOLS_IDLE] += threshold - used;
    ret->bytes[SEGALLOC_OUTSIDE_POOLS_LEAVING] += reserved - threshold;
}

/* Adds memory that graphs of a device use, and memory that the driver keeps for them though no graph uses it. */
static void add_graphs(const struct sg_driver *driver, int device, struct sg_outside *ret)
{
    cuuint64_t used = 0, reserved = 0;
    if (driver->graph_memory(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS ||
        driver->graph_memory(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
        return;
    used = used < reserved ? used : reserved;
    ret->bytes[SEGALLOC_OUTSIDE_GRAPHS] += used;
    ret->bytes[SEGALLOC_OUTSIDE_GRAPHS_IDLE] += reserved - used;
}

/* Adds what pools and graphs hold by the driver's own counts. The list of pools is copied, so that no lock is held
   while the driver is asked. */
static void outside_ask_driver(int device, struct sg_outside *ret)
{
    const struct sg_driver *driver = sg_process_driver();
    struct pool pools[POOLS_MOST];
    CUmemoryPool own;
    if (!driver)
        return;
    if (!outside_lock())
        return;
    memcpy(pools, book.pool, sizeof pools);
    sg_process_unlock(SG_LOCK_OUTSIDE);
    bool asks = driver->pool_attribute && driver->default_pool;
    if (asks && driver->default_pool(&own, device) == CUDA_SUCCESS)
        add_pool(driver, own, ret);
    for (int i = 0; asks && i < POOLS_MOST; i++)
        if (pools[i].pool && pools[i].device == device)
            add_pool(driver, pools[i].pool, ret);
    if (driver->graph_memory)
        add_graphs(driver, device, ret);
}

/* The most that graphs of a device held before its mark began anew: in use, and reserved. */
enum { USED, RESERVED, MARKS };
static const CUgraphMem_attribute marks[MARKS] = {CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};
static _Atomic uint64_t most_before[SG_DEVICES_MAX][MARKS], passed[SG_DEVICES_MAX];

static const struct sg_driver *driver_with_graphs(void)
{
    const struct sg_driver *driver = sg_process_driver();
    bool asks = atomic_load_explicit(&uses_pools, memory_order_relaxed) && driver && driver->graph_memory &&
                driver->set_graph_memory;
    return asks ? driver : NULL;
}

static void raise_to(_Atomic uint64_t *value, uint64_t least)
{
    uint64_t now = atomic_load_explicit(value, memory_order_relaxed);
    while (now < least && !atomic_compare_exchange_weak_explicit(value, &now, least, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* The driver has one mark for the most that graphs held. Its value is kept before it is set back, for the program may
   ask for it. */
void sg_outside_launch_begins(void)
{
    const struct sg_driver *driver = driver_with_graphs();
    cuuint64_t most = 0, zero = 0;
    for (uint64_t left = driver ? sg_outside_pool_devices() : 0; left; left &= left - 1) {
        int device = __builtin_ctzll(left);
        for (int i = 0; i < MARKS; i++)
            if (driver->graph_memory(device, marks[i], &most) == CUDA_SUCCESS)
                raise_to(&most_before[device][i], most);
        (void)driver->set_graph_memory(device, marks[USED], &zero);
    }
}

/* The mark less what is held now has come and gone within the launch. */
void sg_outside_launch_ended(void)
{
    const struct sg_driver *driver = driver_with_graphs();
    cuuint64_t most = 0, now = 0;
    for (uint64_t left = driver ? sg_outside_pool_devices() : 0; left; left &= left - 1) {
        int device = __builtin_ctzll(left);
        if (driver->graph_memory(device, marks[USED], &most) == CUDA_SUCCESS &&
            driver->graph_memory(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &now) == CUDA_SUCCESS && most > now)
            raise_to(&passed[device], most - now);
    }
}

static _Atomic uint64_t *mark_of(CUdevice device, CUgraphMem_attribute attribute)
{
    bool is_mark = attribute == marks[USED] || attribute == marks[RESERVED];
    return is_mark && device >= 0 && device < SG_DEVICES_MAX ? &most_before[device][attribute == marks[RESERVED]] : NULL;
}

uint64_t sg_outside_graphs_most(CUdevice device, CUgraphMem_attribute attribute, uint64_t since)
{
    _Atomic uint64_t *mark = mark_of(device, attribute);
    uint64_t before = mark ? atomic_load_explicit(mark, memory_order_relaxed) : 0;
    return before > since ? before : since;
}

void sg_outside_graphs_most_reset(CUdevice device, CUgraphMem_attribute attribute)
{
    _Atomic uint64_t *mark = mark_of(device, attribute);
    if (mark)
        atomic_store_explicit(mark, 0, memory_order_relaxed);
}

/* *most, of what is booked, with what pools and graphs hold now; or what there was at the launch of a graph, if that is
   more. Managed memory moves. */
static void find_most(const struct sg_outside *now, uint64_t graphs, struct sg_outside *most)
{
    static const enum segalloc_outside asked[] = {SEGALLOC_OUTSIDE_POOLS, SEGALLOC_OUTSIDE_POOLS_IDLE,
        SEGALLOC_OUTSIDE_POOLS_LEAVING, SEGALLOC_OUTSIDE_GRAPHS, SEGALLOC_OUTSIDE_GRAPHS_IDLE, SEGALLOC_OUTSIDE_MANAGED};
    struct sg_outside launched = *now;
    launched.bytes[SEGALLOC_OUTSIDE_GRAPHS] += graphs;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        most->bytes[asked[i]] = now->bytes[asked[i]];
    if (sg_outside_stays(&launched) > sg_outside_stays(most))
        *most = launched;
    if (sg_outside_stays(most) <= sg_outside_stays(now))
        *most = (struct sg_outside){{0}};
}

void sg_held_outside(int device, struct sg_outside *ret, struct sg_outside *ret_most)
{
    if (device < 0 || device >= SG_DEVICES_MAX || !atomic_load_explicit(&sg_outside_any, memory_order_relaxed))
        return;
    if (!outside_lock())
        return;
    *ret = book.held[device];
    ret->bytes[SEGALLOC_OUTSIDE_MANAGED] = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        ret->bytes[SEGALLOC_OUTSIDE_MANAGED] += book.held[i].bytes[SEGALLOC_OUTSIDE_MANAGED];
    if (ret_most) {
        *ret_most = book.rose[device] ? book.most[device] : book.held[device];
        book.most[device] = book.held[device];
        book.rose[device] = false;
    }
    sg_process_unlock(SG_LOCK_OUTSIDE);
    if (atomic_load_explicit(&uses_pools, memory_order_relaxed))
        outside_ask_driver(device, ret);
    if (ret_most)
        find_most(ret, atomic_exchange_explicit(&passed[device], 0, memory_order_relaxed), ret_most);
}

bool sg_outside_uses_pools(void)
{
    return atomic_load_explicit(&uses_pools, memory_order_relaxed);
}

bool sg_outside_waited_for_pools(CUcontext context)
{
    if (!sg_outside_uses_pools())
        return false;
    uint64_t limit_ns = (uint64_t)(sg_process_conf()->wait_limit * 1e9);
    if (sg_captures_active())
        return sg_pool_streams_waited(limit_ns);
    const struct sg_driver *driver = sg_process_driver();
    if (!context && (!driver || driver->ctx_get_current(&context) != CUDA_SUCCESS))
        return false;
    bool waited = context && sg_context_wait(context) == CUDA_SUCCESS;
    for (uint64_t left = sg_outside_pool_devices(); left; left &= left - 1) {
        CUcontext other = sg_contexts_any(__builtin_ctzll(left));
        waited |= other && other != context && sg_context_wait(other) == CUDA_SUCCESS;
    }
    /* A stream of one device may free memory of another. */
    return sg_pool_streams_waited(limit_ns) || waited;
}

uint64_t sg_outside_used(void)
{
    const struct sg_driver *driver = sg_thread_inside() || sg_process_over() ? NULL : sg_process_driver();
    size_t available, total;
    return driver && driver->mem_info(&available, &total) == CUDA_SUCCESS ? total - available : 0;
}

/* For calls without a size, such as a module's: before and after are the device's used bytes. Other processes may have
   changed them too. */
void sg_outside_measured(enum segalloc_outside what, uint64_t before, uint64_t after)
{
    int device = before != after && before && after ? device_here() : -1;
    if (device < 0)
        return;
    if (!outside_lock())
        return;
    uint64_t *held = &book.held[device].bytes[what];
    if (after > before)
        *held += after - before;
    else
        *held -= before - after < *held ? before - after : *held;
    rose_locked(device);
    sg_process_unlock(SG_LOCK_OUTSIDE);
    atomic_store_explicit(&sg_outside_any, true, memory_order_relaxed);
}

uint64_t sg_outside_guarded(int device)
{
    return atomic_load_explicit(&guarded[device], memory_order_relaxed);
}

void sg_outside_add_guarded(int device, int64_t bytes)
{
    atomic_fetch_add_explicit(&guarded[device], (uint64_t)bytes, memory_order_relaxed);
}
