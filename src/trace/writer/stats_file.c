#include "writer/stats_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/own_write.h"
#include "base/plain_text.h"
#include "writer/replaced_file.h"

/* A file that is being written, through a buffer. The first error stays. */
struct out {
    int fd, error;
    size_t used;
    char buffer[4096];
};

/* Writes the buffer, whatever signals come: the file may be a pipe. */
static void out_flush(struct out *out)
{
    if (!out->error)
        out->error = sg_own_write(out->fd, out->buffer, out->used);
    out->used = 0;
}

/* Adds a short text, of 255 bytes at most. */
static __attribute__((format(printf, 2, 3))) void out_put(struct out *out, const char *format, ...)
{
    enum { PIECE = 256 };
    /* Room for a whole piece is made first, so that no text is written in two halves. */
    if (sizeof(out->buffer) - out->used < PIECE)
        out_flush(out);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out->buffer + out->used, PIECE, format, arguments);
    va_end(arguments);
    out->used += length < PIECE ? (size_t)length : PIECE - 1;
}

/* Adds a text as a string of JSON. A byte that is no UTF-8 becomes U+FFFD, since a command line may hold anything. */
static void out_put_string(struct out *out, const char *text)
{
    const char *at = text ? text : "";
    out_put(out, "\"");
    while (*at) {
        size_t length = sg_utf8_length(at);
        if (!length)
            out_put(out, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            out_put(out, "\\%c", *at);
        else if ((unsigned char)*at < ' ')
            out_put(out, "\\u%04x", (unsigned)*at);
        else
            out_put(out, "%.*s", (int)length, at);
        at += length ? length : 1;
    }
    out_put(out, "\"");
}

/* Adds the object of a device, with all statistics in the order of the table. */
static void out_put_device(struct out *out, const struct sg_stats_device *device)
{
    out_put(out, "{\"device\":%lu,\"model\":", (unsigned long)device->device);
    out_put_string(out, device->model);
    out_put(out, ",\"uuid\":");
    out_put_string(out, device->uuid);
    out_put(out, ",\"granularity_bytes\":%llu,\"total_bytes\":%llu,\"limit_bytes\":%llu,\"statistics\":{",
        (unsigned long long)device->granularity, (unsigned long long)device->total_bytes,
        (unsigned long long)device->limit_bytes);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        out_put(out, "%s\"%s\":%llu", i ? "," : "", info->name, (unsigned long long)device->stats.value[i]);
        if (info->kind == SG_STAT_LEVEL)
            out_put(out, ",\"peak_%s\":%llu", info->name, (unsigned long long)device->stats.peak[i]);
    }
    out_put(out, "}}");
}

/* Adds the tags, if there are any. */
static void out_put_tags(struct out *out, const struct sg_stats_file *file)
{
    for (uint32_t i = 0; i < file->tag_count; i++) {
        const struct sg_stats_tag *tag = &file->tags[i];
        out_put(out, "%s", i ? "," : ",\"tags\":[");
        out_put(out, "{\"tag\":");
        out_put_string(out, tag->name);
        out_put(out,
            ",\"backup\":%s,\"paused\":%s,\"requested_bytes\":%llu,\"reserved_bytes\":%llu,"
            "\"pauses\":%llu,\"resumes\":%llu,",
            tag->backup ? "true" : "false", tag->paused ? "true" : "false", (unsigned long long)tag->requested,
            (unsigned long long)tag->reserved, (unsigned long long)tag->pauses, (unsigned long long)tag->resumes);
        out_put(out, "\"peak_requested_bytes\":%llu,\"peak_reserved_bytes\":%llu,\"backup_bytes_peak\":%llu}%s",
            (unsigned long long)tag->peak_requested, (unsigned long long)tag->peak_reserved,
            (unsigned long long)tag->peak_saved, i + 1 == file->tag_count ? "]" : "");
    }
}

int sg_stats_file_write(const char *pattern, sg_environment_fn *environment, const struct sg_stats_file *file)
{
    char path[1024];
    struct sg_replaced_file replaced;
    struct out out = {.fd = -1};
    int error = sg_path_expand(pattern, environment, path, sizeof(path));
    if (!error)
        error = sg_path_make_parents(path);
    if (!error)
        error = sg_replaced_file_open(&replaced, path, file->is_private ? 0600 : 0666);
    if (error)
        return error;
    out.fd = replaced.fd;
    out_put(&out,
        "{\"schema\":\"segalloc.stats/1\",\"version\":\"%s\",\"pid\":%llu,\"pid_namespace\":%llu,"
        "\"start_realtime_ns\":%llu,\"end_realtime_ns\":%llu,\"conf\":",
        SEGALLOC_VERSION, (unsigned long long)file->pid, (unsigned long long)file->pid_namespace,
        (unsigned long long)file->start_realtime_ns, (unsigned long long)file->end_realtime_ns);
    out_put_string(&out, file->conf);
    out_put(&out, ",\"command\":");
    out_put_string(&out, file->command);
    out_put(&out, ",\"untracked_order\":%d,\"untracked_by\":", file->untracked_by && *file->untracked_by);
    out_put_string(&out, file->untracked_by);
    out_put(&out, ",\"pytorch\":");
    out_put_string(&out, file->pytorch);
    out_put(&out, ",\"aliases\":");
    out_put_string(&out, file->aliases);
    out_put(&out, ",\"phase\":");
    out_put_string(&out, file->phase);
    out_put(&out, ",\"devices\":[");
    for (uint32_t i = 0; i < file->count; i++) {
        out_put(&out, "%s", i ? "," : "");
        out_put_device(&out, &file->devices[i]);
    }
    out_put(&out, "]");
    out_put_tags(&out, file);
    out_put(&out, "}\n");
    out_flush(&out);
    return sg_replaced_file_close(&replaced, out.error);
}
