#include "rehearse/rehearse.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/findings.h"
#include "config.h"
#include "rehearse/adapt.h"
#include "rehearse/ends.h"
#include "rehearse/lives.h"
#include "rehearse/played_life.h"
#include "rehearse/unseen.h"
#include "install_paths.h"
#include "replay/recorded.h"
#include "size.h"
#include "replay/smallest_card.h"
#include "tool.h"
#include "reader/trace_reader.h"

static int play_card(struct sg_played_life *life, struct sg_rehearse_card *card, const struct sg_findings *findings)
{
    struct sg_play_result result;
    uint64_t cards[SG_DEVICES_MAX];
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        cards[i] = card->bytes;
    int status = sg_played_on_cards(life, cards, 0, &result);
    if (status || !result.ooms)
        return status;
    if (card->fits || result.first_oom_event < card->ends_at_event) {
        card->ends_at_event = result.first_oom_event;
        card->of_events = findings->requests;
        card->ends_with_bytes = result.first_oom_bytes;
        card->ends_with_live = result.first_oom_live;
        card->ends_with_outside = result.first_oom_outside;
        card->ends_short_by = result.first_oom_short;
        card->ends_by = result.first_oom_by;
        for (int i = 0; i < SG_DEVICES_MAX; i++) {
            const struct sg_play_device *device = &result.device[i];
            if (device->first_oom_event != result.first_oom_event)
                continue;
            card->caught = sg_rehearse_is_caught(&findings->book, device->first_oom_site);
            sg_site_book_line(&findings->book, device->first_oom_site, card->site);
            sg_site_book_phase(&findings->book, device->first_oom_phase, card->phase);
            sg_rehearse_hold(life->reader, (uint32_t)i, card);
        }
    }
    card->fits = false;
    return 0;
}

/* The smallest card by PyTorch's own rules, which is what the program would need without us. */
static int find_alone(struct sg_played_life *life, const struct sg_play_result *known, const char *conf,
    uint64_t ret[SG_DEVICES_MAX])
{
    const struct sg_play before = life->play;
    char error[SG_TORCH_ERROR_TEXT];
    life->play.policy = SG_POLICY_PYTORCH;
    int status = sg_torch_conf_parse(conf, &life->play.torch, error) == 0 ? sg_played_smallest(life, known, ret) : 0;
    life->play = before;
    return status;
}

/* The machine's index of a device. One whose UUID is not known has the process's number for it. */
static int index_of(const struct sg_findings_device *device)
{
    int index = device->has_uuid ? sim_config_index(device->uuid) : -1;
    return index < 0 ? (int)device->ordinal : index;
}

/* Figures of one process by its numbers of devices: smallest cards. */
struct smallest {
    uint64_t exact[SG_DEVICES_MAX], segalloc[SG_DEVICES_MAX], pytorch[SG_DEVICES_MAX], expandable[SG_DEVICES_MAX];
};

/* Notes the needs of one process. A process without PyTorch has no needs of PyTorch's own, so segalloc's stand for
   them. */
static void note_needs(const struct sg_findings *findings, const struct smallest *smallest, bool torch,
    struct sg_life *ret)
{
    ret->pid = findings->pid;
    snprintf(ret->command, sizeof ret->command, "%s", findings->command ? findings->command : "");
    for (uint32_t i = 0; i < findings->devices; i++) {
        const struct sg_findings_device *device = &findings->device[i];
        const uint64_t *peak = device->stats.peak;
        uint32_t ordinal = device->ordinal;
        if (!device->peak_taken && !peak[SG_STAT_requested_bytes])
            continue;
        struct sg_life_need need = {
            .used = true,
            .exact = smallest->exact[ordinal] > device->peak_own ? smallest->exact[ordinal] : device->peak_own,
            .alone = {.segalloc = smallest->segalloc[ordinal],
                .pytorch = torch ? smallest->pytorch[ordinal] : smallest->segalloc[ordinal],
                .pytorch_expandable = torch ? smallest->expandable[ordinal] : smallest->segalloc[ordinal]},
            .requested = peak[SG_STAT_requested_bytes],
            .reserved = peak[SG_STAT_reserved_bytes],
            .taken = device->peak_own,
        };
        ret->need[index_of(device)] = need;
    }
}

