#include "player_state.h"

#include "core/tuning.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int sg_player_complain(struct sg_player *player, const char *what, uint64_t id)
{
    const struct sg_play *play = player->play;
    uint64_t next = play->place ? play->place(play->source) : 0;
    int length = 0;
    if (next) /* the place after the records at hand, so go back over those that are left */
        length = snprintf(player->error, SG_PLAY_ERROR, "byte %" PRIu64 ": ",
            next - player->left * sizeof(struct segalloc_trace_record));
    snprintf(player->error + length, SG_PLAY_ERROR - (size_t)length, "event %" PRIu64 " %s 0x%" PRIx64,
        player->result->events, what, id);
    return SG_PLAY_CONTRADICTS;
}

int sg_player_no_memory(struct sg_player *player)
{
    snprintf(player->error, SG_PLAY_ERROR, "no host memory left at event %" PRIu64, player->result->events);
    return -ENOMEM;
}

uint64_t sg_player_card_bytes(const struct sg_player *player, int device)
{
    const struct sg_play *play = player->play;
    return play->card[device]                     ? play->card[device]
           : play->card_bytes                     ? play->card_bytes
           : player->defined.device_bytes[device] ? player->defined.device_bytes[device]
                                                  : SG_PLAY_CARD;
}

void sg_player_note_card(struct sg_player *player, int device)
{
    uint64_t bytes = sg_player_card_bytes(player, device);
    uint64_t huge = sg_conf_limit(&player->play->conf, bytes) / SG_PLAY_HUGE_PART;
    if (sg_conf_overflows(&player->play->conf) && huge > SG_OVERFLOW_LEAST) /* such a block's pages go back with it too */
        huge = SG_OVERFLOW_LEAST;
    player->result->device[device].card_bytes = player->card.device[device].total_bytes = bytes;
    if (huge < player->huge_bytes)
        player->huge_bytes = huge;
}

void sg_player_complete_tag(struct sg_player *player, const struct segalloc_trace_record *record, struct sg_tag *tag)
{
    if (player->ahead) {
        sg_ahead_tag(player->ahead, sg_player_device(player, record->stream), record->stream, tag);
        /* A free that waited when it was recorded does so here too, unless the settings say otherwise for all of them. */
        bool waited = record->kind == SEGALLOC_RECORD_FREE && record->flags & SEGALLOC_FLAG_STRICT;
        tag->sync = player->play->conf.free_sync != SG_FREE_SYNC_AUTO ? player->play->conf.free_sync
                    : waited                                          ? SG_FREE_SYNC_STRICT
                                                                      : SG_FREE_SYNC_STREAM;
        tag->user_rule = player->play->possible_users ? SG_USERS_POSSIBLE : SG_USERS_RECORDED;
    } else if (player->play->as_recorded) {
        tag->slot = sg_order_feed_slot(&player->feed, record->stream);
        tag->context = (CUcontext)(uintptr_t)sg_defined_context(&player->defined, record->stream);
        tag->user_rule = SG_USERS_RECORDED; /* other streams that could have seen a block stand in the trace too */
        tag->in_order = record->kind == SEGALLOC_RECORD_FREE; /* it names whose the block has become by then */
        if (record->flags & SEGALLOC_FLAG_ASYNC && tag->slot)
            tag->sync = SG_FREE_SYNC_STREAM;
    }
    /* Its DONE comes later in the trace, and completes it (order_feed.h). */
    if (record->flags & SEGALLOC_FLAG_PENDING && record->kind == SEGALLOC_RECORD_FREE && !player->ahead)
        tag->sync = SG_FREE_SYNC_EVENT;
}

static CUresult contents_keep(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    (void)user, (void)pieces, (void)count;
    return CUDA_SUCCESS;
}

const struct sg_backup *sg_player_backup(const struct sg_player *player, uint32_t tag)
{
    static const struct sg_backup backup = {.save = contents_keep, .restore = contents_keep};
    return player->discards >> tag & 1 ? NULL : &backup;
}

int sg_player_begin(struct sg_player *player, const struct segalloc_trace_record *record, enum sg_interleaver_kind kind,
    CUdeviceptr address)
{
    bool order = kind == SG_SLOW_PAUSE || kind == SG_SLOW_RESUME, numbered = order || kind == SG_SLOW_RETURN;
    const struct sg_interleaver_call call = {
        .kind = kind,
        .core = player->core,
        .device = sg_player_device(player, record->stream),
        .bytes = numbered ? record->id : record->size,
        .address = address,
        .tag = sg_player_tag(player, record),
        .backup = order ? sg_player_backup(player, (uint32_t)record->id) : NULL,
    };
    return sg_interleaver_begin(player->slow, &call, record) ? 0 : sg_player_no_memory(player);
}

struct sg_torch *sg_player_torch(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_torch_device *device = &player->torch[sg_player_device(player, record->stream)];
    if (!device->torch) {
        uint64_t bytes = sg_player_card_bytes(player, sg_player_device(player, record->stream));
        /* Memory that others hold by then is taken from the card from its beginning. */
        sg_ledger_device_init(&device->card, bytes);
        device->card.outside = sg_outside_levels_bytes(&player->outside[sg_player_device(player, record->stream)]);
        device->torch = sg_torch_create(&player->play->torch, bytes, &sg_ledger_device_ops, &device->card);
    }
    return device->torch;
}

struct sg_play_device *sg_player_note_use(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_play_device *device = &player->result->device[sg_player_device(player, record->stream)];
    if (!device->used)
        device->card_bytes = sg_player_card_bytes(player, sg_player_device(player, record->stream));
    device->used = true;
    return device;
}

/* Bytes of live blocks of a device that are paused now. */
static uint64_t player_paused_bytes(const struct sg_player *player, int ordinal)
{
    uint64_t sum = 0;
    struct sg_tag_figures figures;
    for (uint32_t left = player->core ? player->paused[ordinal] : 0; left; left &= left - 1)
        if (sg_core_tag_figures(player->core, ordinal, (uint32_t)__builtin_ctz(left), &figures) && figures.paused)
            sum += figures.requested;
    return sum;
}

void sg_player_note_taken(struct sg_player *player, int ordinal)
{
    struct sg_play_device *device = &player->result->device[ordinal];
    uint64_t paused = player_paused_bytes(player, ordinal), alive = player->in_use[ordinal];
    uint64_t taken = (alive > paused ? alive - paused : 0) + sg_outside_levels_least(&player->outside[ordinal]);
    if (taken <= device->peak_taken)
        return;
    device->peak_taken = taken;
    device->at_peak = player->outside[ordinal].now;
}

void sg_player_change_in_use(struct sg_player *player, int ordinal, uint64_t more, uint64_t less)
{
    uint64_t *in_use = &player->in_use[ordinal];
    *in_use += more;
    *in_use -= less < *in_use ? less : *in_use;
    sg_player_note_taken(player, ordinal);
}
