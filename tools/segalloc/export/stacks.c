/* What was alive at a moment, as stacks: device, phase, the frames that asked for it, size; the weight is bytes. As JSON it is
   the groups themselves. */
#include "export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "tool.h"

enum { FRAMES = SEGALLOC_TRACE_FRAMES + 3 };

/* The frames of a group, the outermost first; returns how many. */
static int frames_of(const struct sg_group *group, char frame[FRAMES][SG_GROUP_TEXT])
{
    int count = 0;
    snprintf(frame[count++], SG_GROUP_TEXT, "device %" PRIu32, group->device);
    if (group->phase)
        snprintf(frame[count++], SG_GROUP_TEXT, "%s", group->phase);
    for (const char *at = group->stack; at && *at && count < FRAMES - 1; at += strcspn(at, "\n"), at += *at == '\n')
        snprintf(frame[count++], SG_GROUP_TEXT, "%.*s", (int)strcspn(at, "\n"), at);
    sg_group_size(group->size_class, frame[count++]);
    return count;
}

/* A frame of a folded stack holds neither what ends one nor what ends a line. */
static void put_frame(FILE *out, const char *text)
{
    for (; *text; text++)
        putc((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text == ';' ? ',' : *text, out);
}

static int read_groups(struct sg_trace_reader *reader, const struct sg_export_options *options,
    struct sg_groups *groups, struct sg_exported *ret)
{
    int error = options->window ? sg_groups_read_window(reader, options->window, groups)
                                : sg_groups_read(reader, options->moment, options->to_ns, groups);
    ret->events = ret->shown = groups->count;
    return error;
}

int sg_export_folded(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                     struct sg_exported *ret)
{
    struct sg_groups groups;
    char frame[FRAMES][SG_GROUP_TEXT];
    int error = read_groups(reader, options, &groups, ret);
    for (size_t i = 0; !error && i < groups.count; i++) {
        int frames = frames_of(&groups.group[i], frame);
        for (int k = 0; k < frames; k++) {
            if (k)
                putc(';', out);
            put_frame(out, frame[k]);
        }
        fprintf(out, " %" PRIu64 "\n", groups.group[i].bytes);
    }
    sg_groups_free(&groups);
    return error;
}

/* Texts, each once. */
struct names {
    char **name;
    size_t count, room;
};

/* Number of `text`; negative: no host memory. */
static long number_of(struct names *names, const char *text)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->name[i], text) == 0)
            return (long)i;
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 64;
        char **larger = realloc(names->name, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        names->name = larger;
        names->room = room;
    }
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    names->name[names->count] = copy;
    return (long)names->count++;
}

static void put_speedscope(FILE *out, const char *command, const struct names *names, const struct sg_groups *groups,
                           const long (*stack)[FRAMES])
{
    fputs("{\"$schema\":\"https://www.speedscope.app/"
          "file-format-schema.json\",\"exporter\":\"segalloc " SEGALLOC_VERSION "\",\"name\":",
        out);
    sg_tool_json_write(out, command);
    fputs(",\"shared\":{\"frames\":[", out);
    for (size_t i = 0; i < names->count; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", out);
        sg_tool_json_write(out, names->name[i]);
        putc('}', out);
    }
    fprintf(out,
        "]},\"profiles\":[{\"type\":\"sampled\",\"name\":\"alive\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":"
        "%" PRIu64 ",\"samples\":[",
        groups->bytes);
    for (size_t i = 0; i < groups->count; i++) {
        for (int k = 0; k < FRAMES && stack[i][k] >= 0; k++)
            fprintf(out, "%s%ld", k ? "," : i ? ",[" : "[", stack[i][k]);
        putc(']', out);
    }
    fputs("],\"weights\":[", out);
    for (size_t i = 0; i < groups->count; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", groups->group[i].bytes);
    fputs("]}]}\n", out);
}

int sg_export_speedscope(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                         struct sg_exported *ret)
{
    struct sg_groups groups;
    struct names names = {0};
    char frame[FRAMES][SG_GROUP_TEXT];
    int error = read_groups(reader, options, &groups, ret);
    long(*stack)[FRAMES] = error ? NULL : malloc((groups.count + 1) * sizeof *stack);
    if (!error && !stack)
        error = -ENOMEM;
    for (size_t i = 0; !error && i < groups.count; i++) {
        int count = frames_of(&groups.group[i], frame);
        for (int k = 0; k < FRAMES; k++) {
            stack[i][k] = k < count ? number_of(&names, frame[k]) : -1;
            error = k < count && stack[i][k] < 0 ? -ENOMEM : error;
        }
    }
    if (!error)
        put_speedscope(out, sg_trace_info(reader)->command, &names, &groups, stack);
    for (size_t i = 0; i < names.count; i++)
        free(names.name[i]);
    free(names.name);
    free(stack);
    sg_groups_free(&groups);
    return error;
}

static void put_text(FILE *out, const char *key, const char *text)
{
    fprintf(out, ",\"%s\":", key);
    if (text)
        sg_tool_json_write(out, text);
    else
        fputs("null", out);
}

int sg_export_json(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
    struct sg_exported *ret)
{
    struct sg_groups groups;
    int error = read_groups(reader, options, &groups, ret);
    if (!error)
        fprintf(out, "{\"schema\":\"segalloc.alive/1\",\"bytes\":%" PRIu64 ",\"groups\":[", groups.bytes);
    for (size_t i = 0; !error && i < groups.count; i++) {
        const struct sg_group *group = &groups.group[i];
        fprintf(out, "%s{\"device\":%" PRIu32 ",\"size_class\":%" PRIu64 ",\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64,
            i ? "," : "", group->device, sg_live_class_from(group->size_class), group->blocks, group->bytes);
        put_text(out, "site", group->site);
        put_text(out, "phase", group->phase);
        putc('}', out);
    }
    if (!error)
        fputs("]}\n", out);
    sg_groups_free(&groups);
    return error;
}
