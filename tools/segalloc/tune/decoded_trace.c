#include "tune/decoded_trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/refusals.h"
#include "analysis/tags.h"
#include "reader/dictionary.h"
#include "idmap.h"
#include "progress.h"
#include "size.h"
#include "stats.h"
#include "trace_file.h"
#include "reader/trace_reader.h"

enum { CHUNK_EVENTS = 1 << 16, BATCH = 1024, STREAM_BITS = 24 };
/* Traces with fewer events are too short for a part to say anything. A level within this part of its peak is near
   it. */
enum { DIVIDED_LEAST = 200, NEAR_PART = 50 };
#define SIZE_MAXIMUM ((UINT64_C(1) << 56) - 1) /* no device has so much: it fails all the same */

struct sg_tune_event {
    uint64_t size : 56, flags : 8; /* define stream: the device */
    uint32_t slot;                 /* of the block, from 1; what was freed last is used first. Work: of the recording */
    uint32_t stream : STREAM_BITS, kind : 8;
};
_Static_assert(sizeof(struct sg_tune_event) == SG_TUNE_EVENT_BYTES, "the size that messages and the manual state");

struct decoder {
    struct sg_tune_trace *trace;
    struct sg_idmap live; /* id of the trace -> slot */
    uint32_t *spare;
    size_t spares, room;
    uint64_t *size; /* of the block in each slot */
    uint32_t slots, sizes;
    struct sg_dictionary dictionary;
    struct sg_refusals refusals;
    uint64_t alive[SEGALLOC_TRACE_DEVICES], peak[SEGALLOC_TRACE_DEVICES]; /* bytes of each device */
    uint8_t *device, *tag;                                                /* of the block in each slot */
    struct sg_tag_book tags;                                              /* what is paused is not alive */
    uint64_t reserved[SEGALLOC_TRACE_DEVICES];                            /* at the peak, by the last statistics */
    uint64_t bound;
    uint64_t place; /* byte of the file at which the record stands; 0: unknown */
    char *error;
};

static const struct sg_tune_event *event_at(const struct sg_tune_trace *trace, size_t at)
{
    return &trace->chunk[at / CHUNK_EVENTS][at % CHUNK_EVENTS];
}

static int decoder_fail(struct decoder *decoder, int status, const char *what, uint64_t id)
{
    int length = decoder->place ? snprintf(decoder->error, SG_TUNE_ERROR, "byte %" PRIu64 ": ", decoder->place) : 0;
    snprintf(decoder->error + length, SG_TUNE_ERROR - (size_t)length, "event %" PRIu64 " %s 0x%" PRIx64,
        decoder->trace->events, what, id);
    return status;
}

static int no_memory(struct decoder *decoder)
{
    snprintf(decoder->error, SG_TUNE_ERROR, "no host memory left at event %" PRIu64, decoder->trace->events);
    return -ENOMEM;
}

static int add_chunk(struct decoder *decoder)
{
    struct sg_tune_trace *trace = decoder->trace;
    char bound[SG_SIZE_TEXT];
    if ((trace->chunks + 1) * sizeof(struct sg_tune_event) * CHUNK_EVENTS > decoder->bound) {
        snprintf(decoder->error, SG_TUNE_ERROR,
            "the events take more than %s of memory (%d bytes each, %" PRIu64
            " read so far); allow more with --memory, or tune on "
            "a part: segalloc trace cat TRACE --to SECONDS -o PART.csv",
            sg_size_format(decoder->bound, bound), SG_TUNE_EVENT_BYTES, trace->events);
        return -E2BIG;
    }
    struct sg_tune_event **larger = realloc(trace->chunk, (trace->chunks + 1) * sizeof *larger);
    if (!larger)
        return no_memory(decoder);
    trace->chunk = larger;
    if (!(larger[trace->chunks] = malloc(sizeof(struct sg_tune_event) * CHUNK_EVENTS)))
        return no_memory(decoder);
    trace->chunks++;
    trace->bytes += sizeof(struct sg_tune_event) * CHUNK_EVENTS;
    return 0;
}

