#include "inspect/core_state.h"
#include "results.h"

void sg_results_own(struct sg_core *core, int devices, struct sg_play_result *result)
{
    for (int device = 0; device < devices; device++) {
        struct sg_stats stats;
        if (!sg_core_stats(core, device, &stats))
            continue;
        result->device[device].stats = stats;
        result->peak_requested += stats.peak[SG_STAT_requested_bytes];
        result->peak_allocated += stats.peak[SG_STAT_allocated_bytes];
        result->peak_pending += stats.peak[SG_STAT_pending_bytes];
        result->peak_reserved += stats.peak[SG_STAT_reserved_bytes];
        result->end_reserved += stats.value[SG_STAT_reserved_bytes];
        result->pages_moved += stats.value[SG_STAT_pages_moved];
        result->aliased_pages += stats.value[SG_STAT_aliased_pages];
        result->late_unmaps += stats.value[SG_STAT_late_unmaps];
        result->bytes_moved += stats.value[SG_STAT_bytes_moved];
        result->host_waits += stats.value[SG_STAT_host_waits];
        result->strict_frees += stats.value[SG_STAT_strict_frees];
        result->event_calls += stats.value[SG_STAT_calls_event];
        result->growth_ns += stats.value[SG_STAT_growth_cost_ns];
        result->move_ns += stats.value[SG_STAT_move_cost_ns];
        result->peak_mappings += stats.peak[SG_STAT_mappings];
#define CALL(name) result->calls.name += stats.value[SG_STAT_calls_##name];
        SG_PLAY_CALLS(CALL)
#undef CALL
        /* These calls are over one handle each, so calls and handles are the same number. */
        result->handles.create += stats.value[SG_STAT_calls_create];
        result->handles.map += stats.value[SG_STAT_calls_map];
        result->handles.set_access += stats.value[SG_STAT_handles_set_access];
        result->handles.unmap += stats.value[SG_STAT_handles_unmap];
        result->handles.release += stats.value[SG_STAT_calls_release];
    }
}

/* A level of PyTorch's as one of the statistics. */
static void stats_take_level(struct sg_stats *stats, enum sg_stat stat, const struct sg_torch_level *level)
{
    stats->value[stat] = level->current;
    stats->peak[stat] = level->peak;
}

void sg_results_torch(const struct sg_torch_device devices[SG_DEVICES_MAX], struct sg_play_result *result)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        if (!devices[device].torch)
            continue;
        const struct sg_torch_stats *stats = sg_torch_stats(devices[device].torch);
        const uint64_t *calls = devices[device].card.calls;
        struct sg_stats *level = &result->device[device].stats;
        stats_take_level(level, SG_STAT_requested_bytes, &stats->requested);
        stats_take_level(level, SG_STAT_allocated_bytes, &stats->allocated);
        stats_take_level(level, SG_STAT_active_bytes, &stats->active);
        stats_take_level(level, SG_STAT_reserved_bytes, &stats->reserved);
        result->peak_requested += stats->requested.peak;
        result->peak_allocated += stats->allocated.peak;
        result->peak_reserved += stats->reserved.peak;
        result->end_reserved += stats->reserved.current;
        result->host_waits += stats->cache_syncs;
        result->calls.reserve += calls[SG_TORCH_ADDRESS_RESERVE];
        result->calls.create += calls[SG_TORCH_CREATE];
        result->calls.map += calls[SG_TORCH_MAP];
        result->calls.set_access += calls[SG_TORCH_SET_ACCESS];
        result->calls.unmap += calls[SG_TORCH_UNMAP];
        result->calls.release += calls[SG_TORCH_RELEASE];
        result->calls.alloc += calls[SG_TORCH_CUDA_MALLOC];
        result->calls.free += calls[SG_TORCH_CUDA_FREE];
        result->calls.sync += calls[SG_TORCH_STREAM_SYNCHRONIZE];
    }
}

/* The figures of a part, from a result as if the play ended there. */
static struct sg_play_part result_part_of(const struct sg_play_result *result)
{
    struct sg_play_part part = {.allocs = result->allocs,
        .ooms = result->ooms,
        .peak_reserved = result->peak_reserved,
        .pages_moved = result->pages_moved,
        .bytes_moved = result->bytes_moved,
        .growth_ns = result->growth_ns,
        .move_ns = result->move_ns};
#define CALL(name) part.calls += result->calls.name;
    SG_PLAY_CALLS(CALL)
#undef CALL
    return part;
}

void sg_results_take_first(const struct sg_play_result *so_far, struct sg_play_result *result)
{
    result->parted = true;
    result->first = result_part_of(so_far);
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        result->device[device].first_peak_reserved = so_far->device[device].stats.peak[SG_STAT_reserved_bytes];
}

void sg_results_end_rest(struct sg_play_result *result, const uint64_t peak[SG_DEVICES_MAX])
{
    struct sg_play_part rest = result_part_of(result);
    const struct sg_play_part *first = &result->first;
    if (!result->parted)
        return;
    rest.peak_reserved = 0;
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        /* A peak above that of the first part was reached after it. Else the highest that was noted since counts. */
        uint64_t whole = result->device[device].stats.peak[SG_STAT_reserved_bytes];
        rest.peak_reserved += whole > result->device[device].first_peak_reserved ? whole : peak[device];
    }
    /* Counters only grow, so the rest is a difference. */
    rest.allocs -= first->allocs;
    rest.ooms -= first->ooms;
    rest.calls -= first->calls;
    rest.pages_moved -= first->pages_moved;
    rest.bytes_moved -= first->bytes_moved;
    rest.growth_ns -= first->growth_ns;
    rest.move_ns -= first->move_ns;
    result->rest = rest;
}
