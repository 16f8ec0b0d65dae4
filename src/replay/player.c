#include "player.h"

#include <stdlib.h>

#include "inspect/core_state.h"
#include "play_blocks.h"
#include "play_ooms.h"
#include "play_outside.h"
#include "results.h"

/* Records are read in batches of 32 KiB. */
enum { BATCH = 1024 };

/* Sets the card of a device from its definition, which comes before anything is asked of the device. */
static void player_define_device(struct sg_player *player, const struct segalloc_trace_record *record)
{
    if (record->stream >= SG_DEVICES_MAX)
        return;
    player->defined.device_bytes[record->stream] = record->size;
    sg_player_note_card(player, (int)record->stream);
}

/* True if operations that are under way have to be brought up to date before this record. Records of such operations do
   that themselves, and definitions concern nobody. */
static bool record_interrupts(const struct segalloc_trace_record *record)
{
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:         /* may be its end */
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_SLOW_BEGIN:
    case SEGALLOC_RECORD_SLOW_STEP:
    case SEGALLOC_RECORD_TURN:
    case SEGALLOC_RECORD_TAG:
    case SEGALLOC_RECORD_TAG_PAGES:
    case SEGALLOC_RECORD_FAR:
    case SEGALLOC_RECORD_STATISTIC:
    case SEGALLOC_RECORD_PASSED_ON:
    case SEGALLOC_RECORD_SETTLED:
    case SEGALLOC_RECORD_OUTSIDE:
    case SEGALLOC_RECORD_REFUSED_OUTSIDE:
        return false;
    default:
        return record->kind < SEGALLOC_RECORD_DEFINE_STREAM;
    }
}

/* Plays one record. 0, or the error with which the play ends. */
static int player_apply_one(struct sg_player *player, const struct segalloc_trace_record *record)
{
    if (record->kind < SEGALLOC_RECORD_DONE) /* what the program did */
        player->result->events++;
    if (player->slow && record_interrupts(record))
        sg_interleaver_catch_up(player->slow);
    if (player->core)
        sg_ledger_use_device(sg_player_device(player, record->stream));
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return sg_play_allocate(player, record);
    case SEGALLOC_RECORD_FREE:
        return sg_play_free(player, record);
    case SEGALLOC_RECORD_RECORD_STREAM:
        return sg_play_record_stream(player, record);
    case SEGALLOC_RECORD_EMPTY_CACHE:
        return sg_play_empty_cache(player, record);
    case SEGALLOC_RECORD_RETURN_FAR:
        return sg_play_return_far(player, record);
    case SEGALLOC_RECORD_PAUSE:
    case SEGALLOC_RECORD_RESUME:
        return sg_play_pause(player, record);
    case SEGALLOC_RECORD_TAG:
        player->memory_tag[record->thread] = record->id < SG_TAGS ? (uint8_t)record->id : 0;
        return 0;
    case SEGALLOC_RECORD_DEFINE_TAG:
        if (record->flags & SEGALLOC_FLAG_NATIVE && record->stream < SG_TAGS)
            player->discards |= UINT32_C(1) << record->stream;
        return 0;
    case SEGALLOC_RECORD_DEFINE_STREAM:
        return sg_define_stream(&player->defined, record) ? 0 : sg_player_no_memory(player);
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        player_define_device(player, record);
        return 0;
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
        sg_play_fail(player, record);
        return 0;
    case SEGALLOC_RECORD_SITE:
        return sg_define_place(&player->defined, record) ? 0 : sg_player_no_memory(player);
    case SEGALLOC_RECORD_OUTSIDE:
        sg_play_take_outside(player, record);
        return 0;
    case SEGALLOC_RECORD_TURN:
        if (player->core)
            (void)sg_play_apply_outside(player, record);
        if (record->id == SEGALLOC_TURN_PAUSE_END)
            sg_play_pause_end(player, record);
        return 0;
    default:
        if (player->ahead && record->kind < SEGALLOC_RECORD_DONE)
            sg_ahead_work(player->ahead, sg_player_device(player, record->stream), record);
        return player->core && record->kind >= SEGALLOC_RECORD_DONE ? sg_play_apply_outside(player, record) : 0;
    }
}

/* Plays one record. A tag is of the next allocation alone. */
static int player_apply(struct sg_player *player, const struct segalloc_trace_record *record)
{
    int status = player_apply_one(player, record);
    if (record->kind == SEGALLOC_RECORD_ALLOCATE || record->kind == SEGALLOC_RECORD_SLOW_BEGIN)
        player->memory_tag[record->thread] = 0;
    return status;
}

/* Puts the counts of the allocator and the card into the result. */
static void player_collect(const struct sg_player *player, struct sg_play_result *result)
{
    if (player->torch) {
        sg_results_torch(player->torch, result);
        return;
    }
    sg_results_own(player->core, player->defined.devices, result);
    if (player->ahead) /* as the card saw them */
        result->host_waits = player->card.host_waits - result->strict_waits;
}

