#include "export/torch_snapshot.h"

#include <errno.h>
#include <stdlib.h>

#include "reader/dictionary.h"
#include "export/pages.h"
#include "idmap.h"
#include "export/pickle.h"
#include "progress.h"
#include "analysis/symbols.h"

enum { BATCH = 4096, UNIT = 512 };
/* A size that cannot be would take all memory as pages. */
#define SHOWN_MOST (UINT64_C(1) << 42)

enum action { ALLOC, FREED, OOM };

struct item {
    uint64_t id, size, time_ns; /* id: of the trace, later the address that is shown */
    uint32_t stream, site;      /* index; where it was asked for, 0: unknown */
    uint64_t had;               /* OOM: bytes that could be had; 0: unknown */
    uint32_t phase;             /* what the program was at; 0: unknown */
    uint8_t action, device;
    bool alive;                 /* an allocation that nothing frees up to the end */
};

struct life {
    struct item *item;
    size_t count, room;
    uint64_t number;          /* of the last event, as walk.h counts them */
    struct sg_shown_pages pages[SG_DICTIONARY_DEVICES];
    struct sg_dictionary dictionary;
};

static struct item *life_add_item(struct life *life)
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

static uint64_t snapshot_round_size(uint64_t size)
{
    return size ? (size + UNIT - 1) / UNIT * UNIT : UNIT;
}

static int life_take_record(struct life *life, struct sg_idmap *live, const struct segalloc_trace_record *record,
    uint64_t time)
{
    int error = sg_dictionary_add(&life->dictionary, record);
    bool alloc = record->kind == SEGALLOC_RECORD_ALLOCATE, oom = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    if (error || (!alloc && !oom && record->kind != SEGALLOC_RECORD_FREE))
        return error;
    uint64_t index = alloc || oom ? 0 : sg_idmap_take(live, record->id);
    if (!alloc && !oom && !index)
        return 0; /* of a block from before the trace: nobody knows its size */
    uint32_t device = sg_dictionary_stream(&life->dictionary, record->stream)->device;
    life->number += alloc && sg_idmap_get(live, record->id) ? 2 : 1;
    struct item *item = life_add_item(life);
    if (!item)
        return -ENOMEM;
    const struct sg_thread_info *thread = sg_dictionary_thread(&life->dictionary, record->thread);
    *item = (struct item){
        .id = record->id,
        .size = record->size,
        .time_ns = time,
        .stream = record->stream,
        .site = thread->site,
        .phase = thread->phase,
        .device = device < SG_DICTIONARY_DEVICES ? (uint8_t)device : 0,
        .action = alloc ? ALLOC
                  : oom ? OOM
                        : FREED,
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
        item->site = block->site;
        item->phase = block->phase;
        item->device = block->device;
    }
    return 0;
}

