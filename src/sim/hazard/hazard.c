/* The hazard checker. It keeps what each piece of work touches, as spans of physical memory, until the host knows the
   work to be complete; and compares what is submitted with it.

   Three kinds of hazards are reported. First, two pieces of work touch the same physical bytes for different owners, and
   at least one writes. Nothing orders them (order.h), or both owners own the bytes at once, at two addresses. Second, work
   touches bytes that nobody owns any more, or unmapped ones. Third, memory is unmapped while the host does not know that
   the work on it is complete. */
#include "hazard/hazard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/wrap.h"
#include "device/device.h"
#include "hazard/owner.h"
#include "space/mapping.h"
#include "space/memory_table.h"
#include "space/span.h"

enum { BUCKETS = 1 << 14, SPAN_SHIFT = 21, REPORTS_SHOWN = 20, NAME_MAX_SHOWN = 80 };

/* A piece of work as the histories name it. */
struct origin {
    unsigned refs;
    struct sim_point point;
    uint64_t stream_id, position, number; /* number: counted with declarations of owners */
    const char *kind;
    char name[NAME_MAX_SHOWN];
};

/* A touch: bytes of one 2 MiB of physical memory that one piece of work reads or writes. */
struct touch {
    struct touch *next; /* of its bucket */
    struct origin *origin;
    struct sim_owner *owner; /* NULL: by `id` alone, which is then the allocation's */
    uint64_t id;
    uint64_t address, bytes;
    uint64_t place; /* the same for each address of one page */
    int fd;         /* of its device's memory file; -1 where the address is the place */
    bool write;
};

/* Work that may have touched anything of a device. */
struct unknown {
    struct unknown *next;
    struct origin *origin;
    CUcontext context;
};

static struct touch *buckets[BUCKETS];
static uint64_t touch_count, swept_count = 4096;
static struct unknown *unknowns;
static uint64_t reports;

static struct touch **touch_bucket(int fd, uint64_t place)
{
    uint64_t key = (place >> SPAN_SHIFT) * 64 + (uint64_t)(fd + 1);
    return &buckets[sg_hash(key) >> 50];
}

static void origin_unref(struct origin *origin)
{
    if (--origin->refs == 0)
        free(origin);
}

static void touch_drop(struct touch *touch)
{
    origin_unref(touch->origin);
    sim_owner_unref(touch->owner);
    free(touch);
    touch_count--;
}

static bool origin_is_over(const struct origin *origin)
{
    return sim_clock_covers(sim_order_host(), origin->point);
}

/* Work that the host knows to be complete comes before all that can still be submitted, so it can be dropped. */
static void touches_sweep(void)
{
    if (touch_count < 2 * swept_count)
        return;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct touch **link = &buckets[i], *t; (t = *link) != NULL;) {
            if (origin_is_over(t->origin)) {
                *link = t->next;
                touch_drop(t);
            } else {
                link = &t->next;
            }
        }
    }
    swept_count = touch_count > 4096 ? touch_count : 4096;
}

static void report_owner(const char *what, const struct sim_owner *owner)
{
    fprintf(stderr, "    %s owner %" PRIu64 ": 0x%" PRIx64 " + %" PRIu64 " since #%" PRIu64 " (thread %d)", what,
        owner->id, owner->address, owner->bytes, owner->born, owner->born_thread);
    if (owner->ended)
        fprintf(stderr, ", given back at #%" PRIu64 " (thread %d)", owner->ended, owner->ended_thread);
    fputc('\n', stderr);
}

static void report_work(const char *what, const struct origin *origin)
{
    fprintf(stderr, "  %s: #%" PRIu64 " %s%s%s, work %" PRIu64 " of stream %" PRIu64 "\n", what, origin->number,
        origin->kind, *origin->name ? " " : "", origin->name, origin->position, origin->stream_id);
}