/* Bytes that the allocator holds of a device now. */
static uint64_t player_reserved_of(const struct sg_player *player, int device)
{
    if (player->core)
        return sg_core_reserved(player->core, device);
    return player->torch[device].torch ? sg_torch_stats(player->torch[device].torch)->reserved.current : 0;
}

/* After a record: where the first part ends its figures are taken, and the peaks of the rest begin. */
static void player_note_parts(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_result *result = player->result;
    if (record->kind >= SEGALLOC_RECORD_DONE || result->events < player->play->part_end)
        return;
    if (result->events == player->play->part_end) {
        /* Counters of the allocator reach the result at the end only, so a copy is completed here. */
        struct sg_play_result so_far = *result;
        player_collect(player, &so_far);
        sg_results_take_first(&so_far, result);
        for (int device = 0; device < SG_DEVICES_MAX; device++)
            player->rest_peak[device] = player_reserved_of(player, device);
        return;
    }
    int device = sg_player_device(player, record->stream);
    uint64_t reserved = player_reserved_of(player, device);
    if (reserved > player->rest_peak[device])
        player->rest_peak[device] = reserved;
}

/* Gives PyTorch's allocators back, with the books of their cards. */
static void player_free_torch(struct sg_player *player)
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

/* The settings to play with. Where no card is known, pages are those of a card that the live bytes fill. */
static struct sg_conf player_conf(const struct sg_play *play)
{
    struct sg_conf conf = play->conf;
    if (sg_play_is_of_live_bytes(play))
        conf.page_size = sg_core_page_bytes(play->granularity, play->live_bytes, (uint64_t)conf.mapping_limit);
    return conf;
}

/* Makes the allocator. sg_play_run() gives back all that an error leaves behind. */
static int player_start(struct sg_player *player)
{
    const struct sg_play *play = player->play;
    sg_definitions_init(&player->defined);
    if (!sg_idmap_init(&player->live))
        return sg_player_no_memory(player);
    if (play->policy == SG_POLICY_PYTORCH) {
        player->torch = calloc(SG_DEVICES_MAX, sizeof *player->torch);
        return player->torch ? 0 : sg_player_no_memory(player);
    }
    sg_ledger_init(&player->card, play->card_bytes ? play->card_bytes : SG_PLAY_CARD, play->granularity);
    sg_ledger_use(&player->card);
    struct sg_conf conf = player_conf(play);
    struct sg_core_params params = {.conf = &conf, .driver = &sg_ledger_driver};
    if (play->as_recorded) {
        player->slow = sg_interleaver_new(&player->card);
        if (!player->slow)
            return sg_player_no_memory(player);
        params.driver = sg_interleaver_driver(player->slow);
        params.observer = sg_interleaver_sink(player->slow);
        params.replay = &sg_interleaver_replay;
    }
    player->huge_bytes = UINT64_MAX;
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        sg_player_note_card(player, device);
        player->card.device[device].outside_bytes = play->others[device];
    }
    player->core = sg_core_create(&params);
    if (player->core && play->ordered)
        player->ahead = sg_ahead_new(player->core, &player->card, play->run_ahead);
    bool fine = player->core && (player->ahead || !play->ordered) && sg_order_feed_init(&player->feed, player->core);
    return fine ? 0 : sg_player_no_memory(player);
}

int sg_play_run(const struct sg_play *play, struct sg_play_result *ret, char error[SG_PLAY_ERROR])
{
    struct sg_play_result result = {0};
    struct sg_player player = {.play = play, .result = &result, .error = error};
    struct segalloc_trace_record batch[BATCH];
    int status = player_start(&player);
    bool over = false;
    /* The loop ends at the end of the records, at an error, when a watcher has seen enough, or when no device is left that
       could still fit. */
    for (size_t n; status == 0 && !over && (n = play->next(play->source, batch, BATCH)) > 0;) {
        for (size_t i = 0; i < n && status == 0 && !over; i++) {
            player.left = n - i;
            status = player_apply(&player, &batch[i]);
            if (play->part_end && status == 0)
                player_note_parts(&player, &batch[i]);
            if (player.slow && !result.diverged_event && sg_interleaver_has_diverged(player.slow))
                result.diverged_event = result.events;
            over = over || (play->watch && !play->watch(play->watcher, &batch[i], result.events, player.core));
        }
        if (sg_play_may_stop(&player))
            break;
    }
    if (status == 0)
        player_collect(&player, &result); /* with what is under way as the trace has left it */
    if (status == 0 && play->part_end)
        sg_results_end_rest(&result, player.rest_peak);
    if (player.slow)
        sg_interleaver_end(player.slow);
    sg_core_destroy(player.core);
    sg_ahead_delete(player.ahead);
    sg_interleaver_delete(player.slow);
    sg_order_feed_fini(&player.feed);
    sg_ledger_fini(&player.card);
    player_free_torch(&player);
    sg_idmap_fini(&player.live);
    sg_definitions_fini(&player.defined);
    if (status == 0)
        *ret = result;
    return status;
}
