/* The stream clocks: slots, joins, completions, and the possible users of a block. docs/stream-order.md has the rules
   by number. */
#include "order/stream_clock.h"

#include <stdatomic.h>
#include <string.h>

#include "segalloc/trace_format.h"

/* Gives a record to the observer, if there is one. */
static void clocks_emit(const struct sg_stream_clocks *clocks, uint8_t kind, uint32_t stream, uint64_t id, uint64_t size)
{
    if (clocks->observer)
        sg_event_emit(clocks->observer, kind, 0, stream, id, size);
}

/* The index in the trace for a slot. */
static uint32_t slot_stream(const struct sg_stream_clocks *clocks, sg_slot slot)
{
    return clocks->slot_streams + slot;
}

/* A blocking stream, or one that waits untracked, is gone. Streams may be ordered after others by way of it, and no
   clock keeps that. From here on the host may have passed anything that was allocated before `seq` to anybody. */
static void host_may_observe_all(struct sg_stream_clocks *clocks, uint64_t seq)
{
    for (uint64_t left = clocks->alive; left; left &= left - 1)
        clocks->host_observed[__builtin_ctzll(left)] = seq;
}

/* Frees a slot for another stream, if its own is gone and all its work is complete. */
static void slot_retire(struct sg_stream_clocks *clocks, sg_slot slot)
{
    if (clocks->state[slot] == SG_SLOT_GONE && clocks->complete[slot] >= clocks->gone_at[slot]) {
        clocks->state[slot] = SG_SLOT_UNUSED;
        clocks->complete[slot] = UINT64_MAX; /* until it has a stream again */
        clocks->alive &= ~sg_slot_bit(slot);
        clocks->needs_fence &= ~sg_slot_bit(slot);
        if ((clocks->blocking | clocks->untracked_order) & sg_slot_bit(slot))
            host_may_observe_all(clocks, clocks->seq);
    }
}

/* The slot of the live stream with that key; 0: it is not followed. */
static sg_slot slot_find(const struct sg_stream_clocks *clocks, uint64_t key)
{
    for (uint64_t left = clocks->alive; left; left &= left - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(left);
        if (clocks->stream[slot].key == key && clocks->state[slot] == SG_SLOT_ALIVE)
            return slot;
    }
    return 0;
}

/* Gives an unused slot to a stream. The new stream is ordered after nothing, and nothing of it is complete. Neither
   may be taken over from the stream that had the slot before, so both numbers advance. */
static void slot_track(struct sg_stream_clocks *clocks, sg_slot slot, const struct sg_stream_id *id)
{
    uint32_t index = slot_stream(clocks, slot);
    clocks->stream[slot] = *id;
    clocks->state[slot] = SG_SLOT_ALIVE;
    clocks->complete[slot] = clocks->seq; /* what its last stream was given is */
    clocks->tracked_at[slot] = clocks->seq;
    /* what this one was given before is not */
    clocks->idle_since[slot] = clocks->unchanged_since[slot] = sg_clocks_tick(clocks);
    memset(&clocks->ordered_after[slot], 0, sizeof clocks->ordered_after[slot]);
    memset(&clocks->ordered_at[slot], 0, sizeof clocks->ordered_at[slot]);
    clocks->host_observed[slot] = 0;
    clocks->alive |= sg_slot_bit(slot);
    clocks->never_in_event_call |= sg_slot_bit(slot);
    clocks->last_submit[slot] = clocks->last_given[slot] = clocks->idle_since[slot];
    /* The legacy stream's earlier work comes before other streams' next steps, so it counts as unfinished. */
    bool before = id->flags & SG_STREAM_LEGACY && !(id->flags & SG_STREAM_UNUSED);
    clocks->unfinished = before ? clocks->unfinished | sg_slot_bit(slot) : clocks->unfinished & ~sg_slot_bit(slot);
    clocks->was_used = id->flags & SG_STREAM_UNUSED ? clocks->was_used & ~sg_slot_bit(slot)
                                                 : clocks->was_used | sg_slot_bit(slot);
    atomic_fetch_and_explicit(&clocks->dirty, ~sg_slot_bit(slot), memory_order_relaxed);
    atomic_fetch_and_explicit(&clocks->fresh, ~sg_slot_bit(slot), memory_order_relaxed);
    atomic_fetch_and_explicit(&clocks->upkept, ~sg_slot_bit(slot), memory_order_relaxed);
    clocks->untracked_order = id->flags & SG_STREAM_UNTRACKED_ORDER ||
        id->per_thread ? clocks->untracked_order | sg_slot_bit(slot)
                                                                   : clocks->untracked_order & ~sg_slot_bit(slot);
    clocks->blocking = id->flags & (SG_STREAM_BLOCKING | SG_STREAM_LEGACY) ? clocks->blocking | sg_slot_bit(slot)
                                                                          : clocks->blocking & ~sg_slot_bit(slot);
    clocks->foreign = id->flags & SG_STREAM_FOREIGN ? clocks->foreign | sg_slot_bit(slot)
                                                    : clocks->foreign & ~sg_slot_bit(slot);
    clocks_emit(clocks, SEGALLOC_RECORD_DEFINE_STREAM, index, (uint64_t)(uintptr_t)id->handle, clocks->ordinal);
    clocks_emit(clocks, SEGALLOC_RECORD_SLOT, index, slot, id->flags);
}

