/* Findings that take a replay of the trace. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/core_state.h"
#include "report/findings.h"
#include "meta.h"
#include "progress.h"
#include "replay/free_orders.h"
#include "replay/recorded.h"
#include "replay/smallest_card.h"

/* The smallest card takes some twelve replays, at some millions of events a second: of longer traces it isn't looked
   for. */
enum { EVENTS_MOST = 2000000 };

struct played {
    struct sg_trace_reader *reader;
    const struct sg_recorded *recorded;
    struct sg_play play;
    struct sg_findings *findings;
    uint64_t record; /* that was played last, from 1 */
    uint64_t order, random; /* of frees: 0 as recorded, and the state of what makes others */
    struct mark {
        struct sg_series over_time; /* reserved */
        uint64_t fullest, failed; /* records */
        uint64_t reserved, largest; /* bytes then: held; asked for */
    } *mark; /* of each of the devices found */
    bool no_memory; /* for what was looked at on the way */
    struct sg_progress progress;
};

static size_t findings_next_records(void *user, struct segalloc_trace_record *out, size_t n)
{
    struct played *played = user;
    sg_progress_show(&played->progress, "replaying", sg_trace_progress(played->reader));
    n = sg_trace_read(played->reader, out, n);
    if (played->order)
        sg_orders_shuffle(out, n, &played->random);
    return n;
}

static int findings_play_cards(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop,
    struct sg_play_result *ret)
{
    struct played *played = user;
    char error[SG_PLAY_ERROR];
    if (sg_trace_rewind(played->reader) != 0) /* it could be, so what fails now is memory */
        return -ENOMEM;
    memcpy(played->play.card, card, sizeof played->play.card);
    played->play.stop_at_oom = stop;
    played->play.as_recorded = !played->order && sg_recorded_is(played->recorded, &played->play);
    played->random = played->order;
    return sg_play_run(&played->play, ret, error);
}

/* The last statistics are from before the end: the replay's levels are those of the end. */
static void take_levels(struct sg_findings_device *device, const struct sg_stats *stats)
{
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        if (sg_stat_info((enum sg_stat)i)->kind != SG_STAT_LEVEL)
            continue;
        device->stats.value[i] = stats->value[i];
        if (stats->peak[i] > device->stats.peak[i] || !device->known[i])
            device->stats.peak[i] = stats->peak[i];
        device->known[i] = true;
    }
    device->stats_age = 0;
}

/* Where the file itself doesn't say how much a failed allocation lacked, the replay may. */
static void take_shortage(struct sg_findings *findings, uint32_t ordinal, const struct sg_play_device *device)
{
    for (uint32_t i = 0; i < findings->failures; i++) {
        struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device == ordinal && failure->event == device->first_oom_event && !failure->short_by)
            failure->short_by = device->first_oom_short;
    }
}

static bool is_consistent(const struct sg_findings *findings, const struct sg_play_result *result)
{
    for (uint32_t i = 0; i < findings->devices; i++) {
        const struct sg_play_device *device = &result->device[findings->device[i].ordinal];
        if (device->stats.peak[SG_STAT_requested_bytes] < findings->device[i].stats.peak[SG_STAT_requested_bytes])
            return false; /* part of the trace is missing, or it is none of a program */
    }
    return true;
}

/* The first time round: when most was reserved, and which failure was the largest. */
static bool note_moments(void *user, const struct segalloc_trace_record *record, uint64_t event, struct sg_core *core)
{
    struct played *played = user;
    played->record++;
    for (uint32_t i = 0; i < played->findings->devices; i++) {
        struct sg_findings_device *device = &played->findings->device[i];
        struct mark *mark = &played->mark[i];
        uint64_t reserved = sg_core_reserved(core, (int)device->ordinal);
        const struct sg_sample sample = {.number = event - 1, .device = {.reserved = reserved}};
        played->no_memory = played->no_memory || (event && sg_series_note(&mark->over_time, &sample) != 0);
        if (played->no_memory)
            return false;
        if (reserved > mark->reserved) {
            mark->reserved = reserved;
            mark->fullest = played->record;
        }
        bool failed = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE && record->size > mark->largest &&
                      record->size == device->failed_largest;
        if (failed) {
            mark->largest = record->size;
            mark->failed = played->record;
        }
    }
    return true;
}

/* The second time: looks at the device then. */
static bool take_moments(void *user, const struct segalloc_trace_record *record, uint64_t event, struct sg_core *core)
{
    struct played *played = user;
    bool more = false, fine = true;
    (void)record;
    played->record++;
    for (uint32_t i = 0; i < played->findings->devices; i++) {
        struct sg_findings_device *device = &played->findings->device[i];
        const struct mark *mark = &played->mark[i];
        if (mark->fullest == played->record)
            fine = fine &&
                   sg_page_map_take(&device->fullest, core, (int)device->ordinal, event, &played->findings->book);
        if (mark->failed == played->record)
            fine = fine && sg_page_map_take(&device->failed, core, (int)device->ordinal, event, &played->findings->book);
        more = more || mark->fullest > played->record || mark->failed > played->record;
    }
    played->no_memory = !fine;
    return more && fine;
}

/* Finds the blocks that were alive when most was reserved. */
static int find_alive(struct sg_findings *findings, struct sg_trace_reader *reader)
{
    int status = 0;
    for (uint32_t i = 0; i < findings->devices && !status; i++) {
        struct sg_findings_device *device = &findings->device[i];
        struct sg_summary summary;
        if (!device->fullest.event)
            continue;
        status = sg_trace_rewind(reader);
        if (status)
            return status;
        status = sg_summary_read_until(&summary, reader, device->fullest.event);
        const struct sg_live *live = &summary.device[device->ordinal].live;
        if (!status && live->group && !sg_live_set_take(&device->at_reserved, live, /* kept */ false, SG_LIVE_ROWS))
            status = -ENOMEM;
        sg_summary_free(&summary);
    }
    return status;
}

