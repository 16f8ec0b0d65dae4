#include "player.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "apply.h"
#include "run_ahead.h"
#include "ledger_driver.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "definitions.h"
#include "base/idmap.h"
#include "interleaver.h"
#include "order_feed.h"
#include "outside_levels.h"
#include "results.h"

enum { BATCH = 1024 };

/* A block of this part of what may be held, or more, may be a huge one, whatever it is rounded to. */
enum { HUGE_PART = 4 };

/* Value in the dictionary of an allocation that has no block: it failed or was of zero bytes. */
static const uint64_t NO_BLOCK = 1;

struct player {
    const struct sg_play *play;
    struct sg_play_result *result;
    char *error;
    size_t left; /* records at hand that have not been played, this one included */
    struct sg_idmap live; /* id of the trace -> address, or struct sg_torch_block * */
    /* segalloc's own rules */
    struct sg_core *core;
    struct sg_ledger card;
    struct sg_ahead *ahead; /* NULL: work is not played, what is freed is complete */
    struct sg_interleaver *slow; /* NULL: every operation is done at once */
    uint64_t huge_bytes;  /* blocks from here on may have a region of their own, whatever they are rounded to */
    struct sg_order_feed feed;
    /* PyTorch's */
    struct sg_torch_device *torch; /* by ordinal, made at the first allocation; NULL: the policy is our own */
    size_t goods; /* of play->made_good, passed so far */
    uint64_t time;
    uint64_t rest_peak[SG_DEVICES_MAX]; /* of reserved bytes, after the first part */
    uint64_t in_use[SG_DEVICES_MAX];    /* bytes of blocks that are alive */
    struct sg_outside_levels outside[SG_DEVICES_MAX];
    struct sg_definitions defined;
};

static int complain(struct player *player, const char *what, uint64_t id)
{
    const struct sg_play *play = player->play;
    uint64_t next = play->place ? play->place(play->source) : 0;
    int length = 0;
    if (next)
        length = snprintf(player->error, SG_PLAY_ERROR, "byte %" PRIu64 ": ",
            next - player->left * sizeof(struct segalloc_trace_record));
    snprintf(player->error + length, SG_PLAY_ERROR - (size_t)length, "event %" PRIu64 " %s 0x%" PRIx64,
        player->result->events, what, id);
    return SG_PLAY_CONTRADICTS;
}

static int no_memory(struct player *player)
{
    snprintf(player->error, SG_PLAY_ERROR, "no host memory left at event %" PRIu64, player->result->events);
    return -ENOMEM;
}

static int device_of(const struct player *player, uint32_t stream)
{
    return sg_defined_device(&player->defined, stream);
}

/* Bytes of a device's card. */
static uint64_t card_of(const struct player *player, int device)
{
    const struct sg_play *play = player->play;
    return play->card[device]                     ? play->card[device]
           : play->card_bytes                     ? play->card_bytes
           : player->defined.device_bytes[device] ? player->defined.device_bytes[device]
                                                  : SG_PLAY_CARD;
}

/* Blocks of this many bytes may be huge ones on the card of one of the devices. */
static void note_card(struct player *player, int device)
{
    uint64_t bytes = card_of(player, device), huge = sg_conf_limit(&player->play->conf, bytes) / HUGE_PART;
    player->result->device[device].card_bytes = player->card.device[device].total_bytes = bytes;
    if (huge < player->huge_bytes)
        player->huge_bytes = huge;
}

/* Before anything is asked of the device. */
static void define_device(struct player *player, const struct segalloc_trace_record *record)
{
    if (record->stream >= SG_DEVICES_MAX)
        return;
    player->defined.device_bytes[record->stream] = record->size;
    note_card(player, (int)record->stream);
}

static struct sg_defined_place place_of(const struct player *player, const struct segalloc_trace_record *record)
{
    return sg_defined_place(&player->defined, record->thread);
}

