#include "analysis/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "idmap.h"
#include "size.h"

/* Places of a key's parts, of 64 bits. */
enum { CLASS_AT = 0, DEVICE_AT = 7, SITE_AT = 13, PHASE_AT = 33 };

struct grouping {
    struct sg_groups *groups;
    struct sg_idmap known;   /* key -> number of its group, from 1 */
    uint32_t *of;            /* by block: number of its group */
    uint32_t room;
    size_t group_room;
    uint64_t last;           /* event */
};

/* The frames of a site, a line each. NULL: no host memory. */
static char *stack_of(const struct sg_site_book *book, uint32_t site)
{
    char *text = NULL, frame[SG_SITE_TEXT];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (uint32_t i = site < book->sites ? book->site[site].frames : 0; i-- > 0;)
        fprintf(out, "%s%s", sg_site_book_frame(book, &book->site[site].frame[i], frame), i ? "\n" : "");
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* Where the group's blocks were asked for. False: no host memory. */
static bool note_place(struct sg_group *group, const struct sg_walk_event *event)
{
    char text[SG_SITE_TEXT];
    const struct sg_site_book *book = &event->dictionary->book;
    if (*sg_site_book_line(book, event->site, text)) {
        group->site = strdup(text);
        group->stack = stack_of(book, event->site);
        if (!group->site || !group->stack)
            return false;
    }
    if (*sg_site_book_phase(book, event->phase, text))
        return (group->phase = strdup(text)) != NULL;
    return true;
}

/* Number of the event's group, from 1; 0: no host memory. */
static uint32_t group_of(struct grouping *grouping, const struct sg_walk_event *event)
{
    struct sg_groups *groups = grouping->groups;
    unsigned class = sg_live_class(event->size);
    uint64_t key = (uint64_t)class << CLASS_AT | (uint64_t)event->device << DEVICE_AT |
                   (uint64_t)event->site << SITE_AT | (uint64_t)event->phase << PHASE_AT;
    uint64_t number = sg_idmap_get(&grouping->known, key);
    if (number)
        return (uint32_t)number;
    if (groups->count == grouping->group_room) {
        size_t room = grouping->group_room ? 2 * grouping->group_room : 64;
        struct sg_group *larger = realloc(groups->group, room * sizeof *larger);
        if (!larger)
            return 0;
        groups->group = larger;
        grouping->group_room = room;
    }
    groups->group[groups->count++] = (struct sg_group){.device = event->device, .size_class = class};
    bool kept = note_place(&groups->group[groups->count - 1], event) &&
                sg_idmap_put(&grouping->known, key, groups->count);
    return kept ? (uint32_t)groups->count : 0;
}

static int take(void *user, const struct sg_walk_event *event)
{
    struct grouping *grouping = user;
    if (event->number > grouping->last)
        return 1;
    if (event->kind > SG_WALK_FREE || event->number > grouping->groups->moment.number[event->device])
        return 0;
    if (event->block >= grouping->room) {
        uint32_t room = grouping->room ? grouping->room : 4096;
        while (room <= event->block)
            room *= 2;
        uint32_t *larger = realloc(grouping->of, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        grouping->of = larger;
        grouping->room = room;
    }
    bool born = event->kind == SG_WALK_ALLOC;
    uint32_t number = born ? group_of(grouping, event) : grouping->of[event->block];
    if (!number)
        return -ENOMEM;
    grouping->of[event->block] = number;
    struct sg_group *group = &grouping->groups->group[number - 1];
    group->blocks += born ? 1 : UINT64_MAX;
    group->bytes += born ? event->size : -event->size;
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    const struct sg_group *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->device != y->device ? (int)x->device - (int)y->device : (int)y->size_class - (int)x->size_class;
}

static void forget(struct sg_group *group)
{
    free(group->site);
    free(group->phase);
    free(group->stack);
}

/* What was alive at `ret->moment`, unless `error`, which is handed on. */
static int read_at_moment(struct sg_trace_reader *reader, int error, struct sg_groups *ret)
{
    struct grouping grouping = {.groups = ret};
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        if (ret->moment.number[i] > grouping.last)
            grouping.last = ret->moment.number[i];
    if (!error)
        error = sg_idmap_init(&grouping.known) ? sg_walk(reader, take, &grouping) : -ENOMEM;
    sg_idmap_fini(&grouping.known);
    free(grouping.of);
    size_t count = 0;
    for (size_t i = 0; i < ret->count; i++) {
        if (!ret->group[i].blocks) {
            forget(&ret->group[i]);
            continue;
        }
        ret->bytes += ret->group[i].bytes;
        ret->group[count++] = ret->group[i];
    }
    ret->count = count;
    if (count)
        qsort(ret->group, count, sizeof *ret->group, by_bytes);
    return error;
}

int sg_groups_read(struct sg_trace_reader *reader, enum sg_moment moment, uint64_t time_ns, struct sg_groups *ret)
{
    memset(ret, 0, sizeof *ret);
    return read_at_moment(reader, sg_moment_find(reader, moment, time_ns, &ret->moment), ret);
}

int sg_groups_read_window(struct sg_trace_reader *reader, const struct sg_window *window, struct sg_groups *ret)
{
    memset(ret, 0, sizeof *ret);
    return read_at_moment(reader, sg_window_find(reader, window, &ret->moment), ret);
}

void sg_groups_free(struct sg_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        forget(&groups->group[i]);
    free(groups->group);
    groups->group = NULL;
    groups->count = 0;
}

char *sg_group_size(unsigned size_class, char text[SG_GROUP_TEXT])
{
    char from[SG_SIZE_TEXT], to[SG_SIZE_TEXT];
    uint64_t least = sg_live_class_from(size_class);
    if (least)
        snprintf(text, SG_GROUP_TEXT, "%s to %s", sg_size_format(least, from), sg_size_format(2 * least, to));
    else
        snprintf(text, SG_GROUP_TEXT, "0 bytes");
    return text;
}
