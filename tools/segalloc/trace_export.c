#include "trace_export.h"

#include <errno.h>
#include <stdlib.h>

#include "dictionary.h"
#include "idmap.h"
#include "pickle.h"
#include "progress.h"

enum { BATCH = 4096, UNIT = 512 };
#define PAGE (UINT64_C(2) << 20)

enum action { ALLOC, FREED, OOM };

struct item {
    uint64_t id, size, time_ns; /* id: of the trace, later the address that is shown */
    uint32_t stream;            /* index */
    uint64_t had;               /* OOM: bytes that could be had; 0: unknown */
    uint8_t action, device;
    bool alive;                 /* an allocation that nothing frees up to the end */
};

struct range {
    uint64_t begin, end;
};

struct life {
    struct item *item;
    size_t count, room;
    struct range *range; /* whole pages that blocks of one device ever lay in, ascending */
    size_t ranges;
    struct sg_dictionary dictionary;
};

static struct item *add(struct life *life)
{
    if (life->count == life->room) {
        size_t room = life->room ? 2 * life->room : 65536;
        struct item *item = realloc(life->item, room * sizeof *item);
        if (!item)
            return NULL;
        life->item = item;
        life->room = room;
    }
    return &life->item[life->count++];
}

static uint64_t rounded(uint64_t size)
{
    return size ? (size + UNIT - 1) / UNIT * UNIT : UNIT;
}

static int take(struct life *life, struct sg_idmap *live, const struct segalloc_trace_record *record, uint64_t time)
{
    int error = sg_dictionary_add(&life->dictionary, record);
    bool alloc = record->kind == SEGALLOC_RECORD_ALLOCATE, oom = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    if (error || (!alloc && !oom && record->kind != SEGALLOC_RECORD_FREE))
        return error;
    uint64_t index = alloc || oom ? 0 : sg_idmap_take(live, record->id);
    if (!alloc && !oom && !index)
        return 0; /* of a block from before the trace: nobody knows its size */
    uint32_t device = sg_dictionary_stream(&life->dictionary, record->stream)->device;
    struct item *item = add(life);
    if (!item)
        return -ENOMEM;
    *item = (struct item){
        .id = record->id, .size = record->size, .time_ns = time, .stream = record->stream,
        .device = device < SG_DICTIONARY_DEVICES ? (uint8_t)device : 0, .action = alloc ? ALLOC : oom ? OOM : FREED,
        .alive = alloc,
        .had = oom && record->flags & SEGALLOC_FLAG_SHORT && record->size > record->id ? record->size - record->id : 0,
    };
    if (alloc && !sg_idmap_put(live, record->id, life->count))
        return -ENOMEM;
    if (item->action == FREED) {
        struct item *block = &life->item[index - 1];
        block->alive = false;
        item->size = block->size;
        item->stream = block->stream;
        item->device = block->device;
    }
    return 0;
}

static int read_life(struct life *life, struct sg_trace_reader *reader, uint64_t to_ns, bool to_failure)
{
    struct segalloc_trace_record *record = malloc(BATCH * sizeof *record);
    struct sg_progress progress = {0};
    struct sg_idmap live;
    uint64_t start = 0;
    bool started = false, over = false;
    int error = record && sg_idmap_init(&live) ? 0 : -ENOMEM;
    if (error) {
        free(record);
        return error;
    }
    for (size_t n; !error && !over && (n = sg_trace_read(reader, record, BATCH)) > 0;) {
        for (size_t i = 0; i < n && !error && !over; i++) {
            bool event = record[i].kind < SEGALLOC_RECORD_DEFINE_STREAM && record[i].kind != SEGALLOC_RECORD_STATISTIC;
            if (event && !started)
                start = record[i].time_ns;
            started |= event;
            uint64_t time = record[i].time_ns > start ? record[i].time_ns - start : 0;
            over = event && time >= to_ns;
            error = over ? 0 : take(life, &live, &record[i], time);
            over = over || (to_failure && record[i].kind == SEGALLOC_RECORD_ALLOCATE_FAILURE);
        }
        sg_progress_show(&progress, "reading", sg_trace_progress(reader));
    }
    sg_progress_end(&progress);
    sg_idmap_fini(&live);
    free(record);
    return error;
}

