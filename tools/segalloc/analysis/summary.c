#include "analysis/summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta.h"
#include "progress.h"
#include "reader/rmm_csv.h"
#include "size.h"
#include "trace_file.h"

enum { BATCH = 4096 };
#define SIZE_MAX_KEPT ((UINT64_C(1) << 58) - 2) /* larger ones are lies and count as this much */

const char *sg_record_kind_name(unsigned kind)
{
    static const char *const names[] = {
        [SEGALLOC_RECORD_DONE] = "done",
        [SEGALLOC_RECORD_PRESSURE] = "pressure",
        [SEGALLOC_RECORD_SLOW_BEGIN] = "slow_begin",
        [SEGALLOC_RECORD_SLOW_STEP] = "slow_step",
        [SEGALLOC_RECORD_PASSED_ON] = "passed_on",
        [SEGALLOC_RECORD_MERGE] = "merge",
        [SEGALLOC_RECORD_SLOT] = "slot",
        [SEGALLOC_RECORD_SLOT_GONE] = "slot_gone",
        [SEGALLOC_RECORD_TICK] = "tick",
        [SEGALLOC_RECORD_ORDER] = "order",
        [SEGALLOC_RECORD_COMPLETE] = "complete",
        [SEGALLOC_RECORD_MARK] = "mark",
        [SEGALLOC_RECORD_LIMIT] = "limit",
        [SEGALLOC_RECORD_TURN] = "turn",
        [SEGALLOC_RECORD_PIN] = "pin",
        [SEGALLOC_RECORD_CONTEXT_GONE] = "context_gone",
        [SEGALLOC_RECORD_FIXED] = "fixed",
        [SEGALLOC_RECORD_COST] = "cost",
        [SEGALLOC_RECORD_PEERS] = "peers",
        [SEGALLOC_RECORD_TAG] = "tag",
        [SEGALLOC_RECORD_TAG_PAGES] = "tag_pages",
        [SEGALLOC_RECORD_FAR] = "far",
        [SEGALLOC_RECORD_RETURN_FAR] = "return_far",
        [SEGALLOC_RECORD_OUTSIDE] = "outside",
        [SEGALLOC_RECORD_REFUSED_OUTSIDE] = "refused_outside",
        [SEGALLOC_RECORD_UNTRACKED] = "untracked",
        [SEGALLOC_RECORD_STATISTIC] = "statistic",
        [SEGALLOC_RECORD_SETTLED] = "settled",
        [SEGALLOC_RECORD_END] = "end",
        [SEGALLOC_RECORD_DEFINE_STREAM] = "define_stream",
        [SEGALLOC_RECORD_DEFINE_THREAD] = "define_thread",
        [SEGALLOC_RECORD_DEFINE_DEVICE] = "define_device",
        [SEGALLOC_RECORD_DEFINE_TEXT] = "define_text",
        [SEGALLOC_RECORD_DEFINE_SITE] = "define_site",
        [SEGALLOC_RECORD_DEFINE_PHASE] = "define_phase",
        [SEGALLOC_RECORD_SITE] = "site",
        [SEGALLOC_RECORD_DEFINE_MODEL] = "define_model",
        [SEGALLOC_RECORD_DEFINE_CARD] = "define_card",
        [SEGALLOC_RECORD_DEFINE_UUID] = "define_uuid",
        [SEGALLOC_RECORD_DEFINE_TAG] = "define_tag",
        [SEGALLOC_RECORD_LEFT_OUT] = "left_out",
        [SEGALLOC_RECORD_FINDING] = "finding",
    };
    const char *action = sg_rmm_action((enum segalloc_record_kind)kind);
    if (kind == SEGALLOC_RECORD_ALLOCATE_FAILURE)
        return "allocate_failure"; /* RMM's has a space */
    if (action)
        return action;
    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : NULL;
}

static struct sg_summary_device *device_at(struct sg_summary *summary, uint32_t ordinal)
{
    ordinal = ordinal < SG_DICTIONARY_DEVICES ? ordinal : SG_DICTIONARY_DEVICES - 1;
    if (ordinal >= summary->devices)
        summary->devices = ordinal + 1;
    return &summary->device[ordinal];
}

