#include "analysis/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "idmap.h"
#include "outside.h"
#include "progress.h"
#include "reader/rmm_csv.h"
#include "stats.h"
#include "analysis/refusals.h"
#include "analysis/symbols.h"
#include "trace_file.h"

enum { BATCH = 4096, FAILURES_NOTED = 16, FAR_THREADS = 1024 };
#define SIZE_MAX_KEPT ((UINT64_C(1) << 58) - 2) /* larger ones are lies and count as this much */

struct block {
    uint64_t size;
    uint32_t device, spare; /* spare: the next unused entry */
};

struct walker {
    sg_walk_fn *call;
    void *user;
    struct sg_dictionary dictionary;
    struct sg_idmap live; /* id -> number in `block`, from 1 */
    struct block *block;
    uint32_t blocks, spare, room;
    struct sg_walk_device *device, *pending; /* pending: statistics that are not complete yet */
    uint64_t events, requests, first_ns;
    struct sg_refusals refusals;
    uint64_t far[FAR_THREADS]; /* bytes of the block that this thread is about to get which lie elsewhere */
    bool started;
};

static uint32_t take_entry(struct walker *walker)
{
    uint32_t number = walker->spare;
    if (number) {
        walker->spare = walker->block[number - 1].spare;
        return number;
    }
    if (walker->blocks == walker->room) {
        uint32_t room = walker->room ? 2 * walker->room : 4096;
        struct block *larger = room ? realloc(walker->block, room * sizeof *larger) : NULL;
        if (!larger)
            return 0;
        walker->block = larger;
        walker->room = room;
    }
    return ++walker->blocks;
}

static int report_event(struct walker *walker, enum sg_walk_kind kind, const struct segalloc_trace_record *record,
    uint32_t device, uint32_t block, uint64_t size)
{
    walker->events += kind < SG_WALK_SERVED;
    const struct sg_thread_info *thread = sg_dictionary_thread(&walker->dictionary, record->thread);
    bool asks = kind == SG_WALK_ALLOC || kind == SG_WALK_FAILURE;
    uint64_t far = asks ? walker->far[record->thread % FAR_THREADS] : 0;
    if (asks)
        walker->far[record->thread % FAR_THREADS] = 0;
    const struct sg_walk_event event = {
        .site = asks ? thread->site : 0,
        .phase = asks ? thread->phase : 0,
        .kind = kind,
        .number = walker->events,
        .request = walker->requests,
        .time_ns = record->time_ns > walker->first_ns ? record->time_ns - walker->first_ns : 0,
        .device = device,
        .stream = kind == SG_WALK_STATISTICS ? 0 : record->stream,
        .block = block,
        .size = size,
        .far = kind == SG_WALK_ALLOC ? far : 0,
        .lacked = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE && record->flags & SEGALLOC_FLAG_SHORT ? record->id
                                                                                                          : 0,
        .by = record->kind == SEGALLOC_RECORD_REFUSED_OUTSIDE ? sg_outside_kind(record->id) : SEGALLOC_OUTSIDE_OTHER,
        .devices = walker->device,
        .dictionary = &walker->dictionary,
        .record = record,
    };
    return walker->call(walker->user, &event);
}

static int walk_release(struct walker *walker, uint32_t number, const struct segalloc_trace_record *record)
{
    struct block *block = &walker->block[number - 1];
    struct sg_walk_device *device = &walker->device[block->device];
    device->requested -= block->size;
    device->blocks--;
    int status = report_event(walker, SG_WALK_FREE, record, block->device, number, block->size);
    walker->block[number - 1].spare = walker->spare;
    walker->spare = number;
    return status;
}

static int walk_allocate(struct walker *walker, const struct segalloc_trace_record *record, uint32_t ordinal)
{
    uint64_t size = record->size < SIZE_MAX_KEPT ? record->size : SIZE_MAX_KEPT;
    uint32_t before = (uint32_t)sg_idmap_take(&walker->live, record->id); /* the trace contradicts itself */
    int status = before ? walk_release(walker, before, record) : 0;
    uint32_t number = status ? 0 : take_entry(walker);
    if (status || !number || !sg_idmap_put(&walker->live, record->id, number))
        return status ? status : -ENOMEM;
    struct sg_walk_device *device = &walker->device[ordinal];
    walker->block[number - 1] = (struct block){.size = size, .device = ordinal};
    device->requested += size;
    device->blocks++;
    device->allocs++;
    return report_event(walker, SG_WALK_ALLOC, record, ordinal, number, size);
}

