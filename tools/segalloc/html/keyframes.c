#include "html/keyframes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "growing_array.h"
#include "live_groups.h"
#include "analysis/walk.h"

/* Where the parts of a group's key stand, of 64 bits. */
enum {
    CLASS_BITS = 6,
    DEVICE_BITS = 6,
    SITE_BITS = 20,
    PHASE_BITS = 20,
    STREAM_BITS = 11,
    STREAM_MOST = (1 << STREAM_BITS) - 1
};
enum { GROUPS_MOST = 1 << 17 };

/* Of the blocks in it now. */
struct live_group {
    struct sg_html_group group;
    uint64_t blocks, bytes;
    double births, times; /* sums over the blocks: of the requests and of the ns since the first event */
};

struct block {
    uint32_t group;
    uint64_t request, time_ns;
};

struct reading {
    struct sg_keyframes *frames;
    size_t next;            /* frame */
    struct sg_idmap known;  /* key -> number of a group, from 1 */
    struct live_group *group;
    uint32_t *order;        /* groups, for a frame */
    uint32_t groups, room;  /* group 0 takes in what comes after GROUPS_MOST */
    struct block *block;    /* by number */
    uint32_t blocks, block_room;
};

static uint64_t key_of(const struct sg_html_group *group)
{
    uint64_t key = group->size_class < 1u << CLASS_BITS ? group->size_class : (1u << CLASS_BITS) - 1;
    key = key << DEVICE_BITS | group->device;
    key = key << SITE_BITS | group->site;
    key = key << PHASE_BITS | group->phase;
    key = key << STREAM_BITS | group->stream;
    return key << 1 | group->torch;
}

json_t *sg_html_stack(struct sg_html_list *texts, const struct sg_site_book *book, uint32_t site)
{
    char text[SG_SITE_TEXT];
    json_t *stack = sg_json_array();
    for (uint32_t i = site < book->sites ? book->site[site].frames : 0; i-- > 0;)
        sg_json_add(stack,
            sg_json_number(sg_html_text(texts, sg_site_book_frame(book, &book->site[site].frame[i], text))));
    return stack;
}

uint32_t sg_html_group(struct sg_keyframes *frames, const struct sg_html_group *group)
{
    struct sg_html_list *list = frames->groups;
    uint64_t key = key_of(group);
    uint32_t number = sg_html_find(list, key);
    char text[SG_SITE_TEXT];
    if (number || !sg_html_has_room(list))
        return number;
    uint32_t site = sg_html_text(frames->texts, sg_site_book_line(frames->book, group->site, text));
    uint32_t phase = sg_html_text(frames->texts, sg_site_book_phase(frames->book, group->phase, text));
    fprintf(list->out, "%s[%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%d,", list->count ? "," : "",
            group->device, group->size_class, site, phase, group->stream, group->torch);
    sg_json_write(list->out, sg_html_stack(frames->texts, frames->book, group->site));
    putc(']', list->out);
    return sg_html_added(list, key);
}

static int by_bytes(const void *a, const void *b, void *groups)
{
    const struct live_group *group = groups, *one = &group[*(const uint32_t *)a], *other = &group[*(const uint32_t *)b];
    return one->bytes != other->bytes ? (one->bytes < other->bytes ? 1 : -1)
                                      : (one > other) - (one < other);
}

/* [[group, blocks, bytes, mean request of their births, mean ms of these], …], the largest first. All that finds no row of its own is the last one,
   of group 0. */
static int write_live(struct reading *reading, struct sg_keyframe *frame)
{
    size_t size = 0;
    uint32_t count = 0;
    FILE *out = open_memstream(&frame->live, &size);
    if (!out)
        return -ENOMEM;
    for (uint32_t i = 0; i < reading->groups; i++)
        if (reading->group[i].blocks)
            reading->order[count++] = i;
    qsort_r(reading->order, count, sizeof *reading->order, by_bytes, reading->group);
    struct live_group others = {0};
    putc('[', out);
    for (uint32_t i = 0; i < count; i++) {
        const struct live_group *group = &reading->group[reading->order[i]];
        uint32_t number = i < reading->frames->rows && reading->order[i] ? sg_html_group(reading->frames, &group->group)
                                                                         : 0;
        if (!number) {
            others.blocks += group->blocks;
            others.bytes += group->bytes;
            others.births += group->births;
            others.times += group->times;
            continue;
        }
        double blocks = (double)group->blocks;
        fprintf(out, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%.0f,%.0f],", number, group->blocks, group->bytes,
                group->births / blocks, group->times / blocks / 1e6);
    }
    double blocks = others.blocks ? (double)others.blocks : 1;
    fprintf(out, "[0,%" PRIu64 ",%" PRIu64 ",%.0f,%.0f]]", others.blocks, others.bytes, others.births / blocks,
            others.times / blocks / 1e6);
    return fclose(out) == 0 ? 0 : -ENOMEM;
}

