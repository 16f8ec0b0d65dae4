/* Blocks by address (open addressing, doubled when half full), holds by number, spares by capture. All under
   SG_LOCK_CAPTURES, but for the flag that the driver's thread sets.

   Holds lie in pieces of 4,096 that never move, because the driver has their addresses. A hold is used again only when
   its graph is gone and no block names it.

   For example, 3 blocks belong to hold 7. The graph ends: the driver's thread sets hold 7's flag and raises the
   count of ended graphs to 1. The next allocation looks through the table once. Two of the blocks were freed by the
   program: they go to the core. The third is live: it is the program's again. */
#include "track/graph_blocks.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "track/captures.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "base/rest.h"
#include "base/wrap.h"

enum {
    REFS = 4096,
    CHUNKS = 256,
    BUCKETS_FIRST = 1 << 12,
    BATCH = 64,
    BLOCK_REFS = 4,
    SPARES_MAX = 4096,
    UNIT = 512
};

/* One for each graph that was captured with memory of ours: a user object. The driver destroys it after the last
   launch, with the last of the graph, its clones and its executables. That happens on a thread of the driver's,
   which may neither call it nor wait for us: it sets a flag. */
static struct {
    struct ref {
        unsigned long long capture; /* the driver's number of the capture; 0: unused */
        int blocks;
        atomic_bool gone;
    } *chunk[CHUNKS];        /* REFS each, which stay where they are: the driver knows them by address */
    uint32_t refs, latest;   /* used so far; the one that was asked for last */
    struct block {
        CUdeviceptr address; /* 0: empty */
        CUcontext context;   /* of the block */
        uint32_t ref[BLOCK_REFS];   /* number + 1 */
        bool freed, waited, forever; /* for ever: more graphs use it than fit */
        uint64_t freed_at;         /* the number of that free: blocks go back in the program's order */
        struct sg_request request; /* of the free */
        CUstream born;       /* in whose capture it was handed out, to that stream; NULL: otherwise */
        size_t bytes;
    } *block;                /* open addressing, at most half full */
    size_t buckets;
    struct spare {
        unsigned long long capture;
        CUdeviceptr address;
        CUstream stream;
        size_t units;
    } spare[SPARES_MAX];
    atomic_int spares; /* without SG_LOCK_CAPTURES a hint, which a thread sees for what is its own */
    atomic_int freed;  /* blocks that only their graph still holds */
    uint64_t frees;    /* so far, of blocks that a graph held */
} graphs;

/* Objects of no graph, let go at once: the driver's thread comes to one after what it had to destroy before. */
static struct {
    atomic_uint sent, heard; /* numbers of the last ones */
    atomic_uint given_up[2]; /* the last one that was waited for in vain; 0: none. [1]: by a caller that was refused memory */
} echo;

atomic_int sg_graphs_blocks, sg_graphs_gone; /* gone: those whose blocks are to be let go */

static void hold_destroyed(void *user)
{
    struct ref *ref = user;
    atomic_store(&ref->gone, true);
    atomic_fetch_add(&sg_graphs_gone, 1);
}

static size_t block_home(CUdeviceptr address)
{
    return (size_t)(sg_hash(address) >> 32) % graphs.buckets;
}

/* Its place, or the empty one where it would be. */
static struct block *block_find_locked(CUdeviceptr address)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    static struct block none;
    if (!graphs.block)
        return &none;
    size_t at = block_home(address);
    while (graphs.block[at].address && graphs.block[at].address != address)
        at = (at + 1) % graphs.buckets;
    return &graphs.block[at];
}

static void *blocks_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Makes room for one more block. False: no host memory. */
static bool blocks_make_room_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    size_t before = graphs.buckets;
    struct block *old = graphs.block;
    if (2 * ((size_t)atomic_load(&sg_graphs_blocks) + 1) <= before)
        return true;
    size_t buckets = before ? 2 * before : BUCKETS_FIRST;
    struct block *made = blocks_map(buckets * sizeof *made);
    if (!made)
        return false;
    graphs.block = made;
    graphs.buckets = buckets;
    for (size_t at = 0; at < before; at++) {
        if (old[at].address)
            *block_find_locked(old[at].address) = old[at];
    }
    if (old)
        (void)munmap(old, before * sizeof *old);
    return true;
}

