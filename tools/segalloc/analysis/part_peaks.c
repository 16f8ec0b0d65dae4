#include "analysis/part_peaks.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "analysis/walk.h"
#include "base/live_groups.h"
#include "idmap.h"
#include "json.h"
#include "trace/growing_array.h"

enum { NO_LINE = UINT32_MAX }; /* of a site: its blocks count by their size */

/* Numbers of functions, by a site or by a class of sizes. 0: not asked yet. */
struct part_numbers {
    uint32_t *part;
    uint32_t count, room;
};

struct part_walk {
    json_t *number; /* of a function -> its number, from 1 */
    struct part {
        uint64_t peak, live[SG_DICTIONARY_DEVICES];
    } * part;
    uint32_t parts, part_room;
    json_t *phases;
    struct part_numbers site[SG_DICTIONARY_DEVICES], size_class;
    struct sg_idmap of_block[SG_DICTIONARY_DEVICES]; /* number of a live block -> its function */
    uint32_t phase, phase_device;                    /* looked at last: neighbours are alike */
    uint64_t phase_most;                             /* in use while it ran, so far */
    char phase_name[SG_SITE_TEXT];
};

/* Raises a member of an object of peaks. */
static void part_raise(json_t *peaks, const char *name, uint64_t bytes)
{
    const json_t *known = json_object_get(peaks, name);
    if (!known || (uint64_t)json_integer_value(known) < bytes)
        sg_json_set(peaks, name, sg_json_number(bytes));
}

/* Drops what moves with the code around it. That is the line of "train.py:57 in forward", and the offset of "lib.so+0x1f30" and
   of "lib.so in step (+0x1f30)". */
static void part_drop_places(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        bool line = at[0] == ':' && isdigit((unsigned char)at[1]);
        size_t opens = strncmp(at, " (+0x", 5) == 0 ? 5 : strncmp(at, "+0x", 3) == 0 ? 3 : 0;
        if (!line && !opens) {
            *to++ = *at++;
            continue;
        }
        at += line ? 1 : opens;
        while (line ? isdigit((unsigned char)*at) : isxdigit((unsigned char)*at))
            at++;
        at += opens == 5 && *at == ')';
    }
    *to = '\0';
}

/* "step 12, forward" as "step #, forward". */
static void part_drop_numbers(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        bool number = isdigit((unsigned char)*at);
        char first = *at++;
        while (number && isdigit((unsigned char)*at))
            at++;
        *to++ = number ? '#' : first;
    }
    *to = '\0';
}

/* The number of the part by this name; 0: no host memory. */
static uint32_t part_number(struct part_walk *walk, const char *name)
{
    const json_t *known = json_object_get(walk->number, name);
    if (known)
        return (uint32_t)json_integer_value(known);
    uint32_t number = walk->parts ? walk->parts : 1;
    if (sg_growing_array((void **)&walk->part, &walk->parts, &walk->part_room, number, sizeof *walk->part))
        return 0;
    sg_json_set(walk->number, name, sg_json_number(number));
    return number;
}

/* The place of a number. NULL: no host memory. */
static uint32_t *part_number_at(struct part_numbers *numbers, uint32_t index)
{
    return sg_growing_array((void **)&numbers->part, &numbers->count, &numbers->room, index, sizeof *numbers->part)
               ? NULL
               : &numbers->part[index];
}

/* The function of a site. The one that called it is a part of its name, since a program may have one function for all its
   allocations. NO_LINE: the site has none; 0: no host memory. */
static uint32_t part_of_site(struct part_walk *walk, const struct sg_walk_event *event)
{
    char line[SG_SITE_TEXT], caller[SG_SITE_TEXT], name[2 * SG_SITE_TEXT + 16];
    uint32_t *number = part_number_at(&walk->site[event->device], event->site);
    if (!number || *number)
        return number ? *number : 0;
    part_drop_places(sg_site_book_line(&event->dictionary->book, event->site, line));
    part_drop_places(sg_site_book_caller(&event->dictionary->book, event->site, caller));
    snprintf(name, sizeof name, "%s%s%s", line, *caller ? ", called by " : "", caller);
    *number = *line ? part_number(walk, name) : NO_LINE;
    return *number;
}

/* The function that an allocation counts in, or its size where no line is known; 0: no host memory. */
static uint32_t part_of(struct part_walk *walk, const struct sg_walk_event *event)
{
    char size[SG_GROUP_TEXT], name[SG_GROUP_TEXT + 16];
    uint32_t of_site = event->site ? part_of_site(walk, event) : NO_LINE;
    if (of_site != NO_LINE)
        return of_site;
    uint32_t *number = part_number_at(&walk->size_class, sg_live_class(event->size));
    if (number && !*number) {
        snprintf(name, sizeof name, "blocks of %s", sg_group_size(sg_live_class(event->size), size));
        *number = part_number(walk, name);
    }
    return number ? *number : 0;
}

/* Notes what was in use while a phase ran, as it ends. */
static void part_end_phase(struct part_walk *walk)
{
    if (*walk->phase_name)
        part_raise(walk->phases, walk->phase_name, walk->phase_most);
    walk->phase_most = 0;
}

static void part_take_phase(struct part_walk *walk, const struct sg_walk_event *event)
{
    uint64_t now = event->devices[event->device].requested;
    if (event->phase != walk->phase || event->device != walk->phase_device) {
        part_end_phase(walk);
        walk->phase = event->phase;
        walk->phase_device = event->device;
        sg_site_book_phase(&event->dictionary->book, event->phase, walk->phase_name);
        part_drop_numbers(walk->phase_name);
    }
    walk->phase_most = now > walk->phase_most ? now : walk->phase_most;
}

static int part_take(void *user, const struct sg_walk_event *event)
{
    struct part_walk *walk = user;
    if (event->kind != SG_WALK_ALLOC && event->kind != SG_WALK_FREE)
        return 0;
    struct sg_idmap *of_block = &walk->of_block[event->device];
    if (!of_block->entry && !sg_idmap_init(of_block))
        return -ENOMEM;
    uint32_t number;
    if (event->kind == SG_WALK_FREE) {
        number = (uint32_t)sg_idmap_take(of_block, event->block);
        if (number)
            walk->part[number].live[event->device] -= event->size;
        return 0;
    }
    number = part_of(walk, event);
    if (!number || !sg_idmap_put(of_block, event->block, number))
        return -ENOMEM;
    struct part *part = &walk->part[number];
    uint64_t *live = &part->live[event->device];
    *live += event->size;
    part->peak = *live > part->peak ? *live : part->peak;
    part_take_phase(walk, event);
    return 0;
}

static void part_walk_free(struct part_walk *walk)
{
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        free(walk->site[i].part);
        if (walk->of_block[i].entry)
            sg_idmap_fini(&walk->of_block[i]);
    }
    free(walk->size_class.part);
    free(walk->part);
    json_decref(walk->number);
}

int sg_part_peaks_read(struct sg_trace_reader *reader, json_t *functions, json_t *phases)
{
    struct part_walk walk = {.number = sg_json_object(NULL), .phases = phases};
    int error = sg_trace_rewind(reader);
    if (!error)
        error = sg_walk(reader, part_take, &walk);
    part_end_phase(&walk);
    const char *name;
    json_t *number;
    json_object_foreach(walk.number, name, number)
        part_raise(functions, name, walk.part[json_integer_value(number)].peak);
    part_walk_free(&walk);
    return error;
}