static int decoder_append(struct decoder *decoder, const struct segalloc_trace_record *record, uint32_t slot)
{
    struct sg_tune_trace *trace = decoder->trace;
    if (record->stream >> STREAM_BITS)
        return decoder_fail(decoder, -ERANGE, "is on a stream of too high a number:", record->stream);
    int status = trace->count == trace->chunks * CHUNK_EVENTS ? add_chunk(decoder) : 0;
    if (status)
        return status;
    uint64_t size = record->kind == SEGALLOC_RECORD_DEFINE_STREAM ? (uint32_t)record->size : record->size;
    trace->chunk[trace->count / CHUNK_EVENTS][trace->count % CHUNK_EVENTS] = (struct sg_tune_event){
        .size = (size < SIZE_MAXIMUM ? size : SIZE_MAXIMUM) & SIZE_MAXIMUM,
        .flags = record->flags,
        .slot = slot,
        .stream = record->stream & ((1u << STREAM_BITS) - 1),
        .kind = record->kind,
    };
    trace->count++;
    return 0;
}

static uint32_t device_of(const struct decoder *decoder, const struct segalloc_trace_record *record)
{
    return sg_dictionary_stream(&decoder->dictionary, record->stream)->device % SEGALLOC_TRACE_DEVICES;
}

/* `bytes` are asked for on a device, besides what was alive there. */
static void decoder_need(struct decoder *decoder, uint32_t device, uint64_t alive, uint64_t bytes)
{
    uint64_t *needed = &decoder->trace->needed[device], sum = alive + bytes;
    if (sum >= bytes && sum > *needed)
        *needed = sum;
}

/* Refused: whether it failed turns out later. */
static int decoder_refuse(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    struct sg_refusal *refusal = sg_refusal_open(&decoder->refusals, record);
    if (!refusal)
        return no_memory(decoder);
    refusal->device = device_of(decoder, record);
    refusal->mark[0] = decoder->trace->count;
    refusal->mark[1] = decoder->alive[refusal->device];
    if (refusal->by) /* other settings have no part in it */
        return 0;
    return decoder_append(decoder, record, 0);
}

static void fail_to_allocate(struct decoder *decoder, const struct sg_refusal *refusal)
{
    struct sg_tune_trace *trace = decoder->trace;
    if (refusal->by) {
        if (!trace->failures_outside++ || refusal->bytes > trace->failed_outside_bytes) {
            trace->failed_outside_bytes = refusal->bytes;
            trace->failed_outside_by = refusal->by;
        }
        return;
    }
    trace->failures++;
    decoder_need(decoder, refusal->device, refusal->mark[1], refusal->bytes);
}

/* Takes out refusals that were made good, since no program asks for them under other settings. */
static void decoder_settle_failures(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    struct sg_refusal refusal;
    enum sg_refusal_end end = sg_refusals_settle(&decoder->refusals, record, &refusal);
    if (end == SG_REFUSAL_FAILED)
        fail_to_allocate(decoder, &refusal);
    else if (end == SG_REFUSAL_MADE_GOOD && !refusal.by)
        decoder->trace->chunk[refusal.mark[0] / CHUNK_EVENTS][refusal.mark[0] % CHUNK_EVENTS].kind = SEGALLOC_RECORD_NONE;
}

static void decoder_take_statistic(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    static const char name[] = "reserved_bytes";
    if (record->flags & SEGALLOC_FLAG_PEAK && record->id == sg_name_hash(name))
        decoder->reserved[record->stream % SEGALLOC_TRACE_DEVICES] = record->size;
}

