#include "monitor/live_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "writer/stats_file.h"

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

enum sg_live_page sg_live_page(uint64_t pid, char ret_path[SG_LIVE_PATH])
{
    char error[SG_STATS_ERROR], process[SG_LIVE_PATH];
    struct sg_stats_file file;
    snprintf(ret_path, SG_LIVE_PATH, "/dev/shm/segalloc-live-%" PRIu64, pid);
    snprintf(process, sizeof process, "/proc/%" PRIu64, pid);
    if (sg_stats_file_read(ret_path, &file, error) < 0)
        return SG_LIVE_NONE;
    bool runs = file.pid == pid && is_alive(pid, file.start_realtime_ns);
    sg_stats_file_free(&file);
    return runs ? SG_LIVE_RUNS : access(process, F_OK) == 0 ? SG_LIVE_NONE : SG_LIVE_ENDED;
}