/* What a tag says beyond the plain one where work is played, or a run as it was recorded. */
static void complete_tag(struct player *player, const struct segalloc_trace_record *record, struct sg_tag *tag)
{
    if (player->ahead) {
        sg_ahead_tag(player->ahead, device_of(player, record->stream), record->stream, tag);
        bool waited = record->kind == SEGALLOC_RECORD_FREE && record->flags & SEGALLOC_FLAG_STRICT;
        tag->sync = player->play->conf.free_sync != SG_FREE_SYNC_AUTO ? player->play->conf.free_sync
            : waited                                                  ? SG_FREE_SYNC_STRICT
                                                                      : SG_FREE_SYNC_STREAM;
        tag->user_rule = player->play->possible_users ? SG_USERS_POSSIBLE : SG_USERS_RECORDED;
    } else if (player->play->as_recorded) {
        tag->slot = sg_order_feed_slot(&player->feed, record->stream);
        tag->context = (CUcontext)(uintptr_t)sg_defined_context(&player->defined, record->stream);
        tag->user_rule = SG_USERS_RECORDED; /* who else could have seen a block stands in the trace too */
        tag->in_order = record->kind == SEGALLOC_RECORD_FREE; /* it names whose the block has become by then */
        if (record->flags & SEGALLOC_FLAG_ASYNC && tag->slot)
            tag->sync = SG_FREE_SYNC_STREAM;
    }
    if (record->flags & SEGALLOC_FLAG_PENDING && record->kind == SEGALLOC_RECORD_FREE && !player->ahead)
        tag->sync = SG_FREE_SYNC_EVENT;
}

static inline struct sg_tag tag_of(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_defined_place place = place_of(player, record);
    struct sg_tag tag = {.stream = (CUstream)(uintptr_t)record->stream,
        .has_stream = true,
        .sync = SG_FREE_SYNC_COMPLETE,
        .site = place.site,
        .phase = place.phase};
    if (player->ahead || player->play->as_recorded || record->flags & SEGALLOC_FLAG_PENDING)
        complete_tag(player, record, &tag);
    return tag;
}

/* The allocation that just failed has left its marks on the core. */
static void note_first(struct player *player, const struct segalloc_trace_record *record, struct sg_play_device *device)
{
    int ordinal = device_of(player, record->stream);
    struct sg_stats stats;
    struct sg_shortage shortage;
    device->first_oom_event = player->result->events ? player->result->events : 1;
    device->first_oom_bytes = record->size;
    if (record->kind == SEGALLOC_RECORD_OUTSIDE)
        device->first_oom_by = (enum segalloc_outside)record->id;
    device->first_oom_site = place_of(player, record).site;
    device->first_oom_phase = place_of(player, record).phase;
    if (player->torch && player->torch[ordinal].torch)
        device->first_oom_live = sg_torch_stats(player->torch[ordinal].torch)->requested.current;
    else if (player->core && sg_core_stats(player->core, ordinal, &stats))
        device->first_oom_live = stats.value[SG_STAT_requested_bytes];
    if (record->kind != SEGALLOC_RECORD_OUTSIDE && player->core &&
        sg_core_shortage(player->core, ordinal, &shortage) && shortage.asked == record->size)
        device->first_oom_short = shortage.short_by;
}

/* An allocation does not fit. */
static void count_oom(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    struct sg_play_device *device = &result->device[device_of(player, record->stream)];
    bool again = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    device->new_ooms += !again;
    result->new_ooms += !again;
    if (record->size > device->largest_oom)
        device->largest_oom = record->size;
    if (record->size > result->largest_oom)
        result->largest_oom = record->size;
    if (!device->ooms++)
        note_first(player, record, device);
    if (result->ooms++)
        return;
    result->first_oom_event = device->first_oom_event;
    result->first_oom_bytes = device->first_oom_bytes;
    result->first_oom_live = device->first_oom_live;
    result->first_oom_short = device->first_oom_short;
    result->first_oom_by = device->first_oom_by;
}

/* Whether each of the devices that are asked about has had an allocation that does not fit. */
static bool may_stop(const struct player *player)
{
    uint64_t left = player->play->stop_at_oom;
    if (!left || !player->result->ooms)
        return false;
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        if (player->result->device[device].ooms)
            left &= ~(UINT64_C(1) << device);
    return left == 0;
}