static int play_life(struct sg_played_life *life, const struct sg_findings *findings, struct sg_life *ret)
{
    struct sg_rehearse *rehearse = life->rehearse;
    struct sg_play_result known;
    struct smallest smallest = {.exact = {0}};
    bool torch = findings->torch && !rehearse->beneath;
    int status = sg_played_on_cards(life, (uint64_t[SG_DEVICES_MAX]){0}, 0, &known); /* on the card without end */
    for (unsigned i = 0; i < rehearse->card_count; i++) {
        status = status ? status : play_card(life, &rehearse->card[i], findings);
        rehearse->card[i].open |= status == SG_PLAYED_CUT && rehearse->card[i].fits;
    }
    if (status == 0)
        status = sg_played_robust(life, &known, smallest.exact, smallest.segalloc);
    if (status == 0 && torch)
        status = find_alone(life, &known, "", smallest.pytorch);
    if (status == 0 && torch)
        status = find_alone(life, &known, "expandable_segments:True", smallest.expandable);
    note_needs(findings, &smallest, torch, ret);
    return status;
}

/* Levels are those of the card without end. On the smallest card more is moved and less is reserved. Returns the device
   that had more in use than any before, -1: none. */
static int rehearse_add_process(struct sg_rehearse *rehearse, const struct sg_findings *findings)
{
    int most = -1;
    rehearse->processes++;
    rehearse->allocs += findings->allocs + findings->passed_on;
    rehearse->served += findings->allocs;
    rehearse->passed_on_bytes += findings->passed_on_bytes;
    rehearse->asked_bytes += findings->alloc_bytes + findings->passed_on_bytes;
    rehearse->served_share = rehearse->allocs ? (double)rehearse->served / (double)rehearse->allocs : -1;
    rehearse->events += findings->requests;
    rehearse->ooms += findings->ooms;
    rehearse->refused += findings->refused;
    rehearse->retried += findings->retried;
    rehearse->search = findings->limited ? (struct sg_search){0} : findings->search;
    rehearse->children |= (long)findings->pid != rehearse->run.process;
    rehearse->torch |= findings->torch;
    if (findings->largest_request > rehearse->largest_request)
        rehearse->largest_request = findings->largest_request;
    for (uint32_t i = 0; i < findings->devices; i++) {
        const uint64_t *peak = findings->device[i].stats.peak;
        rehearse->questions += findings->device[i].stats.value[SG_STAT_questions];
        rehearse->limited |= findings->limited;
        rehearse->lags |= findings->device[i].lags;
        if (findings->device[i].peak_taken > rehearse->peak_taken) {
            rehearse->peak_taken = findings->device[i].peak_taken;
            rehearse->outside = findings->device[i].outside;
            most = (int)findings->device[i].ordinal;
        }
        if (peak[SG_STAT_requested_bytes] > rehearse->peak_requested)
            rehearse->peak_requested = peak[SG_STAT_requested_bytes];
        if (peak[SG_STAT_reserved_bytes] > rehearse->peak_reserved)
            rehearse->peak_reserved = peak[SG_STAT_reserved_bytes];
    }
    rehearse->served_share = sg_findings_share(rehearse->served_share, rehearse->peak_taken, &rehearse->outside);
    return most;
}

static void note_end(const struct sg_findings *findings, struct sg_life *ret)
{
    ret->asked = true;
    ret->refused = findings->ooms > 0;
    ret->later = findings->survived;
    ret->most = findings->peak_taken;
    ret->failed = findings->failed_largest;
}

/* Notes what a process had in the host's memory. */
static int note_far(struct sg_rehearse *rehearse, struct sg_trace_reader *reader, const struct sg_findings *findings)
{
    struct sg_rehearse_overflow link = {0};
    for (uint32_t i = 0; i < findings->devices; i++) {
        const uint64_t *value = findings->device[i].stats.value;
        link.link_bytes += value[SG_STAT_link_bytes] - value[SG_STAT_link_peer_bytes];
        link.untold += value[SG_STAT_link_untold];
    }
    return sg_rehearse_note_far(rehearse, reader, &link)
               ? sg_tool_error(rehearse->verb, "the trace can't be read once more")
               : 0;
}