static struct ref *ref_at_locked(uint32_t number)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    return &graphs.chunk[number / REFS][number % REFS];
}

/* The block no longer belongs to graphs that are gone; of `all`: to any. True if it still belongs to one. */
static bool block_let_go_locked(struct block *block, bool all)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    bool held = block->forever && !all;
    for (int i = 0; i < BLOCK_REFS; i++) {
        struct ref *ref = block->ref[i] ? ref_at_locked(block->ref[i] - 1) : NULL;
        bool over = ref && (all || atomic_load(&ref->gone));
        held |= ref && !over;
        if (!over)
            continue;
        block->ref[i] = 0;
        if (--ref->blocks == 0 && atomic_load(&ref->gone))
            ref->capture = 0;
    }
    return held;
}

/* Takes a block out of the table with its holds, and closes its chain as event_drop_locked() does. */
static void block_remove_locked(struct block *block)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    size_t hole = (size_t)(block - graphs.block), at = (hole + 1) % graphs.buckets;
    if (block->freed)
        atomic_fetch_sub(&graphs.freed, 1);
    (void)block_let_go_locked(block, true);
    for (; graphs.block[at].address; at = (at + 1) % graphs.buckets) {
        size_t from = block_home(graphs.block[at].address);
        if (sg_steps_round(from, at, graphs.buckets) >= sg_steps_round(hole, at, graphs.buckets)) {
            graphs.block[hole] = graphs.block[at];
            hole = at;
        }
    }
    graphs.block[hole].address = 0;
    atomic_fetch_sub(&sg_graphs_blocks, 1);
}

/* A number for one more hold; -1: there are no more, or no host memory. */
static int64_t ref_add_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    uint32_t number = graphs.refs, chunk = number / REFS;
    if (chunk == CHUNKS || (!graphs.chunk[chunk] && !(graphs.chunk[chunk] = blocks_map(REFS * sizeof(struct ref)))))
        return -1;
    graphs.refs++;
    return number;
}

/* The number of a capture's hold; -1: there are too many. */
static int64_t ref_of_locked(unsigned long long capture)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    int64_t unused = -1;
    if (graphs.refs && ref_at_locked(graphs.latest)->capture == capture)
        return graphs.latest;
    for (uint32_t i = 0; i < graphs.refs; i++) {
        const struct ref *ref = ref_at_locked(i);
        if (ref->capture == capture) {
            graphs.latest = i;
            return i;
        }
        if (unused < 0 && (!ref->capture || (!ref->blocks && atomic_load(&ref->gone))))
            unused = i;
    }
    unused = unused < 0 ? ref_add_locked() : unused;
    if (unused >= 0) {
        ref_at_locked((uint32_t)unused)->capture = capture;
        atomic_store(&ref_at_locked((uint32_t)unused)->gone, false);
        graphs.latest = (uint32_t)unused;
    }
    return unused;
}

/* The block belongs to a hold, or with -1 to some graph for ever. False: no host memory. */
static bool block_put_locked(CUdeviceptr address, CUcontext context, int64_t ref)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    if (!blocks_make_room_locked())
        return false;
    struct block *block = block_find_locked(address);
    int index = -1;
    if (!block->address) {
        *block = (struct block){.address = address, .context = context};
        atomic_fetch_add(&sg_graphs_blocks, 1);
    }
    for (int i = BLOCK_REFS - 1; i >= 0 && ref >= 0; i--) {
        if (block->ref[i] == ref + 1)
            return true;
        index = block->ref[i] ? index : i;
    }
    block->forever |= index < 0;
    if (index >= 0) {
        block->ref[index] = (uint32_t)(ref + 1);
        ref_at_locked((uint32_t)ref)->blocks++;
    }
    return true;
}

/* The graph holds the object from here on: only its destructor ends the hold. */
static CUresult hold_attach(const struct sg_driver *driver, CUgraph graph, struct ref *ref)
{
    CUuserObject object;
    CUresult result = driver->user_object_create(&object, ref, hold_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS)
        driver->user_object_release(object, 1);
    return result;
}