/* Whether operations take their time, as they did in the recorded process. */
static bool is_exact(const struct player *player)
{
    return player->slow && !sg_interleaver_has_diverged(player->slow);
}

/* Asks the core for what this record says, at once. Returns the address, 0 where it failed. */
static CUdeviceptr ask(struct player *player, const struct segalloc_trace_record *record, const struct sg_tag *tag)
{
    CUdeviceptr address = 0;
    if (is_exact(player))
        sg_interleaver_expect(player->slow, record);
    if (record->size &&
        sg_core_malloc(player->core, device_of(player, record->stream), record->size, tag, &address) != CUDA_SUCCESS)
        address = 0;
    return address;
}

static int begin(struct player *player, const struct segalloc_trace_record *record, enum sg_interleaver_kind kind,
    CUdeviceptr address)
{
    const struct sg_interleaver_call call = {
        .kind = kind,
        .core = player->core,
        .device = device_of(player, record->stream),
        .bytes = record->size,
        .address = address,
        .tag = tag_of(player, record),
    };
    return sg_interleaver_begin(player->slow, &call, record) ? 0 : no_memory(player);
}

/* PyTorch's allocator of the device that a record is about; NULL: no host memory. */
static struct sg_torch *torch_of(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_torch_device *device = &player->torch[device_of(player, record->stream)];
    if (!device->torch) {
        uint64_t bytes = card_of(player, device_of(player, record->stream));
        sg_ledger_device_init(&device->card, bytes);
        device->card.outside = sg_outside_levels_bytes(&player->outside[device_of(player, record->stream)]);
        device->torch = sg_torch_create(&player->play->torch, bytes, &sg_ledger_device_ops, &device->card);
    }
    return device->torch;
}

/* Something is asked of a device, or taken from it. */
static struct sg_play_device *note_use(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_device *device = &player->result->device[device_of(player, record->stream)];
    if (!device->used)
        device->card_bytes = card_of(player, device_of(player, record->stream));
    device->used = true;
    return device;
}

static void note_request(struct player *player, const struct segalloc_trace_record *record)
{
    note_use(player, record)->allocs++;
}

/* Blocks of a device, and what is held by other calls, may be at their peak together. */
static void note_taken(struct player *player, int ordinal)
{
    struct sg_play_device *device = &player->result->device[ordinal];
    uint64_t taken = player->in_use[ordinal] + sg_outside_levels_least(&player->outside[ordinal]);
    if (taken <= device->peak_taken)
        return;
    device->peak_taken = taken;
    device->at_peak = player->outside[ordinal].now;
}

static void change_in_use(struct player *player, int ordinal, uint64_t more, uint64_t less)
{
    uint64_t *in_use = &player->in_use[ordinal];
    *in_use += more;
    *in_use -= less < *in_use ? less : *in_use;
    note_taken(player, ordinal);
}

