/* Memory snapshots of PyTorch's (torch.cuda.memory._snapshot() or _dump_snapshot(), pickled) as traces.

   A snapshot has `segments`, the *state* at its moment, and `device_traces`, the *history* up to then, as far back as it was
   kept. An *early* block is one whose allocation is not in the history: alive in the state, or freed in the history. The
   trace begins with the early blocks, so that every free has an allocation. A block is freed when its memory can be used
   again (`free_completed`), as PyTorch's requested_bytes and its viewer have it.

   Example, a history of three events, and a state with blocks at 0x100 and 0x300:
     history    free_completed 0x200, 512 bytes      its allocation is older: an early block
                alloc          0x300, 1 MiB          alive at the end, and its allocation is here
                segment_alloc  0x900, 20 MiB
     state      0x100, 2 MiB, active                 no allocation in the history: an early block
     records    ALLOCATE 0x200, ALLOCATE 0x100, FREE 0x200, ALLOCATE 0x300, and statistics: reserved bytes at the end from
                the state, their peak by going back through the history

   Limits: memory is that of the pickle and of the early blocks; both together stay within the bound of sg_unpickle_read().
   Fields and actions: torch/csrc/cuda/memory_snapshot.cpp, pytorch/pytorch. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/idmap.h"
#include "base/stats.h"
#include "trace_file.h"
#include "reader/trace_input.h"
#include "reader/unpickle.h"

enum {
    DEVICE_SHIFT = 6,
    DEVICES = 1 << DEVICE_SHIFT,
    STEP = 2, /* records that an event makes at most: its stream's definition and itself */
    ITEM_LEAST = 8 /* bytes that a segment, a block or an event takes in a pickle, however short */
};
_Static_assert(DEVICES == SEGALLOC_TRACE_DEVICES, "a stream's number has room for the ordinals that there can be");

/* The keys and texts of a snapshot that are looked at. */
#define WORDS(X)                                                                                                     \
    X(segments)                                                                                                      \
    X(device_traces) X(device) X(address) X(total_size) X(stream) X(blocks) X(size) X(requested_size) X(state)       \
        X(inactive) X(action) X(addr) X(time_us) X(alloc) X(free) X(free_completed) X(segment_alloc) X(segment_free) \
            X(segment_map) X(segment_unmap) X(oom) X(snapshot)
enum word {
#define WORD(name) WORD_##name,
    WORDS(WORD)
#undef WORD
    WORD_COUNT,
    WORD_NONE
};
static const char *const words[WORD_COUNT] = {
#define WORD(name) #name,
    WORDS(WORD)
#undef WORD
};

/* An event of a history. */
struct event {
    enum word action;
    uint64_t address, size, stream, time_us;
};

/* A level that is known at the end and by its steps up to there: where it began, and how high it was. */
struct level {
    int64_t step, highest; /* from the first step on; highest is at least 0 */
    uint64_t end;
};

struct device {
    bool used;
    struct sg_unpickle_cursor trace;
    struct event next; /* of the trace; action WORD_NONE: it has ended */
    struct level reserved, segments;
};

/* A block whose allocation is not in the history. */
struct early {
    uint64_t address, size, stream;
    uint32_t device;
};

/* A snapshot that is being read. */
struct state {
    struct sg_trace_reader *reader;
    struct sg_unpickle *pickle;
    struct device device[DEVICES];
    uint32_t devices;
    struct early *early;
    size_t earlies, early_room, early_at;
    struct sg_idmap streams; /* of handle << DEVICE_SHIFT | ordinal: the index */
    struct sg_idmap alive;   /* while reading: blocks of the history that have not been freed in it */
    uint32_t stream_count;
    uint64_t first_us, events, visited;
    uint32_t stats_device, stats_at; /* what is to be handed out next */
    char beginning[160];
};

/* The errors that end a snapshot; both return -EINVAL. */
static int snapshot_no_memory(const struct state *state)
{
    return sg_trace_fail(state->reader, "out of memory");
}

static int snapshot_too_large(const struct state *state)
{
    return sg_trace_fail(state->reader, "the snapshot needs more memory than its size accounts for");
}

