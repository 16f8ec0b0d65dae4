/* What the threads do beside blocks. */
#include <stdlib.h>
#include <string.h>

#include "threads_world.h"

enum { STATS_MAX = 128, MIB = 1024 * 1024 };

struct ft_stream *ft_stream_pick(struct ft_thread *t, uint32_t which)
{
    struct ft_world *w = t->world;
    if (w->plan->one_stream)
        return w->plan->common_streams ? &t->card->common[0] : &t->card->legacy;
    unsigned created = t->part->streams + w->plan->common_streams;
    unsigned at = which % (created + 2);
    struct ft_stream *stream = at < t->part->streams ? &t->own[at]
                               : at < created        ? &t->card->common[at - t->part->streams]
                               : at == created       ? &t->card->legacy
                                                     : &t->card->per_thread;
    return stream->handle || stream == &t->card->legacy ? stream : &t->card->legacy;
}

void ft_wait(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    struct ft_block *b = t->blocks ? &t->block[operation->which % t->blocks] : NULL;
    switch (operation->how % 4) {
    case 0:
        FT_MUST(w, cuCtxSynchronize());
        return;
    case 1:
        if (b && b->last)
            FT_MUST(w, cuEventSynchronize(b->last));
        return;
    case 2:
        if (b && b->last && cuEventQuery(b->last) == CUDA_ERROR_INVALID_HANDLE)
            ft_fault(w->result, "an event is not known");
        return;
    default:
        FT_MUST(w, cuStreamSynchronize(ft_stream_pick(t, operation->which)->handle));
    }
}

void ft_trim(struct ft_thread *t, const struct ft_operation *operation)
{
    ft_found.trim(t->card->device, operation->how % 2 ? 0 : operation->bytes);
}

/* From a half of the card to all of it. */
void ft_limit(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    uint64_t card = w->plan->card_bytes;
    uint64_t asked = operation->how % 3 ? card : card / 2 + operation->bytes % (card / 2);
    uint64_t set = ft_found.set_limit(t->card->device, asked);
    if (set > card || (set && set > asked))
        ft_fault(w->result, "the limit is %llu, asked for %llu", (unsigned long long)set, (unsigned long long)asked);
    if (set)
        t->card->limit_bytes = set;
}

static void others_come(struct ft_thread *t, uint64_t bytes, bool pool)
{
    struct ft_world *w = t->world;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = t->card->device}};
    bytes = (bytes / (2 * MIB) + 1) * 2 * MIB;
    if (bytes > w->plan->card_bytes / 4)
        return;
    CUresult result = pool ? cuMemAllocAsync(&t->pool_address, bytes, NULL)
                           : cuMemCreate(&t->physical, bytes, &prop, 0);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        ft_must(w, result, "memory of the driver");
    if (result != CUDA_SUCCESS)
        return;
    *(pool ? &t->pool_bytes : &t->physical_bytes) = bytes;
    atomic_fetch_add(&t->card->others_bytes, bytes);
}

static void others_go(struct ft_thread *t, bool pool)
{
    struct ft_world *w = t->world;
    uint64_t *bytes = pool ? &t->pool_bytes : &t->physical_bytes;
    CUmemoryPool from;
    if (!*bytes)
        return;
    if (pool) {
        FT_MUST(w, cuMemFreeAsync(t->pool_address, NULL));
        FT_MUST(w, cuStreamSynchronize(NULL));
        FT_MUST(w, cuDeviceGetDefaultMemPool(&from, t->card->device));
        FT_MUST(w, cuMemPoolTrimTo(from, 0));
    } else {
        CUresult result = cuMemRelease(t->physical);
        if (!w->plan->refuses_back)
            ft_must(w, result, "cuMemRelease");
    }
    atomic_fetch_sub(&t->card->others_bytes, *bytes);
    *bytes = 0;
}

void ft_others(struct ft_thread *t, const struct ft_operation *operation)
{
    bool pool = operation->how % 2;
    if (pool ? t->pool_bytes : t->physical_bytes)
        others_go(t, pool);
    else
        others_come(t, operation->bytes, pool);
}

void ft_others_end(struct ft_thread *t)
{
    others_go(t, false);
    others_go(t, true);
}

