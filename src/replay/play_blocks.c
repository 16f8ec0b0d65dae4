#include "play_blocks.h"

#include "play_ooms.h"

/* Value in the dictionary of an allocation that has no block: it failed or was of zero bytes. */
static const uint64_t NO_BLOCK = 1;

/* Asks the core for what this record says, at once. Returns the address, 0 where it failed. */
static CUdeviceptr block_ask_core(struct sg_player *player, const struct segalloc_trace_record *record,
    const struct sg_tag *tag)
{
    CUdeviceptr address = 0;
    if (sg_player_is_exact(player))
        sg_interleaver_expect(player->slow, record);
    if (record->size && sg_core_malloc(player->core, sg_player_device(player, record->stream), record->size, tag,
                            &address) != CUDA_SUCCESS)
        address = 0;
    return address;
}

/* Counts an allocation that was asked of a device. */
static void block_note_request(struct sg_player *player, const struct segalloc_trace_record *record)
{
    sg_player_note_use(player, record)->allocs++;
}

int sg_play_allocate(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    uint64_t value = 0;
    result->allocs++;
    block_note_request(player, record);
    if (record->size > result->largest_request)
        result->largest_request = record->size;
    if (player->core) {
        const struct sg_tag tag = sg_player_tag(player, record);
        CUdeviceptr address;
        /* An operation that is under way ends here with its address; else the core is asked. */
        if (!player->slow || sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
            address = block_ask_core(player, record, &tag);
        value = address;
        if (player->ahead)
            sg_ahead_allocated(player->ahead, sg_player_device(player, record->stream), record->stream);
    } else {
        struct sg_torch_block *block = NULL;
        struct sg_torch *torch = sg_player_torch(player, record);
        if (!torch)
            return sg_player_no_memory(player);
        if (sg_torch_alloc(torch, record->size, record->stream, &block) == 0)
            value = (uint64_t)(uintptr_t)block;
    }
    if (!value && record->size)
        sg_play_count_oom(player, record);
    else
        sg_player_change_in_use(player, sg_player_device(player, record->stream), record->size, 0);
    /* A failed allocation is in the dictionary too, so that its free is no unmatched one. */
    size_t live = player->live.count;
    if (!sg_idmap_put(&player->live, record->id, value ? value : NO_BLOCK))
        return sg_player_no_memory(player);
    return player->live.count > live ? 0 : sg_player_complain(player, "allocates what is alive already:", record->id);
}

/* True if the refusal at this event has cost the program nothing. Events come in order, so each is looked for where the
   last was found. */
static bool block_was_made_good(struct sg_player *player)
{
    const struct sg_play *play = player->play;
    while (player->goods < play->made_goods && play->made_good[player->goods] < player->result->events)
        player->goods++;
    return player->goods < play->made_goods && play->made_good[player->goods] == player->result->events;
}

/* Plays what the refused call did to the core; it is no failure. */
static void block_refuse_again(struct sg_player *player, const struct segalloc_trace_record *record,
    const struct sg_tag *tag)
{
    CUdeviceptr address = 0;
    if (sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
        address = block_ask_core(player, record, tag);
    if (address)
        (void)sg_core_free(player->core, address, tag);
}

void sg_play_fail(struct sg_player *player, const struct segalloc_trace_record *record)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    if (block_was_made_good(player)) {
        if (player->slow)
            block_refuse_again(player, record, &tag);
        return;
    }
    player->result->failures++;
    block_note_request(player, record);
    if (record->size > player->result->largest_request)
        player->result->largest_request = record->size;
    if (player->torch) {
        struct sg_torch_block *block;
        struct sg_torch *torch = sg_player_torch(player, record);
        if (torch && sg_torch_alloc(torch, record->size, record->stream, &block) == 0)
            sg_torch_free(torch, block);
        else
            sg_play_count_oom(player, record);
        return;
    }
    if (!player->slow || sg_interleaver_next(player->slow, record, &address) == SG_SLOW_NONE)
        address = block_ask_core(player, record, &tag);
    if (address)
        (void)sg_core_free(player->core, address, &tag);
    if (!address || player->slow)
        sg_play_count_oom(player, record);
}

int sg_play_free(struct sg_player *player, const struct segalloc_trace_record *record)
{
    uint64_t value = sg_idmap_take(&player->live, record->id);
    player->result->frees++;
    if (value && value != NO_BLOCK)
        sg_player_change_in_use(player, sg_player_device(player, record->stream), 0, record->size);
    if (!value) {
        player->result->unmatched_frees++; /* allocated before the trace begins */
    } else if (value == NO_BLOCK && player->core && record->flags & SEGALLOC_FLAG_PENDING) {
        return sg_order_feed_skip(&player->feed, record->id) ? 0 : sg_player_no_memory(player);
    } else if (value != NO_BLOCK && player->core) {
        const struct sg_tag tag = sg_player_tag(player, record);
        if (player->play->as_recorded && record->flags & SEGALLOC_FLAG_WORKED)
            sg_core_slot_submitted(player->core, sg_player_device(player, record->stream), tag.slot);
        if (sg_player_is_exact(player) && record->size >= player->huge_bytes)
            return sg_player_begin(player, record, SG_SLOW_FREE,
                value); /* it gives a page back, in sections of their own */
        if (sg_player_is_exact(player))
            sg_interleaver_expect(player->slow, record);
        uint64_t waits = player->card.host_waits;
        if (sg_core_free(player->core, value, &tag) != CUDA_SUCCESS)
            return sg_player_complain(player, "frees what the allocator does not know:", record->id);
        if (tag.sync == SG_FREE_SYNC_STRICT)
            player->result->strict_waits += player->card.host_waits - waits;
    } else if (value != NO_BLOCK) {
        struct sg_torch_block *block = (struct sg_torch_block *)(uintptr_t)value;
        sg_torch_free(sg_torch_owner(block), block);
    }
    return 0;
}

int sg_play_record_stream(struct sg_player *player, const struct segalloc_trace_record *record)
{
    uint64_t value = sg_idmap_get(&player->live, record->id);
    struct sg_torch_block *block = player->torch && value != NO_BLOCK ? (struct sg_torch_block *)(uintptr_t)value : NULL;
    if (block && sg_torch_record_stream(sg_torch_owner(block), block, record->stream) != 0)
        return sg_player_no_memory(player);
    if (player->core && value && value != NO_BLOCK && (player->ahead || player->play->as_recorded)) {
        const struct sg_tag tag = sg_player_tag(player, record);
        (void)sg_core_record_stream(player->core, value, tag.slot);
    }
    return 0;
}

int sg_play_empty_cache(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_torch *torch = player->torch ? player->torch[sg_player_device(player, record->stream)].torch : NULL;
    if (torch)
        sg_torch_empty_cache(torch);
    if (sg_player_is_exact(player))
        return sg_player_begin(player, record, SG_SLOW_TRIM, 0);
    if (player->core)
        sg_core_trim(player->core, sg_player_device(player, record->stream), record->size);
    return 0;
}

int sg_play_return_far(struct sg_player *player, const struct segalloc_trace_record *record)
{
    bool exact = sg_player_is_exact(player) && record->id < SG_DEVICES_MAX;
    return exact ? sg_player_begin(player, record, SG_SLOW_RETURN, 0) : 0;
}

/* Carries an order out at once, as far as the played card allows it. */
static void play_carry_out_order(struct sg_player *player, const struct segalloc_trace_record *record)
{
    const struct sg_play_order *order = &player->order;
    struct sg_pause_result result;
    const struct sg_backup *backup = sg_player_backup(player, order->tag);
    if (order->pause) {
        (void)sg_core_pause(player->core, order->device, order->tag, /* everything */ false, backup, &result);
    } else if (sg_core_resume(player->core, order->device, order->tag, backup, &result) == CUDA_ERROR_OUT_OF_MEMORY) {
        struct segalloc_trace_record lacking = *record;
        lacking.size = result.bytes;
        sg_play_count_oom(player, &lacking);
    }
}

int sg_play_pause(struct sg_player *player, const struct segalloc_trace_record *record)
{
    bool pause = record->kind == SEGALLOC_RECORD_PAUSE, exact = sg_player_is_exact(player);
    if (!player->core || record->id == 0 || record->id >= SG_TAGS)
        return 0;
    player->order = (struct sg_play_order){.tag = (uint8_t)record->id,
        .device = (uint8_t)sg_player_device(player, record->stream),
        .thread = record->thread,
        .pause = pause,
        .carry_out = !exact};
    return exact ? sg_player_begin(player, record, pause ? SG_SLOW_PAUSE : SG_SLOW_RESUME, 0) : 0;
}

void sg_play_pause_end(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_order *order = &player->order;
    if (!order->tag || order->thread != record->thread)
        return;
    if (record->size && order->carry_out)
        play_carry_out_order(player, record);
    uint32_t bit = UINT32_C(1) << order->tag;
    if (record->size)
        player->paused[order->device] = (player->paused[order->device] & ~bit) | (order->pause ? bit : 0);
    sg_player_note_taken(player, order->device);
    order->tag = 0;
}