static int allocate(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    uint64_t value = 0;
    result->allocs++;
    note_request(player, record);
    if (record->size > result->largest_request)
        result->largest_request = record->size;
    if (player->core) {
        const struct sg_tag tag = tag_of(player, record);
        CUdeviceptr address;
        if (!player->slow || sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
            address = ask(player, record, &tag);
        value = address;
        if (player->ahead)
            sg_ahead_allocated(player->ahead, device_of(player, record->stream), record->stream);
    } else {
        struct sg_torch_block *block = NULL;
        struct sg_torch *torch = torch_of(player, record);
        if (!torch)
            return no_memory(player);
        if (sg_torch_alloc(torch, record->size, record->stream, &block) == 0)
            value = (uint64_t)(uintptr_t)block;
    }
    if (!value && record->size)
        count_oom(player, record);
    else
        change_in_use(player, device_of(player, record->stream), record->size, 0);
    size_t live = player->live.count;
    if (!sg_idmap_put(&player->live, record->id, value ? value : NO_BLOCK))
        return no_memory(player);
    return player->live.count > live ? 0 : complain(player, "allocates what is alive already:", record->id);
}

/* Whether what was refused at this event has cost the program nothing. Events come in order, so each is looked for where the
   last was found. */
static bool was_made_good(struct player *player)
{
    const struct sg_play *play = player->play;
    while (player->goods < play->made_goods && play->made_good[player->goods] < player->result->events)
        player->goods++;
    return player->goods < play->made_goods && play->made_good[player->goods] == player->result->events;
}

/* Plays what the refused call did to the core; it is no failure. */
static void refuse_again(struct player *player, const struct segalloc_trace_record *record, const struct sg_tag *tag)
{
    CUdeviceptr address = 0;
    if (sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
        address = ask(player, record, tag);
    if (address)
        (void)sg_core_free(player->core, address, tag);
}

/* An allocation failed in the recorded process. With the same settings it does so again, and that it was tried may have
   left its mark; with others it is tried anew, and where it fits it is free at once, for the program went on without
   it. */
static void fail(struct player *player, const struct segalloc_trace_record *record)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    if (was_made_good(player)) {
        if (player->slow)
            refuse_again(player, record, &tag);
        return;
    }
    player->result->failures++;
    note_request(player, record);
    if (record->size > player->result->largest_request)
        player->result->largest_request = record->size;
    if (player->torch) {
        struct sg_torch_block *block;
        struct sg_torch *torch = torch_of(player, record);
        if (torch && sg_torch_alloc(torch, record->size, record->stream, &block) == 0)
            sg_torch_free(torch, block);
        else
            count_oom(player, record);
        return;
    }
    if (!player->slow || sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
        address = ask(player, record, &tag);
    if (address)
        (void)sg_core_free(player->core, address, &tag);
    if (!address || player->slow)
        count_oom(player, record);
}

static int release(struct player *player, const struct segalloc_trace_record *record)
{
    uint64_t value = sg_idmap_take(&player->live, record->id);
    player->result->frees++;
    if (value && value != NO_BLOCK)
        change_in_use(player, device_of(player, record->stream), 0, record->size);
    if (!value) {
        player->result->unmatched_frees++; /* allocated before the trace begins */
    } else if (value == NO_BLOCK && player->core && record->flags & SEGALLOC_FLAG_PENDING) {
        return sg_order_feed_skip(&player->feed, record->id) ? 0 : no_memory(player);
    } else if (value != NO_BLOCK && player->core) {
        const struct sg_tag tag = tag_of(player, record);
        if (player->play->as_recorded && record->flags & SEGALLOC_FLAG_WORKED)
            sg_core_slot_submitted(player->core, device_of(player, record->stream), tag.slot);
        if (is_exact(player) && record->size >= player->huge_bytes)
            return begin(player, record, SG_SLOW_FREE, value); /* it gives a page back, in sections of their own */
        if (is_exact(player))
            sg_interleaver_expect(player->slow, record);
        uint64_t waits = player->card.host_waits;
        if (sg_core_free(player->core, value, &tag) != CUDA_SUCCESS)
            return complain(player, "frees what the allocator does not know:", record->id);
        if (tag.sync == SG_FREE_SYNC_STRICT)
            player->result->strict_waits += player->card.host_waits - waits;
    } else if (value != NO_BLOCK) {
        struct sg_torch_block *block = (struct sg_torch_block *)(uintptr_t)value;
        sg_torch_free(sg_torch_owner(block), block);
    }
    return 0;
}

static int record_stream(struct player *player, const struct segalloc_trace_record *record)
{
    uint64_t value = sg_idmap_get(&player->live, record->id);
    struct sg_torch_block *block = player->torch && value != NO_BLOCK ? (struct sg_torch_block *)(uintptr_t)value
                                                                      : NULL;
    if (block && sg_torch_record_stream(sg_torch_owner(block), block, record->stream) != 0)
        return no_memory(player);
    if (player->core && value && value != NO_BLOCK && (player->ahead || player->play->as_recorded)) {
        const struct sg_tag tag = tag_of(player, record);
        (void)sg_core_record_stream(player->core, value, tag.slot);
    }
    return 0;
}

static int empty_cache(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_torch *torch = player->torch ? player->torch[device_of(player, record->stream)].torch : NULL;
    if (torch)
        sg_torch_empty_cache(torch);
    if (is_exact(player))
        return begin(player, record, SG_SLOW_TRIM, 0);
    if (player->core)
        sg_core_trim(player->core, device_of(player, record->stream), record->size);
    return 0;
}

/* An allocation is to ask the driver. */
static int begin_allocation(struct player *player, const struct segalloc_trace_record *record)
{
    return is_exact(player) ? begin(player, record, SG_SLOW_ALLOCATION, 0) : 0;
}

/* What the allocator of the played card holds of a device. */
static uint64_t held_of(const struct player *player, int device)
{
    if (player->core)
        return player->card.device[device].used_bytes;
    return player->torch[device].torch ? player->torch[device].card.used : 0;
}

static void tell_card(struct player *player, int device, uint64_t bytes)
{
    if (player->core)
        player->card.device[device].outside_bytes = bytes;
    else
        player->torch[device].card.outside = bytes; /* of one that is not made yet, torch_of() does */
}

/* Memory was taken from a device by other calls, or given back. Where the card lacks some, what is idle goes back first:
   of pools by the driver, for memory of theirs; then ours. PyTorch's cache is not asked. */
static void take_outside(struct player *player, const struct segalloc_trace_record *record)
{
    int device = device_of(player, record->stream);
    struct sg_outside_levels *levels = &player->outside[device];
    struct sg_outside_change change;
    if (!sg_outside_levels_read(levels, record, &change))
        return;
    (void)note_use(player, record);
    note_taken(player, device);
    uint64_t card = card_of(player, device);
    if (player->slow) /* the recorded card had it */
        return;
    if (change.from_pools && sg_outside_levels_bytes(levels) + held_of(player, device) > card)
        sg_outside_levels_trim(levels);
    if (change.bytes && player->core && sg_outside_levels_bytes(levels) + held_of(player, device) > card)
        sg_core_trim(player->core, device, 0);
    uint64_t bytes = sg_outside_levels_bytes(levels), held = held_of(player, device);
    tell_card(player, device, bytes);
    if (!change.bytes || bytes + held <= card)
        return;
    const struct segalloc_trace_record failed = {.kind = SEGALLOC_RECORD_OUTSIDE, .thread = record->thread,
        .stream = record->stream, .id = change.what, .size = change.bytes};
    bool first = !player->result->device[device].ooms, of_all = !player->result->ooms;
    count_oom(player, &failed);
    if (first)
        player->result->device[device].first_oom_short = bytes + held - card;
    if (of_all)
        player->result->first_oom_short = bytes + held - card;
}

/* What came to the allocator from outside. */
static int apply_outside(struct player *player, const struct segalloc_trace_record *record)
{
    int device = device_of(player, record->stream);
    CUdeviceptr ignored;
    struct segalloc_trace_record gone;
    switch (record->kind) {
    case SEGALLOC_RECORD_DONE:
        if (!player->ahead)
            sg_order_feed_done(&player->feed, device, record->id);
        return 0;
    case SEGALLOC_RECORD_SLOT:
    case SEGALLOC_RECORD_SLOT_GONE:
    case SEGALLOC_RECORD_TICK:
    case SEGALLOC_RECORD_ORDER:
    case SEGALLOC_RECORD_COMPLETE:
    case SEGALLOC_RECORD_MARK:
        return !player->slow || sg_order_feed_order(&player->feed, device, record) ? 0 : no_memory(player);
    case SEGALLOC_RECORD_PRESSURE:
        if (player->slow)
            sg_core_apply(player->core, device, record);
        else if (!player->outside[device].known) /* else it is known to the byte */
            player->card.device[device].outside_bytes = record->size;
        return 0;
    case SEGALLOC_RECORD_LIMIT:
        if (!player->slow)
            return 0;
        sg_core_set_limit(player->core, device, record->size);
        if (record->size / HUGE_PART < player->huge_bytes)
            player->huge_bytes = record->size / HUGE_PART;
        return 0;
    case SEGALLOC_RECORD_MERGE:
    case SEGALLOC_RECORD_COST:
    case SEGALLOC_RECORD_PEERS:
        sg_core_apply(player->core, device, record);
        return 0;
    case SEGALLOC_RECORD_PIN:
        if (player->slow)
            sg_core_apply(player->core, device, record);
        return 0;
    case SEGALLOC_RECORD_CONTEXT_GONE:
        if (is_exact(player))
            sg_interleaver_expect(player->slow, record);
        gone = *record;
        gone.id = (uint64_t)(uintptr_t)tag_of(player, record).context;
        sg_core_apply(player->core, device, &gone);
        return 0;
    case SEGALLOC_RECORD_FIXED:
        if (player->slow || !record->size || player->play->conf.ipc != SG_IPC_NEVER)
            (void)sg_core_fix(player->core, device, record->size);
        return 0;
    case SEGALLOC_RECORD_SLOW_BEGIN:
        return begin_allocation(player, record);
    case SEGALLOC_RECORD_SLOW_STEP:
    case SEGALLOC_RECORD_TURN:
        if (player->slow)
            (void)sg_interleaver_next(player->slow, record, &ignored);
        return 0;
    default:
        return 0;
    }
}

/* Whether what is under way has to be brought up to date first. */
static bool interrupts(const struct segalloc_trace_record *record)
{
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:         /* may be its end */
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_SLOW_BEGIN:
    case SEGALLOC_RECORD_SLOW_STEP:
    case SEGALLOC_RECORD_TURN:
    case SEGALLOC_RECORD_STATISTIC:
    case SEGALLOC_RECORD_PASSED_ON:
    case SEGALLOC_RECORD_SETTLED:
    case SEGALLOC_RECORD_OUTSIDE:
        return false;
    default:
        return record->kind < SEGALLOC_RECORD_DEFINE_STREAM;
    }
}

static int apply(struct player *player, const struct segalloc_trace_record *record)
{
    if (record->kind < SEGALLOC_RECORD_DONE) /* what the program did */
        player->result->events++;
    if (player->slow && interrupts(record))
        sg_interleaver_catch_up(player->slow);
    if (player->core)
        sg_ledger_use_device(device_of(player, record->stream));
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return allocate(player, record);
    case SEGALLOC_RECORD_FREE:
        return release(player, record);
    case SEGALLOC_RECORD_RECORD_STREAM:
        return record_stream(player, record);
    case SEGALLOC_RECORD_EMPTY_CACHE:
        return empty_cache(player, record);
    case SEGALLOC_RECORD_DEFINE_STREAM:
        return sg_define_stream(&player->defined, record) ? 0 : no_memory(player);
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        define_device(player, record);
        return 0;
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
        fail(player, record);
        return 0;
    case SEGALLOC_RECORD_SITE:
        return sg_define_place(&player->defined, record) ? 0 : no_memory(player);
    case SEGALLOC_RECORD_OUTSIDE:
        take_outside(player, record);
        return 0;
    default:
        if (player->ahead && record->kind < SEGALLOC_RECORD_DONE)
            sg_ahead_work(player->ahead, device_of(player, record->stream), record);
        return player->core && record->kind >= SEGALLOC_RECORD_DONE ? apply_outside(player, record) : 0;
    }
}