/* The four figures of a snapshot that pictures have. */
static int walk_take_statistic(struct walker *walker, const struct segalloc_trace_record *record)
{
    static const enum sg_stat stats[] = {SG_STAT_reserved_bytes, SG_STAT_allocated_bytes, SG_STAT_pending_bytes};
    if (record->stream >= SG_DICTIONARY_DEVICES)
        return 0;
    struct sg_walk_device *pending = &walker->pending[record->stream], *device = &walker->device[record->stream];
    uint64_t *const value[] = {&pending->reserved, &pending->allocated, &pending->pending};
    bool peak = record->flags & SEGALLOC_FLAG_PEAK;
    for (int i = 0; i < 3; i++) {
        if (sg_name_hash(sg_stat_info(stats[i])->name) != record->id)
            continue;
        if (!peak)
            *value[i] = record->size;
        else if (i == 0)
            pending->peak_reserved = record->size;
    }
    if (!(record->flags & SEGALLOC_FLAG_LAST))
        return 0;
    device->knows_reserved = true;
    device->reserved = pending->reserved;
    device->allocated = pending->allocated;
    device->pending = pending->pending;
    device->peak_reserved = pending->peak_reserved;
    return report_event(walker, SG_WALK_STATISTICS, record, record->stream, 0, 0);
}

static int walk_fail(struct walker *walker, const struct segalloc_trace_record *record, uint32_t ordinal)
{
    walker->device[ordinal].failures++;
    struct sg_refusal *refusal = sg_refusal_open(&walker->refusals, record);
    if (!refusal)
        return -ENOMEM;
    refusal->device = ordinal;
    refusal->mark[0] = walker->events + 1;
    refusal->mark[1] = walker->requests;
    return report_event(walker, SG_WALK_FAILURE, record, ordinal, 0, record->size);
}

/* Before the record itself: it may make a refusal of its thread good. */
static int walk_settle_failures(struct walker *walker, const struct segalloc_trace_record *record)
{
    struct sg_refusal refusal;
    if (sg_refusals_settle(&walker->refusals, record, &refusal) != SG_REFUSAL_MADE_GOOD)
        return 0;
    const uint32_t ordinal = refusal.device;
    walker->device[ordinal].failures--;
    const struct sg_walk_event event = {
        .kind = SG_WALK_SERVED, .number = walker->events, .request = walker->requests,
        .time_ns = record->time_ns > walker->first_ns ? record->time_ns - walker->first_ns : 0,
        .device = ordinal, .stream = record->stream, .size = refusal.bytes,
        .failed_number = refusal.mark[0], .failed_request = refusal.mark[1],
        .devices = walker->device, .dictionary = &walker->dictionary, .record = record,
    };
    return walker->call(walker->user, &event);
}

static int walk_take_record(struct walker *walker, const struct segalloc_trace_record *record)
{
    int error = sg_dictionary_add(&walker->dictionary, record);
    if (error || record->kind >= SEGALLOC_RECORD_DEFINE_STREAM) /* definitions, and where a thread asks from */
        return error;
    if (record->kind == SEGALLOC_RECORD_STATISTIC)
        return walk_take_statistic(walker, record);
    if (!walker->started)
        walker->first_ns = record->time_ns;
    walker->started = true;
    walker->requests += record->kind < SEGALLOC_RECORD_DONE;
    uint32_t ordinal = sg_dictionary_stream(&walker->dictionary, record->stream)->device, number;
    ordinal = ordinal < SG_DICTIONARY_DEVICES ? ordinal : SG_DICTIONARY_DEVICES - 1;
    error = walk_settle_failures(walker, record);
    if (error)
        return error;
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return walk_allocate(walker, record, ordinal);
    case SEGALLOC_RECORD_FREE:
        number = (uint32_t)sg_idmap_take(&walker->live, record->id);
        return number ? walk_release(walker, number, record) : 0; /* else of a block from before the trace */
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_REFUSED_OUTSIDE:
        return walk_fail(walker, record, ordinal);
    case SEGALLOC_RECORD_FAR: /* the allocation itself comes next */
        walker->far[record->thread % FAR_THREADS] = record->size;
        return 0;
    default:
        return 0;
    }
}

int sg_walk(struct sg_trace_reader *reader, sg_walk_fn *call, void *user)
{
    struct walker walker = {.call = call, .user = user};
    struct segalloc_trace_record *record = malloc(BATCH * sizeof *record);
    walker.device = calloc(2 * SG_DICTIONARY_DEVICES, sizeof *walker.device);
    int status = record && walker.device && sg_idmap_init(&walker.live) ? 0 : -ENOMEM;
    walker.dictionary.book.resolve = sg_symbols_line;
    walker.pending = walker.device ? walker.device + SG_DICTIONARY_DEVICES : NULL;
    struct sg_progress progress = {0};
    for (size_t n; !status && (n = sg_trace_read(reader, record, BATCH)) > 0;) {
        for (size_t i = 0; i < n && !status; i++)
            status = walk_take_record(&walker, &record[i]);
        sg_progress_show(&progress, "reading", sg_trace_progress(reader));
    }
    sg_progress_end(&progress);
    sg_idmap_fini(&walker.live);
    sg_refusals_free(&walker.refusals);
    sg_dictionary_free(&walker.dictionary);
    free(walker.block);
    free(walker.device);
    free(record);
    return status < 0 ? status : 0;
}

