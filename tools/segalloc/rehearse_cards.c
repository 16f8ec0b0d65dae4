#include "rehearse.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "findings.h"
#include "inputs.h"
#include "place.h"
#include "play.h"
#include "progress.h"
#include "size.h"
#include "tool.h"
#include "trace_reader.h"

#define STEP (2 * SG_MIB) /* to which the smallest card is found */

struct life {
    struct sg_rehearse *rehearse;
    struct sg_trace_reader *reader;
    struct sg_play play;
    uint64_t caught; /* failures on the largest card that the program lived through */
    struct sg_progress progress;
};

static size_t next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    struct life *life = source;
    sg_progress_show(&life->progress, "playing the run on other cards", sg_trace_progress(life->reader));
    return sg_trace_read(life->reader, out, n);
}

static int play(struct life *life, uint64_t bytes, struct sg_play_result *ret)
{
    char error[SG_PLAY_ERROR];
    sg_trace_rewind(life->reader);
    life->play.card_bytes = bytes;
    life->play.stop_at_oom = life->caught == 0;
    if (sg_play_run(&life->play, ret, error) != 0)
        return sg_tool_error(life->rehearse->verb, "the run can't be played again: %s", error);
    const char *broken = sg_trace_error(life->reader);
    return broken ? sg_tool_error(life->rehearse->verb, "the trace of the run: %s", broken) : 0;
}

/* The smallest card, to STEP, that this process fits; known only where it fitted the largest one. */
static int find_smallest(struct life *life, uint64_t peak_requested, uint64_t largest, uint64_t *ret)
{
    struct sg_play_result result;
    uint64_t low = peak_requested / STEP * STEP, high = largest / STEP * STEP;
    if (low >= high)
        low = high > STEP ? high - STEP : 0;
    /* Nearly always within a fiftieth of the peak: look there before the whole. */
    uint64_t guess = (low + low / 50) / STEP * STEP + STEP;
    int status = 0;
    if (guess < high) {
        status = play(life, guess, &result);
        if (status == 0)
            *(result.ooms > life->caught ? &low : &high) = guess;
    }
    while (status == 0 && high - low > STEP) {
        uint64_t middle = low + (high - low) / 2 / STEP * STEP;
        status = play(life, middle, &result);
        if (status == 0)
            *(result.ooms > life->caught ? &low : &high) = middle;
    }
    if (status == 0)
        *ret = high;
    return status;
}

static int play_cards(struct life *life, const struct sg_findings *findings)
{
    struct sg_rehearse *rehearse = life->rehearse;
    struct sg_rehearse_card *largest = &rehearse->card[rehearse->card_count - 1];
    int status = 0;
    for (unsigned i = 0; status == 0 && i + 1 < rehearse->card_count; i++) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        struct sg_play_result result;
        status = play(life, card->bytes, &result);
        bool ran_out = status == 0 && result.ooms > life->caught;
        if (!ran_out && !findings->ooms)
            continue;
        card->fits = false;
        if (ran_out && (!card->ends_at_event || result.first_oom_event < card->ends_at_event)) {
            card->ends_at_event = result.first_oom_event;
            card->ends_with_bytes = result.first_oom_bytes;
            card->ends_with_live = result.first_oom_live;
        }
    }
    if (findings->ooms) {
        largest->fits = false;
        largest->ends_at_event = findings->events;
        largest->ends_with_bytes = findings->failed_largest;
    }
    uint64_t smallest = 0;
    if (status == 0 && !findings->ooms)
        status = find_smallest(life, findings->peak_requested, largest->bytes, &smallest);
    if (smallest > rehearse->smallest_card)
        rehearse->smallest_card = smallest;
    return status;
}

static int add_process(struct sg_rehearse *rehearse, const char *path)
{
    struct sg_findings findings;
    char error[SG_FINDINGS_ERROR];
    if (sg_findings_read(path, false, &findings, error) != 0)
        return 0; /* a process that ended before its first allocation */
    int status = 0;
    if (findings.allocs + findings.passed_on + findings.ooms > 0) {
        uint64_t asked = rehearse->allocs + findings.allocs + findings.passed_on;
        double served = (rehearse->served_share > 0 ? rehearse->served_share * (double)rehearse->allocs : 0) +
                        (double)findings.allocs;
        rehearse->served_share = asked ? served / (double)asked : -1;
        rehearse->allocs = asked;
        rehearse->processes++;
        rehearse->events += findings.events;
        rehearse->ooms += findings.ooms;
        if (findings.largest_request > rehearse->largest_request)
            rehearse->largest_request = findings.largest_request;
        if (findings.peak_requested > rehearse->peak_requested)
            rehearse->peak_requested = findings.peak_requested;
        if (findings.peak_reserved > rehearse->peak_reserved)
            rehearse->peak_reserved = findings.peak_reserved;
        struct life life = {.rehearse = rehearse};
        char trace_error[SG_TRACE_ERROR];
        if (sg_trace_open(path, &life.reader, trace_error) != 0)
            status = sg_tool_error(rehearse->verb, "the trace of the run: %s", trace_error);
        if (status == 0) {
            const struct sg_trace_info *info = sg_trace_info(life.reader);
            life.play = (struct sg_play){
                .granularity = info->header.granularity ? info->header.granularity : 2 * SG_MIB, .next = next_records,
                .source = &life,
            };
            sg_conf_init(&life.play.conf);
            (void)sg_conf_apply(&life.play.conf, SG_CONF_ARGUMENT, info->conf, NULL, NULL);
            rehearse->beneath |= life.play.conf.pytorch == SG_PYTORCH_BENEATH;
            life.play.conf.trace[0] = life.play.conf.stats[0] = '\0';
            /* A process that caught its first failures and completed has fitted. */
            if (rehearse->run.status == 0) {
                life.caught = findings.ooms;
                findings.ooms = 0;
            }
            status = play_cards(&life, &findings);
            sg_progress_end(&life.progress);
            sg_trace_close(life.reader);
        }
    }
    sg_findings_free(&findings);
    return status;
}

int sg_rehearse_traces(struct sg_rehearse *rehearse, const char *folder)
{
    DIR *files = opendir(folder);
    int status = 0;
    rehearse->served_share = -1;
    for (unsigned i = 0; i < rehearse->card_count; i++)
        rehearse->card[i].fits = true;
    for (struct dirent *entry; files && status == 0 && (entry = readdir(files));) {
        char path[SG_PLACE_BYTES * 2];
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        status = add_process(rehearse, path);
    }
    if (files)
        closedir(files);
    return status;
}
