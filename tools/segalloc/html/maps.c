/* How a device's pages were used at the frames' moments. */
#include "inspect/core_state.h"
#include "html/keyframes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "live_groups.h"
#include "replay/playback.h"

/* The kinds of pieces of a map. */
enum part { PART_FREE, PART_USED, PART_PENDING, PART_MIXED };

/* Small neighbours that are drawn as one. */
struct mixture {
    uint64_t bytes, used, pending;
    uint64_t parts;
    enum part part; /* of the only one */
    uint32_t group;
};

struct mapping {
    struct sg_keyframes *frames;
    size_t next;
    uint32_t devices;
    struct sg_placed *piece;
    struct sg_page_mark *mark; /* ascending */
    size_t mark_room;
    size_t room, written, written_unmarked; /* bytes */
    int status;
};

static enum part placed_part_of(const struct sg_placed *placed)
{
    return placed->piece.state == SG_PIECE_ALLOCATED ? PART_USED
           : placed->piece.state == SG_PIECE_PENDING ? PART_PENDING
                                                     : PART_FREE;
}

/* "bytes,part,group or bytes in use," */
static void mixture_flush(FILE *out, struct mixture *mixture)
{
    uint64_t used = mixture->used + mixture->pending;
    bool whole = used == 0 || used == mixture->bytes;
    enum part part = mixture->parts == 1 ? mixture->part : !whole ? PART_MIXED : used == 0 ? PART_FREE :
                     mixture->pending == used ? PART_PENDING : PART_USED;
    if (mixture->parts)
        fprintf(out, "%" PRIu64 ",%d,%" PRIu64 ",", mixture->bytes, part, part == PART_MIXED ? used : mixture->group);
    *mixture = (struct mixture){0};
}

static bool placed_follows(const struct sg_placed *before, const struct sg_placed *placed)
{
    return before->region == placed->region && before->piece.address + before->piece.bytes == placed->piece.address;
}

static void mapping_add_piece(struct mapping *mapping, FILE *out, struct mixture *mixture,
    const struct sg_placed *placed, uint32_t device, uint64_t least)
{
    enum part part = placed_part_of(placed);
    uint32_t group = 0;
    bool alone = placed->piece.bytes >= least;
    if (alone)
        mixture_flush(out, mixture);
    if (part != PART_FREE && alone) {
        const struct sg_html_group key = {.device = device,
            .size_class = sg_live_class(placed->piece.requested),
            .site = placed->site};
        group = sg_html_group(mapping->frames, &key);
    }
    mixture->bytes += placed->piece.bytes;
    mixture->used += part == PART_USED ? placed->piece.bytes : 0;
    mixture->pending += part == PART_PENDING ? placed->piece.bytes : 0;
    mixture->part = part;
    mixture->group = group;
    mixture->parts++;
    if (mixture->bytes >= least)
        mixture_flush(out, mixture);
}

static int maps_by_address(const void *a, const void *b)
{
    const struct sg_page_mark *one = a, *other = b;
    return (one->address > other->address) - (one->address < other->address);
}

/* The marks of a device, as many as a map may have pieces. Returns how many. */
static size_t read_marks(struct mapping *mapping, struct sg_core *core, uint32_t device)
{
    if (!mapping->mark)
        mapping->mark = calloc(mapping->frames->pieces, sizeof *mapping->mark);
    if (!mapping->mark)
        return 0;
    size_t marks = sg_core_page_marks(core, (int)device, mapping->mark, mapping->frames->pieces);
    marks = marks < mapping->frames->pieces ? marks : mapping->frames->pieces;
    if (marks)
        qsort(mapping->mark, marks, sizeof *mapping->mark, maps_by_address);
    return marks;
}

/* "first page of the segment, pages, marks (1 pinned, 2 shared)," of each run of marked pages between two addresses. */
static void write_marks(const struct mapping *mapping, FILE *out, size_t marks, const struct sg_placed *first,
    CUdeviceptr end)
{
    CUdeviceptr begin = first->piece.address;
    for (size_t i = 0; i < marks; i++) {
        const struct sg_page_mark *mark = &mapping->mark[i];
        if (mark->address + mark->bytes <= begin || mark->address >= end)
            continue;
        CUdeviceptr from = mark->address > begin ? mark->address : begin;
        CUdeviceptr to = mark->address + mark->bytes < end ? mark->address + mark->bytes : end;
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",%d,", (uint64_t)(from - begin) / first->page_bytes,
            (uint64_t)(to - from) / first->page_bytes, mark->pinned | mark->shared << 1);
    }
}

