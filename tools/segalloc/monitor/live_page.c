#include "monitor/live_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reader/stats_read.h"

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
    sg_live_page_path(pid, ret_path);
    snprintf(process, sizeof process, "/proc/%" PRIu64, pid);
    if (sg_stats_file_read(ret_path, &file, error) < 0)
        return SG_LIVE_NONE;
    bool runs = file.pid == pid && sg_live_is_alive(pid, file.start_realtime_ns);
    sg_stats_file_free(&file);
    return runs ? SG_LIVE_RUNS : access(process, F_OK) == 0 ? SG_LIVE_NONE : SG_LIVE_ENDED;
}