/* 0 or a negative errno. */
static int find_moments(struct played *played)
{
    struct sg_play_result ignored;
    uint64_t own[SG_DEVICES_MAX];
    played->play.watch = take_moments;
    played->record = 0;
    memcpy(own, played->play.card, sizeof own);
    int status = findings_play_cards(played, own, 0, &ignored);
    played->play.watch = NULL;
    if (!status && (played->no_memory || sg_meta_ran_out()))
        status = -ENOMEM;
    return status ? status : find_alive(played->findings, played->reader);
}

/* Plays the trace on its recorded devices, for what they held. 0 or a negative errno. */
static int play_own(struct sg_findings *findings, struct played *played, struct sg_play_result *result)
{
    bool open = findings->end_text != NULL;
    uint64_t own[SG_DEVICES_MAX];
    memcpy(own, played->play.card, sizeof own);
    played->play.watch = note_moments;
    played->play.watcher = played;
    int status = findings_play_cards(played, own, 0, result);
    played->play.watch = NULL;
    if (status)
        return status;
    if (played->no_memory || sg_meta_ran_out())
        return -ENOMEM;
    if (!is_consistent(findings, result))
        return -ENODATA;
    for (uint32_t i = 0; i < findings->devices; i++) {
        struct sg_findings_device *device = &findings->device[i];
        const struct sg_play_device *as_played = &result->device[device->ordinal];
        take_shortage(findings, device->ordinal, as_played);
        if (open && played->play.as_recorded && !result->diverged_event) {
            take_levels(device, &as_played->stats);
            findings->replayed = true;
        }
    }
    return 0;
}

static int find_cards(struct sg_findings *findings, struct played *played, const struct sg_play_result *result)
{
    struct sg_smallest smallest = {.play = findings_play_cards, .user = played, .most = SG_SMALLEST_MOST};
    played->play.conf.limit_bytes = 0; /* a limit in bytes is none of the smallest card's */
    int status = sg_smallest_find(&smallest, result);
    if (!status && sg_meta_ran_out())
        status = -ENOMEM;
    for (uint32_t i = 0; !status && i < findings->devices; i++)
        findings->device[i].smallest_card = smallest.card[findings->device[i].ordinal];
    return status;
}

/* The smallest card for the next run, which frees in another order. It is the most that some orders need, and half of
   the range between them (rehearse/cards.c). A rehearsal answers with that figure, so the report on its trace has it
   too. */
static int played_find_robust(struct sg_findings *findings, struct played *played, const struct sg_play_result *result)
{
    uint64_t least[SG_FINDINGS_DEVICES] = {0}, most[SG_FINDINGS_DEVICES] = {0};
    uint32_t devices = findings->devices < SG_FINDINGS_DEVICES ? findings->devices : SG_FINDINGS_DEVICES;
    int status = 0;
    for (played->order = 0; !status && played->order <= SG_ORDERS; played->order++) {
        status = find_cards(findings, played, result);
        for (uint32_t i = 0; !status && i < devices; i++) {
            uint64_t card = findings->device[i].smallest_card;
            least[i] = !played->order || card < least[i] ? card : least[i];
            most[i] = card > most[i] ? card : most[i];
        }
    }
    played->order = 0;
    for (uint32_t i = 0; !status && i < devices; i++)
        findings->device[i].smallest_card =
            most[i] + ((most[i] - least[i]) / 2 + SG_SMALLEST_STEP - 1) / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
    return status;
}

void sg_findings_play(struct sg_findings *findings, struct sg_trace_reader *reader, bool cards)
{
    struct sg_recorded recorded;
    struct sg_play_result result;
    bool short_enough = cards && findings->events <= EVENTS_MOST;
    if (findings->imported || findings->dropped || !(findings->end_text || findings->failures || short_enough))
        return;
    int status = sg_trace_rewind(reader);
    if (!status)
        status = sg_recorded_read(reader, &recorded);
    if (!status) {
        struct played played = {.reader = reader, .recorded = &recorded, .findings = findings,
            .mark = calloc(findings->devices + 1, sizeof *played.mark)};
        played.play.next = findings_next_records;
        played.play.source = &played;
        sg_recorded_play(&recorded, &played.play);
        for (uint32_t i = 0; played.mark && i < findings->devices; i++)
            played.mark[i].over_time.most = SG_STEPS_POINTS;
        status = played.mark ? play_own(findings, &played, &result) : -ENOMEM;
        if (!status && cards)
            status = find_moments(&played);
        if (!status && short_enough)
            status = (findings->cards ? played_find_robust : find_cards)(findings, &played, &result);
        sg_progress_end(&played.progress);
        for (uint32_t i = 0; played.mark && i < findings->devices; i++) {
            sg_series_steps(&played.mark[i].over_time, /* reserved */ true, &findings->device[i].reserved);
            sg_series_free(&played.mark[i].over_time);
        }
        free(played.mark);
        sg_recorded_free(&recorded);
    }
    /* a pipe is read once; what contradicts itself, or is not whole, is said to be so elsewhere */
    bool unplayable = status == -ESPIPE || status == SG_PLAY_CONTRADICTS || status == -ENODATA;
    findings->unplayed = (status && !unplayable) || sg_meta_ran_out();
}