/* Blocks that were allocated for it have no stream then. */
void ft_stream_anew(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    if (!t->part->streams)
        return;
    struct ft_stream *stream = &t->own[operation->which % t->part->streams];
    if (stream->shared)
        return;
    for (unsigned i = 0; i < t->blocks; i++) {
        struct ft_block *b = &t->block[i];
        b->unknown |= b->home == stream;
        b->home = b->home == stream ? NULL : b->home;
    }
    if (stream->handle)
        FT_MUST(w, cuStreamDestroy_v2(stream->handle));
    stream->handle = NULL;
    stream->blocking = operation->how % 3 == 0;
    FT_MUST(w, cuStreamCreate(&stream->handle, stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

static uint64_t value_of(const struct segalloc_stat *stats, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    return 0;
}

uint64_t ft_statistic(int device, const char *name)
{
    struct segalloc_stat stats[STATS_MAX];
    return value_of(stats, ft_found.stats(device, stats, STATS_MAX), name);
}

static void look_at_statistics(struct ft_world *w, int device)
{
    struct segalloc_stat stats[STATS_MAX];
    int count = ft_found.stats(device, stats, STATS_MAX);
    uint64_t requested = value_of(stats, count, "requested_bytes"),
             allocated = value_of(stats, count, "allocated_bytes"), active = value_of(stats, count, "active_bytes"),
             reserved = value_of(stats, count, "reserved_bytes"), pending = value_of(stats, count, "pending_bytes"),
             alive = value_of(stats, count, "allocations"), allocs = value_of(stats, count, "allocs"),
             frees = value_of(stats, count, "frees"), elsewhere = value_of(stats, count, "overflow_bytes");
    if (requested > allocated || allocated > active || active > reserved || active != allocated + pending ||
        reserved - elsewhere > w->plan->card_bytes || allocs != frees + alive)
        ft_fault(w->result,
            "statistics: requested %llu, allocated %llu, pending %llu, active %llu, reserved %llu, elsewhere %llu; "
            "alive %llu, allocs %llu, frees %llu",
            (unsigned long long)requested, (unsigned long long)allocated, (unsigned long long)pending,
            (unsigned long long)active, (unsigned long long)reserved, (unsigned long long)elsewhere,
            (unsigned long long)alive, (unsigned long long)allocs, (unsigned long long)frees);
    if (w->plan->turns && value_of(stats, count, "double_frees"))
        ft_fault(w->result, "a free was taken for a second one");
}

static int by_address(const void *one, const void *other)
{
    const struct segalloc_piece *a = one, *b = other;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* The pieces of the thread's device, by address; none where there are too many. The caller frees them. */
static struct segalloc_piece *list_pieces(struct ft_thread *t, size_t *ret_count)
{
    enum { PIECES = 1 << 14 };
    struct segalloc_piece *piece = malloc(PIECES * sizeof *piece);
    if (!piece)
        abort();
    *ret_count = ft_found.pieces(t->card->device, piece, PIECES);
    if (*ret_count == PIECES)
        *ret_count = 0; /* some are missing */
    qsort(piece, *ret_count, sizeof *piece, by_address);
    return piece;
}

bool ft_is_served(struct ft_thread *t, CUdeviceptr address)
{
    size_t count;
    struct segalloc_piece key = {.address = address}, *piece = list_pieces(t, &count);
    bool served = !count || bsearch(&key, piece, count, sizeof *piece, by_address);
    free(piece);
    return served;
}

/* Pieces don't overlap, and each block that is alive is one. */
static void look_at_pieces(struct ft_thread *t)
{
    size_t count;
    struct segalloc_piece *piece = list_pieces(t, &count);
    for (size_t i = 1; i < count; i++) {
        if (piece[i - 1].address + piece[i - 1].bytes > piece[i].address)
            ft_fault(t->world->result, "pieces overlap at %llx", (unsigned long long)piece[i].address);
    }
    for (unsigned i = 0; i < t->blocks && count; i++) {
        struct segalloc_piece key = {.address = t->block[i].address};
        struct segalloc_piece *found = bsearch(&key, piece, count, sizeof *piece, by_address);
        if (found && !t->block[i].tag &&
            (found->state != SEGALLOC_PIECE_ALLOCATED || found->requested != t->block[i].bytes))
            ft_fault(t->world->result, "the block at %llx of %llu bytes is a piece in state %u of %llu",
                (unsigned long long)key.address, (unsigned long long)t->block[i].bytes, found->state,
                (unsigned long long)found->requested);
    }
    free(piece);
}

void ft_look(struct ft_thread *t)
{
    look_at_statistics(t->world, t->card->device);
    look_at_pieces(t);
}
