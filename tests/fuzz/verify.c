/* What must hold, whatever a program does. */
#include <stdio.h>
#include <string.h>

#include "inspect/core_state.h"
#include "rooms.h"
#include "play.h"
#include "roundup.h"

#define MUST(condition, what)      \
    do {                           \
        if (!(condition)) {        \
            books_breaks(what);    \
            return;                \
        }                          \
    } while (0)

static bool do_share(const struct play_block *a, const struct play_block *b)
{
    if (a->highest <= b->lowest || b->highest <= a->lowest)
        return false;
    for (uint32_t i = 0; i < a->spans; i++)
        for (uint32_t k = 0; k < b->spans; k++)
            if (a->span[i].begin < b->span[k].end && b->span[k].begin < a->span[i].end)
                return true;
    return false;
}

void verify_given(const struct play_block *block)
{
    struct work_after next = {{0}};
    MUST(block->address % SG_UNIT == 0, "a block is not aligned");
    MUST(block->spans, "a block is given out behind which there is no memory that its device may access");
    if (play.peers[block->device]) {
        static struct books_span spans[1 << 15];
        MUST(sg_device_known(play.core, block->device)->mode != SG_MODE_EXPANDABLE ||
                 books_spans(block->address, block->bytes, 1 - block->device, spans, 1 << 15),
            "a block is given out that a peer may not access");
    }
    for (uint32_t i = 0; i < play.lives; i++) {
        const struct play_block *other = &play.block[play.live[i]];
        MUST(other->address + other->bytes <= block->address || block->address + block->bytes <= other->address,
            "two live blocks have addresses in common");
        MUST(!do_share(block, other), "two live blocks share memory");
    }
    if (block->stream >= 0)
        next = work_up_to(block->stream);
    for (uint32_t i = 0; i < play.pasts; i++) {
        const struct play_block *past = &play.past[i];
        if (work_is_complete(&past->touched) || !do_share(past, block))
            continue;
        for (uint32_t k = 0; k < work.streams; k++)
            MUST(past->touched.work[k] <= work.stream[k].complete ||
                     (block->stream >= 0 && past->touched.work[k] <= next.work[k]),
                "a stream is given memory that queued work of another can touch");
    }
}

/* The pages of a region against the driver's mappings. */
static const char *mappings_broken(const struct sg_device *device, const struct sg_region *region)
{
    uint64_t page_bytes = (uint64_t)region->page_units << SG_UNIT_SHIFT;
    for (uint32_t page = 0; page < region->pages; page++) {
        CUmemGenericAllocationHandle handle = region->memory.handle[page];
        if (!handle || handle == SG_PAGE_LOST)
            continue;
        CUdeviceptr address = region->base + page * page_bytes;
        const struct sg_region *now = region;
        uint32_t placement = page;
        while (now->memory.handle[placement] == SG_PAGE_ALIAS) {
            uint64_t alias_target = now->memory.alias_target[placement];
            now = device->regions.region[alias_target >> 32];
            placement = (uint32_t)alias_target;
        }
        if (books_mapped(address, page_bytes) != now->memory.handle[placement])
            return handle == SG_PAGE_ALIAS ? "an old address has lost its memory"
                                         : "a page is not mapped where the core believes it is";
        struct books_span span[2];
        if (!books_spans(address, page_bytes, device->ordinal, span, 2))
            return "a page cannot be accessed by its device";
        if (play.peers[device->ordinal] && !books_spans(address, page_bytes, 1 - device->ordinal, span, 2))
            return "a page cannot be accessed by a peer";
    }
    return NULL;
}

/* Bytes of a device that are pages of another one. There are two devices at most. */
static uint64_t guests_of(int ordinal)
{
    const struct sg_device *other = play.setup->devices > 1 ? sg_device_known(play.core, 1 - ordinal) : NULL;
    return other ? other->accounts.usage.overflow_peer.now : 0;
}

static void verify_handles(const struct sg_device *device, const struct sg_check_sums *sums, enum sg_check_depth depth)
{
    struct books_sums books = books_sums(device->ordinal);
    uint64_t far = device->accounts.usage.overflow.now, peer = device->accounts.usage.overflow_peer.now;
    uint64_t here = sums->mapped - far + guests_of(device->ordinal);
    if (!books_left()) {
        MUST(books.handle_bytes == here, "handles that were made are neither held nor released");
        MUST(books.mapped_bytes == here + sums->old, "there are mappings that the core knows nothing of");
        MUST(books.used == here, "more of the card is in use than the core believes");
    }
    MUST(books.handle_bytes >= here && books.used >= here, "the core has pages that were released");
    MUST(far - peer <= play.conf.overflow.host, "more of the host's memory is taken than may be");
    MUST(peer <= play.conf.overflow.peer, "more of another device's memory is taken than may be");
    for (uint32_t i = 0; depth >= SG_CHECK_TABLES && i < device->regions.count; i++) {
        const char *broken = mappings_broken(device, device->regions.region[i]);
        MUST(!broken, broken);
    }
}

