#include "monitor/live_stats.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "segalloc-live-"
#define SECOND_NS UINT64_C(1000000000)

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Whether the process of this number is the one that wrote the page: it runs, and began before the page did. */
static bool is_alive(uint64_t pid, uint64_t page_ns)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    FILE *in = fopen(path, "re");
    size_t length = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in)
        fclose(in);
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    char state;
    unsigned long long ticks;
    if (!at || sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                   &state, &ticks) != 2)
        return false;
    uint64_t began_ns = ticks * (SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK)), boot_ns = now_ns(CLOCK_BOOTTIME);
    uint64_t ago = boot_ns > began_ns ? boot_ns - began_ns : 0;
    return state != 'Z' && state != 'X' && now_ns(CLOCK_REALTIME) - ago <= page_ns + SECOND_NS;
}

bool sg_live_pid(const char *text, uint64_t *ret)
{
    size_t length = strlen(text);
    if (length == 0 || length > 10 || strspn(text, "0123456789") != length)
        return false;
    *ret = strtoull(text, NULL, 10);
    return true;
}

static int read_page(struct sg_live *live, size_t *room, uint64_t pid)
{
    char path[64], error[SG_STATS_ERROR];
    struct sg_stats_file file;
    snprintf(path, sizeof path, FOLDER "/" PREFIX "%llu", (unsigned long long)pid);
    if (sg_stats_file_read(path, &file, error) < 0)
        return 0; /* it has ended meanwhile, or is somebody else's */
    if (file.pid != pid || !is_alive(pid, file.start_realtime_ns)) {
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
    for (size_t i = 0; i < count && !error; i++)
        error = read_page(ret, &room, pids[i]);
    DIR *folder = count ? NULL : opendir(FOLDER);
    for (struct dirent *entry; folder && !error && (entry = readdir(folder));) {
        uint64_t pid;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 && sg_live_pid(entry->d_name + strlen(PREFIX), &pid))
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
