#include "play_ooms.h"

#include "inspect/core_state.h"

/* The allocation that just failed has left its marks on the core. */
static void oom_note_first(struct sg_player *player, const struct segalloc_trace_record *record,
    struct sg_play_device *device)
{
    int ordinal = sg_player_device(player, record->stream);
    struct sg_stats stats;
    struct sg_shortage shortage;
    /* Memory of other calls may be short before the first event of the program. */
    device->first_oom_event = player->result->events ? player->result->events : 1;
    device->first_oom_bytes = record->size;
    if (record->kind == SEGALLOC_RECORD_OUTSIDE)
        device->first_oom_by = (enum segalloc_outside)record->id;
    device->first_oom_site = sg_player_place(player, record).site;
    device->first_oom_phase = sg_player_place(player, record).phase;
    if (player->torch && player->torch[ordinal].torch)
        device->first_oom_live = sg_torch_stats(player->torch[ordinal].torch)->requested.current;
    else if (player->core && sg_core_stats(player->core, ordinal, &stats))
        device->first_oom_live = stats.value[SG_STAT_requested_bytes];
    /* The levels have the memory that did not fit, where it is of other calls. For example, pools held 350 MiB, and 90 more do
       not fit: the levels say 440, and 350 were in use. */
    const struct sg_outside_levels *levels = &player->outside[ordinal];
    uint64_t held = sg_outside_levels_least(levels) - levels->now.bytes[SEGALLOC_OUTSIDE_OTHER],
             beyond = device->first_oom_by != SEGALLOC_OUTSIDE_OTHER ? record->size : 0;
    device->first_oom_outside = held > beyond ? held - beyond : 0;
    if (record->kind != SEGALLOC_RECORD_OUTSIDE && player->core && sg_core_shortage(player->core, ordinal, &shortage) &&
        shortage.asked == record->size)
        device->first_oom_short = shortage.short_by;
}

void sg_play_count_oom(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    struct sg_play_device *device = &result->device[sg_player_device(player, record->stream)];
    bool again = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    device->new_ooms += !again;
    result->new_ooms += !again;
    if (record->size > device->largest_oom)
        device->largest_oom = record->size;
    if (record->size > result->largest_oom)
        result->largest_oom = record->size;
    if (!device->ooms++)
        oom_note_first(player, record, device);
    if (result->ooms++)
        return;
    result->first_oom_event = device->first_oom_event;
    result->first_oom_bytes = device->first_oom_bytes;
    result->first_oom_live = device->first_oom_live;
    result->first_oom_outside = device->first_oom_outside;
    result->first_oom_short = device->first_oom_short;
    result->first_oom_by = device->first_oom_by;
}

bool sg_play_may_stop(const struct sg_player *player)
{
    uint64_t left = player->play->stop_at_oom;
    if (!left || !player->result->ooms)
        return false;
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        if (player->result->device[device].ooms)
            left &= ~(UINT64_C(1) << device);
    return left == 0;
}