static void collect(const struct player *player, struct sg_play_result *result)
{
    if (player->torch) {
        sg_results_torch(player->torch, result);
        return;
    }
    sg_results_own(player->core, player->defined.devices, result);
    if (player->ahead) /* as the card saw them */
        result->host_waits = player->card.host_waits - result->strict_waits;
}

static uint64_t reserved_of(const struct player *player, int device)
{
    if (player->core)
        return sg_core_reserved(player->core, device);
    return player->torch[device].torch ? sg_torch_stats(player->torch[device].torch)->reserved.current : 0;
}

/* After a record: where the first part ends its figures are taken, and the peaks of the rest begin. */
static void note_parts(struct player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    if (record->kind >= SEGALLOC_RECORD_DONE || result->events < player->play->part_end)
        return;
    if (result->events == player->play->part_end) {
        struct sg_play_result so_far = *result;
        collect(player, &so_far);
        sg_results_take_first(&so_far, result);
        for (int device = 0; device < SG_DEVICES_MAX; device++)
            player->rest_peak[device] = reserved_of(player, device);
        return;
    }
    int device = device_of(player, record->stream);
    uint64_t reserved = reserved_of(player, device);
    if (reserved > player->rest_peak[device])
        player->rest_peak[device] = reserved;
}

static void free_torch(struct player *player)
{
    for (int device = 0; player->torch && device < SG_DEVICES_MAX; device++) {
        if (!player->torch[device].torch)
            continue;
        sg_torch_destroy(player->torch[device].torch);
        sg_ledger_device_clear(&player->torch[device].card);
    }
    free(player->torch);
}

