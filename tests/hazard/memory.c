/* What a program does with memory. */
#include <stdatomic.h>
#include <string.h>

#include "program.h"

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);

enum { KIB = 1024, MIB = 1024 * 1024, TOUCH_MAX = 64 * KIB };

uint64_t new_owner(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static struct block *empty_block(struct program *p)
{
    unsigned at = program_random(p, BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[(at + i) % BLOCKS];
        if (!b->address)
            return b;
    }
    return NULL;
}

struct block *block_pick(struct program *p, int device)
{
    struct block *found = NULL;
    unsigned seen = 0;
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        if (b->address && !b->of_graph && (device < 0 || program_device(b->context) == device) &&
            program_random(p, ++seen) == 0)
            found = b;
    }
    return found;
}

static size_t random_size(struct program *p)
{
    if (p->again)
        return p->again;
    switch (program_random(p, 8)) {
    case 0:
    case 1:
        return 1 + program_random(p, 16 * KIB);
    case 2:
    case 3:
        return 1 + program_random(p, 512 * KIB);
    case 4:
    case 5:
    case 6:
        return MIB * (size_t)(1 + program_random(p, 6));
    default:
        return MIB + program_random(p, 20 * MIB);
    }
}

/* Nobody else may have any of it. */
static void check_apart(struct program *p, const struct block *new)
{
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *b = &p->block[i];
        if (b->of_graph && p->inside && graph_has(p->inside, b))
            continue; /* freed in the same capture: its memory may be had again there */
        if (b != new && b->address && b->address < new->address + new->bytes && new->address < b->address + b->bytes)
            program_check(p, CUDA_ERROR_UNKNOWN, "an allocation overlaps a live one");
    }
}

/* What `name` says of a device: of all threads. */
static uint64_t stat_of(int device, const char *name)
{
    struct segalloc_stat stats[128];
    int count = extras.stats(device, stats, 128);
    for (int i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    return 0;
}

/* Running out ends the process there, so a pluggable allocator is asked only for memory that must be there. Memory that
   counts as available but is pending does not: work that ends only once the program goes on may hold it. */
static void *allocate_on(struct program *p, size_t bytes, int home)
{
    CUstream stream = p->stream[home].handle;
    int device = program_device(p->stream[home].context);
    if (!p->pluggable)
        return extras.malloc_on(bytes, stream);
    size_t available = 0;
    (void)cuMemGetInfo_v2(&available, NULL);
    uint64_t pending = stat_of(device, "pending_bytes");
    return available > pending && (available - pending) / 2 > bytes ? extras.torch_malloc(bytes, device, stream) : NULL;
}

/* What the kind of program calls to free a block that it allocated for a stream. */
void block_give_back(struct program *p, struct block *b)
{
    void *address = pointer(b->address);
    if (p->kind == KIND_TORCH)
        extras.release(address);
    else if (p->pluggable && b->home >= 0)
        extras.torch_free(address, b->bytes, program_device(b->context), p->stream[b->home].handle);
    else if (p->pluggable)
        MUST(p, (CUresult)cudaFree(address));
    else
        MUST(p, (CUresult)extras.free(address));
}

struct block *block_allocate(struct program *p, int home)
{
    struct block *b = empty_block(p);
    size_t bytes = random_size(p);
    int context = p->stream[home].context, device = program_device(context);
    void *address = NULL;
    if (!b)
        return NULL;
    program_enter(p, context);
    uint64_t passed = stat_of(device, "passed_on"); /* to the driver */
    if (p->kind == KIND_CUDA && (context != 0 || program_random(p, 2))) {
        CUdeviceptr got;
        CUresult result = cuMemAlloc_v2(&got, bytes);
        if (result != CUDA_ERROR_OUT_OF_MEMORY && MUST(p, result))
            address = pointer(got);
    } else if (p->kind == KIND_CUDA) {
        int error = cudaMalloc(&address, bytes);
        if (error != CUDA_SUCCESS)
            address = NULL;
        if (error != CUDA_SUCCESS && error != CUDA_ERROR_OUT_OF_MEMORY)
            program_check(p, (CUresult)error, "cudaMalloc");
    } else if (p->kind == KIND_TORCH) {
        extras.set_current_stream(p->stream[home].handle);
        address = extras.tensor(bytes);
    } else {
        address = allocate_on(p, bytes, home);
    }
    if (!address)
        return NULL;
    struct stream *s = &p->stream[home];
    struct clock first = s->knows;
    first.at[home] = s->given;
    s->knows.at[home] = s->work.at[home] = ++s->position;
    *b = (struct block){.address = (CUdeviceptr)(uintptr_t)address, .bytes = bytes, .owner = new_owner(),
        .context = context, .home = p->kind == KIND_CUDA ? -1 : home, .born = s->position,
        .first = first, .drivers = stat_of(device, "passed_on") != passed};
    int legacy = 0; /* mapped pieces are not */
    b->fixed = cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, b->address) ==
                   CUDA_SUCCESS &&
               legacy;
    check_apart(p, b);
    extras.owner(b->address, b->bytes, b->owner);
    return b;
}