static int decoder_allocate(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    if (sg_idmap_get(&decoder->live, record->id))
        return decoder_fail(decoder, -EINVAL, "allocates what is alive already:", record->id);
    uint32_t slot = decoder->spares ? decoder->spare[--decoder->spares] : ++decoder->slots;
    if (!slot || !sg_idmap_put(&decoder->live, record->id, slot))
        return no_memory(decoder);
    if (slot >= decoder->sizes) {
        uint32_t sizes = slot + slot / 2 + 4096;
        uint64_t *larger = realloc(decoder->size, (size_t)sizes * sizeof *larger);
        uint8_t *devices = larger ? realloc(decoder->device, sizes) : NULL;
        decoder->size = larger ? larger : decoder->size;
        decoder->device = devices ? devices : decoder->device;
        uint8_t *tags = devices ? realloc(decoder->tag, sizes) : NULL;
        if (!tags)
            return no_memory(decoder);
        decoder->tag = tags;
        decoder->sizes = sizes;
    }
    uint32_t device = device_of(decoder, record);
    decoder_need(decoder, device, decoder->alive[device], record->size);
    decoder->size[slot] = record->size;
    decoder->device[slot] = (uint8_t)device;
    decoder->tag[slot] = sg_tag_book_allocate(&decoder->tags, record, device);
    decoder->alive[device] += record->size;
    if (decoder->alive[device] > decoder->peak[device])
        decoder->peak[device] = decoder->alive[device];
    return decoder_append(decoder, record, slot);
}

static int decoder_release(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    uint32_t slot = (uint32_t)sg_idmap_take(&decoder->live, record->id);
    if (!slot)
        return 0; /* allocated before the trace begins */
    if (decoder->spares == decoder->room) {
        size_t room = decoder->room ? 2 * decoder->room : 4096;
        uint32_t *larger = realloc(decoder->spare, room * sizeof *larger);
        if (!larger)
            return no_memory(decoder);
        decoder->spare = larger;
        decoder->room = room;
    }
    decoder->spare[decoder->spares++] = slot;
    uint8_t device = decoder->device[slot];
    if (sg_tag_book_free(&decoder->tags, decoder->tag[slot], device, decoder->size[slot]))
        decoder->alive[device] -= decoder->size[slot];
    return decoder_append(decoder, record, slot);
}

/* Work, and what the program waited for: under the lag of a GPU it decides when what was freed is free. A further
   launch on the same stream changes nothing. The number of a recording has room in 32 bits, for only the latest are
   looked for. */
static int add_work(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    const struct sg_tune_trace *trace = decoder->trace;
    const struct sg_tune_event *last = trace->count ? event_at(trace, trace->count - 1) : NULL;
    if (last && last->kind == SEGALLOC_RECORD_LAUNCH && record->kind == SEGALLOC_RECORD_LAUNCH &&
        last->stream == record->stream)
        return 0;
    return decoder_append(decoder, record, (uint32_t)record->id);
}

/* A pause takes bytes away, and a resume brings them back, once its end says that it has succeeded. */
static void decoder_take_pause(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    uint32_t device = device_of(decoder, record), of = decoder->tags.order.tag ? decoder->tags.order.device : device;
    decoder->alive[of] += (uint64_t)sg_tag_book_take(&decoder->tags, record, device);
    decoder_need(decoder, of, decoder->alive[of], 0);
    if (decoder->alive[of] > decoder->peak[of])
        decoder->peak[of] = decoder->alive[of];
}

/* A card without end, as `segalloc rehearse` has, says nothing: its pages are as large as no card's that is sold. */
static uint64_t card_sold(uint64_t bytes)
{
    return bytes < SG_TIB ? bytes : 0;
}

/* Keeps what can decide where memory goes under settings other than the recorded ones: the steps of the recorded slow
   allocations, for one, do not. */