sg_slot sg_clocks_follow(struct sg_stream_clocks *clocks, const struct sg_stream_id *id)
{
    sg_slot slot = slot_find(clocks, id->key);
    uint64_t unused = ~clocks->alive & ~sg_slot_bit(0);
    if (!slot && unused) {
        slot = (sg_slot)__builtin_ctzll(unused);
        slot_track(clocks, slot, id);
    }
    return slot;
}

void sg_clocks_stream_gone(struct sg_stream_clocks *clocks, sg_slot slot)
{
    clocks->state[slot] = SG_SLOT_GONE;
    clocks->gone_at[slot] = sg_clocks_read(clocks, sg_slot_bit(slot)); /* later than all that it was given */
    clocks_emit(clocks, SEGALLOC_RECORD_SLOT_GONE, slot_stream(clocks, slot), slot, 0);
    slot_retire(clocks, slot);
}

/* Advances the time of those of `slots` that may have been given work, and of those of `unsure` in any case. All work
   that they are given from here on is later. Returns the bits of all of them. */
static uint64_t clocks_advance(struct sg_stream_clocks *clocks, uint64_t slots, uint64_t unsure)
{
    uint64_t dirty = atomic_load_explicit(&clocks->dirty, memory_order_acquire) & slots, moved = dirty | unsure;
    if (!moved)
        return 0;
    /* The bits are cleared last, and the driver is asked about a stream only after that. So the answer covers work
       whose bit is cleared here, also if a launch has set it a moment ago. */
    uint64_t now = sg_clocks_tick(clocks);
    uint64_t upkept = atomic_load_explicit(&clocks->upkept, memory_order_relaxed) & dirty;
    if (upkept)
        atomic_fetch_and_explicit(&clocks->upkept, ~upkept, memory_order_relaxed);
    if (dirty)
        atomic_fetch_and_explicit(&clocks->dirty, ~dirty, memory_order_acquire);
    clocks->unfinished |= dirty;
    clocks->was_used |= dirty;
    for (uint64_t left = moved; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        clocks->idle_since[slot] = clocks->unchanged_since[slot] = now;
        if (dirty >> slot & 1)
            clocks->last_submit[slot] = now;
        if ((dirty & ~upkept) >> slot & 1)
            clocks->last_given[slot] = now;
    }
    return moved;
}

/* Emits that clocks were read which had news: a replay has no launches, so it takes the new time from this record. */
static void emit_tick(struct sg_stream_clocks *clocks, uint64_t moved)
{
    if (moved)
        clocks_emit(clocks, SEGALLOC_RECORD_TICK, clocks->unknown_stream, moved, clocks->seq);
}

uint64_t sg_clocks_read(struct sg_stream_clocks *clocks, uint64_t slots)
{
    emit_tick(clocks, clocks_advance(clocks, slots, 0));
    return clocks->seq;
}

