/* What the threads do with blocks. */
#include <stdlib.h>
#include <string.h>

#include "threads_world.h"

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);

enum { SET_MAX = 256 * 1024, COPY_MAX = 1024 * 1024, WORDS = 24 };

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* The words that kernels look at: the first and last, and some between, on both sides of the borders of pages. */
static uint64_t word_at(uint64_t words, unsigned i)
{
    enum { PAGE_WORDS = 2 * 1024 * 1024 / 4 };
    if (i < 2)
        return i ? words - 1 : 0;
    uint64_t step = words / WORDS / PAGE_WORDS * PAGE_WORDS;
    step = step ? step : PAGE_WORDS;
    uint64_t at = step * (i / 2) - i % 2;
    return at < words ? at : words / 2;
}

static struct ft_world *kernels_of; /* there is one world in a process */

static void run_write(void **arguments)
{
    uint32_t *at = pointer(*(CUdeviceptr *)arguments[0]);
    uint64_t words = *(uint64_t *)arguments[1] / sizeof *at;
    for (unsigned i = 0; i < WORDS && words; i++)
        at[word_at(words, i)] = *(uint32_t *)arguments[2];
}

static void run_check(void **arguments)
{
    const uint32_t *at = pointer(*(CUdeviceptr *)arguments[0]);
    uint64_t words = *(uint64_t *)arguments[1] / sizeof *at;
    for (unsigned i = 0; i < WORDS && words; i++) {
        uint32_t value = at[word_at(words, i)];
        if (value == *(uint32_t *)arguments[2])
            continue;
        atomic_fetch_add(&kernels_of->result->wrong_bytes, sizeof value);
        ft_fault(kernels_of->result, "word %llu of a block of %llu bytes at %p is %x, not %x",
            (unsigned long long)word_at(words, i), (unsigned long long)*(uint64_t *)arguments[1], (const void *)at,
            value, *(uint32_t *)arguments[2]);
        return;
    }
}

void ft_kernels_make(struct ft_world *world)
{
    CUlibrary library;
    kernels_of = world;
    if (ft_found.kernel("write", "w at[bytes], u64 bytes, u32 value", run_write) != 0 ||
        ft_found.kernel("check", "r at[bytes], u64 bytes, u32 value", run_check) != 0)
        ft_fault(world->result, "the kernels are not understood");
    FT_MUST(world, cuLibraryLoadData(&library, "code", NULL, NULL, 0, NULL, NULL, 0));
    FT_MUST(world, cuLibraryGetKernel((CUkernel *)(void *)&world->write, library, "write"));
    FT_MUST(world, cuLibraryGetKernel((CUkernel *)(void *)&world->check, library, "check"));
}

/* What comes next on the stream comes after all work on the block. */
static void order_after(struct ft_thread *t, const struct ft_block *b, CUstream stream)
{
    if (b->last)
        FT_MUST(t->world, cuStreamWaitEvent(stream, b->last, 0));
}

static void note_work(struct ft_thread *t, struct ft_block *b, CUstream stream)
{
    if (b->last || FT_MUST(t->world, cuEventCreate(&b->last, CU_EVENT_DISABLE_TIMING)))
        FT_MUST(t->world, cuEventRecord(b->last, stream));
}

