#include "reader/stats_read.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Writes the line of an error. Returns -EINVAL. */
static int stats_fail(char *error, const char *text)
{
    snprintf(error, SG_STATS_ERROR, "%s", text);
    return -EINVAL;
}

/* A number of an object; 0: there is none, or a negative one. */
static uint64_t stats_number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

/* A copy of a text of an object; "": there is none. */
static char *stats_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return strdup(value ? value : "");
}

/* The statistics of a device: a number for each row of stats.def, by name. */
static void stats_read_device(const json_t *object, struct sg_stats_device *ret)
{
    const json_t *table = json_object_get(object, "statistics");
    uint64_t device = stats_number(object, "device");
    ret->device = device < UINT32_MAX ? (uint32_t)device : UINT32_MAX;
    const char *model = json_string_value(json_object_get(object, "model"));
    snprintf(ret->model, sizeof ret->model, "%s", model ? model : "");
    const char *uuid = json_string_value(json_object_get(object, "uuid"));
    snprintf(ret->uuid, sizeof ret->uuid, "%s", uuid ? uuid : "");
    ret->granularity = stats_number(object, "granularity_bytes");
    ret->total_bytes = stats_number(object, "total_bytes");
    ret->limit_bytes = stats_number(object, "limit_bytes");
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        char peak[128];
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        snprintf(peak, sizeof(peak), "peak_%s", info->name);
        ret->stats.value[i] = stats_number(table, info->name);
        ret->stats.peak[i] = info->kind == SG_STAT_LEVEL ? stats_number(table, peak) : 0;
    }
}

/* Reads a tag of memory. Fields that are missing are 0, and a name that is too long is cut. */
static void stats_read_tag(const json_t *from, struct sg_stats_tag *to)
{
    const char *name = json_string_value(json_object_get(from, "tag"));
    snprintf(to->name, sizeof to->name, "%s", name ? name : "");
    to->backup = json_is_true(json_object_get(from, "backup"));
    to->paused = json_is_true(json_object_get(from, "paused"));
    to->requested = stats_number(from, "requested_bytes");
    to->reserved = stats_number(from, "reserved_bytes");
    to->peak_requested = stats_number(from, "peak_requested_bytes");
    to->peak_reserved = stats_number(from, "peak_reserved_bytes");
    to->peak_saved = stats_number(from, "backup_bytes_peak");
    to->pauses = stats_number(from, "pauses");
    to->resumes = stats_number(from, "resumes");
}

int sg_stats_file_read(const char *path, struct sg_stats_file *ret, char *error)
{
    json_error_t problem;
    FILE *in = fopen(path, "rbe");
    if (!in) {
        int code = -errno;
        snprintf(error, SG_STATS_ERROR, "%s", strerror(errno));
        return code;
    }
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES, &problem);
    fclose(in);
    if (!root) {
        for (char *at = problem.text; *at; at++) /* what it quotes of the file may be anything */
            *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
        snprintf(error, SG_STATS_ERROR, "no statistics: %s in line %d, column %d", problem.text, problem.line,
                 problem.column);
        return -EINVAL;
    }
    const json_t *tags = json_object_get(root, "tags");
    size_t tag_count = json_array_size(tags) < SG_STATS_TAGS ? json_array_size(tags) : SG_STATS_TAGS;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *devices = json_object_get(root, "devices");
    size_t count = json_array_size(devices);
    int status = 0;
    if (!schema || strcmp(schema, "segalloc.stats/1") != 0)
        status = stats_fail(error, "no statistics of segalloc: its schema is not segalloc.stats/1");
    else if (!json_is_array(devices) || count > SG_STATS_DEVICES)
        status = stats_fail(error, "no statistics of segalloc: it has no list of devices");
    if (!status) {
        struct sg_stats_device *table = calloc(count + 1, sizeof(*table));
        struct sg_stats_tag *tag_table = calloc(tag_count + 1, sizeof *tag_table);
        if (!table || !tag_table) {
            free(table);
            free(tag_table);
            json_decref(root);
            return stats_fail(error, "out of memory");
        }
        for (size_t i = 0; i < count; i++)
            stats_read_device(json_array_get(devices, i), &table[i]);
        for (size_t i = 0; i < tag_count; i++)
            stats_read_tag(json_array_get(tags, i), &tag_table[i]);
        *ret = (struct sg_stats_file){.pid = stats_number(root, "pid"),
            .pid_namespace = stats_number(root, "pid_namespace"),
            .start_realtime_ns = stats_number(root, "start_realtime_ns"),
            .end_realtime_ns = stats_number(root, "end_realtime_ns"),
            .conf = stats_text(root, "conf"),
            .command = stats_text(root, "command"),
            .untracked_by = stats_text(root, "untracked_by"),
            .pytorch = stats_text(root, "pytorch"),
            .aliases = stats_text(root, "aliases"),
            .phase = stats_text(root, "phase"),
            .devices = table,
            .count = (uint32_t)count,
            .tags = tag_table,
            .tag_count = (uint32_t)tag_count};
    }
    json_decref(root);
    return status;
}

void sg_stats_file_free(struct sg_stats_file *file)
{
    free((void *)(uintptr_t)file->conf);
    free((void *)(uintptr_t)file->command);
    free((void *)(uintptr_t)file->untracked_by);
    free((void *)(uintptr_t)file->pytorch);
    free((void *)(uintptr_t)file->aliases);
    free((void *)(uintptr_t)file->phase);
    free((void *)(uintptr_t)file->devices);
    free((void *)(uintptr_t)file->tags);
    memset(file, 0, sizeof(*file));
}

bool sg_stats_file_detect(const char *path)
{
    struct stat status;
    bool regular = strcmp(path, "-") != 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
    FILE *in = regular ? fopen(path, "rbe") : NULL; /* what is read from a pipe would be gone */
    int first = in ? fgetc(in) : EOF;
    while (first == ' ' || first == '\n' || first == '\t' || first == '\r')
        first = fgetc(in);
    if (in)
        fclose(in);
    return first == '{';
}