/* `slots` and those whose work may come before theirs by the legacy stream's rules, which no wait shows. */
static uint64_t with_blocking(const struct sg_stream_clocks *clocks, uint64_t slots)
{
    return slots & clocks->blocking ? slots | (clocks->blocking & clocks->alive) : slots;
}

/* True if a slot is ordered after nothing but by its own waits: its clock has all. */
static bool is_ordered_by_waits(const struct sg_stream_clocks *clocks, sg_slot slot)
{
    return with_blocking(clocks, sg_slot_bit(slot)) == sg_slot_bit(slot);
}

/* Advances idle streams (R17). Those of `slots` that have been given nothing and joined nothing for a while are at
   `seq` where they were. So is whatever is complete, and whoever is ordered after all of their work. A free that
   waits for several streams has one time for all of them, the latest. Without this nobody would be ordered after the
   idle ones up to it. */
static void advance_idle(struct sg_stream_clocks *clocks, uint64_t slots, uint64_t seq)
{
    for (; slots; slots &= slots - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(slots);
        uint64_t since = clocks->unchanged_since[slot];
        if (since >= seq || !is_ordered_by_waits(clocks, slot))
            continue;
        if (clocks->complete[slot] >= since && clocks->complete[slot] < seq)
            clocks->complete[slot] = seq;
        for (uint64_t left = clocks->alive & ~sg_slot_bit(slot); left; left &= left - 1) {
            uint64_t *known = &clocks->ordered_after[__builtin_ctzll(left)].at[slot];
            if (*known >= since && *known < seq)
                *known = seq;
        }
        slot_retire(clocks, slot); /* no event will say more of one that is gone */
    }
    clocks->version++;
}

uint64_t sg_clocks_freed(struct sg_stream_clocks *clocks, sg_slot own, uint64_t others, bool missed_calls,
    bool replayed, bool *ret_was_used)
{
    uint64_t slots = with_blocking(clocks, others | sg_slot_bit(own)), last = 0;
    *ret_was_used = false;
    /* With one stream nobody else could gain anything by an older number, so the present saves all that follows. */
    if (clocks->alive == sg_slot_bit(own))
        return sg_clocks_tick(clocks);
    uint64_t unsure = replayed ? 0 : slots & (missed_calls ? UINT64_MAX : clocks->untracked_order); /* a replay knows */
    emit_tick(clocks, clocks_advance(clocks, slots & ~sg_slot_bit(own), unsure & ~sg_slot_bit(own)));
    *ret_was_used = clocks_advance(clocks, sg_slot_bit(own), unsure & sg_slot_bit(own));
    for (uint64_t left = slots; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        last = clocks->unchanged_since[slot] > last ? clocks->unchanged_since[slot] : last;
    }
    if (others)
        advance_idle(clocks, slots, last);
    return last;
}

void sg_clocks_shown(struct sg_stream_clocks *clocks, sg_slot slot)
{
    uint64_t slots = slot ? with_blocking(clocks, sg_slot_bit(slot)) : UINT64_MAX;
    atomic_fetch_and_explicit(&clocks->fresh, ~slots, memory_order_relaxed);
}

/* Reads clocks for an event or for the host, which others may be ordered after from then on. */
static uint64_t clocks_show(struct sg_stream_clocks *clocks, uint64_t slots)
{
    atomic_fetch_and_explicit(&clocks->fresh, ~slots, memory_order_relaxed);
    return sg_clocks_read(clocks, slots);
}

/* An event on a blocking stream is ordered after work of others too, by the legacy stream's rules. They may have been
   given work since this stream's clock was last read. So they are read with it: without a new time, a wait for the
   event would bring no news. */
void sg_clocks_get(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret)
{
    uint64_t now = clocks_show(clocks, with_blocking(clocks, sg_slot_bit(slot)));
    clocks->never_in_event_call &= ~sg_slot_bit(slot);
    *ret = clocks->ordered_after[slot];
    ret->at[slot] = now;
}

/* True if the next step of a stream is ordered after unfinished work of the legacy stream that it has not waited for
   (R12). *ret_seq: the time up to which that work is complete, 0 where it is not followed. */