/* The driver's number of the capture that a stream is in, and its graph; 0: none. */
static cuuint64_t capture_of(CUstream stream, CUgraph *ret_graph)
{
    const struct sg_driver *driver = sg_process_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    if (!driver || !driver->stream_capture_info ||
        driver->stream_capture_info(stream, &status, &capture, ret_graph, NULL, NULL) != CUDA_SUCCESS)
        return 0;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && *ret_graph ? capture : 0;
}

/* Block and hold are entered first, then the graph is given the hold's object. The graph may be gone at once, and its
   flag must find them. If the graph refuses the object, the block is taken out again. */
bool sg_graphs_adopt(struct sg_core *core, CUstream stream, CUdeviceptr address, bool fresh)
{
    struct sg_block_info info = {0};
    const struct sg_driver *driver = sg_process_driver();
    CUgraph graph = NULL;
    if (!driver->user_object_create || !driver->user_object_release || !driver->graph_retain_user_object)
        return false;
    cuuint64_t capture = capture_of(stream, &graph);
    if (!capture)
        return false;
    if (sg_core_block(core, address, &info) != CUDA_SUCCESS && /* the driver's own */
        driver->ctx_get_current(&info.context) != CUDA_SUCCESS)
        return false;
    sg_process_lock(SG_LOCK_CAPTURES);
    int64_t number = ref_of_locked(capture);
    struct ref *ref = number >= 0 ? ref_at_locked((uint32_t)number) : NULL;
    bool first = ref && ref->blocks == 0;
    bool retained = block_put_locked(address, info.context, number);
    if (retained && fresh) {
        block_find_locked(address)->born = stream;
        block_find_locked(address)->bytes = info.bytes;
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    if (!retained || !first || hold_attach(driver, graph, ref) == CUDA_SUCCESS)
        return retained;
    sg_process_lock(SG_LOCK_CAPTURES);
    struct block *block = block_find_locked(address);
    atomic_store(&ref->gone, true);
    if (block->address && !block_let_go_locked(block, false))
        block_remove_locked(block);
    sg_process_unlock(SG_LOCK_CAPTURES);
    return false;
}

/* A block whose graphs are all gone is simply let go: the caller frees it. Any other is kept with the request, once. */
enum sg_graphs_answer sg_graphs_retain(CUdeviceptr address, const struct sg_request *request, bool waited)
{
    enum sg_graphs_answer answer = SG_GRAPHS_FREE;
    if (!sg_graphs_retain_any())
        return answer;
    sg_process_lock(SG_LOCK_CAPTURES);
    struct block *block = block_find_locked(address);
    if (block->address && !request) {
        block_remove_locked(block);
    } else if (block->address && block->freed) {
        answer = SG_GRAPHS_RETAINED_BEFORE;
    } else if (block->address && !block_let_go_locked(block, false)) {
        block_remove_locked(block);
    } else if (block->address) {
        block->freed = true;
        block->freed_at = ++graphs.frees;
        block->waited = waited;
        block->request = *request;
        answer = SG_GRAPHS_RETAINED;
        atomic_fetch_add(&graphs.freed, 1);
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    return answer;
}

static size_t block_units(size_t bytes)
{
    return bytes / UNIT + (bytes % UNIT != 0);
}

/* True if a block belongs to the graph of this capture and to no other. */
static bool block_is_of_one_locked(const struct block *block, unsigned long long capture)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CAPTURES);
    int refs = 0;
    bool its = false;
    for (int i = 0; i < BLOCK_REFS; i++) {
        refs += block->ref[i] != 0;
        its |= block->ref[i] && ref_at_locked(block->ref[i] - 1)->capture == capture;
    }
    return its && refs == 1 && !block->forever;
}

/* Only a block of one graph, born in that capture on that stream: then the graph's own order makes the second use safe.
   */