static int decoder_take_record(struct decoder *decoder, const struct segalloc_trace_record *record)
{
    if (record->kind < SEGALLOC_RECORD_DONE)
        decoder->trace->events++;
    struct sg_tune_trace *trace = decoder->trace;
    if (sg_dictionary_add(&decoder->dictionary, record) == -ENOMEM)
        return no_memory(decoder);
    decoder_settle_failures(decoder, record);
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return decoder_allocate(decoder, record);
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_REFUSED_OUTSIDE:
        return decoder_refuse(decoder, record);
    case SEGALLOC_RECORD_STATISTIC:
        decoder_take_statistic(decoder, record);
        return 0;
    case SEGALLOC_RECORD_FREE:
        return decoder_release(decoder, record);
    case SEGALLOC_RECORD_RECORD_STREAM: {
        uint32_t slot = (uint32_t)sg_idmap_get(&decoder->live, record->id);
        return slot ? decoder_append(decoder, record, slot) : 0;
    }
    case SEGALLOC_RECORD_LAUNCH:
    case SEGALLOC_RECORD_EVENT_RECORD:
    case SEGALLOC_RECORD_STREAM_WAIT:
    case SEGALLOC_RECORD_EVENT_SYNC:
    case SEGALLOC_RECORD_EVENT_QUERY:
    case SEGALLOC_RECORD_STREAM_SYNC:
    case SEGALLOC_RECORD_DEVICE_SYNC:
        return add_work(decoder, record);
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        trace->granularity = record->id > trace->granularity ? record->id : trace->granularity;
        trace->card[record->stream % SEGALLOC_TRACE_DEVICES] = record->size;
        return decoder_append(decoder, record, 0);
    case SEGALLOC_RECORD_DEFINE_STREAM:
    case SEGALLOC_RECORD_EMPTY_CACHE:
    case SEGALLOC_RECORD_DONE:
    case SEGALLOC_RECORD_PRESSURE:
    case SEGALLOC_RECORD_COST:
    case SEGALLOC_RECORD_PEERS:
        return decoder_append(decoder, record, 0);
    case SEGALLOC_RECORD_TURN:
        decoder_take_pause(decoder, record);
        return record->id == SEGALLOC_TURN_PAUSE_END ? decoder_append(decoder, record, (uint32_t)record->id) : 0;
    case SEGALLOC_RECORD_TAG: /* the tag stands where a block's slot does */
    case SEGALLOC_RECORD_PAUSE:
    case SEGALLOC_RECORD_RESUME:
        decoder_take_pause(decoder, record);
        return record->id <= UINT8_MAX ? decoder_append(decoder, record, (uint32_t)record->id) : 0;
    case SEGALLOC_RECORD_OUTSIDE: /* its category stands where a block's slot does */
        return decoder_append(decoder, record, record->id < SEGALLOC_OUTSIDE_COUNT ? (uint32_t)record->id : 0);
    default:
        return 0;
    }
}

static int decoder_decode(struct decoder *decoder, struct sg_trace_reader *reader, const atomic_bool *stop)
{
    struct segalloc_trace_record batch[BATCH];
    struct sg_progress progress = {0};
    int status = 0;
    for (size_t n; status == 0 && (n = sg_trace_read(reader, batch, BATCH)) > 0;) {
        uint64_t next = sg_trace_info(reader)->next;
        for (size_t i = 0; i < n && status == 0; i++) {
            decoder->place = next ? next - (n - i) * sizeof *batch : 0;
            status = decoder_take_record(decoder, &batch[i]);
        }
        sg_progress_show(&progress, "reading", sg_trace_progress(reader));
        if (status == 0 && atomic_load_explicit(stop, memory_order_relaxed)) {
            snprintf(decoder->error, SG_TUNE_ERROR, "stopped while it was read: nothing is known yet");
            status = -EINTR;
        }
    }
    sg_progress_end(&progress);
    const char *fault = sg_trace_error(reader);
    if (!fault && sg_trace_info(reader)->end == SG_TRACE_DAMAGED)
        fault = sg_trace_info(reader)->end_text;
    if (status == 0 && fault) {
        snprintf(decoder->error, SG_TUNE_ERROR, "%s", fault);
        status = -EINVAL;
    }
    for (struct sg_refusal refusal; sg_refusals_take_open(&decoder->refusals, &refusal);)
        fail_to_allocate(decoder, &refusal);
    for (uint32_t i = 0; i < SEGALLOC_TRACE_DEVICES; i++) {
        struct sg_tune_trace *trace = decoder->trace;
        trace->card[i] = card_sold(trace->card[i]);
        trace->unknown_card |= trace->needed[i] && !trace->card[i];
        trace->peak[i] = decoder->peak[i];
        trace->peak_live += decoder->peak[i];
        trace->device_bytes = trace->card[i] > trace->device_bytes ? trace->card[i] : trace->device_bytes;
        if (sg_trace_info(reader)->end == SG_TRACE_CLOSED)
            trace->reserved += decoder->reserved[i];
    }
    if (status == 0 && !decoder->slots) {
        snprintf(decoder->error, SG_TUNE_ERROR, "the trace has no allocation to tune for");
        status = -ENODATA;
    }
    return status;
}

