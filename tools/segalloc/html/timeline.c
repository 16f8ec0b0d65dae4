#include "inspect/core_state.h"
#include "html/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "growing_array.h"
#include "replay/playback.h"

enum { PHASE_DEEP = 16 };

struct reading {
    struct sg_timeline *timeline;
    uint64_t *birth; /* request of the allocation, by number of the block */
    uint32_t births, room;
    bool failed_last;
};

static int note_life(struct reading *reading, const struct sg_walk_event *event)
{
    struct sg_timeline *timeline = reading->timeline;
    int status = sg_growing_array((void **)&reading->birth, &reading->births, &reading->room, event->block,
        sizeof *reading->birth);
    if (status)
        return status;
    struct sg_lifetime *alive = &timeline->alive[sg_live_class(event->size)];
    bool born = event->kind == SG_WALK_ALLOC;
    alive->blocks += born ? 1 : UINT64_MAX;
    alive->bytes += born ? event->size : -event->size;
    if (born) {
        reading->birth[event->block] = event->request;
        return 0;
    }
    unsigned life = sg_live_class(event->request - reading->birth[event->block]); /* so many binary digits */
    struct sg_lifetime *lived =
        &timeline->lifetime[life < SG_LIFETIMES ? life : SG_LIFETIMES - 1][sg_live_class(event->size)];
    lived->blocks++;
    lived->bytes += event->size;
    return 0;
}

static void note_failure(struct sg_timeline *timeline, const struct sg_walk_event *event)
{
    if (timeline->failures < SG_TIMELINE_FAILURES)
        timeline->failure[timeline->failures++] = (struct sg_timeline_failure){
            .request = event->request, .time_ns = event->time_ns, .bytes = event->size, .lacked = event->lacked,
            .device = event->device, .site = event->site, .phase = event->phase,
        };
}

static void html_forget_failure(struct sg_timeline *timeline, uint64_t request)
{
    uint32_t at = timeline->failures;
    while (at > 0 && timeline->failure[at - 1].request != request)
        at--;
    if (!at)
        return;
    memmove(&timeline->failure[at - 1], &timeline->failure[at], (timeline->failures - at) * sizeof *timeline->failure);
    timeline->failures--;
}

/* The phase around a phase that is `depth` levels deep, itself included. */
static uint32_t phase_ancestor(const struct sg_site_book *book, uint32_t phase, uint32_t depth)
{
    uint32_t chain[PHASE_DEEP], deep = 0;
    for (; phase && phase < book->phases && deep < PHASE_DEEP; phase = book->phase[phase].around)
        chain[deep++] = phase;
    return deep == 0 ? 0 : chain[deep > depth ? deep - depth : 0];
}

static void forget_inner_phases(struct sg_timeline *timeline, const struct sg_site_book *book)
{
    uint32_t count = 0;
    timeline->phase_depth--;
    for (uint32_t i = 0; timeline->phase_depth && i < timeline->phases; i++) {
        struct sg_timeline_phase run = timeline->phase[i];
        run.phase = phase_ancestor(book, run.phase, timeline->phase_depth);
        if (!count || timeline->phase[count - 1].phase != run.phase)
            timeline->phase[count++] = run;
    }
    timeline->phases = count;
}

static void note_phase(struct sg_timeline *timeline, const struct sg_walk_event *event)
{
    const struct sg_site_book *book = &event->dictionary->book;
    while (timeline->phase_depth) {
        uint32_t phase = phase_ancestor(book, event->phase, timeline->phase_depth);
        if (timeline->phases ? timeline->phase[timeline->phases - 1].phase == phase : !phase)
            return;
        if (timeline->phases < SG_TIMELINE_PHASES) {
            timeline->phase[timeline->phases++] = (struct sg_timeline_phase){event->request, event->time_ns, phase};
            return;
        }
        forget_inner_phases(timeline, book);
    }
}

