/* The traces of a run, where --output has them kept. */
#include "rehearse/rehearse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "install_paths.h"
#include "segalloc/trace_format.h"
#include "tool.h"

/* Puts a trace of the run where it is to stay. False after a message. */
static bool traces_keep_one(const struct sg_rehearse *rehearse, const char *path, const char *name)
{
    char bytes[65536];
    int in = open(path, O_RDONLY | O_CLOEXEC), out = sg_tool_create(rehearse->verb, name, name, rehearse->force);
    ssize_t got = 0, put = 0;
    while (in >= 0 && out >= 0 && put == got && (got = read(in, bytes, sizeof bytes)) > 0)
        put = write(out, bytes, (size_t)got);
    bool good = in >= 0 && out >= 0 && got == 0;
    if (!good && out >= 0)
        sg_tool_message(rehearse->verb, "%s: %s", name, strerror(errno));
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) != 0)
        good = false;
    return good;
}

/* When the process began that has written the trace, ns; 0: not known. */
static uint64_t traces_began_at(const char *path)
{
    struct segalloc_trace_header header = {.start_realtime_ns = 0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool whole = file >= 0 && read(file, &header, sizeof header) == (ssize_t)sizeof header;
    if (file >= 0)
        close(file);
    return whole ? header.start_realtime_ns : 0;
}

static int traces_is_one(const struct dirent *entry)
{
    return strstr(entry->d_name, ".trace") != NULL;
}

/* That of the process that began first has the name as it is. */
bool sg_rehearse_keep_traces(const struct sg_rehearse *rehearse, const char *folder)
{
    struct dirent **entry;
    int count = scandir(folder, &entry, traces_is_one, versionsort), first = 0;
    uint64_t earliest = UINT64_MAX;
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        char path[SG_PLACE_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        uint64_t began = traces_began_at(path);
        first = began < earliest ? i : first;
        earliest = began < earliest ? began : earliest;
    }
    for (int i = 0; i < count; i++) {
        char path[SG_PLACE_BYTES], name[SG_PLACE_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        snprintf(name, sizeof name, i == first ? "%s" : "%s.%d", rehearse->output, atoi(entry[i]->d_name));
        good = good && traces_keep_one(rehearse, path, name);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return good;
}