static bool is_behind_legacy(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t *ret_seq)
{
    uint64_t busy = clocks->unfinished | atomic_load_explicit(&clocks->dirty, memory_order_acquire);
    const struct sg_stream_id *id = &clocks->stream[slot];
    *ret_seq = 0;
    if (!(clocks->blocking >> slot & 1) || id->flags & SG_STREAM_LEGACY)
        return false;
    for (uint64_t left = clocks->alive; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        if (!(clocks->stream[other].flags & SG_STREAM_LEGACY) || clocks->stream[other].context != id->context)
            continue;
        /* Nothing is known of its work from before it was followed, until some work of it completes. */
        *ret_seq = clocks->complete[other] > clocks->tracked_at[other] ? clocks->complete[other] : 0;
        return busy >> other & 1;
    }
    return true;
}

uint64_t sg_clocks_get_idle(struct sg_stream_clocks *clocks, sg_slot slot, struct sg_vector_clock *ret)
{
    uint64_t seq;
    sg_clocks_get(clocks, slot, ret);
    uint64_t done = ret->at[slot];
    return is_behind_legacy(clocks, slot, &seq) && seq < done ? seq : done;
}

uint64_t sg_clocks_slots_of(const struct sg_stream_clocks *clocks, CUcontext context)
{
    uint64_t slots = 0;
    for (uint64_t left = clocks->alive; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        if (!context || clocks->stream[slot].context == context)
            slots |= sg_slot_bit(slot);
    }
    return slots;
}

uint64_t sg_clocks_get_of_context(struct sg_stream_clocks *clocks, CUcontext context, struct sg_vector_clock *ret)
{
    uint64_t slots = sg_clocks_slots_of(clocks, context), now = clocks_show(clocks, slots);
    for (uint64_t left = slots; left; left &= left - 1) {
        const struct sg_vector_clock *known =
            &clocks->ordered_after[__builtin_ctzll(left)]; /* of other contexts' streams too */
        for (sg_slot other = 1; other < SG_SLOTS; other++)
            ret->at[other] = known->at[other] > ret->at[other] ? known->at[other] : ret->at[other];
    }
    for (uint64_t left = slots; left; left &= left - 1)
        ret->at[__builtin_ctzll(left)] = now;
    return now;
}

/* True if `slot` is ordered after all that `other` has joined since `since`. */
static bool is_ordered_after_all_of(const struct sg_stream_clocks *clocks, sg_slot slot, sg_slot other, uint64_t since)
{
    for (uint64_t left = clocks->alive & ~sg_slot_bit(slot); left; left &= left - 1) {
        unsigned third = (unsigned)__builtin_ctzll(left);
        uint64_t seq = clocks->ordered_after[other].at[third];
        bool known = clocks->ordered_after[slot].at[third] >= seq || clocks->complete[third] >= seq;
        if (clocks->ordered_at[other].at[third] > since && !(known && is_ordered_by_waits(clocks, third)))
            return false;
    }
    return true;
}

/* Closes a join transitively (R18). `slot` is ordered after what `other` was given up to some time. Since then
   `other` may have joined clocks, and been given nothing. If `slot` is ordered after what was joined anyhow, it is
   ordered after all of `other` up to now. So a stream that waits for its neighbour keeps nothing from the neighbour
   by that. No clock is behind: `idle_since` has all. */
static void close_transitively(struct sg_stream_clocks *clocks, sg_slot slot, sg_slot other)
{
    uint64_t *known = &clocks->ordered_after[slot].at[other],
             since = *known > clocks->complete[other] ? *known : clocks->complete[other];
    if (slot == other || since >= clocks->unchanged_since[other] || since < clocks->idle_since[other])
        return;
    if (is_ordered_by_waits(clocks, other) && is_ordered_after_all_of(clocks, slot, other, since))
        *known = clocks->unchanged_since[other];
}

/* Closes all joins that a new entry in the clock of `slot` makes possible: it may be ordered after others now, and
   others after it. */
static void close_transitively_all(struct sg_stream_clocks *clocks, sg_slot slot)
{
    for (uint64_t left = clocks->alive; left; left &= left - 1) {
        sg_slot other = (sg_slot)__builtin_ctzll(left);
        close_transitively(clocks, slot, other);
        close_transitively(clocks, other, slot);
    }
}