void sg_graphs_add_spare(CUstream stream, CUdeviceptr address)
{
    CUgraph graph = NULL;
    cuuint64_t capture = sg_captures_forked(stream) ? 0 : capture_of(stream, &graph);
    if (!capture)
        return;
    sg_process_lock(SG_LOCK_CAPTURES);
    const struct block *block = block_find_locked(address);
    int spares = atomic_load(&graphs.spares);
    if (block->address && block->freed && block->born == stream && block_is_of_one_locked(block, capture) &&
        spares < SPARES_MAX) {
        graphs.spare[spares] = (struct spare){capture, address, stream, block_units(block->bytes)};
        atomic_store(&graphs.spares, spares + 1);
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
}

/* The youngest spare of that size, stream and capture. Sizes are compared in units of 512 bytes, as PyTorch rounds
   tensors. */
bool sg_graphs_reuse(CUstream stream, size_t bytes, CUdeviceptr *ret)
{
    CUgraph graph = NULL;
    cuuint64_t capture = atomic_load_explicit(&graphs.spares, memory_order_relaxed) ? capture_of(stream, &graph) : 0;
    bool found = false;
    if (!capture)
        return false;
    sg_process_lock(SG_LOCK_CAPTURES);
    int spares = atomic_load(&graphs.spares);
    for (int i = spares - 1; i >= 0 && !found; i--) {
        const struct spare *spare = &graphs.spare[i];
        struct block *block = block_find_locked(spare->address);
        found = spare->capture == capture && spare->stream == stream && spare->units == block_units(bytes) &&
                block->address && block->freed;
        if (!found)
            continue;
        *ret = spare->address;
        block->freed = false;
        atomic_fetch_sub(&graphs.freed, 1);
        graphs.spare[i] = graphs.spare[spares - 1];
        atomic_store(&graphs.spares, spares - 1);
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    return found;
}

void sg_graphs_forget_spares(void)
{
    sg_process_lock(SG_LOCK_CAPTURES);
    atomic_store(&graphs.spares, 0);
    sg_process_unlock(SG_LOCK_CAPTURES);
}

/* The removal of a block may move another one into its place, so each place is looked at until it stays. */
void sg_graphs_context_gone(CUcontext context)
{
    if (!sg_graphs_retain_any())
        return;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (size_t at = 0; at < graphs.buckets; at++) {
        struct block *block = &graphs.block[at];
        while (block->address && block->context == context)
            block_remove_locked(block); /* another one may move here */
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
}

bool sg_graphs_retain_freed(void)
{
    return atomic_load(&graphs.freed) > 0;
}

/* In batches, since the core's lock comes before this one. A block that moves in the table meanwhile may be missed. */
uint64_t sg_graphs_freed_bytes(struct sg_core *core, int device)
{
    uint64_t bytes = 0;
    bool more = sg_graphs_retain_freed();
    for (size_t at = 0; more;) {
        CUdeviceptr address[BATCH];
        int count = 0;
        sg_process_lock(SG_LOCK_CAPTURES);
        for (; at < graphs.buckets && count < BATCH; at++) {
            if (graphs.block[at].address && graphs.block[at].freed)
                address[count++] = graphs.block[at].address;
        }
        more = at < graphs.buckets;
        sg_process_unlock(SG_LOCK_CAPTURES);
        for (int i = 0; i < count; i++) {
            struct sg_block_info block;
            if (sg_core_block(core, address[i], &block) == CUDA_SUCCESS && block.device == device)
                bytes += block.bytes;
        }
    }
    return bytes;
}

static void echo_heard(void *number)
{
    unsigned now = (unsigned)(uintptr_t)number, heard = atomic_load(&echo.heard);
    while (sg_ahead32(now, heard) > 0 && !atomic_compare_exchange_weak(&echo.heard, &heard, now)) {
    }
}

static bool echo_is_out(unsigned number)
{
    return sg_ahead32(number, atomic_load(&echo.heard)) > 0;
}

/* False: none can be sent. */
static bool echo_send(unsigned *ret)
{
    const struct sg_driver *driver = sg_process_driver();
    CUuserObject object;
    if (!driver->user_object_create || !driver->user_object_release)
        return false;
    *ret = atomic_fetch_add(&echo.sent, 1) + 1;
    return driver->user_object_create(&object, (void *)(uintptr_t)*ret, echo_heard, 1,
               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS &&
           driver->user_object_release(object, 1) == CUDA_SUCCESS;
}

/* True if somebody has waited in vain, for as long as this one would, and the driver's thread has not gone on since. */
static bool echo_is_in_vain(bool refused)
{
    bool vain = false;
    for (int i = refused; i < 2; i++) {
        unsigned number = atomic_load(&echo.given_up[i]);
        vain |= number && echo_is_out(number);
    }
    return vain;
}

/* Sends an object through the driver's thread of destructors and waits until it has come: what was before it in the
   queue is done then. */
static void echo_await(bool refused)
{
    enum { EAGER = 64 /* times */, SLICE_NS = 50000, MOST_NS = 2000000000 };
    unsigned number;
    if (echo_is_in_vain(refused) || !echo_send(&number))
        return;
    uint64_t waited_ns = 0, limit_ns = refused ? (uint64_t)(sg_process_conf()->wait_limit * 1e9) : 0;
    limit_ns = limit_ns < MOST_NS ? MOST_NS : limit_ns;
    for (int i = 0; echo_is_out(number) && waited_ns < limit_ns; i++) {
        if (i < EAGER) {
            sched_yield();
            continue;
        }
        uint64_t began = sg_clock_coarse_ns();
        sg_rest(SLICE_NS);
        uint64_t took = sg_clock_coarse_ns() - began;
        waited_ns += took > SLICE_NS ? took : SLICE_NS;
    }
    if (echo_is_out(number))
        atomic_store(&echo.given_up[refused], number);
}

void sg_graphs_await_destroyed(bool refused)
{
    if (sg_graphs_retain_freed())
        echo_await(refused);
}

void sg_graphs_await_destroyed_of(CUdeviceptr address)
{
    sg_process_lock(SG_LOCK_CAPTURES);
    bool belongs = block_find_locked(address)->address != 0;
    sg_process_unlock(SG_LOCK_CAPTURES);
    if (belongs)
        echo_await(/* refused */ false);
}

/* Adds a block to those that were freed first, which are at most BATCH, in order. A block that moves in the table may come
   twice. True: one of them, or this one, finds no room. */
static bool blocks_add_oldest(struct block *ret, int *count, const struct block *block)
{
    int at = *count;
    while (at > 0 && ret[at - 1].freed_at > block->freed_at)
        at--;
    if (at > 0 && ret[at - 1].freed_at == block->freed_at)
        return false;
    bool full = *count == BATCH;
    for (int i = full ? BATCH - 1 : *count; i > at; i--)
        ret[i] = ret[i - 1];
    if (at < BATCH)
        ret[at] = *block;
    *count += !full;
    return full;
}

/* Takes up to BATCH blocks of graphs that are gone, in the order in which the program has freed them. The table's order
   is that of hashed addresses, which differ from run to run, and where later blocks stand would differ with them. Blocks
   that the program has not freed are its own again. */
static int blocks_take_gone(struct block *ret, bool *ret_more)
{
    int count = 0;
    *ret_more = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    int gone = atomic_load(&sg_graphs_gone);
    for (size_t at = 0; at < graphs.buckets; at++) {
        struct block *block = &graphs.block[at];
        while (block->address && !block->freed && !block_let_go_locked(block, false))
            block_remove_locked(block); /* another one may move here */
        if (block->address && block->freed && !block_let_go_locked(block, false))
            *ret_more |= blocks_add_oldest(ret, &count, block);
    }
    for (int i = 0; i < count; i++)
        block_remove_locked(block_find_locked(ret[i].address));
    if (!*ret_more)
        atomic_fetch_sub(&sg_graphs_gone, gone);
    sg_process_unlock(SG_LOCK_CAPTURES);
    return count;
}

/* In batches of 64, freed without the lock. A block of the driver's own goes to the driver. */
void sg_graphs_run_deferred(struct sg_core *core)
{
    struct block batch[BATCH];
    bool more = atomic_load_explicit(&sg_graphs_gone, memory_order_acquire) > 0;
    while (more) {
        int count = blocks_take_gone(batch, &more);
        for (int i = 0; i < count; i++) {
            struct sg_request request = batch[i].request;
            request.is_complete = batch[i].waited;
            request.was_deferred = true;
            if (sg_process_owns(batch[i].address))
                sg_upward_calls.free(core, batch[i].address, &request);
            else
                sg_process_driver()->mem_free(batch[i].address);
        }
    }
}