void move_allocate(struct program *p)
{
    struct block *b;
    int home = stream_pick(p, program_random(p, 8) ? 0 : -1);
    if (p->kind != KIND_CUDA && home >= PER_THREAD)
        home = LEGACY;
    for (int tries = 0; tries < 3 && !block_allocate(p, home); tries++) {
        if ((b = block_pick(p, -1)) != NULL && !b->graphs)
            block_free(p, b);
    }
}

static bool before(const struct program *p, const struct block *b, int stream, const struct clock *clock)
{
    return clock->at[stream] >= b->used[stream] || p->host.at[stream] >= b->used[stream];
}

/* False where the library says that it cannot follow the stream: then the program must order its work itself. */
static bool record_stream(struct program *p, struct block *b, int stream)
{
    int answer = CUDA_SUCCESS;
    program_enter(p, p->stream[stream].context);
    if (p->pluggable)
        extras.torch_record_stream(pointer(b->address), p->stream[stream].handle);
    else
        answer = extras.record_stream(pointer(b->address), p->stream[stream].handle);
    if (answer == CUDA_ERROR_NOT_SUPPORTED || !MUST(p, (CUresult)answer))
        return false;
    b->recorded |= 1u << stream;
    return true;
}

/* Everything that was done with the block comes before what `stream` does from here on; of -1: is complete. */
static void settle(struct program *p, struct block *b, int stream, bool may_record)
{
    for (int i = 0; i < STREAMS && (!p->illegal || b->of_pool); i++) {
        if (i == stream || !b->used[i] || before(p, b, i, stream < 0 ? &p->host : &p->stream[stream].knows))
            continue;
        if (may_record && b->recorded >> i & 1)
            continue;
        bool near = stream_exists(p, i) && p->stream[i].context == b->context && i < PER_THREAD;
        if (may_record && near && program_random(p, 3) && record_stream(p, b, i))
            continue;
        if (stream < 0 || program_random(p, 6) == 0) {
            stream_synchronize(p, i);
        } else {
            stream_order(p, i, stream);
        }
    }
}

/* Where frees wait as the driver's do, what was queued is over when one returns. */
static void expect_quiet(struct program *p, int context)
{
    for (int i = 0; i < LEGACY && p->strict && p->kind == KIND_CUDA; i++) {
        if (stream_exists(p, i) && p->stream[i].context == context &&
            cuStreamQuery(p->stream[i].handle) != CUDA_SUCCESS)
            program_check(p, CUDA_ERROR_NOT_READY, "work queued before a free that waits");
    }
}

bool block_may_go(const struct block *b)
{
    return !b->fixed || !b->abroad;
}

/* The driver's own cudaFree waits for the work of the context whose memory it is, and so does ours of a fixed segment.
   That of another device may still be queued then and finds it gone: pytorch#196257 has seen it on GPUs. */
static void settle_abroad(struct program *p, const struct block *b)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (i == b->context || !p->context[i])
            continue;
        program_enter(p, i);
        MUST(p, cuCtxSynchronize());
    }
}

/* What waits for the block's work may leave another context current, in which a default stream is another stream. */
static void give_to_stream(struct program *p, struct block *b, int stream)
{
    settle(p, b, stream, false);
    program_enter(p, p->stream[stream].context);
    extras.owner(b->address, b->bytes, 0);
    MUST(p, cuMemFreeAsync(b->address, p->stream[stream].handle));
}

