/* A pause copies gigabytes, so the wait has no end but the process's own. */
#include "verbs/order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "json.h"
#include "size.h"
#include "tool.h"

#define SLICE_NS UINT64_C(10000000000)
enum { SLICE_S = 10 };

/* The driver's numbers that an order may be answered with, in words. */
static const char *order_reason(uint32_t result)
{
    static const struct {
        uint32_t result;
        const char *words;
    } reasons[] = {
        {2, "the device, or the host, has no memory for it"},
        {500, "it has used no such tag"},
        {600, "work on that memory does not end"},
        {800, "others remember its pages"},
        {801, "its memory can't be paused: it is served by the driver or in fixed segments, or the run checks itself"},
        {900, "it is capturing a stream"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].result == result)
            return reasons[i].words;
    return "the driver has refused a call";
}

/* The row of a process that listens; NULL, and an error was printed. */
static struct sg_neighbour *order_find(const char *verb, pid_t pid, struct sg_neighbours **ret_table)
{
    char path[48];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    if (stat(path, &status) != 0) {
        sg_tool_error(verb, "there is no process %ld", (long)pid);
        return NULL;
    }
    int error = sg_neighbours_map(status.st_uid, /* create */ false, ret_table);
    struct sg_neighbour *other = error ? NULL : sg_neighbours_find(*ret_table, pid);
    if (error == -EACCES)
        sg_tool_error(verb, "process %ld is another user's", (long)pid);
    else if (!other)
        sg_tool_error(verb,
            "process %ld does not listen: it isn't under segalloc, has allocated nothing yet, or runs with "
            "trim_on_request:False",
            (long)pid);
    return other;
}

/* Waits until the order is answered. False: the process has ended before, or is another one by now. */
static bool order_await(const char *verb, pid_t pid, struct sg_neighbours *table, struct sg_neighbour *other)
{
    for (int seconds = SLICE_S; !sg_neighbour_wait(other, SLICE_NS); seconds += SLICE_S) {
        if (sg_neighbours_find(table, pid) != other)
            return false;
        fprintf(stderr, "segalloc %s: process %ld has worked on it for %d s\n", verb, (long)pid, seconds);
    }
    return sg_neighbours_find(table, pid) == other;
}

static void order_print(enum sg_neighbour_order what, pid_t pid, const char *tag, uint64_t bytes, bool json)
{
    char size[SG_SIZE_TEXT];
    if (!json) {
        printf("%s %s\n", sg_size_format(bytes, size), what == SG_NEIGHBOUR_PAUSE ? "given back" : "brought back");
        return;
    }
    json_t *result = sg_json_object(what == SG_NEIGHBOUR_PAUSE ? "segalloc.pause/1" : "segalloc.resume/1");
    SG_JSON_NUMBERS(result, {"pid", (uint64_t)pid}, {"bytes", bytes});
    sg_json_set(result, "tag", sg_json_text(tag));
    sg_json_print(result);
}

int sg_order_give(const char *verb, pid_t pid, enum sg_neighbour_order what, const char *tag, bool json)
{
    struct sg_neighbours *table;
    struct sg_neighbour *other = order_find(verb, pid, &table);
    uint32_t result;
    uint64_t bytes;
    if (!other)
        return SG_EXIT_ERROR;
    if (!sg_neighbour_order(table, other, what, tag))
        return sg_tool_error(verb, "process %ld is carrying out another order", (long)pid);
    if (!order_await(verb, pid, table, other))
        return sg_tool_error(verb, "process %ld has ended before it answered", (long)pid);
    if (!sg_neighbour_order_end(table, other, &result, &bytes))
        return sg_tool_error(verb, "process %ld runs with an older library, which knows no tags", (long)pid);
    if (result != 0)
        return sg_tool_error(verb, "%s%s%s can't be %s in process %ld: %s (CUDA error %" PRIu32 ")", tag ? "tag \"" : "",
            tag ? tag : "all tags", tag ? "\"" : "", what == SG_NEIGHBOUR_PAUSE ? "paused" : "resumed", (long)pid,
            order_reason(result), result);
    order_print(what, pid, tag, bytes, json);
    return SG_EXIT_OK;
}

bool sg_order_check(const char *verb, int argc, char **argv, int first, const char *tag, pid_t *ret_pid, int *ret_status)
{
    *ret_status = SG_EXIT_OK;
    if (tag && (!*tag || strlen(tag) >= SG_NEIGHBOUR_TAG))
        *ret_status = sg_tool_usage(verb, "--tag takes a name of 1 to %d bytes, not \"%s\"", SG_NEIGHBOUR_TAG - 1, tag);
    else if (first + 1 != argc)
        *ret_status = sg_tool_usage(verb, first == argc ? "which process?" : "one process at a time");
    else if (!sg_tool_pid(argv[first], ret_pid))
        *ret_status = sg_tool_usage(verb, "\"%s\" is no process id", argv[first]);
    return *ret_status == SG_EXIT_OK;
}
