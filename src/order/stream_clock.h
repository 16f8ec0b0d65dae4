/* The order of work on a device's streams, and which memory freed by one stream another may use.

   Nouns. A *slot* is the number under which a stream is followed, 1 to 63. One counter of the device, its *time*,
   numbers the events. *Up to* a time means all work that was submitted to a stream before that time. A stream's
   *clock* has, for each other stream, the time up to which later work is ordered after that one's. A stream *joins*
   the clock of an event when it waits for the event. A stream is *untracked* if it is ordered by means that are not
   seen. *Possible users* of a block are streams that may hold its address although no call said so.

   Why clocks: freed memory is usable by another stream as soon as that is ordered after the work that used it. The
   program orders its streams anyhow, by events. So the question is answered by comparing two numbers, without a call
   or a wait.

   How. An allocation and each join of a clock take the next number of the time. So does a read of a stream's clock,
   if the stream may have been given work since the last read (`dirty`). Memory that is freed gets a set of slots and
   one number (struct sg_after). Stream s may use it if each slot o of the set passes one of three tests. Either o is
   s, or the clock of s has o up to the number, or o is complete up to it.

   Why nothing is ever taken back: time never goes back. A slot goes to another stream only after all work of the
   former one is complete. So an entry that was true of a slot stays true. A missed entry delays reuse; a wrong one
   would corrupt memory.

   Limits. 63 streams of a device. An event of another device makes a stream untracked. Order through the legacy
   default stream is in no clock; `blocking` streams are treated as if each were ordered after all others.

   For example, rules R15 and R16 with two streams. Streams 1 and 2 are followed at times 1 and 2. Stream 1 allocates
   a block at time 3 and is given work on it. It records an event, which reads its clock: the work is older than 4.
   Stream 2 waits for the event. Its clock then has stream 1 up to 4, and the time is 5. Now stream 1 frees the block.

      - R15: the free's number is the last at which stream 1 was given work or joined a clock: 4. Stream 2 has stream 1
        up to 4, so it may use the block at once. By the present time, 5, it would have to wait for another event.
      - R16: had stream 1 become untracked, it might have been given work since 4 in ways that nobody saw. The number
        is then the present, which is advanced to 6. Stream 2 has stream 1 up to 4 only, so it may not.

   tests/core/test_worked_cases.c plays both. docs/stream-order.md has the rules by number. */
#ifndef SG_STREAM_CLOCK_H
#define SG_STREAM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "base/event.h"

enum { SG_SLOTS = 64 }; /* streams that a device can follow; slot 0: none */
typedef uint32_t sg_slot;

/* A slot as a bit of a set. Bit 0 stands for streams that are not followed, or for all work of all contexts. */
static inline uint64_t sg_slot_bit(sg_slot slot)
{
    return UINT64_C(1) << slot;
}

/* The nature of a stream, as its follower knows it. */
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

/* The streams that a free waits for, besides the one that its block was allocated for. Zero waits for the most of
   them. */
enum sg_user_rule {
    SG_USERS_POSSIBLE,      /* the possible users: all with unfinished work that may hold the block's address */
    SG_USERS_POSSIBLE_HERE, /* the possible users on the block's own device; of others, those that were recorded */
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

/* The clocks of a device. Arrays have an entry for each slot, sets a bit for each. All times are numbers of `seq`. */
struct sg_stream_clocks {
    uint64_t seq;                         /* the time, which numbers allocations too; its upper bits are the ordinal */
    const struct sg_event_sink *observer; /* gets a record of each change; NULL: there is none */
    uint32_t unknown_stream;              /* index in the trace of no known stream */
    uint32_t slot_streams;                /* index in the trace of slot 0: that of slot n is n more */
    uint64_t ordinal;                     /* of the device */

    /* The two questions that a look for free memory asks: the time up to which the work of a slot is known to be
       complete, and the clock of a slot, which is all that its later work is ordered after. */
    uint64_t complete[SG_SLOTS];
    struct sg_vector_clock ordered_after[SG_SLOTS];

    struct sg_stream_id stream[SG_SLOTS];
    uint8_t state[SG_SLOTS];                     /* enum sg_slot_state */
    uint64_t tracked_at[SG_SLOTS];               /* when the present stream was first followed */
    uint64_t gone_at[SG_SLOTS];                  /* when it was destroyed: all its work is older */
    uint64_t alive;                              /* slots that are alive or gone, but not unused */
    uint64_t untracked_order, blocking, foreign; /* as the flags of these names say */

    /* Slots that were given work, or may have been before they were followed. Those that are `dirty` are not in it
       yet. */
    uint64_t was_used;
    uint64_t never_in_event_call; /* slots in no event call so far, which may therefore be ordered by other means */
    _Atomic uint64_t dirty;       /* slots that may have been given work since their clock was last read. No lock */
    _Atomic uint64_t fresh;       /* of those that the program gave work, such whose clock was not shown to an event or to
                                     the host since. So nothing else is ordered after that work yet. No lock */
    _Atomic uint64_t upkept;      /* slots that are dirty by work alone that is not the program's. No lock */
    uint64_t unfinished;          /* slots with work before `last_submit` that is not known to be complete */

    uint64_t last_submit[SG_SLOTS];              /* when the clock of a slot was last read that was dirty */
    uint64_t last_given[SG_SLOTS];               /* the same, of work that the program gave */
    uint64_t idle_since[SG_SLOTS];               /* since when a slot was given no work, as far as its clock was read */
    uint64_t unchanged_since[SG_SLOTS];          /* since when it joined no clock either: the number of its next free */
    struct sg_vector_clock ordered_at[SG_SLOTS]; /* when each entry of `ordered_after` got its present value */