struct finder {
    enum sg_moment moment;
    uint64_t until_ns, most, sum;
    struct sg_moment_found now, peak;
    struct sg_moment_found failure[FAILURES_NOTED]; /* the first of those that nothing has made good */
    uint32_t failures;
};

static void finder_forget_failure(struct finder *finder, uint64_t number)
{
    uint32_t at = 0;
    while (at < finder->failures && finder->failure[at].all != number)
        at++;
    if (at == finder->failures)
        return;
    finder->failures--;
    memmove(&finder->failure[at], &finder->failure[at + 1], (finder->failures - at) * sizeof *finder->failure);
}

static void moment_note(struct sg_moment_found *found, const struct sg_walk_event *event)
{
    found->all = event->number;
    found->time_ns = event->time_ns;
}

static int finder_take_event(void *user, const struct sg_walk_event *event)
{
    struct finder *finder = user;
    const uint64_t in_use = event->devices[event->device].requested;
    if (event->kind == SG_WALK_SERVED)
        finder_forget_failure(finder, event->failed_number);
    if (event->kind >= SG_WALK_SERVED)
        return 0;
    if (finder->moment == SG_MOMENT_TIME && event->time_ns >= finder->until_ns)
        return 1;
    finder->sum += in_use - finder->now.in_use[event->device];
    finder->now.in_use[event->device] = in_use;
    finder->now.number[event->device] = event->number;
    finder->now.request[event->device] = event->request;
    moment_note(&finder->now, event);
    if (event->kind == SG_WALK_ALLOC && in_use > finder->peak.in_use[event->device]) {
        finder->peak.in_use[event->device] = in_use;
        finder->peak.number[event->device] = event->number;
        finder->peak.request[event->device] = event->request;
    }
    if (event->kind == SG_WALK_ALLOC && finder->sum > finder->most) {
        finder->most = finder->sum;
        moment_note(&finder->peak, event);
    }
    if (event->kind == SG_WALK_FAILURE && finder->failures < FAILURES_NOTED) {
        struct sg_moment_found *failure = &finder->failure[finder->failures++];
        *failure = finder->now;
        failure->failed = true;
        for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
            failure->number[i] = failure->number[i] ? event->number : 0;
            failure->request[i] = failure->number[i] ? event->request : 0;
        }
    }
    return 0;
}

int sg_moment_find(struct sg_trace_reader *reader, enum sg_moment moment, uint64_t time_ns, struct sg_moment_found *ret)
{
    struct finder finder = {.moment = moment, .until_ns = time_ns};
    const struct sg_moment_found *failure = &finder.failure[0];
    int error = sg_walk(reader, finder_take_event, &finder);
    if (!error && moment == SG_MOMENT_FAILURE && !finder.failures)
        error = -ENOENT;
    bool failed = finder.failures && (moment == SG_MOMENT_FAILURE || moment == SG_MOMENT_AUTO);
    bool peak = moment == SG_MOMENT_PEAK || moment == SG_MOMENT_AUTO;
    *ret = failed ? *failure : peak ? finder.peak : finder.now;
    if (error || sg_trace_error(reader)) /* the file's problems are its reader's to report */
        return error;
    return sg_trace_rewind(reader);
}

struct window_finder {
    struct sg_window window;
    uint64_t allocs, frees;
    struct sg_moment_found found;
};

static int find_in_window(void *user, const struct sg_walk_event *event)
{
    struct window_finder *finder = user;
    struct sg_moment_found *found = &finder->found;
    const uint32_t device = finder->window.device;
    if (event->device != device || event->kind > SG_WALK_FREE)
        return 0;
    if (event->kind == SG_WALK_ALLOC && finder->allocs == finder->window.last_alloc)
        return 1;
    finder->allocs += event->kind == SG_WALK_ALLOC;
    finder->frees += event->kind == SG_WALK_FREE;
    bool before = finder->allocs <= finder->window.allocs && finder->frees <= finder->window.frees;
    const uint64_t in_use = event->devices[device].requested;
    if (before || in_use > found->in_use[device]) {
        found->in_use[device] = in_use;
        found->number[device] = event->number;
        found->request[device] = event->request;
        moment_note(found, event);
    }
    return 0;
}

int sg_window_find(struct sg_trace_reader *reader, const struct sg_window *window, struct sg_moment_found *ret)
{
    struct window_finder finder = {.window = *window};
    int error = sg_walk(reader, find_in_window, &finder);
    *ret = finder.found;
    if (error || sg_trace_error(reader))
        return error;
    return sg_trace_rewind(reader);
}