static void verify_device(struct sg_device *device, enum sg_check_depth depth)
{
    struct sg_check_sums sums;
    const struct sg_usage *usage = &device->accounts.usage;
    int ordinal = device->ordinal;
    const char *broken = sg_device_broken(device, depth, &sums);
    MUST(!broken, broken);
    uint64_t count = 0;
    for (uint32_t i = 0; i < play.lives; i++)
        count += play.block[play.live[i]].device == ordinal;
    MUST(usage->requested.now == play.requested[ordinal], "what is alive was not what was requested");
    MUST(usage->allocations.now == count, "other blocks are alive than the program's");
    if (device->mode == SG_MODE_EXPANDABLE)
        verify_handles(device, &sums, depth);
    else if (!books_left())
        MUST(books_sums(ordinal).used >= usage->reserved.now - usage->overflow.now, "memory is held that is not there");
    uint64_t most = play.most_reserved[ordinal], capacity = sg_device_capacity(device);
    uint64_t held = usage->reserved.now - usage->overflow.now;
    if (most == UINT64_MAX || held < most)
        play.most_reserved[ordinal] = most = held;
    MUST(held <= (capacity > most ? capacity : most), "more is held than may be");
}

/* The statistics that are made of others. */
static void verify_stats(int device, const struct sg_check_sums *sums)
{
    struct sg_stats stats;
    MUST(sg_core_stats(play.core, device, &stats), "a device has no statistics");
    const uint64_t *value = stats.value;
    MUST(value[SG_STAT_stranded_bytes] == sums->mapped - sums->allocated - sums->pending, "stranded_bytes is wrong");
    MUST(value[SG_STAT_inactive_split_bytes] == sums->mapped - sums->allocated - sums->pending - sums->whole,
        "inactive_split_bytes is wrong");
    for (int i = 0; i < SG_STAT_COUNT; i++)
        MUST(stats.peak[i] == 0 || stats.peak[i] >= value[i], "a peak is lower than the level");
}

/* The host's memory is what the devices' books say that they have of it. */
static void verify_host(void)
{
    uint64_t far = 0;
    for (int i = 0; i < play.setup->devices; i++) {
        const struct sg_device *device = sg_device_known(play.core, i);
        far += device ? device->accounts.usage.overflow.now - device->accounts.usage.overflow_peer.now : 0;
    }
    struct books_sums books = books_sums(BOOKS_HOST);
    MUST(books_left() || (books.handle_bytes == far && books.mapped_bytes == far), "pages of the host's are lost");
    MUST(books.handle_bytes >= far, "the core has pages of the host's that were released");
}

void verify(enum sg_check_depth depth)
{
    const char *broken = sg_core_ranges_broken(play.core);
    MUST(!broken, broken);
    verify_host();
    for (int i = 0; i < play.setup->devices && !books_broken(); i++) {
        struct sg_device *device = sg_device_known(play.core, i);
        if (device)
            verify_device(device, depth);
        struct sg_check_sums sums;
        if (device && depth >= SG_CHECK_TABLES && device->mode == SG_MODE_EXPANDABLE && !books_broken() &&
            !sg_device_broken(device, SG_CHECK_EXTENTS, &sums))
            verify_stats(i, &sums);
    }
    for (uint32_t i = 0; depth >= SG_CHECK_TABLES && i < play.lives; i++) {
        const struct play_block *block = &play.block[play.live[i]];
        static struct books_span spans[1 << 15];
        uint32_t count = books_spans(block->address, block->bytes, block->device, spans, 1 << 15);
        MUST(count == block->spans && !memcmp(spans, block->span, count * sizeof *spans),
            "a live block has other memory than it was given");
    }
}

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* Bytes of whole pages that a block takes of a device of which nothing is reserved. */
static uint64_t pages_of(const struct sg_device *device, uint64_t bytes)
{
    uint64_t rounded = bytes ? sg_roundup(play.conf.roundup_divisions, bytes) : 0;
    /* one block is never larger than its units can be counted */
    if (rounded == 0 || rounded > device->capacity_bytes || rounded >> SG_UNIT_SHIFT > INT32_MAX)
        return UINT64_MAX;
    return round_up(rounded,
        rounded > device->capacity_bytes / 2 ? device->granularity : device->regions.page_bytes[SG_KIND_REGULAR]);
}

/* Pages are made for one place at a time. So what is in hand is no more than the block and the rest of its first and
   last page. A device is tried out with one granule. */
