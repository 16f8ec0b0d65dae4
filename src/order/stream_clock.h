/* The order of work on a device's streams, and which memory freed by one stream another may use.

   Streams are followed under small numbers, their slots. One counter of the device, its *time*, numbers what happens.
   An allocation and each join of a clock take the next number. So does a read of a stream's clock, if the stream may
   have been given work since the last read.

   *Up to* a time means all work that was submitted to a stream before that time. Time never goes back and is never
   reset. A slot goes to another stream only after all work of the former one is complete. What was once true of a slot
   therefore stays true. docs/stream-order.md has the rules. */
#ifndef SG_STREAM_CLOCK_H
#define SG_STREAM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "base/event.h"

enum { SG_SLOTS = 64 }; /* streams that a device can follow; slot 0: none */
typedef uint32_t sg_slot;

/* Slots as bits; bit 0: streams that are not followed. */
static inline uint64_t sg_slot_bit(sg_slot slot)
{
    return UINT64_C(1) << slot;
}

enum sg_stream_flags {
    SG_STREAM_LEGACY = 1,          /* the legacy default stream of its context */
    SG_STREAM_BLOCKING = 2,        /* takes part in the legacy stream's order */
    SG_STREAM_UNTRACKED_ORDER = 4, /* ordered by means that are not seen */
    SG_STREAM_UNFENCEABLE = 8,     /* no event of ours may be recorded on it, but over its context */
    SG_STREAM_UNUSED = 16,         /* with LEGACY: it was given no work before it was followed */
    SG_STREAM_FOREIGN = 32         /* of another device, which a block of this one was used on */
};

/* A stream: `key` is the caller's and unique among all streams that live or whose work is not complete yet. */
struct sg_stream_id {
    uint64_t key;
    CUcontext context;
    CUstream handle;
    bool per_thread; /* a thread's default stream: an event can be recorded on it by that thread only */
    unsigned flags;
};

/* A vector clock: for each slot, the time up to which its work is ordered before something. Entry 0: the work of all
   streams of all contexts, followed or not. */
struct sg_vector_clock {
    uint64_t at[SG_SLOTS];
};

/* Which streams a free waits for, besides the one that its block was allocated for. Zero waits for the most of them. */
enum sg_user_rule {
    SG_USERS_POSSIBLE,      /* the possible users: all with unfinished work that may hold the block's address */
    SG_USERS_POSSIBLE_HERE, /* the possible users on the block's own device; of other devices, those that were recorded */
    SG_USERS_RECORDED       /* those that sg_core_record_stream() named: PyTorch's rule */
};

/* Work after which memory may be used again: all that was submitted to `slots` before `seq`. */
struct sg_after {
    uint64_t slots; /* a bit each; 0: none */
    uint64_t seq;
};

enum sg_slot_state {
    SG_SLOT_UNUSED,
    SG_SLOT_ALIVE,
    SG_SLOT_GONE /* its stream is destroyed, its work perhaps not done */
};

struct sg_stream_clocks {
    uint64_t seq;                          /* the time, which numbers allocations too; the upper bits are the ordinal */
    const struct sg_event_sink *observer;  /* gets a record of each change; NULL: there is none */
    uint32_t unknown_stream, slot_streams; /* indexes in the trace: of no known stream, and what a slot's number is added
                                              to */
    uint64_t ordinal;                      /* of the device */
    uint64_t complete[SG_SLOTS];     /* time up to which a slot's work is known to be complete */
    struct sg_vector_clock ordered_after[SG_SLOTS]; /* what a slot's later work comes after */
    struct sg_stream_id stream[SG_SLOTS];
    uint8_t state[SG_SLOTS];         /* enum sg_slot_state */
    uint64_t tracked_at[SG_SLOTS], gone_at[SG_SLOTS];
    uint64_t alive;                  /* bit set: alive or gone, but not unused */
    uint64_t untracked_order, blocking, foreign; /* bits, as of enum sg_stream_flags */
    uint64_t was_used;               /* bit set: was given work, or may have been before it was followed; `dirty`
                                        apart */
    uint64_t never_in_event_call;    /* bit set: in no event call so far, so that it may be ordered by other means */
    _Atomic uint64_t dirty;          /* bit set: may have been given work since its clock was last read */
    uint64_t unfinished;             /* bit set: was given work before `last_submit`, which is not known to be
                                        complete */
    uint64_t last_submit[SG_SLOTS];  /* time at which the clock of a slot that was `dirty` was last read */
    uint64_t idle_since[SG_SLOTS];   /* time since which a slot was given no work, `dirty` apart */
    uint64_t unchanged_since[SG_SLOTS]; /* time since which it came after nothing more either */
    struct sg_vector_clock ordered_at[SG_SLOTS]; /* when each entry of `ordered_after` came to be what it is */
    uint64_t host_observed[SG_SLOTS]; /* time up to which the host may have observed that a slot's work is complete, in
                                        a way that isn't seen */
    uint64_t fenced[SG_SLOTS];        /* time up to which an event of ours shows that its work is complete */
    uint64_t needs_fence;            /* bit set: memory was freed after its work since an event of ours was last
                                        recorded there; bit 0: after all work that there was */
    uint64_t version;                /* changes with each new piece of knowledge */
};