static void launch(struct ft_thread *t, CUfunction kernel, struct ft_block *b, CUstream stream)
{
    void *arguments[] = {&b->address, &b->bytes, &b->value};
    FT_MUST(t->world, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static uint64_t up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* Pages of which a block has a byte, whatever the address, with what a small block's page may be larger. */
static uint64_t pages_of(const struct ft_plan *plan, uint64_t bytes)
{
    return up(bytes, plan->page_bytes) + 2 * plan->page_bytes;
}

/* Where one thread goes on at a time it is known what the others hold. */
static void judge_refusal(struct ft_thread *t, uint64_t bytes)
{
    struct ft_world *w = t->world;
    uint64_t needed = t->card->held_bytes + t->card->others_bytes + pages_of(w->plan, bytes) + 2 * w->plan->page_bytes;
    uint64_t most = t->card->limit_bytes < w->plan->card_bytes ? t->card->limit_bytes : w->plan->card_bytes;
    if (!w->plan->turns || !w->plan->judged || w->plan->refusals || needed > most)
        return;
    atomic_fetch_add(&w->result->unjust, 1);
    ft_fault(w->result, "%llu bytes were refused where blocks take %llu of %llu at most",
        (unsigned long long)bytes, (unsigned long long)(needed - pages_of(w->plan, bytes)), (unsigned long long)most);
}

static void *ask(struct ft_thread *t, uint64_t bytes, struct ft_stream *home, unsigned tag, uint32_t how)
{
    void *address = NULL;
    CUdeviceptr got = 0;
    switch (t->part->kind) {
    case FT_AWARE:
        return ft_found.malloc_on(bytes, home->handle);
    case FT_TORCH:
        ft_found.set_current_stream(home->handle);
        return ft_found.tensor(bytes);
    default:
        break;
    }
    CUresult result = how % 2 ? (CUresult)cudaMalloc(&address, bytes) : cuMemAlloc_v2(&got, bytes);
    bool paused = tag && result == (CUresult)CUDA_ERROR_NOT_PERMITTED;
    if (result != CUDA_ERROR_OUT_OF_MEMORY && !paused)
        ft_must(t->world, result, "an allocation");
    if (result != CUDA_SUCCESS)
        return NULL;
    return how % 2 ? address : pointer(got);
}

/* A block that the driver has served stays where it is while its tag is paused. */
static unsigned tag_of_block(struct ft_thread *t, unsigned tag, const void *address)
{
    return tag && t->world->plan->refusals && !ft_is_served(t, (CUdeviceptr)(uintptr_t)address) ? 0 : tag;
}

/* NULL: refused. */
static struct ft_block *have(struct ft_thread *t, uint64_t bytes, struct ft_stream *home, unsigned tag, uint32_t how)
{
    struct ft_world *w = t->world;
    atomic_fetch_add(&w->result->allocations, 1);
    /* No pause comes between the allocation and the checker's word of it. */
    ft_tag_push(t, tag);
    if (tag)
        pthread_rwlock_rdlock(&w->pausing);
    void *address = ask(t, bytes, home, tag, how);
    if (tag)
        ft_tag_pop(t);
    if (tag && !address)
        pthread_rwlock_unlock(&w->pausing);
    if (!address) {
        atomic_fetch_add(&w->result->refused, 1);
        if (!tag) /* whose tag may be paused */
            judge_refusal(t, bytes);
        return NULL;
    }
    struct ft_block *b = &t->block[t->blocks++];
    *b = (struct ft_block){.address = (CUdeviceptr)(uintptr_t)address,
        .bytes = bytes,
        .kind = t->part->kind,
        .home = t->part->kind == FT_CUDA ? NULL : home,
        .owner = atomic_fetch_add(&w->owners, 1) + 1,
        .held_bytes = pages_of(w->plan, bytes),
        .tag = tag_of_block(t, tag, address)};
    b->discards = w->tag[tag].discards;
    b->maybe = w->tag[tag].maybe;
    atomic_fetch_add(&t->card->live_bytes, b->bytes);
    atomic_fetch_add(&t->card->held_bytes, b->held_bytes);
    ft_found.owner(b->address, b->bytes, b->owner);
    if (tag)
        pthread_rwlock_unlock(&w->pausing);
    if (b->home)
        note_work(t, b, home->handle); /* who uses it elsewhere comes after the allocation */
    return b;
}

static bool is_named(const struct ft_thread *t, const struct ft_stream *stream)
{
    return t->part->kind == FT_CUDA || !stream->own_of_thread;
}

/* Before the block is given back by the interface that it came from. */
static void settle(struct ft_thread *t, struct ft_block *b)
{
    if (!b->unknown || b->kind != FT_AWARE)
        return;
    if (b->home)
        order_after(t, b, b->home->handle);
    else
        FT_MUST(t->world, cuEventSynchronize(b->last));
}

static void give_back(struct ft_thread *t, struct ft_block *b, uint32_t how)
{
    struct ft_world *w = t->world;
    void *address = pointer(b->address);
    enum { ON_STREAM = 5, PLAIN = 6 };
    uint32_t way = how % (w->plan->one_stream ? PLAIN : 8); /* none that waits for all that is under way */
    if (way == ON_STREAM || (way == PLAIN && b->kind == FT_CUDA)) {
        struct ft_stream *stream = ft_stream_pick(t, how / 8);
        order_after(t, b, stream->handle);
        ft_found.owner(b->address, b->bytes, 0);
        FT_MUST(w, cuMemFreeAsync(b->address, stream->handle));
        return;
    }
    if (way != PLAIN || w->plan->by_stream)
        settle(t, b);
    ft_found.owner(b->address, b->bytes, 0);
    if (b->kind == FT_AWARE && way != PLAIN)
        FT_MUST(w, (CUresult)ft_found.free(address));
    else if (b->kind == FT_TORCH && way != PLAIN)
        ft_found.release(address);
    else if (how / 8 % 2)
        FT_MUST(w, cuMemFree_v2(b->address));
    else
        FT_MUST(w, (CUresult)cudaFree(address));
}

void ft_block_end(struct ft_thread *t, struct ft_block *b, uint32_t how)
{
    if (b->exec)
        FT_MUST(t->world, cuGraphExecDestroy(b->exec));
    /* Contents that are being saved or put back meanwhile would look like work on what was given back. */
    if (b->tag)
        pthread_rwlock_rdlock(&t->world->pausing);
    give_back(t, b, how);
    if (b->tag)
        pthread_rwlock_unlock(&t->world->pausing);
    if (b->last)
        FT_MUST(t->world, cuEventDestroy_v2(b->last));
    atomic_fetch_sub(&t->card->live_bytes, b->bytes);
    atomic_fetch_sub(&t->card->held_bytes, b->held_bytes);
    *b = t->block[--t->blocks];
}

static void write_all(struct ft_thread *t, struct ft_block *b, CUstream stream, uint32_t how)
{
    b->value = (uint32_t)(b->owner * 2654435761u ^ how);
    b->written = true;
    if (how % 4 == 0 && b->bytes <= SET_MAX && b->bytes % 4 == 0)
        FT_MUST(t->world, cuMemsetD32Async(b->address, b->value, b->bytes / 4, stream));
    else
        launch(t, t->world->write, b, stream);
}

/* Another block's first bytes, and then the block's own. */
static void copy_and_write(struct ft_thread *t, struct ft_block *b, CUstream stream, uint32_t how)
{
    struct ft_block *from = &t->block[how / 64 % t->blocks];
    uint64_t bytes = from->bytes < b->bytes ? from->bytes : b->bytes;
    if (from != b && from->home == b->home && from->kind == b->kind && ft_touch_begin(t, from)) {
        order_after(t, from, stream);
        FT_MUST(t->world, cuMemcpyDtoDAsync_v2(b->address, from->address, bytes < COPY_MAX ? bytes : COPY_MAX, stream));
        note_work(t, from, stream);
        from->unknown |= !from->home || from->home->handle != stream;
        ft_touch_end(t, from);
    }
    write_all(t, b, stream, how | 1);
}

/* The library hears of the stream, or the block's own stream comes after the work before the free. */
static void tell(struct ft_thread *t, struct ft_block *b, struct ft_stream *stream, uint32_t how)
{
    if (b->kind != FT_AWARE || b->home == stream)
        return;
    int answer = how % 2 || stream->own_of_thread ? CUDA_ERROR_NOT_SUPPORTED
                                                  : ft_found.record_stream(pointer(b->address), stream->handle);
    b->unknown |= answer != CUDA_SUCCESS;
    if (answer != CUDA_ERROR_NOT_SUPPORTED)
        ft_must(t->world, (CUresult)answer, "segalloc_record_stream");
}

static void work_on(struct ft_thread *t, struct ft_block *b, struct ft_stream *stream, uint32_t how)
{
    order_after(t, b, stream->handle);
    for (unsigned left = 1 + how % 3; left > 0; left--, how /= 3) {
        switch (b->written ? how / 4 % 4 : 0) {
        case 0:
        case 1:
            write_all(t, b, stream->handle, how);
            break;
        case 2:
            launch(t, t->world->check, b, stream->handle);
            break;
        default:
            copy_and_write(t, b, stream->handle, how);
        }
    }
    note_work(t, b, stream->handle);
    tell(t, b, stream, how / 7);
}

/* The graph of a block once more: its memory may have been away since it was captured. */
static void replay(struct ft_thread *t, struct ft_block *b, struct ft_stream *stream)
{
    stream = b->home ? b->home : stream;
    order_after(t, b, stream->handle);
    FT_MUST(t->world, cuGraphLaunch(b->exec, stream->handle));
    b->value = b->exec_value;
    b->written = true;
    launch(t, t->world->check, b, stream->handle);
    note_work(t, b, stream->handle);
}

void ft_use(struct ft_thread *t, const struct ft_operation *operation)
{
    if (!t->blocks)
        return;
    struct ft_block *b = &t->block[operation->which % t->blocks];
    struct ft_stream *stream = ft_stream_pick(t, operation->how);
    if (b->home && (operation->how >> 16) % 3)
        stream = b->home;
    if (b->kind != FT_CUDA && !b->home)
        return; /* of a stream that is gone nobody hears any more */
    if (!ft_touch_begin(t, b))
        return;
    if (b->exec && (operation->how >> 20) % 3 == 0)
        replay(t, b, stream);
    else
        work_on(t, b, stream, operation->how >> 8);
    ft_touch_end(t, b);
}

void ft_block_check_and_end(struct ft_thread *t, struct ft_block *b, uint32_t how)
{
    if (how % 4 == 0 && (b->home || b->kind == FT_CUDA) && ft_touch_begin(t, b)) {
        CUstream stream = b->home ? b->home->handle : ft_stream_pick(t, how)->handle;
        order_after(t, b, stream);
        if (b->written)
            launch(t, t->world->check, b, stream);
        note_work(t, b, stream);
        ft_touch_end(t, b);
    }
    ft_block_end(t, b, how / 4);
}

void ft_free(struct ft_thread *t, const struct ft_operation *operation)
{
    if (t->blocks)
        ft_block_check_and_end(t, &t->block[operation->which % t->blocks], operation->how);
}

void ft_allocate(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    struct ft_stream *home = ft_stream_pick(t, operation->which);
    if (!is_named(t, home))
        home = &t->card->legacy;
    if (t->blocks >= t->part->blocks_max || t->card->live_bytes + operation->bytes > w->plan->live_max_bytes) {
        ft_free(t, operation);
        return;
    }
    unsigned tag = w->plan->tags ? (operation->which >> 8) % (FT_TAGS + 2) : 0;
    struct ft_block *b = have(t, operation->bytes, home, tag <= FT_TAGS ? tag : 0, operation->how);
    if (b && operation->how / 2 % 4 && ft_touch_begin(t, b)) {
        work_on(t, b, home, operation->how / 8);
        ft_touch_end(t, b);
    }
    for (unsigned i = 0; !b && i < operation->how % 4 && t->blocks; i++)
        ft_block_check_and_end(t, &t->block[(operation->which + i) % t->blocks], operation->how + i);
}

void ft_hand_over(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    if (!t->blocks)
        return;
    struct ft_block *b = &t->block[operation->which % t->blocks];
    pthread_mutex_lock(&w->mutex);
    if (t->card->on_shelf < FT_SHELF) {
        if (b->home)
            b->home->shared = true;
        t->card->shelf[t->card->on_shelf++] = *b;
        *b = t->block[--t->blocks];
    }
    pthread_mutex_unlock(&w->mutex);
}

void ft_take_over(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    pthread_mutex_lock(&w->mutex);
    if (t->card->on_shelf && t->blocks < t->room) {
        struct ft_block *from = &t->card->shelf[operation->which % t->card->on_shelf];
        t->block[t->blocks++] = *from;
        *from = t->card->shelf[--t->card->on_shelf];
    }
    pthread_mutex_unlock(&w->mutex);
}

/* Keeps the newer graph of a block of a tag; others go at once. */
static void keep_graph(struct ft_world *w, struct ft_block *b, CUgraphExec exec)
{
    CUgraphExec gone = b->tag ? b->exec : exec;
    if (b->tag) {
        b->exec = exec;
        b->exec_value = b->value;
    }
    if (gone)
        FT_MUST(w, cuGraphExecDestroy(gone));
}

/* Work on a block as a graph, which is launched. The capture is the thread's alone. */
void ft_capture(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    CUgraph graph;
    CUgraphExec exec;
    struct ft_stream *stream = &t->own[0];
    struct ft_block *b = t->blocks ? &t->block[operation->which % t->blocks] : NULL;
    /* While one captures, others may not wait for the context. */
    if (!w->plan->turns || !b || !stream->handle || stream->blocking || (b->kind != FT_CUDA && b->home != stream))
        return;
    if (!ft_touch_begin(t, b))
        return;
    if (FT_MUST(w, cuStreamBeginCapture_v2(stream->handle, CU_STREAM_CAPTURE_MODE_RELAXED))) {
        write_all(t, b, stream->handle, operation->how | 1);
        launch(t, w->check, b, stream->handle);
        FT_MUST(w, cuStreamEndCapture(stream->handle, &graph));
        FT_MUST(w, cuGraphInstantiateWithFlags(&exec, graph, 0));
        order_after(t, b, stream->handle);
        FT_MUST(w, cuGraphLaunch(exec, stream->handle));
        note_work(t, b, stream->handle);
        FT_MUST(w, cuGraphDestroy(graph));
        keep_graph(w, b, exec);
    }
    ft_touch_end(t, b);
}

bool ft_probe(struct ft_thread *t, uint64_t bytes)
{
    struct ft_block *b = NULL;
    for (unsigned tries = 0; tries <= t->world->plan->refusals && !b; tries++)
        b = have(t, bytes, &t->card->legacy, 0, tries);
    if (!b)
        return false;
    write_all(t, b, NULL, 1);
    launch(t, t->world->check, b, NULL);
    note_work(t, b, NULL);
    ft_block_end(t, b, 0);
    return true;
}
