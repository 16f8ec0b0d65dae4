/* Blocks that were alive at a moment, as stacks: device, phase, the frames that asked for the block, size. The weight
   of a stack is its bytes. JSON has the groups of blocks themselves. */
#include "export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "json.h"

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
static void stacks_put_frame(FILE *out, const char *text)
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
            stacks_put_frame(out, frame[k]);
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

static json_t *json_speedscope(const char *command, const struct names *names, const struct sg_groups *groups,
    const long (*stack)[FRAMES])
{
    json_t *result = sg_json_object(NULL), *shared = sg_json_object(NULL), *frames = sg_json_array();
    json_t *profiles = sg_json_array(), *profile = sg_json_object(NULL), *samples = sg_json_array(),
           *weights = sg_json_array();
    sg_json_set_text(result, "$schema", "https://www.speedscope.app/file-format-schema.json");
    sg_json_set_text(result, "exporter", "segalloc " SEGALLOC_VERSION);
    sg_json_set_text(result, "name", command);
    for (size_t i = 0; i < names->count; i++) {
        json_t *frame = sg_json_object(NULL);
        sg_json_set_text(frame, "name", names->name[i]);
        sg_json_add(frames, frame);
    }
    sg_json_set(shared, "frames", frames);
    sg_json_set(result, "shared", shared);
    sg_json_set_text(profile, "type", "sampled");
    sg_json_set_text(profile, "name", "alive");
    sg_json_set_text(profile, "unit", "bytes");
    SG_JSON_NUMBERS(profile, {"startValue", 0}, {"endValue", groups->bytes});
    for (size_t i = 0; i < groups->count; i++) {
        json_t *sample = sg_json_array();
        for (int k = 0; k < FRAMES && stack[i][k] >= 0; k++)
            sg_json_add(sample, sg_json_number((uint64_t)stack[i][k]));
        sg_json_add(samples, sample);
        sg_json_add(weights, sg_json_number(groups->group[i].bytes));
    }
    sg_json_set(profile, "samples", samples);
    sg_json_set(profile, "weights", weights);
    sg_json_add(profiles, profile);
    sg_json_set(result, "profiles", profiles);
    return result;
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
    if (!error) {
        sg_json_write(out, json_speedscope(sg_trace_info(reader)->command, &names, &groups, stack));
        putc('\n', out);
    }
    for (size_t i = 0; i < names.count; i++)
        free(names.name[i]);
    free(names.name);
    free(stack);
    sg_groups_free(&groups);
    return error;
}

static json_t *stacks_json_group(const struct sg_group *group)
{
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", group->device}, {"size_class", sg_live_class_from(group->size_class)},
        {"blocks", group->blocks}, {"bytes", group->bytes});
    sg_json_set_text(result, "site", group->site);
    sg_json_set_text(result, "phase", group->phase);
    return result;
}

int sg_export_json(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
    struct sg_exported *ret)
{
    struct sg_groups groups;
    int error = read_groups(reader, options, &groups, ret);
    if (!error) {
        json_t *result = sg_json_object("segalloc.alive/1"), *list = sg_json_array();
        SG_JSON_NUMBERS(result, {"bytes", groups.bytes});
        for (size_t i = 0; i < groups.count; i++)
            sg_json_add(list, stacks_json_group(&groups.group[i]));
        sg_json_set(result, "groups", list);
        sg_json_write(out, result);
        putc('\n', out);
    }
    sg_groups_free(&groups);
    return error;
}