static int read_life(struct life *life, struct sg_trace_reader *reader, uint64_t to_ns, uint64_t last)
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
            error = over ? 0 : life_take_record(life, &live, &record[i], time);
            over = over || life->number >= last;
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
        if (item->action == ALLOC && snapshot_round_size(item->size) > before &&
            !sg_idmap_put(&largest, item->id, snapshot_round_size(item->size)))
            error = -ENOMEM;
    }
    struct sg_idmap place;
    if (!error && !sg_idmap_init(&place))
        error = -ENOMEM;
    if (!error) {
        uint64_t next = SG_SHOWN_PAGE;
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

static int blocks_by_address(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;
    return (*x)->id < (*y)->id ? -1 : (*x)->id > (*y)->id;
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

static void snapshot_put_frame(struct sg_pickle *pickle, const char *file, uint64_t line, const char *name)
{
    sg_pickle_open_dict(pickle);
    sg_pickle_word(pickle, "filename");
    sg_pickle_text(pickle, file);
    key_number(pickle, "line", line);
    sg_pickle_word(pickle, "name");
    sg_pickle_text(pickle, name);
    sg_pickle_close_dict(pickle);
}

/* Frames in PyTorch's order, the innermost first. The phase stands for an outermost one. */
static void put_frames(struct sg_pickle *pickle, const struct sg_site_book *book, uint32_t site, uint32_t phase)
{
    char text[SG_SITE_TEXT];
    sg_pickle_word(pickle, "frames");
    sg_pickle_open_list(pickle);
    for (uint32_t i = 0; site < book->sites && i < book->site[site].frames; i++) {
        const struct sg_site_frame *frame = &book->site[site].frame[i];
        const char *file = sg_site_book_text(book, frame->file);
        if (frame->native)
            snapshot_put_frame(pickle, file, 0, sg_site_book_frame(book, frame, text));
        else
            snapshot_put_frame(pickle, file, frame->line, sg_site_book_text(book, frame->function));
    }
    if (*sg_site_book_phase(book, phase, text))
        snapshot_put_frame(pickle, "phase", 0, text);
    sg_pickle_close_list(pickle);
}

static void no_frames(struct sg_pickle *pickle)
{
    sg_pickle_word(pickle, "frames");
    sg_pickle_open_list(pickle);
    sg_pickle_close_list(pickle);
}

/* `item` NULL: nothing lives there. */
static void put_block(struct sg_pickle *pickle, const struct life *life, uint64_t address, uint64_t size,
                      const struct item *item)
{
    sg_pickle_open_dict(pickle);
    key_number(pickle, "address", address);
    key_number(pickle, "size", size);
    key_number(pickle, "requested_size", item ? item->size : 0);
    key_word(pickle, "state", item ? "active_allocated" : "inactive");
    put_frames(pickle, &life->dictionary.book, item ? item->site : 0, item ? item->phase : 0);
    sg_pickle_close_dict(pickle);
}

/* The live blocks of a range and what lies between them, which together are all of it. */
static void put_segment(struct sg_pickle *pickle, const struct life *life, const struct sg_shown_range *range,
    unsigned device, struct item *const *live, size_t count)
{
    uint64_t allocated = 0, requested = 0, at = range->begin;
    for (size_t i = 0; i < count; i++) {
        allocated += snapshot_round_size(live[i]->size);
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
            put_block(pickle, life, at, live[i]->id - at, NULL);
        put_block(pickle, life, live[i]->id, snapshot_round_size(live[i]->size), live[i]);
        at = live[i]->id + snapshot_round_size(live[i]->size);
    }
    if (at < range->end)
        put_block(pickle, life, at, range->end - at, NULL);
    sg_pickle_close_list(pickle);
    sg_pickle_close_dict(pickle);
}

static int put_segments(struct sg_pickle *pickle, struct life *life)
{
    struct item **live = malloc((life->count + 1) * sizeof *live);
    if (!live)
        return -ENOMEM;
    int error = 0;
    for (unsigned device = 0; !error && device < SG_DICTIONARY_DEVICES; device++) {
        size_t count = 0;
        for (size_t i = 0; i < life->count; i++) {
            if (life->item[i].alive && life->item[i].device == device)
                live[count++] = &life->item[i];
        }
        struct sg_shown_pages *pages = &life->pages[device];
        error = sg_shown_ranges(pages);
        if (count)
            qsort(live, count, sizeof *live, blocks_by_address);
        size_t at = 0;
        for (size_t i = 0; !error && i < pages->ranges; i++) {
            size_t begin = at;
            while (at < count && live[at]->id < pages->range[i].end)
                at++;
            put_segment(pickle, life, &pages->range[i], device, live + begin, at - begin);
        }
    }
    free(live);
    return error;
}

/* The bytes that the driver had left where an allocation failed. Idle memory lies in the segments of the snapshot. */
static uint64_t snapshot_free_at(const struct life *life, const struct item *oom)
{
    const struct sg_shown_pages *pages = &life->pages[oom->device];
    uint64_t held = pages->page.count * SG_SHOWN_PAGE, left = pages->most > held ? pages->most - held : 0;
    return pages->most && (!oom->had || left < oom->had) ? left : oom->had;
}

static void snapshot_put_item(struct sg_pickle *pickle, const struct life *life, const struct item *item)
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
    key_number(pickle, item->action == OOM ? "device_free" : "addr",
        item->action == OOM ? snapshot_free_at(life, item) : item->id);
    key_number(pickle, "size", item->size);
    key_number(pickle, "stream", sg_dictionary_stream(&life->dictionary, item->stream)->handle);
    key_number(pickle, "time_us", item->time_ns / 1000);
    if (item->action == FREED)
        no_frames(pickle);
    else
        put_frames(pickle, &life->dictionary.book, item->site, item->phase);
    sg_pickle_close_dict(pickle);
}

/* Pages that come or go, as an event. */
struct page_event {
    struct sg_pickle *pickle; /* NULL: is not shown */
    const struct item *item;
};

static void put_pages(void *user, bool come, uint64_t begin, uint64_t size)
{
    const struct page_event *event = user;
    struct sg_pickle *pickle = event->pickle;
    if (!pickle)
        return;
    sg_pickle_open_dict(pickle);
    key_word(pickle, "action", come ? "segment_map" : "segment_unmap");
    key_number(pickle, "addr", begin);
    key_number(pickle, "size", size);
    key_number(pickle, "stream", 0);
    key_number(pickle, "time_us", event->item->time_ns / 1000);
    no_frames(pickle);
    sg_pickle_close_dict(pickle);
}

static int put_events(struct sg_pickle *pickle, struct life *life, uint64_t from_ns, uint64_t *ret_events)
{
    unsigned devices = 1;
    int error = 0;
    for (size_t i = 0; i < life->count; i++)
        devices = life->item[i].device >= devices ? life->item[i].device + 1u : devices;
    for (unsigned device = 0; device < devices; device++) {
        sg_pickle_open_list(pickle);
        for (size_t i = 0; i < life->count && !error; i++) {
            const struct item *item = &life->item[i];
            if (item->device != device)
                continue;
            struct page_event pages = {item->time_ns >= from_ns ? pickle : NULL, item};
            uint64_t size = snapshot_round_size(item->size) < SHOWN_MOST ? snapshot_round_size(item->size) : UNIT,
                     end = item->id + size;
            if (item->action == ALLOC && end > item->id)
                error = sg_shown_add(&life->pages[device], item->id, end, put_pages, &pages);
            if (item->time_ns >= from_ns) {
                snapshot_put_item(pickle, life, item);
                ++*ret_events;
            }
            if (item->action == FREED && end > item->id)
                sg_shown_remove(&life->pages[device], item->id, end);
        }
        sg_pickle_close_list(pickle);
    }
    return error;
}

static int write_snapshot(struct life *life, const char *conf, uint64_t from_ns, FILE *out, uint64_t *ret_events)
{
    struct sg_pickle pickle;
    sg_pickle_begin(&pickle, out);
    sg_pickle_open_dict(&pickle);
    sg_pickle_word(&pickle, "device_traces"); /* which tell the segments */
    sg_pickle_open_list(&pickle);
    int error = put_events(&pickle, life, from_ns, ret_events);
    sg_pickle_close_list(&pickle);
    sg_pickle_word(&pickle, "segments");
    sg_pickle_open_list(&pickle);
    if (!error)
        error = put_segments(&pickle, life);
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

/* The most that may be held of each device: its memory, or the limit in force. */
static int know_cards(struct life *life, const struct segalloc_trace_header *header)
{
    int error = 0;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        uint64_t bytes = i == 0 ? header->device_bytes : 0;
        if (life->dictionary.device[i].known)
            bytes = life->dictionary.device[i].bytes;
        if (header->limit_bytes && (!bytes || header->limit_bytes < bytes))
            bytes = header->limit_bytes;
        error = sg_shown_init(&life->pages[i], bytes) ? error : -ENOMEM;
    }
    return error;
}

int sg_trace_export_torch(struct sg_trace_reader *reader, uint64_t from_ns, uint64_t to_ns, uint64_t last, FILE *out,
                          uint64_t *ret_events)
{
    struct life *life = calloc(1, sizeof *life);
    if (!life)
        return -ENOMEM;
    life->dictionary.book.resolve = sg_symbols_line;
    int error = read_life(life, reader, to_ns, last);
    const struct sg_trace_info *info = sg_trace_info(reader);
    if (!error && info->header.imported)
        error = invent_addresses(life);
    if (!error)
        error = know_cards(life, &info->header);
    if (!error)
        error = write_snapshot(life, info->conf, from_ns, out, ret_events);
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        sg_shown_fini(&life->pages[i]);
    free(life->item);
    sg_dictionary_free(&life->dictionary);
    free(life);
    return error;
}