/* True if a clock has news of `other` for `slot`. An entry that is complete already is none. */
static bool is_new_order(const struct sg_stream_clocks *clocks, sg_slot slot, sg_slot other,
    const struct sg_vector_clock *clock)
{
    return other != slot && clock->at[other] > clocks->ordered_after[slot].at[other] &&
        clock->at[other] > clocks->complete[other];
}

void sg_clocks_order_after(struct sg_stream_clocks *clocks, sg_slot slot, const struct sg_vector_clock *clock)
{
    bool read = false;
    clocks->never_in_event_call &= ~sg_slot_bit(slot);
    for (sg_slot other = 1; other < SG_SLOTS; other++) {
        if (!is_new_order(clocks, slot, other, clock))
            continue;
        /* A stream that catches up is ordered after all that the others were given, so their clocks are read first,
           once. */
        if (!read)
            (void)sg_clocks_read(clocks, clocks->alive);
        read = true;
        clocks->ordered_after[slot].at[other] = clock->at[other];
        clocks->version++;
        /* A stream that is ordered after this one's work so far is not ordered after the join. */
        clocks->unchanged_since[slot] = clocks->ordered_at[slot].at[other] = sg_clocks_tick(clocks);
        close_transitively_all(clocks, slot);
        clocks_emit(clocks, SEGALLOC_RECORD_ORDER, slot_stream(clocks, slot), other, clock->at[other]);
    }
}

void sg_clocks_host_observed(struct sg_stream_clocks *clocks, const struct sg_vector_clock *clock)
{
    if (!clock) /* of all that there is: an allocation's own slot tells when that began to hold */
        (void)clocks_show(clocks, clocks->alive);
    for (sg_slot slot = 1; slot < SG_SLOTS; slot++) {
        uint64_t seq = clock ? clock->at[slot] : clocks->seq;
        if (clocks->host_observed[slot] < seq)
            clocks->host_observed[slot] = seq;
    }
}

void sg_clocks_fenced(struct sg_stream_clocks *clocks, uint64_t slots, uint64_t seq)
{
    for (uint64_t left = slots; left; left &= left - 1)
        clocks->fenced[__builtin_ctzll(left)] = seq;
    clocks_emit(clocks, SEGALLOC_RECORD_MARK, clocks->unknown_stream, slots, seq);
}

void sg_clocks_complete(struct sg_stream_clocks *clocks, sg_slot slot, uint64_t seq)
{
    if (seq <= clocks->complete[slot])
        return;
    clocks->complete[slot] = seq;
    clocks->version++;
    if (seq >= clocks->last_submit[slot])
        clocks->unfinished &= ~sg_slot_bit(slot);
    clocks_emit(clocks, SEGALLOC_RECORD_COMPLETE, clocks->unknown_stream, slot, seq);
    slot_retire(clocks, slot);
}

/* True if `slot` is ordered after all that `other` was given so far. `dirty`: bits of those given work since their
   clock was read. */
static bool is_ordered_after(const struct sg_stream_clocks *clocks, sg_slot slot, unsigned other, uint64_t dirty)
{
    return !(dirty >> other & 1) && clocks->ordered_after[slot].at[other] >= clocks->last_submit[other];
}

/* Work of the library's own is none here. A stream that came after the program's work before it has come after all that the
   program knows of. */
uint32_t sg_clocks_idle_before(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t now)
{
    uint64_t given = atomic_load_explicit(&clocks->dirty, memory_order_acquire) &
                     ~atomic_load_explicit(&clocks->upkept, memory_order_relaxed);
    if (given >> slot & 1)
        return 0;
    uint64_t since = clocks->last_given[slot];
    bool was_used = since > clocks->tracked_at[slot] + 1; /* the time at which it was followed */
    return was_used && now - since < UINT32_MAX ? (uint32_t)(now - since) : UINT32_MAX;
}

/* The relay streams: those by which the address of a block allocated on `slot` at `alloc_seq` may have leaked. They are
   the stream itself, and those that may have waited for it untracked. All blocking streams are, once one of them is
   a relay or is ordered after the allocation (R23): no clock shows the legacy stream's rules. */