bool sg_play_is_of_live_bytes(const struct sg_play *play)
{
    bool known = play->card_bytes != 0;
    for (int device = 0; device < SG_DEVICES_MAX && !known; device++)
        known = play->card[device] != 0;
    return !known && play->policy == SG_POLICY_SEGALLOC && play->conf.page_size == SG_AUTO && !play->conf.limit_bytes;
}

static struct sg_conf conf_played(const struct sg_play *play)
{
    struct sg_conf conf = play->conf;
    if (sg_play_is_of_live_bytes(play))
        conf.page_size = sg_core_page_bytes(play->granularity, play->live_bytes, (uint64_t)conf.mapping_limit);
    return conf;
}

static int start(struct player *player)
{
    const struct sg_play *play = player->play;
    sg_definitions_init(&player->defined);
    if (!sg_idmap_init(&player->live))
        return no_memory(player);
    if (play->policy == SG_POLICY_PYTORCH) {
        player->torch = calloc(SG_DEVICES_MAX, sizeof *player->torch);
        return player->torch ? 0 : no_memory(player);
    }
    sg_ledger_init(&player->card, play->card_bytes ? play->card_bytes : SG_PLAY_CARD, play->granularity);
    sg_ledger_use(&player->card);
    struct sg_conf conf = conf_played(play);
    struct sg_core_params params = {.conf = &conf, .driver = &sg_ledger_driver};
    if (play->as_recorded) {
        player->slow = sg_interleaver_new(&player->card);
        if (!player->slow)
            return no_memory(player);
        params.driver = sg_interleaver_driver(player->slow);
        params.observer = sg_interleaver_sink(player->slow);
        params.replay = &sg_interleaver_replay;
    }
    player->huge_bytes = UINT64_MAX;
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        note_card(player, device);
    player->core = sg_core_create(&params);
    if (player->core && play->ordered)
        player->ahead = sg_ahead_new(player->core, &player->card, play->run_ahead);
    bool fine = player->core && (player->ahead || !play->ordered) && sg_order_feed_init(&player->feed, player->core);
    return fine ? 0 : no_memory(player);
}