/* Whether whatever `slot` is given from now on is ordered after all of `after`; for slot 0, whether that is
   complete. */
static inline bool sg_after_usable(const struct sg_stream_clocks *clocks, struct sg_after after, sg_slot slot)
{
    uint64_t slots = after.slots;
    if (slot)
        slots &= ~(UINT64_C(1) << slot);
    for (; slots; slots &= slots - 1) {
        unsigned other = (unsigned)__builtin_ctzll(slots);
        if (clocks->complete[other] < after.seq && (!slot || clocks->ordered_after[slot].at[other] < after.seq))
            return false;
    }
    return true;
}

/* Whether fences will show that all of `after` is complete. */
static inline bool sg_after_fenced(const struct sg_stream_clocks *clocks, struct sg_after after)
{
    for (uint64_t slots = after.slots; slots; slots &= slots - 1) {
        unsigned other = (unsigned)__builtin_ctzll(slots);
        if (clocks->complete[other] < after.seq && clocks->fenced[other] < after.seq)
            return false;
    }
    return true;
}

static inline bool sg_after_complete(const struct sg_stream_clocks *clocks, struct sg_after after)
{
    return sg_after_usable(clocks, after, 0);
}

/* What follows changes or reads clocks under the lock of who has them. */

/* The next number of the time. */
static inline uint64_t sg_clocks_tick(struct sg_stream_clocks *clocks)
{
    return ++clocks->seq;
}

/* The slot of a stream, found or made; 0: there is none left. */
sg_slot sg_clocks_follow(struct sg_stream_clocks *clocks, const struct sg_stream_id *id);
/* The stream of the slot is destroyed. The slot is given to another once the work of this one is complete. */
void sg_clocks_stream_gone(struct sg_stream_clocks *clocks, sg_slot slot);
/* The slots of a context's streams, NULL: of all. */
uint64_t sg_clocks_slots_of(const struct sg_stream_clocks *clocks, CUcontext context);
/* The time now, before which all that these slots were given so far was submitted, and nothing that they are given
   later. */
uint64_t sg_clocks_read(struct sg_stream_clocks *clocks, uint64_t slots);
/* The clock of an event that is recorded on a stream now. */
void sg_clocks_get(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret);
/* As sg_clocks_get(), of a stream that is about to be asked whether it is idle. Returns up to when its own work is
   complete if it is. */
uint64_t sg_clocks_get_idle(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret);
/* The latest of the clocks of a context's streams (NULL: of all), in *ret, which is all zero. Returns the time. */
uint64_t sg_clocks_get_of_context(struct sg_stream_clocks *clocks, CUcontext context, struct sg_vector_clock *ret);
/* What the slot is given from here on comes after the clock. */
void sg_clocks_order_after(struct sg_stream_clocks *clocks, sg_slot slot, const struct sg_vector_clock *clock);
/* As sg_core_host_observed(). */
void sg_clocks_host_observed(struct sg_stream_clocks *clocks, const struct sg_vector_clock *clock);
/* A fence will show that the work of `slots` up to a time is complete. */
void sg_clocks_fenced(struct sg_stream_clocks *clocks, uint64_t slots, uint64_t seq);
/* A slot's work is complete up to `seq`. */
void sg_clocks_complete(struct sg_stream_clocks *clocks, sg_slot slot, uint64_t seq);
/* A block of `own`, which was used on `others` too (bits), is free. Returns the time up to which all that could
   touch it was given to them. `missed_calls`: they may have been given work, or waited, without notice; `replayed`: a replay
   has that from its trace. *ret_was_used: `own` had been given work since its clock was last read, which the record of the free
   has to say. For the others a record of its own says so. */
uint64_t sg_clocks_freed(struct sg_stream_clocks *clocks, sg_slot own, uint64_t others, bool missed_calls,
    bool replayed, bool *ret_was_used);
/* For how long a slot has been given nothing at the time `now`. UINT32_MAX: for longer than that, or ever since it
   was followed; then nobody knows which streams are ordered after it. */
uint32_t sg_clocks_idle_before(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t now);
/* The possible users that a free has to wait for besides `slot` (docs/stream-order.md, R21 to R24). The block was
   allocated for `slot` at `alloc_seq`, when that had been given nothing for `idle_before` (sg_clocks_idle_before()).
   `rule`: whether streams of other devices may be among them. */
uint64_t sg_clocks_possible_users(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t alloc_seq,
    uint32_t idle_before, enum sg_user_rule rule);

#endif