static uint32_t ordinal_of(const struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    uint32_t device = sg_dictionary_stream(&summary->dictionary, record->stream)->device;
    return device < SG_DICTIONARY_DEVICES ? device : SG_DICTIONARY_DEVICES - 1;
}

static uint64_t summary_size_of(const struct segalloc_trace_record *record)
{
    return record->size < SIZE_MAX_KEPT ? record->size : SIZE_MAX_KEPT;
}

/* Before what is alive changes: keeps what it was when most was. */
static void keep_peak(struct sg_summary_device *device)
{
    if (device->is_at_peak)
        sg_live_keep(&device->live);
    device->is_at_peak = false;
}

bool sg_live_set_take(struct sg_live_set *ret, const struct sg_live *live, bool kept, uint32_t most)
{
    uint32_t room = live->groups < most ? live->groups : most;
    *ret = (struct sg_live_set){.row = room ? malloc(room * sizeof *ret->row) : NULL};
    if (!ret->row)
        return room == 0;
    uint32_t rows = sg_live_rows(live, kept, NULL, ret->row, room);
    ret->rows = rows < room ? rows : room;
    return rows > 0 || !sg_meta_ran_out();
}

void sg_live_set_free(struct sg_live_set *set)
{
    free(set->row);
    *set = (struct sg_live_set){0};
}

/* Takes a new peak, after memory that is alive or held by other calls has risen. */
static void note_peak(const struct sg_summary *summary, struct sg_summary_device *device)
{
    uint64_t taken = device->live_bytes + sg_outside_stays(&device->outside);
    uint64_t own = taken - device->outside.bytes[SEGALLOC_OUTSIDE_OTHER];
    device->peak_own = own > device->peak_own ? own : device->peak_own;
    if (taken <= device->peak_taken)
        return;
    device->peak_taken = taken;
    device->outside_at_peak = device->outside;
    device->is_at_peak = true;
    device->peak_request = summary->requests;
}

/* Bytes that the program got by a call of its own. Memory of others, and code that is loaded, is no sign of one. */
static uint64_t got_by_calls(const struct sg_outside *before, const struct sg_outside *now)
{
    static const enum segalloc_outside asked[] = {SEGALLOC_OUTSIDE_POOLS, SEGALLOC_OUTSIDE_GRAPHS,
        SEGALLOC_OUTSIDE_PHYSICAL, SEGALLOC_OUTSIDE_ARRAYS, SEGALLOC_OUTSIDE_MANAGED, SEGALLOC_OUTSIDE_IMPORTED};
    uint64_t got = 0;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (now->bytes[asked[i]] > before->bytes[asked[i]])
            got += now->bytes[asked[i]] - before->bytes[asked[i]];
    return got;
}

/* Returns the bytes that the program has got by it. */
static uint64_t note_outside(const struct sg_summary *summary, struct sg_summary_device *device,
    const struct segalloc_trace_record *record)
{
    device->reading.bytes[sg_outside_kind(record->id)] = summary_size_of(record);
    if (!(record->flags & SEGALLOC_FLAG_LAST))
        return 0;
    uint64_t got = got_by_calls(&device->outside, &device->reading);
    uint64_t sum = sg_outside_sum(&device->reading);
    if (sg_outside_stays(&device->reading) < sg_outside_stays(&device->outside))
        keep_peak(device);
    device->lags |= sg_outside_lags(&device->reading);
    device->outside = device->reading;
    device->used |= sum > 0;
    device->peak_outside = sum > device->peak_outside ? sum : device->peak_outside;
    note_peak(summary, device);
    return got;
}

static void block_gone(struct sg_summary *summary, uint64_t number)
{
    struct sg_summary_block *block = &summary->block[number - 1];
    struct sg_summary_device *device = &summary->device[block->device];
    keep_peak(device);
    if (sg_tag_book_free(&summary->tags, block->tag, block->device, block->size)) {
        device->live_bytes -= block->size;
        summary->live_bytes -= block->size;
    }
    device->live_blocks--;
    sg_live_remove(&device->live, block->group, block->size, block->birth);
    block->spare = summary->spare;
    summary->spare = (uint32_t)number;
}

