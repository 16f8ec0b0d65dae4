/* The state of a play, and what all of its parts do with it. Only the files of the player include it.

   A *play* is one pass over a trace on one played card. It has an allocator for each device: the core, which serves all of
   them, or one of PyTorch's for each. A *tag* says for which stream, site and free mode an operation is.

   Where things are: player.c goes over the records and ends the play. play_blocks.c plays allocations and frees,
   play_outside.c the events that came to the allocator from elsewhere, play_ooms.c counts what does not fit.

   Example, a record ALLOCATE with stream 3, size 314572800 and id 0x7f00 of a card of 24 GiB:
     device     definition 3 of the trace says device 0
     tag        stream 3, sync COMPLETE: without played work nothing uses a block any more once it is freed
     huge       a block of 6 GiB and more, a quarter of the card, may be huge; 300 MiB are not
     live       0x7f00 -> the address that the core has given, so that FREE 0x7f00 finds the block
     in_use[0]  + 314572800 */
#ifndef SG_PLAYER_STATE_H
#define SG_PLAYER_STATE_H

#include "base/idmap.h"
#include "core/core.h"
#include "definitions.h"
#include "interleaver.h"
#include "ledger_driver.h"
#include "order_feed.h"
#include "outside_levels.h"
#include "player.h"
#include "results.h"
#include "run_ahead.h"

/* A block of this part of what may be held, or more, may be a huge one, whatever it is rounded to. */
enum { SG_PLAY_HUGE_PART = 4 };

struct sg_player {
    const struct sg_play *play;
    struct sg_play_result *result;
    char *error;          /* SG_PLAY_ERROR bytes of the caller's */
    size_t left;          /* records at hand that have not been played, this one included */
    struct sg_idmap live; /* id of the trace -> address, or struct sg_torch_block * */
    /* segalloc's own rules */
    struct sg_core *core;
    struct sg_ledger card;
    struct sg_ahead *ahead;      /* NULL: work is not played, what is freed is complete */
    struct sg_interleaver *slow; /* NULL: every operation is done at once */
    uint64_t huge_bytes;         /* blocks from here on may have a region of their own, whatever they are rounded to */
    struct sg_order_feed feed;
    /* PyTorch's */
    struct sg_torch_device *torch;      /* by ordinal, made at the first allocation; NULL: the policy is our own */
    size_t goods;                       /* of play->made_good, passed so far */
    uint64_t rest_peak[SG_DEVICES_MAX]; /* of reserved bytes, after the first part */
    uint64_t in_use[SG_DEVICES_MAX];    /* bytes of blocks that are alive, paused ones too */
    struct sg_outside_levels outside[SG_DEVICES_MAX];
    struct sg_definitions defined;
    uint8_t memory_tag[UINT16_MAX + 1];       /* of the next allocation of each thread */
    uint32_t discards;                        /* tags whose pauses save nothing, a bit each */
    uint32_t paused[SG_DEVICES_MAX];          /* tags that are paused, a bit each */
    struct sg_play_order {                    /* a pause or a resume that has begun; tag 0: none */
        uint8_t tag, device;
        uint16_t thread;
        bool pause, carry_out; /* carry_out: it is to be done at its end, for it is known then if it succeeded */
    } order;
};

/* Writes the line that ends a play, "byte 4128: event 17 frees what the allocator does not know: 0x7f00". The byte is left
   out where the caller cannot say it. Returns SG_PLAY_CONTRADICTS. */
int sg_player_complain(struct sg_player *player, const char *what, uint64_t id);

/* Writes that there is no host memory left. Returns -ENOMEM. */
int sg_player_no_memory(struct sg_player *player);

/* The ordinal of the device that a stream of the trace is of. */
static inline int sg_player_device(const struct sg_player *player, uint32_t stream)
{
    return sg_defined_device(&player->defined, stream);
}

/* The site and phase from which the thread of a record asks; zeros: unknown. */
static inline struct sg_defined_place sg_player_place(const struct sg_player *player,
    const struct segalloc_trace_record *record)
{
    return sg_defined_place(&player->defined, record->thread);
}

/* True as long as operations take their time, as they did in the recorded process. */
static inline bool sg_player_is_exact(const struct sg_player *player)
{
    return player->slow && !sg_interleaver_has_diverged(player->slow);
}

/* Bytes of a device's card: that of the caller for this device, that of the caller for all, that of the trace, or
   SG_PLAY_CARD. */
uint64_t sg_player_card_bytes(const struct sg_player *player, int device);

/* Sets the size of a device's card, before anything is asked of the device. */
void sg_player_note_card(struct sg_player *player, int device);

/* Completes a tag where the plain one is not enough. Played work needs a slot and a free mode; a run as it was recorded
   needs the recorded ones. */
void sg_player_complete_tag(struct sg_player *player, const struct segalloc_trace_record *record, struct sg_tag *tag);

/* The tag of a record's operation. */
static inline struct sg_tag sg_player_tag(struct sg_player *player, const struct segalloc_trace_record *record)
{
    struct sg_defined_place place = sg_player_place(player, record);
    struct sg_tag tag = {.stream = (CUstream)(uintptr_t)record->stream,
        .has_stream = true,
        .sync = SG_FREE_SYNC_COMPLETE,
        .overflow = player->play->as_recorded, /* other plays say what a run needs without it */
        .site = place.site,
        .phase = place.phase,
        .memory_tag = player->memory_tag[record->thread]};
    if (player->ahead || player->play->as_recorded || record->flags & SEGALLOC_FLAG_PENDING)
        sg_player_complete_tag(player, record, &tag);
    return tag;
}

/* Functions that keep the contents of a tag in the books alone; NULL: the tag keeps none. */
const struct sg_backup *sg_player_backup(const struct sg_player *player, uint32_t tag);

/* Begins an operation that drops the core's lock, which goes on with the records of its thread. 0 or -ENOMEM. */
int sg_player_begin(struct sg_player *player, const struct segalloc_trace_record *record, enum sg_interleaver_kind kind,
    CUdeviceptr address);

/* PyTorch's allocator of the device that a record is about, made when it is first needed. NULL: no host memory. */
struct sg_torch *sg_player_torch(struct sg_player *player, const struct segalloc_trace_record *record);

/* Notes that something is asked of a device, or taken from it. Returns the result of the device. */
struct sg_play_device *sg_player_note_use(struct sg_player *player, const struct segalloc_trace_record *record);

/* Notes the most that blocks and memory of other calls have taken of a device together. Paused blocks take nothing. */
void sg_player_note_taken(struct sg_player *player, int ordinal);

/* Changes the bytes that are alive on a device: `more` come, `less` go. */
void sg_player_change_in_use(struct sg_player *player, int ordinal, uint64_t more, uint64_t less);

#endif
