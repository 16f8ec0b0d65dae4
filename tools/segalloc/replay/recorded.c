#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "replay/recorded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/refusals.h"
#include "definitions.h"
#include "size.h"

enum { BATCH = 4096, TEXT = 4096 };
#define KEPT_BYTES (128 * SG_MIB)        /* of the records, which are read at least twice */
#define DEFAULT_GRANULARITY (2 * SG_MIB) /* of every part that has been reported */

/* State of the reading of a trace. */
struct reading {
    struct sg_recorded *recorded;
    struct sg_definitions defined;
    struct sg_refusals refusals;
    uint64_t events; /* of the program */
    uint64_t live[SG_DEVICES_MAX];
};

/* Notes the live bytes after a record. A block from before the trace has only its free in it, so they stop at 0. */
static void note_live(struct reading *reading, const struct segalloc_trace_record *record)
{
    uint64_t *live = &reading->live[sg_defined_device(&reading->defined, record->stream)];
    if (record->kind == SEGALLOC_RECORD_ALLOCATE)
        *live += record->size;
    else
        *live -= record->size < *live ? record->size : *live;
    if (*live > reading->recorded->live_most)
        reading->recorded->live_most = *live;
}

/* `count` grows by one; room is a power of two. False: no host memory. */
static bool add_event(uint64_t **list, size_t *count, uint64_t event)
{
    if ((*count & (*count - 1)) == 0) {
        uint64_t *larger = realloc(*list, (*count ? 2 * *count : 1) * sizeof *larger);
        if (!larger)
            return false;
        *list = larger;
    }
    (*list)[(*count)++] = event;
    return true;
}

/* The end of a refused allocation. False: no host memory. */
static bool note_refusal(struct reading *reading, const struct segalloc_trace_record *record)
{
    struct sg_recorded *recorded = reading->recorded;
    struct sg_refusal refusal;
    reading->events += record->kind < SEGALLOC_RECORD_DONE;
    if (sg_refusals_settle(&reading->refusals, record, &refusal) == SG_REFUSAL_MADE_GOOD && !refusal.by &&
        !add_event(&recorded->made_good, &recorded->made_goods, refusal.mark[0]))
        return false;
    bool ours = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    if (!ours && record->kind != SEGALLOC_RECORD_REFUSED_OUTSIDE)
        return true;
    struct sg_refusal *opened = sg_refusal_open(&reading->refusals, record);
    if (opened)
        opened->mark[0] = reading->events;
    if (opened && !ours) /* a replay asks for nothing then */
        return true;
    return opened && add_event(&recorded->refused, &recorded->refusals, reading->events);
}

static bool recorded_take_record(struct reading *reading, const struct segalloc_trace_record *record)
{
    struct sg_recorded *recorded = reading->recorded;
    if (!note_refusal(reading, record))
        return false;
    switch (record->kind) {
    case SEGALLOC_RECORD_DEFINE_STREAM:
        return sg_define_stream(&reading->defined, record);
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        recorded->device_bytes[record->stream % SG_DEVICES_MAX] = record->size;
        recorded->granularity = record->id > recorded->granularity ? record->id : recorded->granularity;
        recorded->fixed &= record->id == 0;
        return true;
    case SEGALLOC_RECORD_ALLOCATE:
    case SEGALLOC_RECORD_FREE:
        note_live(reading, record);
        return true;
    default:
        return true;
    }
}