int sg_play_run(const struct sg_play *play, struct sg_play_result *ret, char error[SG_PLAY_ERROR])
{
    struct sg_play_result result = {0};
    struct player player = {.play = play, .result = &result, .error = error};
    struct segalloc_trace_record batch[BATCH];
    int status = start(&player);
    bool over = false;
    for (size_t n; status == 0 && !over && (n = play->next(play->source, batch, BATCH)) > 0;) {
        for (size_t i = 0; i < n && status == 0 && !over; i++) {
            player.left = n - i;
            status = apply(&player, &batch[i]);
            if (play->part_end && status == 0)
                note_parts(&player, &batch[i]);
            if (player.slow && !result.diverged_event && sg_interleaver_has_diverged(player.slow))
                result.diverged_event = result.events;
            over = over || (play->watch && !play->watch(play->watcher, &batch[i], result.events, player.core));
        }
        if (may_stop(&player))
            break;
    }
    if (status == 0)
        collect(&player, &result); /* with what is under way as the trace has left it */
    if (status == 0 && play->part_end)
        sg_results_end_rest(&result, player.rest_peak);
    if (player.slow)
        sg_interleaver_end(player.slow);
    sg_core_destroy(player.core);
    sg_ahead_delete(player.ahead);
    sg_interleaver_delete(player.slow);
    sg_order_feed_fini(&player.feed);
    sg_ledger_fini(&player.card);
    free_torch(&player);
    sg_idmap_fini(&player.live);
    sg_definitions_fini(&player.defined);
    if (status == 0)
        *ret = result;
    return status;
}