static void report_touch(const char *what, const struct touch *t)
{
    report_work(what, t->origin);
    fprintf(stderr, "    %s 0x%" PRIx64 " + %" PRIu64 "\n", t->write ? "writes" : "reads", t->address, t->bytes);
    if (t->owner && t->owner->before)
        report_owner("before", t->owner->before);
    if (t->owner)
        report_owner("for", t->owner);
    else
        fprintf(stderr, "    for the allocation %" PRIu64 "\n", t->id);
}

/* Begins a report; false where it is not printed, because there were many. */
static bool report_begin(const char *what)
{
    reports++;
    if (reports > REPORTS_SHOWN)
        return false;
    fprintf(stderr, "segalloc simulator: hazard %" PRIu64 ": %s%s\n", reports, what,
        reports == REPORTS_SHOWN ? " (the last that is shown)" : "");
    return true;
}

static const char *work_kind(const struct sim_work *work)
{
    switch (work->node) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return "copy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return "set";
    case CU_GRAPH_NODE_TYPE_HOST:
        return "host function";
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return "graph";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return "memory operation";
    default:
        return "kernel";
    }
}

static struct origin *origin_new(CUstream stream, const struct sim_work *launch, const struct sim_work *work)
{
    struct origin *origin = calloc(1, sizeof *origin);
    if (!origin)
        return NULL;
    *origin = (struct origin){.refs = 1,
        .point = sim_order_point(stream, launch->position),
        .stream_id = stream->id,
        .position = launch->position,
        .number = sim_owner_tick(),
        .kind = work_kind(work)};
    snprintf(origin->name, sizeof origin->name, "%s%s", work->name ? work->name : "",
        launch != work ? " in a graph" : "");
    return origin;
}

static bool touches_are_ordered(const struct origin *before, CUstream stream)
{
    return sim_clock_covers(&stream->clock, before->point);
}

/* Anything that comes after `now` comes after `old`, and whatever conflicts with `old` conflicts with `now`. */
static bool touch_supersedes(const struct touch *now, const struct touch *old)
{
    return now->id == old->id && now->fd == old->fd && now->place <= old->place &&
           now->place + now->bytes >= old->place + old->bytes && (now->write || !old->write);
}

/* True where two touches of the same bytes are for owners that both have them still. */
static bool touches_both_own(const struct touch *a, const struct touch *b)
{
    const struct sim_owner *one = a->owner, *other = b->owner;
    return one && other && one != other && one->id && other->id && !one->ended && !other->ended;
}

static bool touches_overlap(const struct touch *a, const struct touch *b)
{
    return a->fd == b->fd && a->place < b->place + b->bytes && b->place < a->place + a->bytes;
}

static bool report_pair(const char *what, const struct touch *before, const struct touch *now)
{
    if (report_begin(what)) {
        report_touch("before", before);
        report_touch("now", now);
    }
    return false;
}

/* Compares with what is there. Returns whether there is nothing to report. */
static bool touches_check(CUstream stream, const struct touch *now)
{
    for (struct touch **link = touch_bucket(now->fd, now->place), *t; (t = *link) != NULL;) {
        bool before = touches_are_ordered(t->origin, stream);
        if (origin_is_over(t->origin) || (before && touch_supersedes(now, t))) {
            *link = t->next;
            touch_drop(t);
            continue;
        }
        link = &t->next;
        if (t->id == now->id || !touches_overlap(t, now))
            continue;
        if (touches_both_own(t, now))
            return report_pair("the same bytes belong to two owners at once", t, now);
        if (!before && (t->write || now->write))
            return report_pair("the same bytes for two owners, in no order", t, now);
    }
    return true;
}

/* Work that may touch everything touched, while it could, what belonged to the owner before this one. */
static bool touch_check_unknown(CUstream stream, const struct touch *now)
{
    const struct sim_owner *before = now->owner ? now->owner->before : NULL;
    struct sim_device *device = sim_device_at(now->address);
    for (const struct unknown *u = unknowns; u && before && device; u = u->next) {
        bool reaches = u->context->device == device || u->context->peers[device->ordinal];
        if (!reaches || u->origin->number > before->ended || touches_are_ordered(u->origin, stream) ||
            origin_is_over(u->origin))
            continue;
        if (report_begin("work that does not say what it touches, in no order with the bytes' next owner")) {
            report_work("before", u->origin);
            report_touch("now", now);
        }
        return false;
    }
    return true;
}