void block_free(struct program *p, struct block *b)
{
    int home = b->home, other = -1;
    bool async = b->of_pool || (!b->plain && p->kind == KIND_CUDA && program_random(p, 4) == 0) ||
                 (home >= 0 && p->kind == KIND_AWARE && program_random(p, 6) == 0);
    if (async)
        other = stream_pick(p, b->context);
    if (b->of_pool && other < 0)
        settle(p, b, -1, false);
    if (other >= 0) {
        if (home >= 0 && home != other) { /* after the allocation too */
            b->used[home] = b->used[home] > b->born ? b->used[home] : b->born;
        }
        give_to_stream(p, b, other);
    } else {
        if (p->kind == KIND_AWARE && !b->of_pool)
            settle(p, b, home, true);
        if (p->kind == KIND_CUDA && !block_may_go(b))
            settle_abroad(p, b);
        int current = p->kind == KIND_CUDA ? (int)program_random(p, CONTEXTS) : b->context;
        program_enter(p, p->context[current] ? current : b->context);
        extras.owner(b->address, b->bytes, 0);
        if (p->kind != KIND_CUDA && !b->of_pool && (p->kind == KIND_TORCH || program_random(p, 6)))
            block_give_back(p, b);
        else if (current != 0 || program_random(p, 2)) /* the runtime would take up the other device for good */
            MUST(p, cuMemFree_v2(b->address));
        else
            MUST(p, (CUresult)cudaFree(pointer(b->address)));
        expect_quiet(p, b->context);
    }
    b->address = 0;
}

/* What is freed is often asked for again at once, by the stream that had it or by another, and used. */
static void take_again(struct program *p, size_t bytes, int home)
{
    p->again = bytes;
    struct block *b = block_allocate(p, home);
    p->again = 0;
    if (!b)
        return;
    void *arguments[] = {&b->address, &(uint64_t){b->bytes}};
    program_enter(p, b->context);
    MUST(p, cuLaunchKernel(program_kernel(), 1, 1, 1, 1, 1, 1, 0, p->stream[home].handle, arguments, NULL));
    stream_submitted(p, home);
    block_used(p, b, home);
}

void move_free(struct program *p)
{
    struct block *b = block_pick(p, -1);
    if (!b || b->graphs)
        return;
    size_t bytes = b->bytes;
    int home = b->home, context = b->context;
    bool again = !b->of_pool && program_random(p, 2);
    block_free(p, b);
    if (home < 0 || program_random(p, 4) == 0)
        home = stream_pick(p, context);
    if (again && home >= 0 && (home < PER_THREAD || p->kind == KIND_CUDA))
        take_again(p, bytes, home);
}

static bool comes_after(const struct program *p, int stream, const struct clock *clock)
{
    for (int i = 0; i < STREAMS; i++) {
        if (i != stream && p->stream[stream].knows.at[i] < clock->at[i] && p->host.at[i] < clock->at[i])
            return false;
    }
    return true;
}

void block_show(struct program *p, struct block *b, int stream)
{
    bool anywhere = p->kind == KIND_CUDA && !b->of_pool;
    if ((p->illegal && !b->of_pool) || anywhere || b->home < 0 || b->home == stream)
        return;
    if (p->stream[stream].knows.at[b->home] >= b->born || p->host.at[b->home] >= b->born)
        return;
    bool shared = p->alone && b->home == LEGACY; /* others' programs give it work too */
    if (shared || !comes_after(p, stream, &b->first) || program_random(p, 2) == 0)
        stream_show(p, b->home, stream);
}

void block_used(struct program *p, struct block *b, int stream)
{
    b->used[stream] = p->stream[stream].position;
    b->abroad |= p->stream[stream].context != b->context;
}

static void nothing(void *data)
{
    (void)data;
}