/* A number under a key; 0: there is none. */
static uint64_t snapshot_number(const struct state *state, sg_value dict, enum word key)
{
    uint64_t number = 0;
    (void)sg_unpickle_number(state->pickle, dict, key, &number);
    return number;
}

/* A known text under a key; WORD_NONE: there is none. */
static enum word snapshot_word(const struct state *state, sg_value dict, enum word key)
{
    sg_value value = sg_unpickle_get(state->pickle, dict, key);
    return sg_value_kind(value) == SG_VALUE_WORD ? (enum word)sg_value_number(value) : WORD_NONE;
}

/* The next of the segments, blocks and events, each of which is visited once. A pickle can name a list and what is in it
   from many places, so that all of them together would have no end: more than its bytes have room for are an error. */
static bool snapshot_visit(struct state *state, struct sg_unpickle_cursor *cursor, sg_value *ret, int *status)
{
    if (*status || !sg_unpickle_next(state->pickle, cursor, ret))
        return false;
    if (++state->visited <= DEVICES + sg_unpickle_bytes(state->pickle) / ITEM_LEAST)
        return true;
    *status = sg_trace_fail(state->reader, "the snapshot has the same segments, blocks or events in several places");
    return false;
}

/* True if `bytes` may be taken besides those that the snapshot has taken so far. */
static bool snapshot_affords(const struct state *state, uint64_t bytes)
{
    uint64_t held = state->early_room * sizeof(*state->early) + sg_idmap_bytes(&state->alive);
    return held + bytes <= sg_unpickle_spare(state->pickle);
}

/* The event of a row of a device's history; action WORD_NONE where it is not known. */
static struct event snapshot_event(const struct state *state, sg_value row)
{
    enum word action = snapshot_word(state, row, WORD_action);
    if (action == WORD_NONE || action == WORD_snapshot)
        return (struct event){.action = WORD_NONE};
    return (struct event){action, snapshot_number(state, row, WORD_addr), snapshot_number(state, row, WORD_size),
                          snapshot_number(state, row, WORD_stream), snapshot_number(state, row, WORD_time_us)};
}

/* The next event of a device's history that is known; action WORD_NONE at the end. */
static struct event snapshot_next_event(const struct state *state, struct sg_unpickle_cursor *cursor)
{
    struct event event = {.action = WORD_NONE};
    sg_value row;
    while (event.action == WORD_NONE && sg_unpickle_next(state->pickle, cursor, &row))
        event = snapshot_event(state, row);
    return event;
}

/* Changes a level by a step of the history. */
static void level_step(struct level *level, int64_t by)
{
    if (__builtin_add_overflow(level->step, by, &level->step))
        level->step = 0; /* of a file that was made up */
    if (level->step > level->highest)
        level->highest = level->step;
}

/* The highest value of a level: the one at the end, and how far the steps were above it before. Steps +20, +20, -20 and an
   end of 30 mean that it began at 10 and was 50 at most. */
static uint64_t level_peak(const struct level *level)
{
    int64_t below; /* the two can lie further apart in a file that was made up */
    if (__builtin_sub_overflow(level->highest, level->step, &below))
        below = 0;
    return level->end + (below > 0 ? (uint64_t)below : 0);
}

/* Notes a block whose allocation is not in the history. 0 or a negative errno. */
static int snapshot_add_early(struct state *state, struct early early)
{
    if (state->earlies == state->early_room) {
        size_t room = state->early_room ? 2 * state->early_room : 1024;
        if (!snapshot_affords(state, (room - state->early_room) * sizeof(early)))
            return snapshot_too_large(state);
        struct early *larger = realloc(state->early, room * sizeof(*larger));
        if (!larger)
            return snapshot_no_memory(state);
        state->early = larger;
        state->early_room = room;
    }
    state->early[state->earlies++] = early;
    return 0;
}

/* Notes that the history has the allocation of a block. The map may double, hence twice its bytes. */
static int snapshot_add_alive(struct state *state, uint64_t address)
{
    if (!snapshot_affords(state, 2 * sg_idmap_bytes(&state->alive)))
        return snapshot_too_large(state);
    return sg_idmap_put(&state->alive, address, 1) ? 0 : snapshot_no_memory(state);
}