/* An entry for a block, from 1; 0: no host memory. */
static uint32_t block_entry(struct sg_summary *summary)
{
    uint32_t number = summary->spare;
    if (number) {
        summary->spare = summary->block[number - 1].spare;
        return number;
    }
    if (summary->blocks == summary->block_room) {
        uint32_t room = summary->block_room ? 2 * summary->block_room : 4096;
        struct sg_summary_block *larger = room ? realloc(summary->block, room * sizeof *larger) : NULL;
        if (!larger)
            return 0;
        summary->block = larger;
        summary->block_room = room;
    }
    return ++summary->blocks;
}

/* The groups of a device, from its first allocation on. False: no host memory. */
static bool has_groups(struct sg_summary_device *device)
{
    enum { GROUPS = 1 << 16 };
    return device->live.group || sg_live_init(&device->live, GROUPS);
}

static int summary_allocate(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    uint32_t ordinal = ordinal_of(summary, record);
    struct sg_summary_device *device = device_at(summary, ordinal);
    uint64_t size = summary_size_of(record);
    uint64_t before = sg_idmap_get(&summary->live, record->id);
    if (before) {
        summary->repeated++;
        block_gone(summary, before);
    }
    uint32_t number = block_entry(summary);
    if (!number || !sg_idmap_put(&summary->live, record->id, number) || !has_groups(device))
        return -ENOMEM;
    const struct sg_thread_info *from = sg_dictionary_thread(&summary->dictionary, record->thread);
    const struct sg_live_key key = {
        .stream = sg_dictionary_stream(&summary->dictionary, record->stream)->handle,
        .size_class = sg_live_class(size), .torch = (record->flags & SEGALLOC_FLAG_TORCH) != 0,
        .site = sg_site_book_shown(&summary->dictionary.book, from->site), .phase = from->phase,
    };
    summary->torch |= record->flags & SEGALLOC_FLAG_TORCH;
    device->used = true;
    device->allocs++;
    device->alloc_bytes += size;
    device->class_count[sg_live_class(size)]++;
    device->live_bytes += size;
    device->live_blocks++;
    summary->live_bytes += size;
    uint32_t group = sg_live_add(&device->live, &key, size);
    summary->block[number - 1] = (struct sg_summary_block){.size = size,
        .birth = device->live.allocs,
        .device = ordinal,
        .group = group,
        .tag = sg_tag_book_allocate(&summary->tags, record, ordinal)};
    if (device->live_bytes > device->peak_live_bytes)
        device->peak_live_bytes = device->live_bytes;
    note_peak(summary, device);
    if (device->live_blocks > device->peak_live_blocks)
        device->peak_live_blocks = device->live_blocks;
    if (size > device->largest_request)
        device->largest_request = size;
    return 0;
}

/* A refused allocation, as it will be listed if it turns out to have failed. Its live set is its own. */
static int summary_refuse(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    uint32_t ordinal = ordinal_of(summary, record);
    struct sg_summary_device *device = device_at(summary, ordinal);
    device->used = true;
    struct sg_summary_failure *failure = malloc(sizeof *failure);
    struct sg_refusal *refusal = failure ? sg_refusal_open(&summary->refusals, record) : NULL;
    if (!refusal) {
        free(failure);
        return -ENOMEM;
    }
    *failure = (struct sg_summary_failure){
        .event = summary->requests,
        .order = summary->events,
        .by = refusal->by,
        .needed = refusal->by ? device->live_bytes + sg_outside_stays(&device->outside) + summary_size_of(record) : 0,
        .bytes = record->size,
        .live_bytes = device->live_bytes,
        .short_by = record->flags & SEGALLOC_FLAG_SHORT ? record->id : 0,
        .thread = record->thread,
        .device = ordinal,
        .site = sg_dictionary_thread(&summary->dictionary, record->thread)->site,
        .phase = sg_dictionary_thread(&summary->dictionary, record->thread)->phase,
    };
    refusal->kept = failure;
    sg_search_refused(&summary->search, record->size);
    return summary->failures >= SG_FAILURES_KEPT ||
            sg_live_set_take(&failure->live, &device->live, false, SG_LIVE_ROWS_OF_FAILURE) ? 0 : -ENOMEM;
}