int sg_tune_trace_open(const char *path, uint64_t bound, const atomic_bool *stop, struct sg_tune_trace *ret, char *error)
{
    struct sg_trace_reader *reader;
    *ret = (struct sg_tune_trace){.path = path};
    int status = sg_trace_open(path, &reader, error);
    if (status)
        return status;
    struct decoder decoder = {.trace = ret, .bound = bound, .error = error};
    const struct sg_trace_info *info = sg_trace_info(reader);
    ret->granularity = info->header.granularity;
    ret->card[0] = ret->device_bytes = card_sold(info->header.device_bytes);
    ret->conf = strdup(info->conf);
    status = ret->conf && sg_idmap_init(&decoder.live) ? decoder_decode(&decoder, reader, stop) : no_memory(&decoder);
    ret->end_text = status == 0 ? info->end_text : NULL; /* static, where it is not damaged */
    sg_idmap_fini(&decoder.live);
    free(decoder.spare);
    free(decoder.size);
    free(decoder.device);
    free(decoder.tag);
    sg_dictionary_free(&decoder.dictionary);
    sg_refusals_free(&decoder.refusals);
    sg_trace_close(reader);
    return status;
}

/* Room for a trace that another rank has, of `like`'s size. */
static bool tune_trace_make_room(struct sg_tune_trace *trace, const struct sg_tune_trace *like, size_t conf)
{
    trace->conf = calloc(1, conf + 1);
    trace->chunk = calloc(like->chunks + 1, sizeof *trace->chunk);
    for (size_t i = 0; trace->chunk && i < like->chunks; i++, trace->chunks++)
        if (!(trace->chunk[i] = malloc(sizeof(struct sg_tune_event) * CHUNK_EVENTS)))
            return false;
    return trace->conf && trace->chunk;
}

int sg_tune_trace_share(struct sg_tune_trace *trace, const struct sg_tune_ranks *ranks)
{
    struct sg_tune_trace other = *trace;
    size_t conf = trace->conf ? strlen(trace->conf) : 0;
    bool fine = true;
    sg_tune_ranks_share(ranks, 0, &other, sizeof other);
    sg_tune_ranks_share(ranks, 0, &conf, sizeof conf);
    if (ranks->rank) {
        const char *path = trace->path;
        fine = tune_trace_make_room(trace, &other, conf);
        other.path = path;
        other.end_text = NULL; /* an address of another process; rank 0 prints it */
        other.conf = trace->conf;
        other.chunk = trace->chunk;
        other.chunks = trace->chunks;
        *trace = other;
    }
    for (int rank = 0; rank < ranks->count; rank++) {
        bool its = fine;
        sg_tune_ranks_share(ranks, rank, &its, sizeof its);
        fine = fine && its;
    }
    if (!fine)
        return -ENOMEM;
    sg_tune_ranks_share(ranks, 0, trace->conf, conf);
    for (size_t i = 0; i < trace->chunks; i++)
        sg_tune_ranks_share(ranks, 0, trace->chunk[i], sizeof(struct sg_tune_event) * CHUNK_EVENTS);
    return 0;
}