/* Goes through a device's history for what was there before it, and for how much was held. */
static int snapshot_read_history(struct state *state, uint32_t ordinal)
{
    struct device *device = &state->device[ordinal];
    struct sg_unpickle_cursor cursor = device->trace;
    sg_value row;
    int status = 0;
    while (snapshot_visit(state, &cursor, &row, &status)) {
        struct event event = snapshot_event(state, row);
        if (event.action == WORD_NONE)
            continue;
        if (!state->events++ || event.time_us < state->first_us)
            state->first_us = event.time_us;
        device->used = true;
        switch (event.action) {
        case WORD_alloc:
            status = snapshot_add_alive(state, event.address);
            break;
        case WORD_free: /* up to 2.0 */
        case WORD_free_completed:
            if (!sg_idmap_take(&state->alive, event.address))
                status = snapshot_add_early(state, (struct early){event.address, event.size, event.stream, ordinal});
            break;
        case WORD_segment_alloc:
        case WORD_segment_map:
            level_step(&device->reserved, (int64_t)event.size);
            level_step(&device->segments, event.action == WORD_segment_alloc);
            break;
        case WORD_segment_free:
        case WORD_segment_unmap:
            level_step(&device->reserved, -(int64_t)event.size);
            level_step(&device->segments, -(event.action == WORD_segment_free));
            break;
        default:
            break;
        }
    }
    return status;
}

/* A block of the state: an early one, unless it is free or the history has its allocation. */
static int snapshot_read_block(struct state *state, sg_value block, uint64_t address, uint64_t stream, uint32_t ordinal)
{
    uint64_t requested = snapshot_number(state, block, WORD_size); /* up to 2.0 there is no other */
    (void)sg_unpickle_number(state->pickle, block, WORD_requested_size, &requested);
    if (snapshot_word(state, block, WORD_state) == WORD_inactive || sg_idmap_take(&state->alive, address))
        return 0;
    return snapshot_add_early(state, (struct early){address, requested, stream, ordinal});
}

/* A segment of the state, with its blocks in the order of their addresses. */
static int snapshot_read_segment(struct state *state, sg_value segment)
{
    uint64_t ordinal = snapshot_number(state, segment, WORD_device), stream = snapshot_number(state, segment, WORD_stream),
             address = snapshot_number(state, segment, WORD_address);
    struct sg_unpickle_cursor cursor = {.list = sg_unpickle_get(state->pickle, segment, WORD_blocks)};
    sg_value block;
    int status = 0;
    if (ordinal >= DEVICES)
        return sg_trace_fail(state->reader, "a segment is of a device that cannot be");
    struct device *device = &state->device[ordinal];
    device->used = true;
    device->reserved.end += snapshot_number(state, segment, WORD_total_size);
    device->segments.end++;
    while (snapshot_visit(state, &cursor, &block, &status)) {
        (void)sg_unpickle_number(state->pickle, block, WORD_address, &address);
        status = snapshot_read_block(state, block, address, stream, (uint32_t)ordinal);
        /* Up to 2.1 blocks have no address of their own: each begins where the one before ends. */
        address += snapshot_number(state, block, WORD_size);
    }
    return status;
}

/* Says why the trace does not begin with the process. */
static void snapshot_say_beginning(struct state *state)
{
    if (!state->events)
        snprintf(state->beginning, sizeof(state->beginning),
                 "the snapshot has no history, and says what was alive at its moment only");
    else if (state->earlies)
        snprintf(state->beginning, sizeof(state->beginning),
                 "the snapshot's history begins after %zu of its blocks had been allocated", state->earlies);
}