/* In the order of the events: of two threads the later failure may be known first. */
static void list_failure(struct sg_summary *summary, struct sg_summary_failure *failure)
{
    uint64_t at = summary->failures < SG_FAILURES_KEPT ? summary->failures : SG_FAILURES_KEPT;
    while (at > 0 && summary->failure[at - 1].order > failure->order)
        at--;
    if (at == SG_FAILURES_KEPT) {
        sg_live_set_free(&failure->live);
        return;
    }
    uint64_t kept = summary->failures < SG_FAILURES_KEPT ? summary->failures : SG_FAILURES_KEPT - 1;
    if (kept < summary->failures)
        sg_live_set_free(&summary->failure[kept].live);
    memmove(&summary->failure[at + 1], &summary->failure[at], (kept - at) * sizeof *failure);
    summary->failure[at] = *failure;
}

static void summary_list_failure(struct sg_summary *summary, struct sg_summary_failure *failure)
{
    struct sg_summary_device *device = device_at(summary, failure->device);
    device->failures++;
    if (failure->bytes > device->failed_largest)
        device->failed_largest = failure->bytes;
    if (failure->order > summary->last_failure)
        summary->last_failure = failure->order;
    list_failure(summary, failure);
    summary->failures++;
}

static void summary_settle_failures(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    struct sg_refusal refusal;
    enum sg_refusal_end end = sg_refusals_settle(&summary->refusals, record, &refusal);
    if (end == SG_REFUSAL_STAYS)
        return;
    struct sg_summary_failure *failure = refusal.kept;
    if (end == SG_REFUSAL_FAILED) {
        summary_list_failure(summary, failure);
    } else {
        sg_live_set_free(&failure->live);
        device_at(summary, failure->device)->made_good++;
        summary->made_good++;
    }
    free(failure);
}

/* Refusals that are open where the trace ends have failed. */
static void settle_all(struct sg_summary *summary)
{
    struct sg_refusal refusal;
    while (sg_refusals_take_open(&summary->refusals, &refusal)) {
        summary_list_failure(summary, refusal.kept);
        free(refusal.kept);
    }
}

/* The driver served an allocation. */
static void pass_on(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    struct sg_summary_device *device = device_at(summary, ordinal_of(summary, record));
    device->used = true;
    device->passed_on++;
    device->passed_on_bytes += record->size;
}

static void summary_take_statistic(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    static uint64_t hash[SG_STAT_COUNT];
    if (record->stream >= SG_DICTIONARY_DEVICES)
        return;
    if (!hash[0])
        for (int i = 0; i < SG_STAT_COUNT; i++)
            hash[i] = sg_name_hash(sg_stat_info((enum sg_stat)i)->name);
    struct sg_summary_device *device = device_at(summary, record->stream);
    struct sg_stats *pending = &summary->pending[record->stream];
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        if (hash[i] != record->id)
            continue;
        (record->flags & SEGALLOC_FLAG_PEAK ? pending->peak : pending->value)[i] = record->size;
        device->has_stat[i] = true;
    }
    if (record->flags & SEGALLOC_FLAG_LAST) {
        device->used |= pending->peak[SG_STAT_requested_bytes] > 0;
        device->stats = *pending;
        device->has_stats = true;
        device->stats_age = 0;
    }
}

/* Takes in a piece of the name of the call by which order was lost. */
static void summary_take_untracked(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    char text[sizeof record->id + sizeof record->size + 1] = {0};
    memcpy(text, &record->id, sizeof record->id);
    memcpy(text + sizeof record->id, &record->size, sizeof record->size);
    size_t used = strlen(summary->untracked_by);
    snprintf(summary->untracked_by + used, sizeof summary->untracked_by - used, "%s", text);
}

/* The device's name, cut to the length that a terminal shows. */
static void summary_take_model(struct sg_summary_device *device, const struct segalloc_trace_record *record)
{
    char text[sizeof record->id + sizeof record->size];
    size_t used = record->flags & SEGALLOC_FLAG_FIRST ? 0 : strlen(device->model);
    memcpy(text, &record->id, sizeof record->id);
    memcpy(text + sizeof record->id, &record->size, sizeof record->size);
    for (size_t i = 0; i < sizeof text && text[i] && used + 1 < sizeof device->model; i++)
        device->model[used++] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    device->model[used] = '\0';
}