static int write_frames_before(struct reading *reading, uint64_t request)
{
    int status = 0;
    struct sg_keyframes *frames = reading->frames;
    while (!status && reading->next < frames->count && frames->frame[reading->next].request < request)
        status = write_live(reading, &frames->frame[reading->next++]);
    return status;
}

static bool make_room(struct reading *reading, uint32_t block)
{
    if (sg_growing_array((void **)&reading->block, &reading->blocks, &reading->block_room, block,
            sizeof *reading->block))
        return false;
    if (reading->groups < reading->room)
        return true;
    uint32_t room = reading->room ? 2 * reading->room : 64;
    struct live_group *groups = realloc(reading->group, room * sizeof *groups);
    reading->group = groups ? groups : reading->group;
    uint32_t *order = groups ? realloc(reading->order, room * sizeof *order) : NULL;
    if (!order)
        return false;
    reading->order = order;
    reading->room = room;
    return true;
}

static uint32_t live_group_of(struct reading *reading, const struct sg_walk_event *event)
{
    const struct sg_html_group group = {
        .device = event->device, .size_class = sg_live_class(event->size), .site = event->site, .phase = event->phase,
        .stream = event->stream < STREAM_MOST ? event->stream : STREAM_MOST,
        .torch = (event->record->flags & SEGALLOC_FLAG_TORCH) != 0,
    };
    uint64_t key = key_of(&group);
    uint32_t number = (uint32_t)sg_idmap_get(&reading->known, key);
    if (number || reading->groups == GROUPS_MOST)
        return number;
    if (!sg_idmap_put(&reading->known, key, reading->groups))
        return 0;
    reading->group[reading->groups] = (struct live_group){.group = group};
    return reading->groups++;
}

static int take(void *user, const struct sg_walk_event *event)
{
    struct reading *reading = user;
    int status = write_frames_before(reading, event->request);
    if (status || event->kind > SG_WALK_FREE)
        return status;
    if (!make_room(reading, event->block))
        return -ENOMEM;
    struct block *block = &reading->block[event->block];
    bool born = event->kind == SG_WALK_ALLOC;
    if (born)
        *block = (struct block){live_group_of(reading, event), event->request, event->time_ns};
    struct live_group *group = &reading->group[block->group];
    group->blocks += born ? 1 : UINT64_MAX;
    group->bytes += born ? event->size : -event->size;
    group->births += born ? (double)block->request : -(double)block->request;
    group->times += born ? (double)block->time_ns : -(double)block->time_ns;
    return 0;
}

int sg_keyframes_read_live(struct sg_keyframes *frames, struct sg_trace_reader *reader)
{
    struct reading reading = {.frames = frames, .groups = 1, .room = 0};
    int status = sg_trace_rewind(reader);
    if (!status &&
        (!sg_idmap_init(&reading.known) || !(reading.room = 64, reading.group = calloc(64, sizeof *reading.group)) ||
            !(reading.order = calloc(64, sizeof *reading.order))))
        status = -ENOMEM;
    if (!status)
        status = sg_walk(reader, take, &reading);
    if (!status)
        status = write_frames_before(&reading, UINT64_MAX);
    sg_idmap_fini(&reading.known);
    free(reading.group);
    free(reading.order);
    free(reading.block);
    return status;
}

void sg_keyframes_free(struct sg_keyframes *frames)
{
    for (size_t i = 0; i < frames->count; i++) {
        free(frames->frame[i].live);
        free(frames->frame[i].map);
    }
    free(frames->frame);
    frames->frame = NULL;
    frames->count = 0;
}