/* Reads all but the history's events, which are read again as records are asked for. */
static int snapshot_read_state(struct state *state, sg_value root)
{
    /* what PyTorch 1 pickles is the list of segments itself */
    bool list = sg_value_kind(root) == SG_VALUE_LIST;
    struct sg_unpickle_cursor segments = {.list = list ? root : sg_unpickle_get(state->pickle, root, WORD_segments)},
                              traces = {.list = sg_unpickle_get(state->pickle, root, WORD_device_traces)};
    sg_value item;
    int status = 0;
    if (sg_value_kind(segments.list) != SG_VALUE_LIST)
        return sg_trace_fail(state->reader, "this pickle is no memory snapshot of PyTorch: it has no list 'segments'");
    for (uint32_t i = 0; !status && sg_unpickle_next(state->pickle, &traces, &item); i++) {
        if (i >= DEVICES)
            return sg_trace_fail(state->reader, "the snapshot has more devices than 64");
        state->device[i].trace.list = item;
        status = snapshot_read_history(state, i);
    }
    while (snapshot_visit(state, &segments, &item, &status))
        status = snapshot_read_segment(state, item);
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct device *device = &state->device[i];
        device->next = snapshot_next_event(state, &device->trace);
        if (device->used)
            state->devices = i + 1;
    }
    return status;
}

/* The index of a stream, with its definition before its first use. Streams beyond those that there can be are the
   device's first. */
static uint32_t snapshot_stream_index(struct state *state, uint64_t handle, uint32_t ordinal,
                             struct segalloc_trace_record **out)
{
    uint64_t key = handle << DEVICE_SHIFT | ordinal, index = sg_idmap_get(&state->streams, key);
    if (index)
        return (uint32_t)index;
    /* Room for one stream of each device is kept, so that there is always one to fall back on. */
    if (state->stream_count + DEVICES + 1 >= SEGALLOC_TRACE_STREAMS && handle)
        return snapshot_stream_index(state, 0, ordinal, out);
    index = ++state->stream_count;
    if (!sg_idmap_put(&state->streams, key, index))
        state->stream_count--; /* defined again then, which a reader takes */
    *(*out)++ = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DEFINE_STREAM,
        .flags = SEGALLOC_FLAG_HEX_STREAM, .stream = (uint32_t)index, .id = handle, .size = ordinal};
    return (uint32_t)index;
}

/* Nanoseconds since the earliest event. */
static uint64_t snapshot_time(const struct state *state, uint64_t time_us)
{
    return time_us > state->first_us ? (time_us - state->first_us) * 1000 : 0;
}

/* The device whose next event is the earliest; NULL: there are no more. */
static struct device *snapshot_earliest(struct state *state)
{
    struct device *first = NULL;
    for (uint32_t i = 0; i < state->devices; i++) {
        struct device *device = &state->device[i];
        if (device->next.action != WORD_NONE && (!first || device->next.time_us < first->next.time_us))
            first = device;
    }
    return first;
}

/* Writes what an event says; nothing for those of segments, which are PyTorch's own. */
static void snapshot_put_event(struct state *state, uint32_t ordinal, const struct event *event,
                      struct segalloc_trace_record **out)
{
    /* free_requested is left out: the memory can be used again at free_completed, and that is what a trace means by a free. */
    struct segalloc_trace_record record = {.id = event->address, .size = event->size,
                                           .time_ns = snapshot_time(state, event->time_us)};
    switch (event->action) {
    case WORD_alloc:
        record.kind = SEGALLOC_RECORD_ALLOCATE;
        break;
    case WORD_free:
    case WORD_free_completed:
        record.kind = SEGALLOC_RECORD_FREE;
        break;
    case WORD_oom:
        record.kind = SEGALLOC_RECORD_ALLOCATE_FAILURE;
        record.flags = SEGALLOC_FLAG_TORCH;
        record.id = 0;
        break;
    default:
        return;
    }
    record.stream = snapshot_stream_index(state, event->stream, ordinal, out);
    *(*out)++ = record;
}

/* Writes the next statistic: reserved bytes and segments of each device, with their peaks. False: all are written. */
static bool snapshot_put_statistic(struct state *state, struct segalloc_trace_record **out)
{
    while (state->stats_device < state->devices && !state->device[state->stats_device].used)
        state->stats_device++;
    if (state->stats_device >= state->devices)
        return false;
    const struct device *device = &state->device[state->stats_device];
    const struct {
        enum sg_stat stat;
        bool peak;
        uint64_t value;
    } all[] = {
        {SG_STAT_reserved_bytes, false, device->reserved.end},
        {SG_STAT_reserved_bytes, true, level_peak(&device->reserved)},
        {SG_STAT_segments, false, device->segments.end},
        {SG_STAT_segments, true, level_peak(&device->segments)},
    };
    enum { ALL = sizeof(all) / sizeof(all[0]) };
    uint32_t at = state->stats_at++;
    bool last = at + 1 == ALL;
    *(*out)++ = (struct segalloc_trace_record){
        .kind = SEGALLOC_RECORD_STATISTIC,
        .flags = (uint8_t)((all[at].peak ? SEGALLOC_FLAG_PEAK : 0) | (last ? SEGALLOC_FLAG_LAST : 0)),
        .stream = state->stats_device,
        .id = sg_name_hash(sg_stat_info(all[at].stat)->name),
        .size = all[at].value,
    };
    if (last) {
        state->stats_at = 0;
        state->stats_device++;
    }
    return true;
}