static void note_served(struct sg_summary *summary, uint64_t bytes)
{
    summary->last_served = summary->events;
    sg_search_served(&summary->search, bytes);
}

/* Notes the live bytes of a device after an event. 0 or -ENOMEM. */
static int summary_note_level(const struct sg_summary *summary, struct sg_summary_device *device)
{
    const struct sg_sample sample = {.number = summary->requests - 1, .device = {.requested = device->live_bytes}};
    device->over_time.most = SG_STEPS_POINTS;
    return sg_series_note(&device->over_time, &sample);
}

/* Memory of a paused tag takes nothing of its device. */
static void summary_take_tags(struct sg_summary *summary, struct sg_summary_device *device,
    const struct segalloc_trace_record *record)
{
    int64_t change = sg_tag_book_take(&summary->tags, record, (uint32_t)(device - summary->device));
    if (change < 0)
        keep_peak(device);
    device->live_bytes += (uint64_t)change;
    summary->live_bytes += (uint64_t)change;
    if (device->live_bytes > device->peak_live_bytes)
        device->peak_live_bytes = device->live_bytes;
    if (change > 0)
        note_peak(summary, device);
}

static int summary_take_record(struct sg_summary *summary, const struct segalloc_trace_record *record)
{
    struct sg_summary_device *device;
    uint64_t kept, got;
    int error;
    summary->kind[record->kind]++;
    switch (record->kind) {
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        device = device_at(summary, record->stream);
        device->granularity = record->id;
        device->total_bytes = record->size;
        return sg_dictionary_add(&summary->dictionary, record);
    case SEGALLOC_RECORD_DEFINE_STREAM:
    case SEGALLOC_RECORD_DEFINE_THREAD:
    case SEGALLOC_RECORD_DEFINE_TEXT:
    case SEGALLOC_RECORD_DEFINE_SITE:
    case SEGALLOC_RECORD_DEFINE_PHASE:
    case SEGALLOC_RECORD_SITE:
        return sg_dictionary_add(&summary->dictionary, record);
    case SEGALLOC_RECORD_STATISTIC:
        summary_take_statistic(summary, record);
        return 0;
    case SEGALLOC_RECORD_UNTRACKED:
        summary_take_untracked(summary, record);
        return 0;
    case SEGALLOC_RECORD_DEFINE_MODEL:
        summary_take_model(device_at(summary, record->stream), record);
        return 0;
    case SEGALLOC_RECORD_DEFINE_UUID:
        device = device_at(summary, record->stream);
        device->has_uuid = true;
        memcpy(device->uuid, &record->id, sizeof record->id);
        memcpy(device->uuid + sizeof record->id, &record->size, sizeof record->size);
        return 0;
    case SEGALLOC_RECORD_DEFINE_CARD:
        if (summary->cards < SG_SUMMARY_CARDS)
            summary->card[summary->cards++] = (struct sg_summary_card){record->size, record->id};
        return 0;
    case SEGALLOC_RECORD_FINDING:
        sg_checked_take(&summary->checked, record);
        return 0;
    case SEGALLOC_RECORD_DEFINE_TAG:
        (void)sg_tag_book_take(&summary->tags, record, 0);
        return 0;
    case SEGALLOC_RECORD_END:
        return 0;
    }
    summary->requests += record->kind < SEGALLOC_RECORD_DONE;
    if (record->kind == SEGALLOC_RECORD_LIMIT)
        summary->limited |= record->size < device_at(summary, ordinal_of(summary, record))->total_bytes;
    if (!summary->events++)
        summary->first_ns = record->time_ns;
    if (record->time_ns > summary->last_ns)
        summary->last_ns = record->time_ns;
    device = device_at(summary, ordinal_of(summary, record));
    device->stats_age++;
    summary_settle_failures(summary, record);
    summary_take_tags(summary, device, record);
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        note_served(summary, record->size);
        error = summary_allocate(summary, record);
        return error ? error : summary_note_level(summary, device);
    case SEGALLOC_RECORD_FREE:
        kept = sg_idmap_take(&summary->live, record->id);
        if (kept) {
            device = &summary->device[summary->block[kept - 1].device];
            device->frees++;
            device->lags |= !(record->flags & SEGALLOC_FLAG_STRICT);
            block_gone(summary, kept);
            return summary_note_level(summary, device);
        } else {
            summary->unmatched_frees++;
        }
        break;
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_REFUSED_OUTSIDE:
        return summary_refuse(summary, record);
    case SEGALLOC_RECORD_SETTLED:
        summary->retried += record->id != SEGALLOC_SETTLED_FAILED;
        break;
    case SEGALLOC_RECORD_PASSED_ON:
        note_served(summary, record->size);
        pass_on(summary, record);
        break;
    case SEGALLOC_RECORD_OUTSIDE:
        got = note_outside(summary, device, record);
        if (got)
            note_served(summary, got);
        break;
    }
    return 0;
}

