#include "html/keyframes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "growing_array.h"
#include "analysis/live_blocks.h"

/* Where the parts of a group's key stand, of 64 bits. */
enum {
    CLASS_BITS = 6,
    DEVICE_BITS = 6,
    SITE_BITS = 20,
    PHASE_BITS = 20,
    STREAM_BITS = 11,
    STREAM_MOST = (1 << STREAM_BITS) - 1
};
/* Sums over the live blocks of a group, for the means: of their requests, and of the ns since the first event. */
struct ages {
    double births, times;
};

struct born {
    uint64_t request, time_ns;
};

/* A group of a device in the list of a frame. */
struct listed {
    uint64_t bytes;
    uint32_t device, group;
};

struct reading {
    struct sg_keyframes *frames;
    size_t next; /* frame */
    struct sg_live_blocks live;
    struct ages *ages[SG_DICTIONARY_DEVICES]; /* by number of the group */
    uint32_t ages_count[SG_DICTIONARY_DEVICES], ages_room[SG_DICTIONARY_DEVICES];
    struct born *born; /* by number of the block */
    uint32_t borns, born_room;
    struct listed *list;
    size_t list_room;
};

static uint64_t keyframes_key_of(const struct sg_html_group *group)
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
    uint64_t key = keyframes_key_of(group);
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

static int keyframes_by_bytes(const void *a, const void *b)
{
    const struct listed *one = a, *other = b;
    if (one->bytes != other->bytes)
        return one->bytes < other->bytes ? 1 : -1;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return (one->group > other->group) - (one->group < other->group);
}

/* Lists the groups that have blocks, the largest first. Their number, or -ENOMEM. */
static ssize_t list_groups(struct reading *reading)
{
    size_t count = 0, most = 0;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        most += reading->live.device[i].groups;
    if (most > reading->list_room) {
        struct listed *larger = realloc(reading->list, 2 * most * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        reading->list = larger;
        reading->list_room = 2 * most;
    }
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        for (uint32_t k = 0; k < reading->live.device[i].groups; k++)
            if (reading->live.device[i].group[k].now.blocks)
                reading->list[count++] = (struct listed){reading->live.device[i].group[k].now.bytes, i, k};
    if (count)
        qsort(reading->list, count, sizeof *reading->list, keyframes_by_bytes);
    return (ssize_t)count;
}

/* The number of a listed group on the page; 0 where it finds no room there. */
static uint32_t listed_number(const struct reading *reading, const struct listed *listed)
{
    const struct sg_live_key *key = &reading->live.device[listed->device].group[listed->group].key;
    const struct sg_html_group group = {
        .device = listed->device,
        .size_class = key->size_class,
        .site = key->site,
        .phase = key->phase,
        .stream = key->stream < STREAM_MOST ? (uint32_t)key->stream : STREAM_MOST,
        .torch = key->torch,
    };
    return listed->group ? sg_html_group(reading->frames, &group) : 0;
}

/* [[group, blocks, bytes, mean request of their births, mean ms of these], …], the largest first. All that finds no row of its own is
   the last one, of group 0. */
static int write_live(struct reading *reading, struct sg_keyframe *frame)
{
    size_t size = 0;
    ssize_t count = list_groups(reading);
    FILE *out = count < 0 ? NULL : open_memstream(&frame->live, &size);
    if (!out)
        return -ENOMEM;
    struct sg_live_sum others = {0};
    struct ages other_ages = {0};
    putc('[', out);
    for (ssize_t i = 0; i < count; i++) {
        const struct listed *listed = &reading->list[i];
        const struct sg_live_sum *sum = &reading->live.device[listed->device].group[listed->group].now;
        const struct ages *ages = &reading->ages[listed->device][listed->group];
        uint32_t number = i < (ssize_t)reading->frames->rows ? listed_number(reading, listed) : 0;
        if (!number) {
            others.blocks += sum->blocks;
            others.bytes += sum->bytes;
            other_ages.births += ages->births;
            other_ages.times += ages->times;
            continue;
        }
        double blocks = (double)sum->blocks;
        fprintf(out, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%.0f,%.0f],", number, sum->blocks, sum->bytes,
            ages->births / blocks, ages->times / blocks / 1e6);
    }
    double blocks = others.blocks ? (double)others.blocks : 1;
    fprintf(out, "[0,%" PRIu64 ",%" PRIu64 ",%.0f,%.0f]]", others.blocks, others.bytes, other_ages.births / blocks,
        other_ages.times / blocks / 1e6);
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

static int keyframes_take_event(void *user, const struct sg_walk_event *event)
{
    struct reading *reading = user;
    uint32_t group, device = event->device;
    int status = write_frames_before(reading, event->request);
    if (status || event->kind > SG_WALK_FREE)
        return status;
    const struct sg_live_key key = {
        .site = event->site,
        .phase = event->phase,
        .stream = event->stream,
        .size_class = sg_live_class(event->size),
        .torch = (event->record->flags & SEGALLOC_FLAG_TORCH) != 0,
    };
    status = sg_live_blocks_take(&reading->live, event, &key, &group);
    if (!status)
        status = sg_growing_array((void **)&reading->ages[device], &reading->ages_count[device],
            &reading->ages_room[device], group, sizeof **reading->ages);
    if (!status)
        status = sg_growing_array((void **)&reading->born, &reading->borns, &reading->born_room, event->block,
            sizeof *reading->born);
    if (status)
        return status;
    struct born *born = &reading->born[event->block];
    bool begins = event->kind == SG_WALK_ALLOC;
    if (begins)
        *born = (struct born){event->request, event->time_ns};
    struct ages *ages = &reading->ages[device][group];
    ages->births += begins ? (double)born->request : -(double)born->request;
    ages->times += begins ? (double)born->time_ns : -(double)born->time_ns;
    return 0;
}

int sg_keyframes_read_live(struct sg_keyframes *frames, struct sg_trace_reader *reader)
{
    struct reading reading = {.frames = frames};
    int status = sg_trace_rewind(reader);
    if (!status)
        status = sg_walk(reader, keyframes_take_event, &reading);
    if (!status)
        status = write_frames_before(&reading, UINT64_MAX);
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        free(reading.ages[i]);
    sg_live_blocks_free(&reading.live);
    free(reading.born);
    free(reading.list);
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
