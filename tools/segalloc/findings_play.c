/* What a replay of the trace adds to the findings. */
#include <string.h>

#include "findings.h"
#include "recorded.h"
#include "smallest.h"

/* The smallest card takes some twelve replays, at some millions of events a second: of longer traces it isn't looked
   for. */
enum { EVENTS_MOST = 2000000 };

struct played {
    struct sg_trace_reader *reader;
    const struct sg_recorded *recorded;
    struct sg_play play;
};

static size_t next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    return sg_trace_read(source, out, n);
}

static int play_cards(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret)
{
    struct played *played = user;
    char error[SG_PLAY_ERROR];
    (void)sg_trace_rewind(played->reader);
    memcpy(played->play.card, card, sizeof played->play.card);
    played->play.stop_at_oom = stop;
    played->play.as_recorded = sg_recorded_is(played->recorded, &played->play);
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

void sg_findings_play(struct sg_findings *findings, struct sg_trace_reader *reader, bool cards)
{
    struct sg_recorded recorded;
    struct sg_play_result result;
    bool open = findings->end_text != NULL, wanted = open || findings->failures || (cards && findings->events <= EVENTS_MOST);
    if (findings->imported || findings->dropped || !wanted || sg_trace_rewind(reader) != 0 ||
        sg_recorded_read(reader, &recorded) != 0)
        return;
    struct played played = {.reader = reader, .recorded = &recorded};
    played.play.next = next_records;
    played.play.source = reader;
    sg_recorded_play(&recorded, &played.play);
    uint64_t own[SG_DEVICES_MAX];
    memcpy(own, played.play.card, sizeof own);
    if (play_cards(&played, own, 0, &result) != 0 || !is_consistent(findings, &result))
        return;
    for (uint32_t i = 0; i < findings->devices; i++) {
        struct sg_findings_device *device = &findings->device[i];
        const struct sg_play_device *as_played = &result.device[device->ordinal];
        take_shortage(findings, device->ordinal, as_played);
        if (open && played.play.as_recorded && !result.diverged_event) {
            take_levels(device, &as_played->stats);
            findings->replayed = true;
        }
    }
    struct sg_smallest smallest = {.play = play_cards, .user = &played, .most = SG_SMALLEST_MOST};
    played.play.conf.limit_bytes = 0; /* a limit in bytes is none of the smallest card's */
    if (!cards || findings->events > EVENTS_MOST || sg_smallest_find(&smallest, &result) != 0)
        return;
    for (uint32_t i = 0; i < findings->devices; i++)
        findings->device[i].smallest_card = smallest.card[findings->device[i].ordinal];
}