static int html_take_event(void *user, const struct sg_walk_event *event)
{
    struct reading *reading = user;
    struct sg_timeline *timeline = reading->timeline;
    if (!timeline->walked && event->record)
        timeline->first_ns = event->record->time_ns - event->time_ns;
    timeline->walked += event->kind < SG_WALK_SERVED;
    timeline->requests = event->request;
    timeline->duration_ns = event->time_ns > timeline->duration_ns ? event->time_ns : timeline->duration_ns;
    if (event->kind == SG_WALK_SERVED)
        html_forget_failure(timeline, event->failed_request);
    if (event->kind == SG_WALK_FAILURE)
        note_failure(timeline, event);
    if (event->kind == SG_WALK_ALLOC)
        note_phase(timeline, event);
    if (event->kind == SG_WALK_STATISTICS)
        timeline->source = SG_TIMELINE_STATISTICS;
    int status = event->kind <= SG_WALK_FREE ? note_life(reading, event) : 0;
    return status ? status : sg_series_add(&timeline->series[event->device], event);
}

struct replaying {
    struct sg_timeline *timeline;
    struct sg_series series[SG_DICTIONARY_DEVICES];
    struct sg_levels before[SG_DICTIONARY_DEVICES];
    uint64_t record;
    int status;
};

static bool html_take_sample(void *user, const struct segalloc_trace_record *record, uint64_t request,
    struct sg_core *core)
{
    struct replaying *replaying = user;
    struct sg_walk_device now[SG_DICTIONARY_DEVICES];
    replaying->record++;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES && !replaying->status; i++) {
        struct sg_levels levels;
        if (!replaying->timeline->series[i].count)
            continue;
        sg_core_levels(core, (int)i, &levels);
        if (memcmp(&levels, &replaying->before[i], sizeof levels) == 0 &&
            record->kind != SEGALLOC_RECORD_ALLOCATE_FAILURE)
            continue;
        replaying->before[i] = levels;
        now[i] = (struct sg_walk_device){.requested = levels.requested,
            .knows_reserved = true,
            .reserved = levels.reserved,
            .allocated = levels.allocated,
            .pending = levels.pending};
        const struct sg_walk_event event = {
            .number = replaying->record,
            .request = request,
            .device = i,
            .devices = now,
            .time_ns = record->time_ns > replaying->timeline->first_ns ? record->time_ns - replaying->timeline->first_ns
                                                                       : 0,
        };
        replaying->status = sg_series_add(&replaying->series[i], &event);
    }
    return !replaying->status;
}

static uint64_t most_requested(const struct sg_series *series)
{
    uint64_t most = 0;
    for (size_t i = 0; i < series->count; i++)
        if (series->bucket[i].high.device.requested > most)
            most = series->bucket[i].high.device.requested;
    return most;
}

/* A replay that does not have what the trace has is of no use. */
static bool replay_agrees(const struct replaying *replaying)
{
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        if (most_requested(&replaying->series[i]) < most_requested(&replaying->timeline->series[i]))
            return false;
    return true;
}

static int read_replay(struct sg_trace_reader *reader, uint64_t points, struct sg_timeline *timeline)
{
    struct replaying *replaying = calloc(1, sizeof *replaying);
    if (!replaying)
        return -ENOMEM;
    replaying->timeline = timeline;
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++)
        replaying->series[i].most = points;
    uint64_t diverged = 0;
    int status = sg_playback(reader, html_take_sample, replaying, &diverged);
    if (!status)
        status = replaying->status;
    bool good = !status && replay_agrees(replaying);
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        sg_series_free(good ? &timeline->series[i] : &replaying->series[i]);
        if (good)
            timeline->series[i] = replaying->series[i];
    }
    if (good) {
        timeline->source = SG_TIMELINE_REPLAY;
        timeline->diverged = diverged;
    }
    free(replaying);
    return status == -ENODATA ? 0 : status;
}

int sg_timeline_read(struct sg_trace_reader *reader, uint64_t points, bool replay, struct sg_timeline *ret)
{
    struct reading reading = {.timeline = ret};
    ret->phase_depth = PHASE_DEEP;
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++)
        ret->series[i].most = points;
    int status = sg_walk(reader, html_take_event, &reading);
    free(reading.birth);
    return status || !replay ? status : read_replay(reader, points, ret);
}

void sg_timeline_free(struct sg_timeline *timeline)
{
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++)
        sg_series_free(&timeline->series[i]);
}
