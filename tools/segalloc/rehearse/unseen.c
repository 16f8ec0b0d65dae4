/* Processes of a run that took memory without the library: the simulator has noted the most that each held. */
#include "rehearse/unseen.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/peaks.h"
#include "install_paths.h"
#include "replay/smallest_card.h"

static bool peaks_read(const char *path, struct sim_peaks *ret)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool whole = file >= 0 && read(file, ret, sizeof *ret) == (ssize_t)sizeof *ret;
    if (file >= 0)
        close(file);
    return whole;
}

/* True if one of the traces is of what the process ran when it had this file. A program that it becomes by exec has
   files of its own, and may have no trace.

   An example. 17-0.peaks is there from 1 to 3 and 17.trace from 2 on: that is its trace. 17-1.peaks is there from 4 on,
   and has none. A trace without a request says nothing of the process: managed memory does not begin one. */
static bool unseen_has_trace(const struct sg_lives *lives, const struct sg_life *peaks)
{
    for (unsigned i = 0; i < lives->count; i++) {
        const struct sg_life *life = &lives->life[i];
        if (strstr(life->name, ".trace") && life->asked && atol(life->name) == atol(peaks->name) &&
            life->began >= peaks->began && life->began < peaks->ended)
            return true;
    }
    return false;
}

static void unseen_note_end(const struct sim_peaks *peaks, uint64_t bytes, struct sg_life *life)
{
    life->asked = bytes || peaks->managed || peaks->refused;
    life->refused = peaks->refused;
    life->later = peaks->later;
    life->most = bytes;
    life->failed = peaks->refused_bytes;
}

/* Requests of the others in it are not known, so it counts by what it held. */
static void unseen_add(struct sg_rehearse *rehearse, const struct sim_peaks *peaks, struct sg_life *life)
{
    uint64_t sum = 0;
    for (int i = 0; i < SG_DEVICES_MAX && i < (int)(sizeof peaks->bytes / sizeof *peaks->bytes); i++) {
        uint64_t bytes = peaks->bytes[i], card = (bytes + SG_SMALLEST_STEP - 1) / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
        if (!bytes)
            continue;
        sum += bytes;
        life->need[i] = (struct sg_life_need){.used = true,
            .exact = bytes,
            .alone = {.segalloc = card, .pytorch = card, .pytorch_expandable = card},
            .requested = bytes,
            .reserved = bytes,
            .taken = bytes};
        for (unsigned j = 0; j < rehearse->card_count; j++)
            rehearse->card[j].fits &= bytes <= rehearse->card[j].bytes;
        if (bytes > rehearse->peak_taken)
            rehearse->peak_taken = bytes;
    }
    unseen_note_end(peaks, sum, life);
    rehearse->processes += life->asked;
    rehearse->unseen += sum > 0;
    rehearse->unseen_bytes += sum;
    rehearse->refused += peaks->refused;
    rehearse->retried += peaks->refused;
    rehearse->ooms += peaks->refused && !peaks->later;
    rehearse->children |= life->asked && atol(life->name) != rehearse->run.process;
}

static void unseen_find_in(struct sg_rehearse *rehearse, const char *folder, const struct sg_lives *lives,
    struct sg_life *life)
{
    static const enum sg_end ends[] = {[SIM_END_IS_NOT_KNOWN] = SG_END_IS_NOT_KNOWN,
        [SIM_END_IS_GOOD] = SG_END_IS_GOOD,
        [SIM_END_IS_AN_ERROR] = SG_END_IS_AN_ERROR,
        [SIM_END_BY_ANOTHER] = SG_END_BY_ANOTHER};
    char path[SG_PLACE_BYTES * 2];
    struct sim_peaks peaks;
    snprintf(path, sizeof path, "%s/%s", folder, life->name);
    if (!peaks_read(path, &peaks))
        return;
    life->end = peaks.end < sizeof ends / sizeof *ends ? ends[peaks.end] : SG_END_IS_NOT_KNOWN;
    if (peaks.managed > rehearse->managed_bytes)
        rehearse->managed_bytes = peaks.managed;
    if (!unseen_has_trace(lives, life))
        unseen_add(rehearse, &peaks, life);
}

bool sg_rehearse_find_unseen(struct sg_rehearse *rehearse, const char *folder, struct sg_lives *lives)
{
    DIR *files = opendir(folder);
    bool room = true;
    for (struct dirent *entry; files && room && (entry = readdir(files));)
        room = !strstr(entry->d_name, ".peaks") || sg_lives_of(lives, entry->d_name);
    if (files)
        closedir(files);
    for (unsigned i = 0; room && i < lives->count; i++)
        if (strstr(lives->life[i].name, ".peaks"))
            unseen_find_in(rehearse, folder, lives, &lives->life[i]);
    return room;
}
