#include "analysis/order_bound.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lag_queue.h"
#include "analysis/tags.h"
#include "idmap.h"
#include "recordings.h"

enum { PAIRS = 32, PIECES_MAX = 4096 };
#define NOBODY 255 /* no stream has this number */
_Static_assert(SG_CARD_STREAMS <= NOBODY, "a stream's number fits in a byte");

/* Streams' positions count stretches of work between recordings on them, which is all that others can come after. */
struct block {
    uint64_t bytes;
    uint32_t next; /* of the unused ones */
    uint8_t tag, device, streams, stream[PAIRS]; /* its own first */
};

/* Free bytes of one order. */
struct piece {
    uint64_t bytes;
    uint64_t version; /* of what is known, for which `takers` holds */
    uint64_t takers[SG_CARD_STREAMS / 64]; /* a bit for each stream that could use it */
    uint8_t device, streams, count; /* of takers */
    uint8_t stream[PAIRS];
    uint64_t position[PAIRS];
};

struct sg_bound {
    uint64_t smallest;
    struct sg_lag_queue *queue; /* nothing runs ahead in it: only the order is asked of it */
    struct sg_ledger_clock known;  /* what the host has waited for */
    struct sg_recordings recordings;
    uint64_t version;
    bool seen[SG_CARD_STREAMS], fresh[SG_CARD_STREAMS]; /* fresh: work since its last recording */
    bool has_work;
    uint32_t seen_streams;
    struct sg_idmap live;
    struct block *block; /* number 0 is none */
    uint32_t blocks, blocks_room, unused;
    struct piece *piece;
    uint32_t pieces;
    uint64_t pool[64], now[64], peak[64]; /* bytes of each device: of the pool; live */
    struct sg_tag_book tags;              /* of the blocks here */
};

struct sg_bound *sg_bound_new(uint64_t smallest)
{
    struct sg_bound *bound = calloc(1, sizeof *bound);
    if (!bound)
        return NULL;
    bound->smallest = smallest;
    bound->queue = sg_lag_queue_new(0);
    bound->piece = malloc(PIECES_MAX * sizeof *bound->piece);
    if (bound->queue && bound->piece && sg_recordings_init(&bound->recordings, sizeof(struct sg_ledger_clock)) &&
        sg_idmap_init(&bound->live))
        return bound;
    sg_bound_delete(bound);
    return NULL;
}

void sg_bound_delete(struct sg_bound *bound)
{
    if (!bound)
        return;
    sg_lag_queue_delete(bound->queue);
    sg_recordings_fini(&bound->recordings);
    sg_idmap_fini(&bound->live);
    free(bound->block);
    free(bound->piece);
    free(bound);
}

/* The position on `stream` up to which it has been given work. */
static uint64_t position_of(const struct sg_bound *bound, uint32_t stream)
{
    return bound->queue->submitted[stream] + bound->fresh[stream];
}

static void read_clock(struct sg_bound *bound, uint32_t stream, struct sg_ledger_clock *ret)
{
    if (bound->fresh[stream])
        sg_lag_queue_submit(bound->queue, stream);
    bound->fresh[stream] = false;
    sg_lag_queue_record(bound->queue, stream, ret);
}

static bool comes_after(const struct sg_ledger_clock *clock, uint32_t stream, uint64_t position)
{
    return position == 0 || (stream < clock->streams && clock->at[stream] >= position);
}

static bool is_usable(const struct sg_bound *bound, const struct piece *piece, uint32_t by)
{
    for (unsigned i = 0; i < piece->streams; i++) {
        uint32_t stream = piece->stream[i];
        if (stream != by && !comes_after(&bound->queue->after[by], stream, piece->position[i]) &&
            !comes_after(&bound->known, stream, piece->position[i]))
            return false;
    }
    return true;
}

static void piece_refresh(const struct sg_bound *bound, struct piece *piece)
{
    if (piece->version == bound->version)
        return;
    piece->version = bound->version;
    piece->count = 0;
    memset(piece->takers, 0, sizeof piece->takers);
    for (uint32_t stream = 0; stream < bound->queue->streams; stream++) {
        if (bound->seen[stream] && is_usable(bound, piece, stream)) {
            piece->takers[stream / 64] |= UINT64_C(1) << stream % 64;
            piece->count++;
        }
    }
}

/* Makes room for another piece: a later one of the same stream takes an earlier one in; where there is none, the oldest
   is never used again. Both can only make the bound larger, and only where thousands of orders are free at once. */
static void bound_fold_pieces(struct sg_bound *bound)
{
    struct piece *piece = bound->piece;
    for (uint32_t i = 0; i + 1 < bound->pieces; i++) {
        for (uint32_t j = i + 1; j < bound->pieces && j < i + 16; j++) {
            if (piece[i].streams != 1 || piece[j].streams != 1 || piece[i].stream[0] != piece[j].stream[0] ||
                piece[i].device != piece[j].device)
                continue;
            piece[j].bytes += piece[i].bytes;
            memmove(&piece[i], &piece[i + 1], (--bound->pieces - i) * sizeof *piece);
            return;
        }
    }
    memmove(&piece[0], &piece[1], --bound->pieces * sizeof *piece);
}