/* Figures that need the whole trace. The header knows one device, which is the first where that was used. */
static void summary_finish(struct sg_summary *summary, const struct segalloc_trace_header *header)
{
    struct sg_summary_device *first = &summary->device[0];
    settle_all(summary);
    if (!first->granularity && first->used)
        first->granularity = header->granularity;
    if (!first->total_bytes && first->used)
        first->total_bytes = header->device_bytes;
    for (uint32_t i = 0; i < summary->devices; i++) {
        keep_peak(&summary->device[i]);
        summary->device[i].limit_bytes = header->limit_bytes;
        summary->limited |= header->limit_bytes && header->limit_bytes < summary->device[i].total_bytes;
        summary->peak_live_bytes += summary->device[i].peak_live_bytes;
    }
}

static int summary_read_all(struct sg_summary *summary, struct sg_trace_reader *reader, bool bounds, uint64_t until)
{
    static const uint64_t smallest[] = {[SG_BOUND_ALL] = 1, [SG_BOUND_LARGE] = SG_MIB};
    memset(summary, 0, sizeof(*summary));
    summary->until = until;
    summary->device = calloc(SG_DICTIONARY_DEVICES, sizeof(*summary->device));
    summary->pending = calloc(SG_DICTIONARY_DEVICES, sizeof(*summary->pending));
    struct segalloc_trace_record *record = malloc(BATCH * sizeof(*record));
    int error = summary->device && summary->pending && record && sg_idmap_init(&summary->live) ? 0 : -ENOMEM;
    for (int i = 0; bounds && i < SG_BOUND_COUNT; i++)
        if (!(summary->bound[i] = sg_bound_new(smallest[i])))
            error = -ENOMEM;
    struct sg_progress progress = {0};
    size_t n;
    bool over = false;
    while (!error && !over && (n = sg_trace_read(reader, record, BATCH)) > 0) {
        for (size_t i = 0; i < n && !error && !over; i++) {
            error = summary_take_record(summary, &record[i]);
            for (int which = 0; which < SG_BOUND_COUNT && summary->bound[which] && !error; which++)
                error = sg_bound_add(summary->bound[which], &record[i], (int)ordinal_of(summary, &record[i]));
            over = until && summary->requests >= until;
        }
        sg_progress_show(&progress, "reading", sg_trace_progress(reader));
    }
    sg_progress_end(&progress);
    free(record);
    if (!error)
        summary_finish(summary, &sg_trace_info(reader)->header);
    return error;
}

int sg_summary_read(struct sg_summary *summary, struct sg_trace_reader *reader, bool bounds)
{
    return summary_read_all(summary, reader, bounds, 0);
}

int sg_summary_read_until(struct sg_summary *summary, struct sg_trace_reader *reader, uint64_t request)
{
    return summary_read_all(summary, reader, false, request);
}

void sg_summary_free(struct sg_summary *summary)
{
    for (uint32_t i = 0; i < summary->devices; i++) {
        sg_live_fini(&summary->device[i].live);
        sg_series_free(&summary->device[i].over_time);
    }
    settle_all(summary); /* where an error has ended the reading */
    sg_refusals_free(&summary->refusals);
    for (uint64_t i = 0; i < summary->failures && i < SG_FAILURES_KEPT; i++)
        sg_live_set_free(&summary->failure[i].live);
    for (int i = 0; i < SG_BOUND_COUNT; i++)
        sg_bound_delete(summary->bound[i]);
    sg_idmap_fini(&summary->live);
    sg_dictionary_free(&summary->dictionary);
    free(summary->device);
    free(summary->pending);
    free(summary->block);
}