static __thread bool upkeep;

void sim_hazard_upkeep(bool on)
{
    upkeep = on;
}

bool sim_hazard_is_upkeep(void)
{
    return upkeep;
}

static bool touch_note(CUstream stream, struct origin *origin, struct touch now)
{
    if (upkeep && now.owner && now.owner->id == 0 && now.owner->before) {
        now.owner = now.owner->before;
        now.id = now.owner->id;
    }
    if (now.owner && now.owner->id == 0 && !upkeep) {
        if (report_begin("work on bytes that were given back"))
            report_touch("now", &now);
        return false;
    }
    bool fine = touches_check(stream, &now) && touch_check_unknown(stream, &now);
    struct touch *kept = malloc(sizeof *kept);
    if (!kept)
        return fine;
    *kept = now;
    origin->refs++;
    sim_owner_ref(now.owner);
    struct touch **link = touch_bucket(now.fd, now.place);
    kept->next = *link;
    *link = kept;
    touch_count++;
    return fine;
}

/* The piece from `address` on that has one owner, one mapping and lies in one 2 MiB of physical memory. */
static struct touch touch_first_piece(const struct sim_touch *touch, uint64_t address, uint64_t bytes)
{
    struct touch now = {.address = address, .write = touch->write, .fd = -1, .place = address};
    struct sim_owner *owner = sim_owner_at(address, bytes, &bytes);
    now.owner = touch->settled ? touch->owner : owner;
    const struct sim_memory *memory = sim_memory_find(address);
    now.id = now.owner ? now.owner->id : memory ? memory->buffer_id : 0;
    const struct sim_mapping *mapping = sim_mapping_find(address);
    if (mapping) {
        uint64_t left = mapping->range.base + mapping->range.size - address;
        bytes = left < bytes ? left : bytes;
        now.fd = mapping->physical->fd;
        now.place = mapping->physical->offset + (address - mapping->range.base);
    }
    uint64_t left = (UINT64_C(1) << SPAN_SHIFT) - (now.place & ((UINT64_C(1) << SPAN_SHIFT) - 1));
    now.bytes = left < bytes ? left : bytes;
    return now;
}

static void touch_note_range(CUstream stream, struct origin *origin, const struct sim_touch *touch)
{
    uint64_t address = touch->address, end = touch->address + touch->bytes;
    while (address < end) {
        struct touch now = touch_first_piece(touch, address, end - address);
        now.origin = origin;
        const struct sim_memory *memory = sim_memory_find(address);
        if (memory && memory->kind == SIM_MEMORY_RESERVATION && now.fd < 0) {
            if (report_begin("work on bytes that are not mapped"))
                report_touch("now", &now);
            return;
        }
        if (!touch_note(stream, origin, now))
            return; /* once a touch */
        address += now.bytes;
    }
}

static void unknown_note(CUstream stream, struct origin *origin)
{
    for (struct unknown **link = &unknowns, *u; (u = *link) != NULL;) {
        if (origin_is_over(u->origin)) {
            *link = u->next;
            origin_unref(u->origin);
            free(u);
        } else {
            link = &u->next;
        }
    }
    struct unknown *made = malloc(sizeof *made);
    if (!made)
        return;
    origin->refs++;
    *made = (struct unknown){unknowns, origin, stream->context};
    unknowns = made;
}

void sim_hazard_part(CUstream stream, const struct sim_work *launch, const struct sim_work *part)
{
    bool unknown = sim.config.hazard_all && part->unknown;
    if (!sim.config.hazard || !stream->has_slot || (!part->touch_count && !unknown))
        return;
    struct origin *origin = origin_new(stream, launch, part);
    if (!origin)
        return;
    touches_sweep();
    for (unsigned i = 0; i < part->touch_count; i++)
        touch_note_range(stream, origin, &part->touches[i]);
    if (unknown)
        unknown_note(stream, origin);
    origin_unref(origin);
}