static void put_piece(struct sg_bound *bound, const struct piece *new)
{
    for (uint32_t i = bound->pieces; i > 0; i--) {
        struct piece *old = &bound->piece[i - 1];
        if (old->device == new->device && old->streams == new->streams &&
            !memcmp(old->stream, new->stream, new->streams) &&
            !memcmp(old->position, new->position, new->streams * sizeof *new->position)) {
            old->bytes += new->bytes;
            return;
        }
    }
    if (bound->pieces == PIECES_MAX)
        bound_fold_pieces(bound);
    bound->piece[bound->pieces++] = *new;
}

/* The usable piece that the fewest streams could use, of those the oldest. NULL: there is none. */
static struct piece *bound_scarcest_piece(struct sg_bound *bound, uint32_t stream, int device)
{
    struct piece *best = NULL;
    for (uint32_t i = 0; i < bound->pieces; i++) {
        struct piece *piece = &bound->piece[i];
        if (piece->device != device)
            continue;
        piece_refresh(bound, piece);
        if (piece->takers[stream / 64] >> stream % 64 & 1 && (!best || piece->count < best->count))
            best = piece;
    }
    return best;
}

static void bound_take_piece(struct sg_bound *bound, uint32_t stream, int device, uint64_t bytes)
{
    struct piece *piece;
    while (bytes && (piece = bound_scarcest_piece(bound, stream, device))) {
        uint64_t part = bytes < piece->bytes ? bytes : piece->bytes;
        piece->bytes -= part;
        bytes -= part;
        if (!piece->bytes) {
            size_t after = (size_t)(&bound->piece[--bound->pieces] - piece);
            memmove(piece, piece + 1, after * sizeof *piece);
        }
    }
    bound->pool[device] += bytes;
}

/* Takes bytes for a tag that comes back: of what is complete, as its pages come from what nobody may use. */
static void bound_take_complete(struct sg_bound *bound, int device, uint64_t bytes)
{
    for (uint32_t i = 0; i < bound->pieces && bytes; i++) {
        struct piece *piece = &bound->piece[i];
        bool complete = piece->device == device;
        for (unsigned k = 0; k < piece->streams && complete; k++)
            complete = comes_after(&bound->known, piece->stream[k], piece->position[k]);
        uint64_t part = complete ? (bytes < piece->bytes ? bytes : piece->bytes) : 0;
        piece->bytes -= part; /* one without bytes is passed by, and goes when it is taken */
        bytes -= part;
    }
    bound->pool[device] += bytes;
}

/* Notes the live bytes of a device, which have changed. */
static void bound_note_live(struct sg_bound *bound, int device, int64_t change)
{
    bound->now[device] += (uint64_t)change;
    if (bound->now[device] > bound->peak[device])
        bound->peak[device] = bound->now[device];
}

/* Takes a record about tags in. A pause gives the bytes of its blocks to everybody, since it waits for their work. A resume takes as many
   as are left of them. */
static void bound_take_tags(struct sg_bound *bound, const struct segalloc_trace_record *record, int device)
{
    int64_t change = sg_tag_book_take(&bound->tags, record, (uint32_t)device);
    struct piece piece = {.bytes = (uint64_t)-change, .version = UINT64_MAX, .device = (uint8_t)device};
    if (change < 0)
        put_piece(bound, &piece);
    if (change > 0)
        bound_take_complete(bound, device, (uint64_t)change);
    bound_note_live(bound, device, change);
}

static uint32_t new_block(struct sg_bound *bound)
{
    uint32_t number = bound->unused;
    if (number) {
        bound->unused = bound->block[number].next;
        return number;
    }
    if (bound->blocks + 1 >= bound->blocks_room) {
        uint32_t room = bound->blocks_room ? 2 * bound->blocks_room : 1024;
        struct block *larger = realloc(bound->block, room * sizeof *larger);
        if (!larger)
            return 0;
        bound->block = larger;
        bound->blocks_room = room;
    }
    return ++bound->blocks;
}

static void bound_release_block(struct sg_bound *bound, uint64_t id)
{
    uint32_t number = (uint32_t)sg_idmap_take(&bound->live, id);
    if (!number)
        return;
    struct block *block = &bound->block[number];
    struct piece piece = {.bytes = block->bytes, .version = UINT64_MAX, .device = block->device,
        .streams = block->streams};
    for (unsigned i = 0; i < block->streams; i++) {
        piece.stream[i] = block->stream[i];
        piece.position[i] = block->stream[i] == NOBODY ? UINT64_MAX : position_of(bound, block->stream[i]);
    }
    if (sg_tag_book_free(&bound->tags, block->tag, block->device, block->bytes)) { /* else it has no bytes now */
        bound_note_live(bound, block->device, -(int64_t)block->bytes);
        put_piece(bound, &piece);
    }
    block->next = bound->unused;
    bound->unused = number;
}

