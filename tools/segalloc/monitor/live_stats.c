#include "reader/stats_read.h"
#include "monitor/live_stats.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_page(struct sg_live *live, size_t *room, uint64_t pid)
{
    char path[64], error[SG_STATS_ERROR];
    struct sg_stats_file file;
    if (sg_live_page(pid, path) != SG_LIVE_RUNS || sg_stats_file_read(path, &file, error) < 0)
        return 0; /* it has ended meanwhile, or is somebody else's */
    if (file.pid != pid) {
        sg_stats_file_free(&file);
        return 0;
    }
    if (live->count == *room) {
        size_t more = *room ? 2 * *room : 16;
        struct sg_stats_file *larger = realloc(live->file, more * sizeof *larger);
        if (!larger) {
            sg_stats_file_free(&file);
            return -ENOMEM;
        }
        live->file = larger;
        *room = more;
    }
    live->file[live->count++] = file;
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct sg_stats_file *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int sg_live_read(const uint64_t *pids, size_t count, struct sg_live *ret)
{
    size_t room = 0;
    int error = 0;
    *ret = (struct sg_live){0};
    (void)sg_live_sweep();
    for (size_t i = 0; i < count && !error; i++)
        error = read_page(ret, &room, pids[i]);
    DIR *folder = count ? NULL : opendir(SG_LIVE_FOLDER);
    for (struct dirent *entry; folder && !error && (entry = readdir(folder));) {
        uint64_t pid;
        if (strncmp(entry->d_name, SG_LIVE_PREFIX, strlen(SG_LIVE_PREFIX)) == 0 &&
            sg_live_pid(entry->d_name + strlen(SG_LIVE_PREFIX), &pid))
            error = read_page(ret, &room, pid);
    }
    if (folder)
        closedir(folder);
    if (ret->count)
        qsort(ret->file, ret->count, sizeof *ret->file, by_pid);
    return error;
}

void sg_live_free(struct sg_live *live)
{
    for (size_t i = 0; i < live->count; i++)
        sg_stats_file_free(&live->file[i]);
    free(live->file);
    *live = (struct sg_live){0};
}

int sg_live_rank(uint64_t pid)
{
    char path[64], *variable = NULL;
    size_t room = 0;
    int rank = -1, best = -1;
    snprintf(path, sizeof path, "/proc/%llu/environ", (unsigned long long)pid);
    FILE *in = fopen(path, "re");
    while (in && getdelim(&variable, &room, '\0', in) > 0) {
        const char *value = strchr(variable, '=');
        int place = value ? sg_path_rank_variable(variable, (size_t)(value - variable)) : -1;
        if (place < 0 || !value[1] || (best >= 0 && best < place))
            continue;
        char *end;
        long number = strtol(value + 1, &end, 10);
        best = place;
        rank = !*end && number >= 0 && number < 1 << 24 ? (int)number : -1;
    }
    if (in)
        fclose(in);
    free(variable);
    return rank;
}

double sg_live_utilization(const struct sg_stats *stats)
{
    uint64_t reserved = stats->value[SG_STAT_reserved_bytes];
    return reserved ? (double)stats->value[SG_STAT_allocated_bytes] / (double)reserved : -1;
}

uint64_t sg_live_idle(const struct sg_stats *stats)
{
    uint64_t used = stats->value[SG_STAT_allocated_bytes] + stats->value[SG_STAT_pending_bytes];
    return stats->value[SG_STAT_reserved_bytes] > used ? stats->value[SG_STAT_reserved_bytes] - used : 0;
}