static int add_process(struct sg_rehearse *rehearse, const char *path, struct sg_life *ret)
{
    struct sg_findings findings;
    char error[SG_FINDINGS_ERROR];
    if (sg_findings_read(path, false, &findings, error) != 0)
        return 0; /* a process that ended before its first allocation */
    int status = 0;
    if (findings.allocs + findings.passed_on + findings.ooms + findings.peak_outside > 0) {
        struct sg_played_life life;
        int most = rehearse_add_process(rehearse, &findings);
        note_end(&findings, ret);
        status = sg_played_open(&life, rehearse, path);
        if (status == 0) {
            if (most >= 0)
                sg_rehearse_hold_peak(life.reader, (uint32_t)most, &rehearse->at_peak);
            rehearse->beneath |= life.play.conf.pytorch == SG_PYTORCH_BENEATH;
            status = play_life(&life, &findings, ret);
            if (status == 0 && rehearse->overflow)
                status = note_far(rehearse, life.reader, &findings);
            if (status == 0 && rehearse->budget && sg_budget_read(rehearse->budget, life.reader))
                status = sg_tool_error(rehearse->verb, "the trace can't be read once more");
        }
        sg_played_close(&life);
    }
    sg_findings_free(&findings);
    return status;
}

int sg_rehearse_traces(struct sg_rehearse *rehearse, const char *folder, struct sg_lives *lives)
{
    DIR *files = opendir(folder);
    int status = 0;
    rehearse->served_share = -1;
    if (rehearse->budget)
        sg_budget_clear(rehearse->budget);
    for (unsigned i = 0; i < rehearse->card_count; i++)
        rehearse->card[i].fits = true;
    for (struct dirent *entry; files && status == 0 && (entry = readdir(files));) {
        char path[SG_PLACE_BYTES * 2];
        if (!strstr(entry->d_name, ".trace"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        struct sg_life *life = sg_lives_of(lives, entry->d_name);
        status = life ? add_process(rehearse, path, life) : sg_tool_error(rehearse->verb, "no host memory left");
        if (status == SG_PLAYED_CUT) {
            rehearse->cut = true;
            status = 0;
        }
    }
    if (files)
        closedir(files);
    if (status == 0 && !sg_rehearse_find_unseen(rehearse, folder, lives))
        status = sg_tool_error(rehearse->verb, "no host memory left");
    sg_lives_join(lives, rehearse);
    rehearse->ends = sg_ends_sum(lives, rehearse->run.watched);
    if (rehearse->processes != 1 || !rehearse->ends.own_is_good)
        rehearse->search = (struct sg_search){0};
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return status;
}

uint64_t sg_rehearse_smallest(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    if (card->asked && !card->fits) /* what it would have taken there is not known */
        return 0;
    /* A program that adapts takes as much on this card as it did at first, however little it makes do with on a smaller one. */
    bool as_at_first = (rehearse->adapts || rehearse->differs) && card->fits && rehearse->first_smallest <= card->bytes;
    uint64_t smallest = as_at_first && rehearse->first_smallest > rehearse->alone.segalloc ? rehearse->first_smallest
                                                                                           : rehearse->alone.segalloc;
    return card->ran ? card->ran_smallest : smallest;
}

uint64_t sg_rehearse_short_by(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    uint64_t smallest = sg_rehearse_smallest(rehearse, card);
    return !card->fits && smallest > card->bytes ? smallest - card->bytes : 0;
}

enum sg_rehearse_verdict sg_rehearse_verdict(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    uint64_t smallest = sg_rehearse_smallest(rehearse, card), left = card->bytes > smallest ? card->bytes - smallest : 0;
    bool close = card->turns || card->bytes < smallest || left < card->margin;
    if (!card->fits)
        return card->overflow.far.peak_bytes ? SG_REHEARSE_FITS_WITH_OVERFLOW : SG_REHEARSE_DOES_NOT_FIT;
    return close ? SG_REHEARSE_TOO_CLOSE : SG_REHEARSE_FITS;
}