/* sg_trace_read() of this format: early blocks, then the events of all devices by time, then the statistics. */
static size_t snapshot_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n)
{
    struct state *state = reader->state;
    struct segalloc_trace_record *at = out, *end = out + n;
    assert(n >= STEP);
    while (end - at >= STEP) {
        struct device *device;
        if (state->early_at < state->earlies) {
            const struct early *early = &state->early[state->early_at++];
            struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_ALLOCATE, .id = early->address,
                .size = early->size, .stream = snapshot_stream_index(state, early->stream, early->device, &at)};
            *at++ = record;
        } else if ((device = snapshot_earliest(state)) != NULL) {
            struct event event = device->next;
            device->next = snapshot_next_event(state, &device->trace);
            snapshot_put_event(state, (uint32_t)(device - state->device), &event, &at);
        } else if (!snapshot_put_statistic(state, &at)) {
            break;
        }
    }
    if (at == out && reader->info.end == SG_TRACE_OPEN)
        reader->info.end = SG_TRACE_CLOSED;
    return (size_t)(at - out);
}

/* Bytes for the pickle, from the reader's source. */
static size_t snapshot_more_bytes(void *user, const unsigned char **ret_data)
{
    struct sg_trace_reader *reader = user;
    if (!reader->size && !sg_trace_more(reader))
        return 0;
    size_t size = reader->size;
    *ret_data = reader->data;
    reader->data += size;
    reader->size = 0;
    return size;
}

/* Protocols 2 to 5 begin with their number; the two before, with the dictionary or list that a snapshot is. */
static bool snapshot_detect(const unsigned char *data, size_t size)
{
    if (size < 2)
        return false;
    return (data[0] == 0x80 && data[1] >= 2 && data[1] <= 5) ||
           ((data[0] == '}' || data[0] == ']') && data[1] == 'q') ||
           (data[0] == '(' && (data[1] == 'd' || data[1] == 'l'));
}

/* Reads the pickle, and the state and history in it, but not yet the events. */
static int snapshot_open(struct sg_trace_reader *reader)
{
    struct state *state = reader->state = calloc(1, sizeof(*state));
    char error[SG_UNPICKLE_ERROR];
    sg_value root;
    if (!state)
        return sg_trace_fail(reader, "out of memory");
    state->reader = reader;
    state->pickle = sg_unpickle_new(words, WORD_COUNT);
    if (!state->pickle || !sg_idmap_init(&state->streams) || !sg_idmap_init(&state->alive))
        return snapshot_no_memory(state);
    int status = sg_unpickle_read(state->pickle, snapshot_more_bytes, reader, &root, error);
    if (status)
        return reader->error[0] ? status : sg_trace_fail(reader, "%s", error);
    status = snapshot_read_state(state, root);
    sg_idmap_fini(&state->alive);
    snapshot_say_beginning(state);
    reader->info.begin_text = *state->beginning ? state->beginning : NULL;
    reader->info.header.imported = 1;
    reader->info.header.devices = state->devices;
    return status;
}

static void snapshot_close(struct sg_trace_reader *reader)
{
    struct state *state = reader->state;
    if (!state)
        return;
    sg_idmap_fini(&state->streams);
    sg_idmap_fini(&state->alive);
    sg_unpickle_delete(state->pickle);
    free(state->early);
    free(state);
}

const struct sg_trace_format sg_format_torch_snapshot = {"pytorch-snapshot", snapshot_detect, snapshot_open, snapshot_read,
                                                         snapshot_close};
