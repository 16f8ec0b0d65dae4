#include "analysis/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/live_blocks.h"
#include "growing_array.h"
#include "size.h"

/* The names of a group, by device and by its number there. */
struct named {
    char *site, *phase, *stack;
};

struct grouping {
    struct sg_groups *groups;
    struct sg_live_blocks live;
    struct named *named[SG_DICTIONARY_DEVICES];
    uint32_t count[SG_DICTIONARY_DEVICES], room[SG_DICTIONARY_DEVICES];
    uint64_t last, before; /* number of the last event that counts; the request that none comes after */
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

/* Keeps the names of the place that a group's blocks were asked for at. False: no host memory. */
static bool note_names(struct named *named, const struct sg_walk_event *event)
{
    char text[SG_SITE_TEXT];
    const struct sg_site_book *book = &event->dictionary->book;
    if (*sg_site_book_line(book, event->site, text)) {
        named->site = strdup(text);
        named->stack = stack_of(book, event->site);
        if (!named->site || !named->stack)
            return false;
    }
    if (*sg_site_book_phase(book, event->phase, text))
        return (named->phase = strdup(text)) != NULL;
    return true;
}

static int groups_take_event(void *user, const struct sg_walk_event *event)
{
    struct grouping *grouping = user;
    uint32_t device = event->device, group, known = grouping->count[device];
    if (event->number > grouping->last || event->request >= grouping->before)
        return 1;
    if (event->kind > SG_WALK_FREE || event->number > grouping->groups->moment.number[device])
        return 0;
    const struct sg_live_key key = {.site = event->site, .phase = event->phase, .size_class = sg_live_class(event->size)};
    int error = sg_live_blocks_take(&grouping->live, event, &key, &group);
    if (error || group < known)
        return error;
    if (sg_growing_array((void **)&grouping->named[device], &grouping->count[device], &grouping->room[device], group,
            sizeof **grouping->named))
        return -ENOMEM;
    return !group || note_names(&grouping->named[device][group], event) ? 0 : -ENOMEM;
}

static int groups_by_bytes(const void *a, const void *b)
{
    const struct sg_group *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->device != y->device ? (int)x->device - (int)y->device : (int)y->size_class - (int)x->size_class;
}

static void free_names(char *site, char *phase, char *stack)
{
    free(site);
    free(phase);
    free(stack);
}

/* Makes the groups of a device that have blocks part of the answer, which takes over their names. */
static void add_groups(struct grouping *grouping, uint32_t device)
{
    const struct sg_live *live = &grouping->live.device[device];
    for (uint32_t i = 0; i < grouping->count[device]; i++) {
        struct named *named = &grouping->named[device][i];
        const struct sg_live_sum *sum = &live->group[i].now;
        if (!sum->blocks) {
            free_names(named->site, named->phase, named->stack);
            continue;
        }
        grouping->groups->bytes += sum->bytes;
        grouping->groups->group[grouping->groups->count++] = (struct sg_group){.device = device,
            .size_class = live->group[i].key.size_class,
            .blocks = sum->blocks,
            .bytes = sum->bytes,
            .site = named->site,
            .phase = named->phase,
            .stack = named->stack};
    }
}

/* Groups of the live blocks at `ret->moment`, or before a request, unless `error`, which is handed on. */
static int read_at_moment(struct sg_trace_reader *reader, int error, uint64_t before, struct sg_groups *ret)
{
    struct grouping grouping = {.groups = ret, .before = before};
    size_t count = 0;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        if (ret->moment.number[i] > grouping.last)
            grouping.last = ret->moment.number[i];
    if (!error)
        error = sg_walk(reader, groups_take_event, &grouping);
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        count += grouping.count[i];
    ret->group = calloc(count + 1, sizeof *ret->group);
    error = error || ret->group ? error : -ENOMEM;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        if (ret->group)
            add_groups(&grouping, i);
        free(grouping.named[i]);
    }
    sg_live_blocks_free(&grouping.live);
    if (ret->count)
        qsort(ret->group, ret->count, sizeof *ret->group, groups_by_bytes);
    return error;
}

int sg_groups_read(struct sg_trace_reader *reader, enum sg_moment moment, uint64_t time_ns, struct sg_groups *ret)
{
    memset(ret, 0, sizeof *ret);
    return read_at_moment(reader, sg_moment_find(reader, moment, time_ns, &ret->moment), UINT64_MAX, ret);
}

int sg_groups_read_window(struct sg_trace_reader *reader, const struct sg_window *window, struct sg_groups *ret)
{
    memset(ret, 0, sizeof *ret);
    return read_at_moment(reader, sg_window_find(reader, window, &ret->moment), UINT64_MAX, ret);
}

int sg_groups_read_before(struct sg_trace_reader *reader, uint64_t request, struct sg_groups *ret)
{
    memset(ret, 0, sizeof *ret);
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        ret->moment.number[i] = UINT64_MAX;
    return read_at_moment(reader, sg_trace_rewind(reader), request, ret);
}

void sg_groups_free(struct sg_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        free_names(groups->group[i].site, groups->group[i].phase, groups->group[i].stack);
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
