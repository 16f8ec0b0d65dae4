/* The line is built in one buffer, device by device, then the failures, then the next command to run. */
#include "report/summary.h"

#include "inspect/core_state.h"
#include "process/environment.h"
#include "process/process.h"
#include "services/recorder.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 900, DEVICES_BYTES = 600 }; /* sg_log_line() cuts at 1 KiB */

/* SEGALLOC_SUMMARY says where, and the process that `segalloc run` became: "terminal@4711". *ret_child: this is another. */
static bool is_asked_for(bool *ret_child)
{
    char where[16];
    long process;
    const char *asked = sg_environment("SEGALLOC_SUMMARY");
    if (!asked || sscanf(asked, "%15[a-z]@%ld", where, &process) != 2)
        return false;
    *ret_child = process != getpid();
    return strcmp(where, "always") == 0 || (strcmp(where, "terminal") == 0 && isatty(STDERR_FILENO));
}

/* Appends what `device` held, with its number where `several` have been used. Returns the new length. */
static size_t add_device(char *line, size_t length, int device, bool several, const struct sg_stats *stats)
{
    char reserved[SG_SIZE_TEXT], allocated[SG_SIZE_TEXT], number[32] = "";
    if (length > DEVICES_BYTES)
        return length;
    if (several)
        snprintf(number, sizeof number, "device %d: ", device);
    return length + (size_t)snprintf(line + length, LINE_BYTES - length, "%s%s%s reserved at the peak for %s allocated",
                        length ? "; " : "", number, sg_size_format(stats->peak[SG_STAT_reserved_bytes], reserved),
                        sg_size_format(stats->peak[SG_STAT_allocated_bytes], allocated));
}

/* The part of `path` after the working folder, where it lies there. */
static const char *from_here(const char *path)
{
    char here[SG_PATH_BYTES];
    size_t length = getcwd(here, sizeof here) ? strlen(here) : 0;
    return length > 1 && strncmp(path, here, length) == 0 && path[length] == '/' ? path + length + 1 : path;
}

/* Counts devices that were used first, since a line about one device needs no number. */
void sg_summary_print(struct sg_core *core)
{
    char line[LINE_BYTES] = "";
    struct sg_stats stats;
    size_t length = 0;
    uint64_t failed = 0;
    unsigned used = 0;
    bool child;
    if (!is_asked_for(&child))
        return;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        used += sg_core_stats(core, i, &stats) && stats.value[SG_STAT_allocs];
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (!sg_core_stats(core, i, &stats))
            continue;
        failed += stats.value[SG_STAT_ooms];
        if (stats.value[SG_STAT_allocs])
            length = add_device(line, length, i, used > 1, &stats);
    }
    if (failed)
        length += (size_t)snprintf(line + length, LINE_BYTES - length, "%s%" PRIu64 " allocation%s failed",
            length ? "; " : "", failed, sg_plural(failed));
    if (!length)
        return;
    if (child)
        length += (size_t)snprintf(line + length, LINE_BYTES - length, ", in process %ld", (long)getpid());
    const char *trace = sg_recorder_path();
    if (trace)
        snprintf(line + length, LINE_BYTES - length, ". To see what held it: segalloc report %s", from_here(trace));
    else
        snprintf(line + length, LINE_BYTES - length, ". To see what holds it: segalloc run --sites -o run.trace -- CMD");
    sg_log_line(line);
}