void verify_made(int ordinal, uint64_t page_bytes)
{
    const struct sg_device *device = sg_device_known(play.core, ordinal);
    struct books_sums books = books_sums(ordinal);
    uint64_t asked = play.asked ? sg_roundup(play.conf.roundup_divisions, play.asked) : 0;
    uint64_t most = play.asked ? asked + 2 * page_bytes : play.setup->granularity;
    MUST(books_left() || books.unmapped_bytes <= most, "more pages are made than a block needs");
    uint64_t guests = guests_of(ordinal) +
                      (play.conf.overflow.peer ? books.unmapped_bytes : 0); /* which may be in hand */
    MUST(!device || books_left() || books.handle_bytes <= device->capacity_bytes + guests,
        "pages are made beyond the limit");
}

struct verify_aliases verify_aliases_now(int ordinal)
{
    const struct sg_device *device = sg_device_known(play.core, ordinal);
    struct verify_aliases now = {.regions = device ? device->regions.count : 0};
    for (uint32_t i = 0; i < now.regions; i++)
        now.stale[i] = device->regions.region[i]->memory.stale;
    return now;
}

/* The pages that a region lost to the block's were its own before, so there were at least so many. */
void verify_aliased(int ordinal, const struct verify_aliases *before, CUdeviceptr block)
{
    struct sg_device *device = sg_device_known(play.core, ordinal);
    bool any = false;
    for (uint32_t i = 0; device && i < before->regions; i++) {
        const struct sg_region *region = device->regions.region[i];
        uint32_t more = region->memory.stale > before->stale[i] ? region->memory.stale - before->stale[i] : 0;
        bool its_own = block >= region->base && block - region->base < region->reserved;
        MUST(!more || its_own || region->pages >= 2 * (region->memory.mapped + more),
            "pages get a second address where addresses are scarce");
        any = any || more;
    }
    if (!any || play.conf.page_size != SG_AUTO)
        return;
    sg_device_lock(device);
    uint64_t mappings = sg_mappings_now_locked(device);
    sg_device_unlock(device);
    MUST(mappings <= (uint64_t)play.conf.mapping_limit,
        "pages get a second address beyond the limit of mappings");
}

/* Nothing that could have been moved, completed or waited for was left: what is free afterwards is not enough for it,
   and it is refused again when all work is complete. */
void verify_refused(int ordinal, uint64_t bytes, const struct sg_tag *tag)
{
    const struct sg_device *device = sg_device_known(play.core, ordinal);
    bool sure = device && device->mode == SG_MODE_EXPANDABLE && !play.unsure && !play.capturing && !books_failed() &&
                !play.setup->bounded;
    if (!sure)
        return;
    size_t free_bytes = play.setup->total - books_used(ordinal), total_bytes = play.setup->total;
    sg_core_mem_info(play.core, ordinal, &free_bytes, &total_bytes);
    MUST(free_bytes < pages_of(device, bytes), "an allocation is refused though there is enough idle memory");
    (void)tag;
}

void verify_trimmed(int ordinal, uint64_t keep)
{
    struct sg_device *device = sg_device_known(play.core, ordinal);
    if (!device || device->mode != SG_MODE_EXPANDABLE || books_failed() || play.unsure)
        return;
    sg_device_lock(device);
    uint64_t spare = device->accounts.usage.reserved.now - device->accounts.usage.allocated.now,
             idle = sg_device_idle_locked(device);
    sg_device_unlock(device);
    MUST(spare <= keep || idle == 0, "idle memory is left that was to be given back");
}

void verify_empty(void)
{
    verify(SG_CHECK_TABLES);
    for (int i = 0; i < play.setup->devices && !books_broken(); i++) {
        const struct sg_device *device = sg_device_known(play.core, i);
        if (!device || books_left())
            continue;
        const struct sg_usage *usage = &device->accounts.usage;
        MUST(usage->allocated.now == 0 && usage->requested.now == 0, "something is alive when all is freed");
        MUST(usage->pending.now == 0, "something is pending when all is complete");
        bool pinned = false;
        for (uint32_t k = 0; k < device->regions.count; k++)
            pinned = pinned || device->regions.region[k]->memory.pinned;
        MUST(pinned || usage->reserved.now == 0, "something is held when all is given back");
    }
}

void verify_gone(void)
{
    for (int i = 0; i < play.setup->devices && !books_left(); i++) {
        struct books_sums sums = books_sums(i);
        MUST(sums.handles == 0 && sums.handle_bytes == 0, "handles are left when the core is gone");
        MUST(sums.mapped_bytes == 0, "mappings are left when the core is gone");
        MUST(sums.ranges == 0, "addresses are left when the core is gone");
        MUST(sums.events == 0, "events are left when the core is gone");
        MUST(sums.used == 0, "memory is left when the core is gone");
    }
    MUST(host_bytes() == 0, "host memory is left when the core is gone");
}