static int bound_allocate(struct sg_bound *bound, const struct segalloc_trace_record *record, uint32_t stream,
    int device)
{
    if (record->size < bound->smallest || !record->size) {
        bound->tags.next[record->thread] = 0;
        return 0;
    }
    bound_release_block(bound, record->id); /* a trace that contradicts itself */
    uint32_t number = new_block(bound);
    if (!number || !sg_idmap_put(&bound->live, record->id, number))
        return -ENOMEM;
    bound->block[number] = (struct block){.bytes = record->size,
        .tag = sg_tag_book_allocate(&bound->tags, record, (uint32_t)device),
        .device = (uint8_t)device,
        .streams = 1,
        .stream = {(uint8_t)stream}};
    bound_take_piece(bound, stream, device, record->size);
    bound_note_live(bound, device, (int64_t)record->size);
    if (!bound->has_work)
        bound->fresh[stream] = true;
    return 0;
}

static void record_stream(struct sg_bound *bound, uint64_t id, uint32_t stream)
{
    uint64_t number = sg_idmap_get(&bound->live, id);
    if (!number)
        return;
    struct block *block = &bound->block[number];
    for (unsigned i = 0; i < block->streams; i++)
        if (block->stream[i] == stream)
            return;
    if (block->streams < PAIRS)
        block->stream[block->streams++] = (uint8_t)stream;
    else
        block->stream[PAIRS - 1] = NOBODY; /* used on so many that nobody takes it */
}

static void note_complete(struct sg_bound *bound, const struct sg_ledger_clock *clock)
{
    if (clock)
        sg_ledger_clock_join(&bound->known, clock);
    bound->version++;
}

static void note_all_complete(struct sg_bound *bound, int device)
{
    struct sg_ledger_clock clock;
    for (uint32_t stream = 0; stream < bound->queue->streams; stream++) {
        if (bound->seen[stream] && bound->queue->device[stream] == device) {
            read_clock(bound, stream, &clock);
            note_complete(bound, &clock);
        }
    }
}

static void bound_take_order(struct sg_bound *bound, const struct segalloc_trace_record *record, uint32_t stream,
    int device)
{
    const struct sg_ledger_clock *recording;
    struct sg_ledger_clock clock;
    bound->has_work = true;
    switch (record->kind) {
    case SEGALLOC_RECORD_LAUNCH:
        bound->fresh[stream] = true;
        break;
    case SEGALLOC_RECORD_EVENT_RECORD:
        read_clock(bound, stream, sg_recordings_put(&bound->recordings, record->id));
        break;
    case SEGALLOC_RECORD_STREAM_WAIT:
        recording = sg_recordings_get(&bound->recordings, record->id);
        if (recording)
            sg_lag_queue_wait(bound->queue, stream, recording);
        bound->version++;
        break;
    case SEGALLOC_RECORD_EVENT_SYNC:
    case SEGALLOC_RECORD_EVENT_QUERY:
        note_complete(bound, sg_recordings_get(&bound->recordings, record->id));
        break;
    case SEGALLOC_RECORD_STREAM_SYNC:
        read_clock(bound, stream, &clock);
        note_complete(bound, &clock);
        break;
    default:
        note_all_complete(bound, device);
    }
}

static uint32_t stream_of(struct sg_bound *bound, const struct segalloc_trace_record *record, int device)
{
    uint32_t stream = sg_lag_queue_stream(bound->queue, record->stream, device);
    if (!bound->seen[stream]) {
        bound->seen[stream] = true;
        bound->seen_streams++;
        bound->version++;
    }
    return stream;
}

int sg_bound_add(struct sg_bound *bound, const struct segalloc_trace_record *record, int device)
{
    if (device >= 64)
        return 0;
    bound_take_tags(bound, record, device);
    if (record->kind == SEGALLOC_RECORD_NONE || record->kind > SEGALLOC_RECORD_DEVICE_SYNC)
        return 0;
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return bound_allocate(bound, record, stream_of(bound, record, device), device);
    case SEGALLOC_RECORD_FREE:
        bound_release_block(bound, record->id);
        return 0;
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
        return 0;
    case SEGALLOC_RECORD_RECORD_STREAM:
        record_stream(bound, record->id, stream_of(bound, record, device));
        return 0;
    case SEGALLOC_RECORD_EVENT_SYNC:
    case SEGALLOC_RECORD_EVENT_QUERY:
    case SEGALLOC_RECORD_DEVICE_SYNC: /* their stream says nothing */
        bound_take_order(bound, record, 0, device);
        return 0;
    default:
        bound_take_order(bound, record, stream_of(bound, record, device), device);
        return 0;
    }
}

struct sg_bound_result sg_bound_result(const struct sg_bound *bound)
{
    struct sg_bound_result result = {.ordered = bound->has_work && bound->seen_streams > 1};
    for (int device = 0; device < 64; device++) {
        result.pool_bytes += bound->pool[device];
        result.live_bytes += bound->peak[device];
    }
    return result;
}