/* Where a trace has no addresses, each of its slots gets a stretch as long as the largest block that it ever held. */
static int invent_addresses(struct life *life)
{
    struct sg_idmap largest;
    if (!sg_idmap_init(&largest))
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; i < life->count && !error; i++) {
        const struct item *item = &life->item[i];
        uint64_t before = sg_idmap_get(&largest, item->id);
        if (item->action == ALLOC && rounded(item->size) > before &&
            !sg_idmap_put(&largest, item->id, rounded(item->size)))
            error = -ENOMEM;
    }
    struct sg_idmap place;
    if (!error && !sg_idmap_init(&place))
        error = -ENOMEM;
    if (!error) {
        uint64_t next = PAGE;
        for (size_t i = 0; i < life->count && !error; i++) {
            struct item *item = &life->item[i];
            uint64_t address = sg_idmap_get(&place, item->id);
            if (item->action == ALLOC && !address) {
                address = next;
                next += sg_idmap_get(&largest, item->id);
                error = sg_idmap_put(&place, item->id, address) ? 0 : -ENOMEM;
            }
            item->id = address;
        }
        sg_idmap_fini(&place);
    }
    sg_idmap_fini(&largest);
    return error;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_address(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;
    return (*x)->id < (*y)->id ? -1 : (*x)->id > (*y)->id;
}

/* The pages that blocks of the device ever lay in: events outside of all segments confuse the viewer. */
static void find_ranges(struct life *life, unsigned device)
{
    size_t count = 0;
    for (size_t i = 0; i < life->count; i++) {
        const struct item *item = &life->item[i];
        if (item->action != ALLOC || item->device != device)
            continue;
        uint64_t begin = item->id / PAGE * PAGE, end = (item->id + rounded(item->size) + PAGE - 1) / PAGE * PAGE;
        if (count && begin >= life->range[count - 1].begin && begin <= life->range[count - 1].end) {
            if (end > life->range[count - 1].end)
                life->range[count - 1].end = end;
        } else {
            life->range[count++] = (struct range){begin, end};
        }
    }
    qsort(life->range, count, sizeof *life->range, by_begin);
    life->ranges = 0;
    for (size_t i = 0; i < count; i++) {
        struct range *last = life->ranges ? &life->range[life->ranges - 1] : NULL;
        if (last && life->range[i].begin <= last->end)
            last->end = last->end > life->range[i].end ? last->end : life->range[i].end;
        else
            life->range[life->ranges++] = life->range[i];
    }
}

static void key_number(struct sg_pickle *pickle, const char *key, uint64_t value)
{
    sg_pickle_word(pickle, key);
    sg_pickle_number(pickle, value);
}

static void key_word(struct sg_pickle *pickle, const char *key, const char *value)
{
    sg_pickle_word(pickle, key);
    sg_pickle_word(pickle, value);
}

static void no_frames(struct sg_pickle *pickle)
{
    sg_pickle_word(pickle, "frames");
    sg_pickle_open_list(pickle);
    sg_pickle_close_list(pickle);
}

static void put_block(struct sg_pickle *pickle, uint64_t address, uint64_t size, uint64_t requested, bool active)
{
    sg_pickle_open_dict(pickle);
    key_number(pickle, "address", address);
    key_number(pickle, "size", size);
    key_number(pickle, "requested_size", requested);
    key_word(pickle, "state", active ? "active_allocated" : "inactive");
    no_frames(pickle);
    sg_pickle_close_dict(pickle);
}

/* The live blocks of a range and what lies between them, which together are all of it. */
static void put_segment(struct sg_pickle *pickle, const struct range *range, unsigned device,
                        struct item *const *live, size_t count)
{
    uint64_t allocated = 0, requested = 0, at = range->begin;
    for (size_t i = 0; i < count; i++) {
        allocated += rounded(live[i]->size);
        requested += live[i]->size;
    }
    sg_pickle_open_dict(pickle);
    key_number(pickle, "device", device);
    key_number(pickle, "address", range->begin);
    key_number(pickle, "total_size", range->end - range->begin);
    key_number(pickle, "allocated_size", allocated);
    key_number(pickle, "active_size", allocated);
    key_number(pickle, "requested_size", requested);
    key_number(pickle, "stream", 0);
    key_word(pickle, "segment_type", "large");
    sg_pickle_word(pickle, "segment_pool_id");
    sg_pickle_pair(pickle, 0, 0);
    sg_pickle_word(pickle, "is_expandable");
    sg_pickle_bool(pickle, true);
    no_frames(pickle);
    sg_pickle_word(pickle, "blocks");
    sg_pickle_open_list(pickle);
    for (size_t i = 0; i < count; i++) {
        if (live[i]->id > at)
            put_block(pickle, at, live[i]->id - at, 0, false);
        put_block(pickle, live[i]->id, rounded(live[i]->size), live[i]->size, true);
        at = live[i]->id + rounded(live[i]->size);
    }
    if (at < range->end)
        put_block(pickle, at, range->end - at, 0, false);
    sg_pickle_close_list(pickle);
    sg_pickle_close_dict(pickle);
}