/* {"device":0,"segments":[[page bytes, first page, small, [piece, …], [mark, …]], …]}: a segment is pages next to each
   other. */
static void write_device(struct mapping *mapping, FILE *out, uint32_t device, size_t pieces, size_t marks)
{
    struct mixture mixture = {0};
    const struct sg_placed *first = mapping->piece;
    uint64_t all = 0;
    for (size_t i = 0; i < pieces; i++)
        all += mapping->piece[i].piece.bytes;
    uint64_t least = all / mapping->frames->pieces + 1;
    json_t *head = sg_json_object(NULL);
    SG_JSON_NUMBERS(head, {"device", device});
    putc('{', out);
    sg_json_write_members(out, head);
    sg_json_write_key(out, "segments");
    putc('[', out);
    for (size_t i = 0; i < pieces; i++) {
        const struct sg_placed *placed = &mapping->piece[i];
        if (!i || !placed_follows(placed - 1, placed)) {
            fprintf(out, "%s[%" PRIu64 ",%" PRIu64 ",%d,[", i ? "," : "", placed->page_bytes,
                (uint64_t)(placed->piece.address - placed->region) / placed->page_bytes, placed->piece.small);
            first = placed;
        }
        mapping_add_piece(mapping, out, &mixture, placed, device, least);
        if (i + 1 < pieces && placed_follows(placed, placed + 1))
            continue;
        mixture_flush(out, &mixture);
        fputs("0],[", out);
        write_marks(mapping, out, marks, first, placed->piece.address + placed->piece.bytes);
        fputs("0]]", out);
    }
    putc(']', out);
}

/* A page stays small however many segments there are. */
static void keep_or_drop(struct mapping *mapping, struct sg_keyframe *frame, size_t bytes)
{
    size_t most = mapping->frames->map_bytes, *unmarked = &mapping->written_unmarked;
    if (mapping->written + bytes > most || (!frame->marked && *unmarked + bytes > most / 2)) {
        free(frame->map);
        frame->map = NULL;
        return;
    }
    mapping->written += bytes;
    *unmarked += frame->marked ? 0 : bytes;
}

static int write_map(struct mapping *mapping, struct sg_keyframe *frame, struct sg_core *core)
{
    size_t size = 0;
    FILE *out = open_memstream(&frame->map, &size);
    if (!out)
        return -ENOMEM;
    putc('[', out);
    bool first = true;
    for (uint32_t i = 0; i < mapping->devices; i++) {
        size_t pieces = sg_core_placed(core, (int)i, mapping->piece, mapping->room);
        if (pieces > mapping->room) {
            struct sg_placed *larger = realloc(mapping->piece, pieces * sizeof *larger);
            if (!larger)
                break;
            mapping->piece = larger;
            mapping->room = pieces;
            pieces = sg_core_placed(core, (int)i, mapping->piece, mapping->room);
        }
        struct sg_levels levels;
        sg_core_levels(core, (int)i, &levels);
        if (!levels.reserved)
            continue;
        fputs(first ? "" : ",", out);
        first = false;
        write_device(mapping, out, i, pieces, read_marks(mapping, core, i));
        json_t *sums = sg_json_object(NULL);
        SG_JSON_NUMBERS(sums, {"reserved", levels.reserved}, {"pinned", levels.pinned}, {"aliased", levels.aliased});
        putc(',', out);
        sg_json_write_members(out, sums);
        putc('}', out);
    }
    putc(']', out);
    if (fclose(out) != 0)
        return -ENOMEM;
    keep_or_drop(mapping, frame, size);
    return 0;
}

static bool maps_take_record(void *user, const struct segalloc_trace_record *record, uint64_t request,
    struct sg_core *core)
{
    struct mapping *mapping = user;
    struct sg_keyframes *frames = mapping->frames;
    (void)record;
    while (!mapping->status && mapping->next < frames->count && frames->frame[mapping->next].request <= request)
        mapping->status = write_map(mapping, &frames->frame[mapping->next++], core);
    return !mapping->status && mapping->next < frames->count;
}

int sg_keyframes_read_maps(struct sg_keyframes *frames, struct sg_trace_reader *reader, uint32_t devices)
{
    struct mapping mapping = {.frames = frames, .devices = devices};
    uint64_t diverged;
    int status = sg_playback(reader, maps_take_record, &mapping, &diverged);
    free(mapping.piece);
    free(mapping.mark);
    return status ? status : mapping.status;
}
