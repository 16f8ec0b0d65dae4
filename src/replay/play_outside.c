#include "play_outside.h"

#include "apply.h"
#include "play_ooms.h"

/* An allocation is to ask the driver: it begins here, and its other records go on with it. */
static int outside_begin_allocation(struct sg_player *player, const struct segalloc_trace_record *record)
{
    return sg_player_is_exact(player) ? sg_player_begin(player, record, SG_SLOW_ALLOCATION, 0) : 0;
}

/* Bytes that the allocator of the played card holds of a device. */
static uint64_t outside_held_of(const struct sg_player *player, int device)
{
    if (player->core)
        return player->card.device[device].used_bytes;
    return player->torch[device].torch ? player->torch[device].card.used : 0;
}

/* Bytes of a device's card that other programs leave to this one. */
static uint64_t outside_room_of(const struct sg_player *player, int device)
{
    uint64_t card = sg_player_card_bytes(player, device), others = player->play->others[device];
    return card > others ? card - others : 0;
}

/* Sets the bytes of a device's card that the program holds by other calls. */
static void outside_set_card(struct sg_player *player, int device, uint64_t bytes)
{
    if (player->core)
        player->card.device[device].outside_bytes = bytes + player->play->others[device];
    else
        player->torch[device].card.outside = bytes; /* of one that is not made yet, sg_player_torch() does */
}

/* Memory was taken from a device by other calls, or given back. Where the card lacks some, what is idle goes back first:
   of pools by the driver, for memory of theirs; then ours. PyTorch's cache is not asked. */
void sg_play_take_outside(struct sg_player *player, const struct segalloc_trace_record *record)
{
    int device = sg_player_device(player, record->stream);
    struct sg_outside_levels *levels = &player->outside[device];
    struct sg_outside_change change;
    if (!sg_outside_levels_read(levels, record, &change))
        return;
    (void)sg_player_note_use(player, record);
    sg_player_note_taken(player, device);
    uint64_t card = outside_room_of(player, device);
    if (player->slow) /* the recorded card had room for it, and its records say what went back for that */
        return;
    /* The order of recourse: idle memory of pools for pools, then our idle pages, and then it does not fit. */
    if (change.from_pools && sg_outside_levels_bytes(levels) + outside_held_of(player, device) > card)
        sg_outside_levels_trim(levels);
    if (change.bytes && player->core && sg_outside_levels_bytes(levels) + outside_held_of(player, device) > card)
        sg_core_trim(player->core, device, 0);
    uint64_t bytes = sg_outside_levels_bytes(levels), held = outside_held_of(player, device);
    outside_set_card(player, device, bytes);
    if (!change.bytes || bytes + held <= card)
        return;
    /* It does not fit: the call of the program would have failed, so it counts as an allocation that does. */
    const struct segalloc_trace_record failed = {.kind = SEGALLOC_RECORD_OUTSIDE,
        .thread = record->thread,
        .stream = record->stream,
        .id = change.what,
        .size = change.bytes};
    bool first = !player->result->device[device].ooms, of_all = !player->result->ooms;
    sg_play_count_oom(player, &failed);
    if (first)
        player->result->device[device].first_oom_short = bytes + held - card;
    if (of_all)
        player->result->first_oom_short = bytes + held - card;
}

int sg_play_apply_outside(struct sg_player *player, const struct segalloc_trace_record *record)
{
    int device = sg_player_device(player, record->stream);
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
        return !player->slow || sg_order_feed_order(&player->feed, device, record) ? 0 : sg_player_no_memory(player);
    case SEGALLOC_RECORD_PRESSURE:
        if (player->slow)
            sg_core_apply(player->core, device, record);
        else if (!player->outside[device].known) /* else it is known to the byte */
            outside_set_card(player, device, record->size);
        return 0;
    case SEGALLOC_RECORD_LIMIT:
        if (!player->slow)
            return 0;
        sg_core_set_limit(player->core, device, record->size);
        if (record->size / SG_PLAY_HUGE_PART < player->huge_bytes)
            player->huge_bytes = record->size / SG_PLAY_HUGE_PART;
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
        if (sg_player_is_exact(player))
            sg_interleaver_expect(player->slow, record);
        /* The record names a stream; the core wants the context that the stream was defined with. */
        gone = *record;
        gone.id = (uint64_t)(uintptr_t)sg_player_tag(player, record).context;
        sg_core_apply(player->core, device, &gone);
        return 0;
    case SEGALLOC_RECORD_FIXED:
        if (player->slow || !record->size || player->play->conf.ipc != SG_IPC_NEVER)
            (void)sg_core_fix(player->core, device, record->size);
        return 0;
    case SEGALLOC_RECORD_SLOW_BEGIN:
        return outside_begin_allocation(player, record);
    case SEGALLOC_RECORD_SLOW_STEP:
    case SEGALLOC_RECORD_TURN:
        if (player->slow)
            (void)sg_interleaver_next(player->slow, record, &ignored);
        return 0;
    default:
        return 0;
    }
}