static int by_event(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Reads the trace, from its beginning and back to it, and keeps it for who plays it. */
static int recorded_read_all(struct sg_trace_reader *reader, struct sg_recorded *recorded)
{
    if (sg_trace_rewind(reader) != 0)
        return 0;
    struct reading reading = {.recorded = recorded};
    struct segalloc_trace_record *record = malloc(BATCH * sizeof *record);
    bool fine = record != NULL;
    sg_trace_keep(reader, KEPT_BYTES);
    sg_definitions_init(&reading.defined);
    for (size_t n; fine && (n = sg_trace_read(reader, record, BATCH)) > 0;)
        for (size_t i = 0; i < n && fine; i++)
            fine = recorded_take_record(&reading, &record[i]);
    free(record);
    if (recorded->made_goods)
        qsort(recorded->made_good, recorded->made_goods, sizeof *recorded->made_good, by_event);
    sg_refusals_free(&reading.refusals);
    sg_definitions_fini(&reading.defined);
    (void)sg_trace_rewind(reader); /* an error is the player's to meet */
    return fine ? 0 : -ENOMEM;
}

int sg_recorded_read(struct sg_trace_reader *reader, struct sg_recorded *ret)
{
    const struct sg_trace_info *info = sg_trace_info(reader);
    memset(ret, 0, sizeof *ret);
    sg_conf_init(&ret->conf);
    ret->ours = !info->header.imported && sg_conf_apply(&ret->conf, SG_CONF_ARGUMENT, info->conf, NULL, NULL) == 0;
    if (!ret->ours)
        sg_conf_init(&ret->conf);
    ret->fixed = ret->ours && info->header.granularity == 0;
    ret->granularity = info->header.granularity;
    ret->device_bytes[0] = info->header.device_bytes;
    int error = info->header.imported ? 0 : recorded_read_all(reader, ret);
    if (!ret->granularity)
        ret->granularity = DEFAULT_GRANULARITY;
    return error;
}

void sg_recorded_excuse(struct sg_recorded *recorded)
{
    free(recorded->made_good);
    recorded->made_good = recorded->refused;
    recorded->made_goods = recorded->refusals;
    recorded->refused = NULL;
    recorded->refusals = 0;
}

void sg_recorded_free(struct sg_recorded *recorded)
{
    free(recorded->made_good);
    free(recorded->refused);
    recorded->made_good = recorded->refused = NULL;
    recorded->made_goods = recorded->refusals = 0;
}

int sg_recorded_measure(struct sg_trace_reader *reader, struct sg_recorded *recorded)
{
    if (!sg_trace_info(reader)->header.imported)
        return 0;
    sg_recorded_free(recorded);
    return recorded_read_all(reader, recorded);
}

/* Clears the settings that decide nothing in a replay. The trace has the questions to the driver about work, with their
   answers. It also says if segments were fixed, which ipc:auto leaves to the process. */
static void conf_blank(struct sg_conf *conf)
{
    conf->trace[0] = conf->stats[0] = '\0';
    conf->free_sync = SG_FREE_SYNC_AUTO;
    conf->pending_limit = SG_AUTO;
    conf->wait_limit = conf->trim_idle_s = 0;
    conf->ipc = SG_IPC_AUTO;
    conf->pytorch = 0;
    conf->oom_report = SG_OOM_NEVER;
    conf->limit_visible = conf->live = conf->sites = conf->trim_on_request = conf->confirm_conf = conf->abort_conf =
        false;
}

/* True if each device has its recorded size. */
static bool are_own_cards(const struct sg_recorded *recorded, const struct sg_play *play)
{
    bool is_known = false;
    for (unsigned i = 0; i < SG_DEVICES_MAX; i++) {
        uint64_t bytes = play->card[i] ? play->card[i] : play->card_bytes;
        if (recorded->device_bytes[i] && bytes && bytes != recorded->device_bytes[i])
            return false;
        is_known |= recorded->device_bytes[i] > 0;
    }
    return is_known;
}

bool sg_recorded_is(const struct sg_recorded *recorded, const struct sg_play *play)
{
    struct sg_conf conf[2] = {play->conf, recorded->conf};
    char text[2][TEXT];
    if (!recorded->ours || play->policy != SG_POLICY_SEGALLOC || play->ordered || !are_own_cards(recorded, play))
        return false;
    if (conf[0].ipc == SG_IPC_ALWAYS && !recorded->fixed)
        return false;
    for (int i = 0; i < 2; i++) {
        conf_blank(&conf[i]);
        conf[i].expandable_segments &= !recorded->fixed;
        sg_conf_print(&conf[i], text[i], sizeof text[i]);
    }
    return strcmp(text[0], text[1]) == 0;
}

void sg_recorded_play(const struct sg_recorded *recorded, struct sg_play *play)
{
    play->conf = recorded->conf;
    play->conf.trace[0] = play->conf.stats[0] = '\0';
    play->granularity = recorded->granularity;
    play->card_bytes = 0;
    play->live_bytes = recorded->live_most;
    play->made_good = recorded->made_good;
    play->made_goods = recorded->made_goods;
    for (unsigned i = 0; i < SG_DEVICES_MAX; i++)
        play->card[i] = recorded->device_bytes[i];
    play->as_recorded = sg_recorded_is(recorded, play);
    if (recorded->fixed)
        play->conf.expandable_segments = false;
}

void sg_recorded_conf_text(const struct sg_conf *conf, char *text, size_t size)
{
    struct sg_conf shown = *conf, standard;
    sg_conf_init(&standard);
    shown.trace[0] = shown.stats[0] = '\0';
    shown.wait_limit = standard.wait_limit;
    shown.trim_idle_s = standard.trim_idle_s;
    shown.oom_report = standard.oom_report;
    shown.live = standard.live;
    shown.trim_on_request = standard.trim_on_request;
    shown.confirm_conf = standard.confirm_conf;
    shown.abort_conf = standard.abort_conf;
    shown.limit_visible = standard.limit_visible;
    if (sg_conf_print(&shown, text, size) == 0)
        *text = '\0';
}
