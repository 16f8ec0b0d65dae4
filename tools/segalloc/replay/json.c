/* The answer of `segalloc replay`, as JSON. */
#include "replay/replayed.h"

#include "json.h"

static double json_utilization(const struct sg_play_result *result)
{
    return result->peak_reserved ? (double)result->peak_allocated / (double)result->peak_reserved : 1;
}

static const char *json_sync(enum sg_free_sync sync)
{
    return sync == SG_FREE_SYNC_STRICT  ? "strict"
           : sync == SG_FREE_SYNC_EVENT ? "event"
                                        : "stream"; /* which auto is here */
}

static json_t *replay_json_device(const struct sg_replayed *replay, int ordinal)
{
    const struct sg_play_device *device = &replay->result.device[ordinal];
    const uint64_t *peak = device->stats.peak;
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", (uint64_t)ordinal}, {"limit_bytes", device->card_bytes},
        {"allocs", device->allocs}, {"ooms", device->ooms}, {"new_ooms", device->new_ooms},
        {"peak_requested_bytes", peak[SG_STAT_requested_bytes]},
        {"peak_allocated_bytes", peak[SG_STAT_allocated_bytes]}, {"peak_reserved_bytes", peak[SG_STAT_reserved_bytes]});
    sg_json_set_known(result, "first_oom_event", device->first_oom_event, device->first_oom_event);
    sg_json_set_known(result, "largest_oom_bytes", device->largest_oom, device->largest_oom);
    sg_json_set_known(result, "short_by_bytes", device->first_oom_short, device->first_oom_short);
    sg_json_set_known(result, "min_limit_bytes", replay->smallest.card[ordinal], replay->smallest.card[ordinal]);
    sg_json_set_known(result, "larger_limit_failing_bytes", replay->smallest.failing[ordinal],
        replay->smallest.failing[ordinal]);
    return result;
}

static json_t *replay_json_devices(const struct sg_replayed *replay)
{
    json_t *devices = sg_json_array();
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->result.device[i].used)
            sg_json_add(devices, replay_json_device(replay, i));
    return devices;
}

/* Sums over the devices. */
static void json_totals(json_t *object, const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    SG_JSON_NUMBERS(object, {"peak_requested_bytes", result->peak_requested},
        {"peak_allocated_bytes", result->peak_allocated}, {"peak_pending_bytes", result->peak_pending},
        {"peak_reserved_bytes", result->peak_reserved});
    sg_json_set_ratio(object, "utilization", json_utilization(result));
    /* device_waits: for readers of earlier versions, which made streams wait */
    SG_JSON_NUMBERS(object, {"end_reserved_bytes", result->end_reserved}, {"pages_moved", result->pages_moved},
        {"bytes_moved", result->bytes_moved}, {"aliased_pages", result->aliased_pages},
        {"late_unmaps", result->late_unmaps}, {"host_waits", result->host_waits}, {"device_waits", 0},
        {"ooms", result->ooms}, {"new_ooms", result->new_ooms});
}

static void json_work(json_t *object, const struct sg_replayed *replay)
{
    const struct sg_play *play = &replay->play;
    sg_json_set_known(object, "run_ahead", play->run_ahead, play->ordered);
    if (!play->ordered)
        return;
    sg_json_set_text(object, "free_sync", json_sync(play->conf.free_sync));
    sg_json_set_text(object, "sees", play->possible_users ? "possible" : "recorded");
    SG_JSON_NUMBERS(object, {"strict_frees", replay->result.strict_frees},
        {"strict_waits", replay->result.strict_waits});
}

/* Calls of the driver, and what they cost. */
static void json_calls(json_t *object, const struct sg_play_result *result)
{
    json_t *calls = sg_json_object(NULL), *handles = sg_json_object(NULL), *us = sg_json_object(NULL);
#define CALL(name) SG_JSON_NUMBERS(calls, {#name, result->calls.name});
    SG_PLAY_CALLS(CALL)
#undef CALL
#define CALL(name) SG_JSON_NUMBERS(handles, {#name, result->handles.name});
    SG_PLAY_HANDLE_CALLS(CALL)
#undef CALL
    sg_json_set(object, "driver_calls", calls);
    sg_json_set(object, "handle_calls", handles);
    SG_JSON_NUMBERS(object, {"peak_mappings", result->peak_mappings}, {"event_calls", result->event_calls});
    sg_json_set(us, "growth", sg_json_real((double)result->growth_ns / 1000, 1));
    sg_json_set(us, "moves", sg_json_real((double)result->move_ns / 1000, 1));
    sg_json_set(object, "driver_us", us);
}

void sg_replayed_print_json(const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    char conf[4096];
    json_t *object = sg_json_object("segalloc.replay/1");
    uint64_t smallest = sg_smallest_largest(&replay->smallest, result);
    sg_json_set_text(object, "trace", replay->path);
    sg_json_set_text(object, "conf", sg_replayed_conf(replay, conf, sizeof conf));
    sg_json_set_text(object, "policy", replay->play.policy == SG_POLICY_PYTORCH ? "pytorch" : "segalloc");
    SG_JSON_NUMBERS(object, {"limit_bytes", sg_replayed_largest_card(replay)}, {"events", result->events},
        {"allocs", result->allocs}, {"frees", result->frees}, {"unmatched_frees", result->unmatched_frees},
        {"recorded_failures", result->failures});
    sg_json_set_flag(object, "as_recorded", replay->as_recorded);
    sg_json_set_known(object, "diverged_event", result->diverged_event, result->diverged_event);
    json_totals(object, replay);
    json_work(object, replay);
    sg_json_set_known(object, "min_limit_bytes", smallest, smallest);
    sg_json_set_flag(object, "at_least", sg_replayed_is_lower_bound(replay));
    sg_json_set(object, "devices", replay_json_devices(replay));
    json_calls(object, result);
    if (replay->bench)
        sg_json_set(object, "ns_per_op", sg_json_real(replay->ns_per_op, 1));
    sg_json_set(object, "seconds", sg_json_real(replay->seconds, 6));
    sg_json_set(object, "events_per_second", sg_json_number((uint64_t)((double)result->events / replay->seconds + 0.5)));
    sg_json_print(object);
}