void sg_tune_trace_close(struct sg_tune_trace *trace)
{
    for (size_t i = 0; i < trace->chunks; i++)
        free(trace->chunk[i]);
    free(trace->chunk);
    free(trace->conf);
    *trace = (struct sg_tune_trace){0};
}

/* State of a trace as it is read: blocks alive, and how near each device has come to its peak. */
struct division {
    uint64_t *size; /* of the block in each slot */
    uint8_t *device, *device_of_stream;
    uint64_t alive[SEGALLOC_TRACE_DEVICES], most[SEGALLOC_TRACE_DEVICES];
};

static void divide_at(struct division *division, const struct sg_tune_event *event)
{
    uint8_t device = division->device_of_stream[event->stream];
    if (event->kind == SEGALLOC_RECORD_DEFINE_STREAM) {
        division->device_of_stream[event->stream] = (uint8_t)(event->size % SEGALLOC_TRACE_DEVICES);
    } else if (event->kind == SEGALLOC_RECORD_ALLOCATE) {
        division->size[event->slot] = event->size;
        division->device[event->slot] = device;
        division->alive[device] += event->size;
        if (division->alive[device] > division->most[device])
            division->most[device] = division->alive[device];
    } else if (event->kind == SEGALLOC_RECORD_FREE) {
        division->alive[division->device[event->slot]] -= division->size[event->slot];
    }
}

static bool near_peaks(const struct sg_tune_trace *trace, const struct division *division)
{
    for (unsigned i = 0; i < SEGALLOC_TRACE_DEVICES; i++)
        if (division->most[i] < trace->peak[i] - trace->peak[i] / NEAR_PART)
            return false;
    return true;
}

void sg_tune_trace_divide(struct sg_tune_trace *trace)
{
    uint32_t slots = 1;
    uint64_t events = 0, done = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct sg_tune_event *event = event_at(trace, i);
        bool block = event->kind == SEGALLOC_RECORD_ALLOCATE;
        slots = block && event->slot >= slots ? event->slot + 1 : slots;
        events += event->kind < SEGALLOC_RECORD_DONE;
    }
    struct division division = {.size = calloc(slots, sizeof *division.size),
        .device = calloc(slots, 1),
        .device_of_stream = calloc(1u << STREAM_BITS, 1)};
    bool possible = events >= DIVIDED_LEAST && division.size && division.device && division.device_of_stream;
    for (size_t i = 0; possible && i < trace->count && done <= events / 4 * 3 && !trace->part_end; i++) {
        const struct sg_tune_event *event = event_at(trace, i);
        divide_at(&division, event);
        done += event->kind < SEGALLOC_RECORD_DONE;
        if (done >= events / 2 && near_peaks(trace, &division))
            trace->part_end = done;
    }
    free(division.size);
    free(division.device);
    free(division.device_of_stream);
}

size_t sg_tune_next(void *source, struct segalloc_trace_record *out, size_t n)
{
    struct sg_tune_cursor *cursor = source;
    const struct sg_tune_trace *trace = cursor->trace;
    if (cursor->stopped && cursor->stopped(cursor->user)) {
        cursor->cut = true;
        return 0;
    }
    size_t left = trace->count - cursor->at;
    n = n < left ? n : left;
    for (size_t i = 0; i < n; i++) {
        const struct sg_tune_event *event = event_at(trace, cursor->at++);
        out[i] = (struct segalloc_trace_record){.kind = event->kind,
            .flags = event->flags,
            .stream = event->stream,
            .id = event->slot,
            .size = event->size};
    }
    return n;
}
