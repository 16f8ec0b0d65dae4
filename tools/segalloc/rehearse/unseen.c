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

/* Its peaks; false: the file can't be read, or the process has a trace. */
static bool unseen_read(const char *folder, const char *name, struct sim_peaks *ret)
{
    char path[SG_PLACE_BYTES * 2], trace[SG_PLACE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(trace, sizeof trace, "%s/%ld.trace", folder, atol(name));
    return peaks_read(path, ret) && !(ret->served && access(trace, F_OK) == 0);
}

/* A process that has called exec since has a second file, so the end that is known last counts. */
bool sg_rehearse_ended_badly(const char *trace)
{
    char path[SG_PLACE_BYTES * 2];
    uint64_t end = SIM_END_IS_NOT_KNOWN;
    struct sim_peaks peaks;
    const char *dot = strrchr(trace, '.');
    int length = dot ? (int)(dot - trace) : 0;
    for (int i = 0; snprintf(path, sizeof path, "%.*s-%d.peaks", length, trace, i) > 0 && peaks_read(path, &peaks); i++)
        end = peaks.end != SIM_END_IS_NOT_KNOWN ? peaks.end : end;
    return end == SIM_END_IS_AN_ERROR;
}

/* What others asked for in it is not known: it counts by what it held. */
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
    rehearse->unseen += sum > 0;
    rehearse->unseen_bytes += sum;
}

bool sg_rehearse_find_unseen(struct sg_rehearse *rehearse, const char *folder, struct sg_lives *lives)
{
    DIR *files = opendir(folder);
    bool room = true;
    for (struct dirent *entry; files && room && (entry = readdir(files));) {
        struct sim_peaks peaks;
        if (!strstr(entry->d_name, ".peaks") || !unseen_read(folder, entry->d_name, &peaks))
            continue;
        struct sg_life *life = sg_lives_of(lives, entry->d_name);
        room = life != NULL;
        if (life)
            unseen_add(rehearse, &peaks, life);
    }
    if (files)
        closedir(files);
    if (rehearse->processes)
        rehearse->processes += rehearse->unseen;
    return room;
}