    /* The time up to which the host may have observed that a slot's work is complete, in a way that is not seen. */
    uint64_t host_observed[SG_SLOTS];
    uint64_t fenced[SG_SLOTS]; /* the time up to which a fence will show that a slot's work is complete */

    /* Slots after whose work memory was freed since a fence was last recorded there. Bit 0: after all work of all
       contexts. */
    uint64_t needs_fence;
    uint64_t version; /* changes with each new entry, so that nobody looks through queues in vain */
};

/* True if all work that `slot` is given from now on is ordered after all of `after`. For slot 0: true if that is
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

/* True if fences that are out will show that all of `after` is complete, or it is complete already. */
static inline bool sg_after_fenced(const struct sg_stream_clocks *clocks, struct sg_after after)
{
    for (uint64_t slots = after.slots; slots; slots &= slots - 1) {
        unsigned other = (unsigned)__builtin_ctzll(slots);
        if (clocks->complete[other] < after.seq && clocks->fenced[other] < after.seq)
            return false;
    }
    return true;
}

/* True if all of `after` is complete. */
static inline bool sg_after_complete(const struct sg_stream_clocks *clocks, struct sg_after after)
{
    return sg_after_usable(clocks, after, 0);
}

/* All that follows changes or reads clocks, under the lock of whoever has them: the device's `lock` in the core.
   Nothing here fails, allocates or calls the driver. */

/* The next number of the time. */
static inline uint64_t sg_clocks_tick(struct sg_stream_clocks *clocks)
{
    return ++clocks->seq;
}

/* The slot of a stream, by its key: found, or made if it is new. 0: none is left. A new stream is ordered after
   nothing yet. */
sg_slot sg_clocks_follow(struct sg_stream_clocks *clocks, const struct sg_stream_id *id);
/* Notes that the stream of the slot is destroyed. The slot is given to another once the work of this one is
   complete. */
void sg_clocks_stream_gone(struct sg_stream_clocks *clocks, sg_slot slot);
/* The slots of a context's streams, as a set; NULL: of all. */
uint64_t sg_clocks_slots_of(const struct sg_stream_clocks *clocks, CUcontext context);
/* Reads the clocks of these slots. Returns a time before which all was submitted that they were given so far, and
   nothing that they are given later. It advances the time only if one of them was dirty. */
uint64_t sg_clocks_read(struct sg_stream_clocks *clocks, uint64_t slots);
/* Writes to *ret the clock of an event that is recorded on the stream now. */
void sg_clocks_get(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret);
/* Others may come after all that the stream was given so far, 0: that any stream was given. It is not `fresh` any more. */
void sg_clocks_shown(struct sg_stream_clocks *clocks, sg_slot slot);
/* Does as sg_clocks_get(), for a stream that is about to be asked whether it is idle. Returns the time up to which
   its own work is complete if the answer is yes. That is less than now where it is behind the legacy stream (R12). */
uint64_t sg_clocks_get_idle(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret);
/* Joins the clocks of a context's streams, or with NULL of all, into *ret, which is all zero. Returns the time. */
uint64_t sg_clocks_get_of_context(struct sg_stream_clocks *clocks, CUcontext context, struct sg_vector_clock *ret);
/* Joins a clock into that of the slot: all work that it is given from here on is ordered after that. */
void sg_clocks_order_after(struct sg_stream_clocks *clocks, sg_slot slot, const struct sg_vector_clock *clock);
/* Notes that the host has observed, or may have, that the work of `clock` is complete; NULL: all work so far. */
void sg_clocks_host_observed(struct sg_stream_clocks *clocks, const struct sg_vector_clock *clock);
/* Notes that a fence is out which will show that the work of `slots` up to a time is complete. */
void sg_clocks_fenced(struct sg_stream_clocks *clocks, uint64_t slots, uint64_t seq);
/* Notes that a slot's work is complete up to `seq`. */
void sg_clocks_complete(struct sg_stream_clocks *clocks, sg_slot slot, uint64_t seq);
/* Notes that a block of `own`, which was used on the set `others` too, is freed. Returns the free's number: all work
   that could touch the block was given to them before that time. `missed_calls`: they may have been given work, or
   waited, without notice. `replayed`: a replay, whose trace says so. *ret_was_used: `own` had been given work since
   its clock was last read, which the record of the free has to say. For the others a record of its own says it. */
uint64_t sg_clocks_freed(struct sg_stream_clocks *clocks, sg_slot own, uint64_t others, bool missed_calls,
    bool replayed, bool *ret_was_used);
/* How long the program has given a slot nothing at the time `now`, as a difference of times. UINT32_MAX: for longer than
   fits, or ever since it was followed; then nobody knows which streams are ordered after it. */
uint32_t sg_clocks_idle_before(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t now);
/* The possible users that a free has to wait for besides `slot`, as a set (docs/stream-order.md, R21 to R24). The
   block was allocated for `slot` at `alloc_seq`, when that had been given nothing for `idle_before`
   (sg_clocks_idle_before()). `rule` says whether streams of other devices may be among them. */
uint64_t sg_clocks_possible_users(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t alloc_seq,
    uint32_t idle_before, enum sg_user_rule rule);

#endif