static int put_segments(struct sg_pickle *pickle, struct life *life)
{
    struct item **live = malloc((life->count + 1) * sizeof *live);
    if (!live)
        return -ENOMEM;
    for (unsigned device = 0; device < SG_DICTIONARY_DEVICES; device++) {
        size_t count = 0;
        for (size_t i = 0; i < life->count; i++) {
            if (life->item[i].alive && life->item[i].device == device)
                live[count++] = &life->item[i];
        }
        find_ranges(life, device);
        qsort(live, count, sizeof *live, by_address);
        size_t at = 0;
        for (size_t i = 0; i < life->ranges; i++) {
            size_t begin = at;
            while (at < count && live[at]->id < life->range[i].end)
                at++;
            put_segment(pickle, &life->range[i], device, live + begin, at - begin);
        }
    }
    free(live);
    return 0;
}

static void put_event(struct sg_pickle *pickle, const struct life *life, const struct item *item)
{
    static const char *const actions[] = {"alloc", "free_completed", "oom"};
    sg_pickle_open_dict(pickle);
    if (item->action == FREED) { /* a free that was asked for is one that is done, as far as a trace of ours tells */
        key_word(pickle, "action", "free_requested");
        key_number(pickle, "addr", item->id);
        key_number(pickle, "size", item->size);
        key_number(pickle, "stream", sg_dictionary_stream(&life->dictionary, item->stream)->handle);
        key_number(pickle, "time_us", item->time_ns / 1000);
        no_frames(pickle);
        sg_pickle_close_dict(pickle);
        sg_pickle_open_dict(pickle);
    }
    key_word(pickle, "action", actions[item->action]);
    key_number(pickle, item->action == OOM ? "device_free" : "addr", item->action == OOM ? item->had : item->id);
    key_number(pickle, "size", item->size);
    key_number(pickle, "stream", sg_dictionary_stream(&life->dictionary, item->stream)->handle);
    key_number(pickle, "time_us", item->time_ns / 1000);
    no_frames(pickle);
    sg_pickle_close_dict(pickle);
}

static uint64_t put_events(struct sg_pickle *pickle, const struct life *life, uint64_t from_ns)
{
    uint64_t events = 0;
    unsigned devices = 1;
    for (size_t i = 0; i < life->count; i++)
        devices = life->item[i].device >= devices ? life->item[i].device + 1u : devices;
    for (unsigned device = 0; device < devices; device++) {
        sg_pickle_open_list(pickle);
        for (size_t i = 0; i < life->count; i++) {
            if (life->item[i].device == device && life->item[i].time_ns >= from_ns) {
                put_event(pickle, life, &life->item[i]);
                events++;
            }
        }
        sg_pickle_close_list(pickle);
    }
    return events;
}

static int write_snapshot(struct life *life, const char *conf, uint64_t from_ns, FILE *out, uint64_t *ret_events)
{
    struct sg_pickle pickle;
    sg_pickle_begin(&pickle, out);
    sg_pickle_open_dict(&pickle);
    sg_pickle_word(&pickle, "segments");
    sg_pickle_open_list(&pickle);
    int error = put_segments(&pickle, life);
    sg_pickle_close_list(&pickle);
    sg_pickle_word(&pickle, "device_traces");
    sg_pickle_open_list(&pickle);
    *ret_events = put_events(&pickle, life, from_ns);
    sg_pickle_close_list(&pickle);
    sg_pickle_word(&pickle, "allocator_settings");
    sg_pickle_open_dict(&pickle);
    sg_pickle_word(&pickle, "SEGALLOC_CONF");
    sg_pickle_text(&pickle, conf);
    sg_pickle_word(&pickle, "expandable_segments");
    sg_pickle_bool(&pickle, true);
    sg_pickle_close_dict(&pickle);
    sg_pickle_word(&pickle, "external_annotations");
    sg_pickle_open_list(&pickle);
    sg_pickle_close_list(&pickle);
    sg_pickle_close_dict(&pickle);
    sg_pickle_end(&pickle);
    return error ? error : ferror(out) ? -EIO : 0;
}

int sg_trace_export_torch(struct sg_trace_reader *reader, uint64_t from_ns, uint64_t to_ns, bool to_failure,
                          FILE *out, uint64_t *ret_events)
{
    struct life life = {0};
    int error = read_life(&life, reader, to_ns, to_failure);
    const struct sg_trace_info *info = sg_trace_info(reader);
    if (!error && info->header.imported)
        error = invent_addresses(&life);
    if (!error && !(life.range = malloc((life.count + 1) * sizeof *life.range)))
        error = -ENOMEM;
    if (!error)
        error = write_snapshot(&life, info->conf, from_ns, out, ret_events);
    free(life.range);
    free(life.item);
    sg_dictionary_free(&life.dictionary);
    return error;
}