static uint64_t relay_streams(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t alloc_seq)
{
    uint64_t blocking = clocks->blocking & clocks->alive,
        passed = (sg_slot_bit(slot) | clocks->untracked_order) & blocking;
    for (uint64_t left = passed ? 0 : blocking; left && !passed; left &= left - 1)
        passed |= clocks->ordered_after[__builtin_ctzll(left)].at[slot] >= alloc_seq;
    return sg_slot_bit(slot) | (clocks->untracked_order & clocks->alive) | (passed ? blocking : 0);
}

/* True if the host may have observed that a relay's work of before the allocation is complete, and passed the address
   on. */
static bool host_may_have_observed(const struct sg_stream_clocks *clocks, uint64_t relays, uint64_t alloc_seq)
{
    for (; relays; relays &= relays - 1) {
        unsigned by = (unsigned)__builtin_ctzll(relays);
        if (clocks->complete[by] >= alloc_seq || clocks->host_observed[by] >= alloc_seq)
            return true;
    }
    return false;
}

/* True if `other` is ordered after the allocation by way of a relay stream. */
static bool may_have_come_after(const struct sg_stream_clocks *clocks, unsigned other, uint64_t relays,
    uint64_t alloc_seq)
{
    for (; relays; relays &= relays - 1)
        if (clocks->ordered_after[other].at[__builtin_ctzll(relays)] >= alloc_seq)
            return true;
    return false;
}

/* Those of `busy` that may hold the address of a block of `slot`, if what `slot` was given up to `alloc_seq` precedes
   their work. All may where the host may have observed the allocation. Those of `submitted` may also by an order of
   their own (R21). */
static uint64_t may_have_pointer(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t alloc_seq, uint64_t busy,
    uint64_t submitted)
{
    uint64_t relays = busy ? relay_streams(clocks, slot, alloc_seq) : 0, shown = 0;
    if (clocks->untracked_order & sg_slot_bit(slot) || host_may_have_observed(clocks, relays, alloc_seq))
        return busy;
    uint64_t known = clocks->never_in_event_call | relays;
    for (uint64_t left = submitted; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        if (known >> other & 1 || may_have_come_after(clocks, other, relays, alloc_seq))
            shown |= sg_slot_bit(other);
    }
    return shown;
}

/* Those of `slots` that may have been given work since `seq`. */
static uint64_t submitted_since(const struct sg_stream_clocks *clocks, uint64_t slots, uint64_t seq, uint64_t dirty)
{
    uint64_t submitted = slots & (dirty | clocks->untracked_order);
    for (uint64_t left = slots & ~submitted; left; left &= left - 1)
        if (clocks->last_submit[__builtin_ctzll(left)] > seq)
            submitted |= sg_slot_bit((sg_slot)__builtin_ctzll(left));
    return submitted;
}

/* The possible users: the streams that must finish before the block may be reused. They have unfinished work that is
   not ordered before `slot`'s next step. Besides, one of two holds. They are, or may be, ordered after the
   allocation (R21). Or they are ordered after `slot`'s last work before the allocation, and have been given work
   since the allocation (R22). */
uint64_t sg_clocks_possible_users(const struct sg_stream_clocks *clocks, sg_slot slot, uint64_t alloc_seq,
    uint32_t idle_before, enum sg_user_rule rule)
{
    uint64_t dirty = atomic_load_explicit(&clocks->dirty, memory_order_acquire);
    uint64_t busy = (dirty | clocks->unfinished) & clocks->alive & ~sg_slot_bit(slot);
    if (rule == SG_USERS_POSSIBLE_HERE)
        busy &= ~clocks->foreign;
    uint64_t seen = may_have_pointer(clocks, slot, alloc_seq, busy, busy), rest = busy & ~seen;
    if (idle_before && rest)
        seen |= may_have_pointer(clocks, slot, idle_before == UINT32_MAX ? 0 : alloc_seq - idle_before, rest,
            submitted_since(clocks, rest, alloc_seq, dirty));
    for (uint64_t left = seen; left; left &= left - 1)
        if (is_ordered_after(clocks, slot, (unsigned)__builtin_ctzll(left), dirty))
            seen &= ~sg_slot_bit((sg_slot)__builtin_ctzll(left));
    return seen;
}