void sim_hazard_submitted(CUstream stream, const struct sim_work *work)
{
    sim_hazard_part(stream, work, work);
    if (work->parts && stream->has_slot)
        work->parts(stream, work);
}

void sim_hazard_settle(struct sim_work *template)
{
    for (unsigned i = 0; i < template->touch_count; i++) {
        struct sim_touch *touch = &template->touches[i];
        uint64_t bytes;
        if (touch->settled)
            continue;
        touch->owner = sim_owner_ref(sim_owner_at(touch->address, touch->bytes, &bytes));
        touch->settled = touch->owner != NULL;
    }
}

/* Calls `found` for each touch of the address range, which is mapped or an allocation, and drops those for which it
   says so. */
static void touches_each(uint64_t address, uint64_t bytes, bool (*found)(const struct touch *touch))
{
    const struct sim_touch range = {.address = address, .bytes = bytes};
    for (uint64_t at = address, end = address + bytes; at < end;) {
        struct touch piece = touch_first_piece(&range, at, end - at);
        for (struct touch **link = touch_bucket(piece.fd, piece.place), *t; (t = *link) != NULL;) {
            bool hit = t->fd == piece.fd && t->address < piece.address + piece.bytes &&
                       piece.address < t->address + t->bytes;
            if (hit && found(t)) {
                *link = t->next;
                touch_drop(t);
            } else {
                link = &t->next;
            }
        }
        at += piece.bytes;
    }
}

/* Touches of the same bytes through another address stay. */
static bool touch_is_lost(const struct touch *touch)
{
    if (!origin_is_over(touch->origin) && report_begin("memory is unmapped while work may touch it"))
        report_touch("queued", touch);
    return true;
}

static bool touch_is_any(const struct touch *touch)
{
    (void)touch;
    return true;
}

/* True if work that may touch everything was submitted while somebody owned the bytes, and is not known to be over. */
static bool unknown_is_unmapped(const struct sim_device *device, const struct sim_owner *owner)
{
    for (const struct unknown *u = unknowns; u; u = u->next) {
        if (u->context->device != device || origin_is_over(u->origin) || (!owner->id && u->origin->number > owner->born))
            continue;
        if (report_begin("memory is unmapped while work that does not say what it touches may use it")) {
            report_work("queued", u->origin);
            report_owner("was of", owner);
        }
        return true;
    }
    return false;
}

void sim_hazard_unmap(uint64_t address, uint64_t bytes)
{
    if (!sim.config.hazard)
        return;
    touches_each(address, bytes, touch_is_lost);
    struct sim_device *device = sim_device_at(address);
    for (uint64_t at = address, left; unknowns && at < address + bytes; at += left) {
        const struct sim_owner *owner = sim_owner_at(at, address + bytes - at, &left);
        if (owner && unknown_is_unmapped(device, owner))
            return;
    }
}

void sim_hazard_given(uint64_t address, uint64_t bytes)
{
    if (sim.config.hazard)
        touches_each(address, bytes, touch_is_any);
}

void sim_hazard_lost(const struct sim_work *work)
{
    if (!sim.config.hazard || !report_begin("work finds its memory gone when it runs"))
        return;
    fprintf(stderr, "  %s, work %" PRIu64 " of stream %" PRIu64 "\n", work_kind(work), work->position, work->stream->id);
    for (unsigned i = 0; i < work->touch_count; i++) {
        const struct sim_touch *touch = &work->touches[i];
        uint64_t bytes;
        const struct sim_owner *owner = touch->settled ? touch->owner
                                                       : sim_owner_at(touch->address, touch->bytes, &bytes);
        fprintf(stderr, "    %s 0x%" PRIx64 " + %" PRIu64 "\n", touch->write ? "writes" : "reads", touch->address,
            touch->bytes);
        if (owner)
            report_owner("now of", owner);
        if (owner && owner->before)
            report_owner("before of", owner->before);
    }
}

uint64_t sim_hazard_reports(void)
{
    return reports;
}