static void touch_by_kernel(struct program *p, CUdeviceptr at, uint64_t bytes, CUstream stream)
{
    void *arguments[] = {&at, &bytes};
    MUST(p, cuLaunchKernel(program_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

/* That it ran is something that the program can know of, so there are few. */
static void touch_by_host_function(struct program *p, CUdeviceptr at, uint64_t bytes, CUstream stream)
{
    extras.touches(at, bytes, 1);
    MUST(p, cuLaunchHostFunc(stream, nothing, NULL));
}

void block_touch(struct program *p, struct block *b, int stream)
{
    CUstream handle = p->stream[stream].handle;
    size_t bytes = 1 + program_random(p, b->bytes > TOUCH_MAX ? TOUCH_MAX : (unsigned)b->bytes);
    CUdeviceptr at = b->address + (b->bytes > bytes ? program_random(p, (unsigned)(b->bytes - bytes)) : 0);
    if (program_random(p, 3) == 0) /* its first bytes are where the next owner begins */
        at = b->address;
    program_enter(p, p->stream[stream].context);
    switch (program_random(p, 5)) {
    case 0:
        MUST(p, cuMemcpyHtoDAsync_v2(at, p->pinned, bytes, handle));
        break;
    case 1:
        MUST(p, cuMemcpyDtoHAsync_v2(p->pinned, at, bytes, handle));
        break;
    case 2:
        if (program_random(p, 6) == 0)
            touch_by_host_function(p, at, bytes, handle);
        else
            touch_by_kernel(p, at, bytes, handle);
        break;
    default:
        if (handle == CU_STREAM_PER_THREAD && program_random(p, 2)) /* by the other name */
            MUST(p, cuMemsetD8Async_ptsz(at, (unsigned char)b->owner, bytes, NULL));
        else
            MUST(p, cuMemsetD8Async(at, (unsigned char)b->owner, bytes, handle));
    }
}

static bool may_use(const struct program *p, const struct block *b, int stream)
{
    bool near = p->peers || program_device(b->context) == program_device(p->stream[stream].context);
    /* Of a block whose stream is gone nobody hears any more but those who have it already. */
    return near && ((p->kind == KIND_CUDA && !b->of_pool) || b->home >= 0 || b->used[stream]);
}

/* From one device to the other, whose work the owner's free must wait for too. */
static void copy_between(struct program *p, struct block *from, struct block *to)
{
    int stream = stream_pick(p, program_random(p, 2) ? from->context : to->context);
    bool known = p->kind == KIND_CUDA || (from->home >= 0 && to->home >= 0);
    if (stream < 0 || !known || to->of_pool || from->of_pool)
        return;
    block_show(p, from, stream);
    block_show(p, to, stream);
    size_t bytes = from->bytes < to->bytes ? from->bytes : to->bytes;
    bytes = bytes < TOUCH_MAX ? bytes : TOUCH_MAX;
    program_enter(p, p->stream[stream].context);
    MUST(p, cuMemcpyPeerAsync(to->address, p->context[to->context], from->address, p->context[from->context], bytes,
        p->stream[stream].handle));
    stream_submitted(p, stream);
    block_used(p, from, stream);
    block_used(p, to, stream);
}

void move_use(struct program *p)
{
    int stream = stream_pick(p, -1);
    struct block *b = block_pick(p, program_device(p->stream[stream].context));
    struct block *far = p->context[2] ? block_pick(p, 1 - program_device(p->stream[stream].context)) : NULL;
    if (b && far && program_random(p, 4) == 0)
        copy_between(p, b, far);
    if (far && !far->of_pool && p->peers && program_random(p, 2)) /* by work of the other device */
        b = far;
    if (!b || !may_use(p, b, stream))
        return;
    if (program_random(p, 3) && b->home >= 0 && (b->home < PER_THREAD || b->home == PER_THREAD + p->thread))
        stream = b->home;
    block_show(p, b, stream);
    for (unsigned i = 1 + program_random(p, 3); i-- > 0;) {
        block_touch(p, b, stream);
        stream_submitted(p, stream);
        block_used(p, b, stream);
    }
}

static struct block *plain_block(struct program *p)
{
    struct block *b = block_pick(p, -1);
    return b && !b->graphs && !b->of_pool ? b : NULL;
}

/* Nothing here waits for a stream, which could be the captured one. */
void block_churn(struct program *p)
{
    int stream = stream_pick(p, program_random(p, 3) ? 0 : -1);
    struct block *b = plain_block(p);
    if (p->kind != KIND_CUDA || stream < 0 || stream == LEGACY)
        return;
    switch (program_random(p, 4)) {
    case 0:
        (void)block_allocate(p, stream);
        return;
    case 1:
        if (!b || !block_may_go(b))
            return;
        program_enter(p, program_random(p, 2) ? b->context : 0);
        extras.owner(b->address, b->bytes, 0);
        MUST(p, cuMemFree_v2(b->address));
        b->address = 0;
        return;
    default:
        if (!b || !may_use(p, b, stream))
            return;
        block_touch(p, b, stream);
        stream_submitted(p, stream);
        block_used(p, b, stream);
    }
}

void move_pool(struct program *p)
{
    int stream = stream_pick(p, -1);
    struct block *b = empty_block(p);
    CUdeviceptr address;
    if (!b || p->kind == KIND_RANKS)
        return;
    size_t bytes = 1 + program_random(p, MIB);
    program_enter(p, p->stream[stream].context);
    CUresult result = cuMemAllocAsync(&address, bytes, p->stream[stream].handle);
    if (result == CUDA_ERROR_OUT_OF_MEMORY || !MUST(p, result))
        return;
    stream_submitted(p, stream);
    *b = (struct block){.address = address, .bytes = bytes, .owner = new_owner(), .context = p->stream[stream].context,
        .home = stream, .born = p->stream[stream].position, .first = p->stream[stream].knows, .of_pool = true};
    check_apart(p, b);
    extras.owner(b->address, b->bytes, b->owner);
    block_touch(p, b, stream);
    stream_submitted(p, stream);
    block_used(p, b, stream);
}
