/* The stream clocks: slots, joins, completions, and the possible users of a block. docs/stream-order.md has the
   rules by number. */
#include "streams/stream_clock.h"

#include <string.h>

#include "device.h"

static struct sg_device *followed(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    return device && slot && slot < SG_SLOTS ? device : NULL;
}

/* A blocking stream, or one that waits untracked, is gone. Streams may be ordered after others by way of it, and no
   clock keeps that. From here on the host may have passed anything that was allocated before `time` to anybody. */
static void may_be_known(struct sg_order *order, uint64_t time)
{
    for (uint64_t left = order->alive; left; left &= left - 1)
        order->told[__builtin_ctzll(left)] = time;
}

/* A slot whose stream is gone serves another one as soon as all its work is complete. */
static void retire(struct sg_device *device, sg_slot slot)
{
    struct sg_order *order = &device->order;
    if (order->state[slot] == SG_SLOT_GONE && order->complete[slot] >= order->gone_at[slot]) {
        order->state[slot] = SG_SLOT_UNUSED;
        order->complete[slot] = UINT64_MAX; /* until it has a stream again */
        order->alive &= ~sg_slot_bit(slot);
        order->owed &= ~sg_slot_bit(slot);
        if ((order->blocking | order->opaque) & sg_slot_bit(slot))
            may_be_known(order, device->serial);
    }
}

static sg_slot find(const struct sg_order *order, uint64_t key)
{
    for (uint64_t left = order->alive; left; left &= left - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(left);
        if (order->stream[slot].key == key && order->state[slot] == SG_SLOT_ALIVE)
            return slot;
    }
    return 0;
}

static void follow(struct sg_device *device, sg_slot slot, const struct sg_stream_id *id)
{
    struct sg_order *order = &device->order;
    uint32_t index = sg_device_slot_stream(device, slot);
    order->stream[slot] = *id;
    order->state[slot] = SG_SLOT_ALIVE;
    order->complete[slot] = device->serial; /* what its last stream was given is */
    order->met_at[slot] = device->serial;
    order->given[slot] = order->moved_on[slot] = sg_order_tick(device); /* what this one was given before is not */
    memset(&order->knows[slot], 0, sizeof order->knows[slot]);
    memset(&order->learnt[slot], 0, sizeof order->learnt[slot]);
    order->told[slot] = 0;
    order->alive |= sg_slot_bit(slot);
    order->eventless |= sg_slot_bit(slot);
    order->folded[slot] = order->given[slot];
    /* What the legacy stream was given before comes before others' next steps, whoever followed it. */
    bool before = id->flags & SG_STREAM_LEGACY && !(id->flags & SG_STREAM_UNUSED);
    order->unproven = before ? order->unproven | sg_slot_bit(slot) : order->unproven & ~sg_slot_bit(slot);
    order->worked = id->flags & SG_STREAM_UNUSED ? order->worked & ~sg_slot_bit(slot)
                                                 : order->worked | sg_slot_bit(slot);
    atomic_fetch_and_explicit(&order->fresh, ~sg_slot_bit(slot), memory_order_relaxed);
    order->opaque = id->flags & SG_STREAM_OPAQUE || id->per_thread ? order->opaque | sg_slot_bit(slot)
                                                                   : order->opaque & ~sg_slot_bit(slot);
    order->blocking = id->flags & (SG_STREAM_BLOCKING | SG_STREAM_LEGACY) ? order->blocking | sg_slot_bit(slot)
                                                                          : order->blocking & ~sg_slot_bit(slot);
    sg_emit(device, SEGALLOC_RECORD_DEFINE_STREAM, 0, index, (uint64_t)(uintptr_t)id->handle,
        (uint64_t)device->ordinal);
    sg_emit(device, SEGALLOC_RECORD_SLOT, 0, index, slot, id->flags);
}

sg_slot sg_core_slot(struct sg_core *core, int ordinal, const struct sg_stream_id *id)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device || !device->granularity)
        return 0;
    sg_lock(&device->lock);
    struct sg_order *order = &device->order;
    sg_slot slot = find(order, id->key);
    uint64_t unused = ~order->alive & ~sg_slot_bit(0);
    if (!slot && unused) {
        slot = (sg_slot)__builtin_ctzll(unused);
        follow(device, slot, id);
    }
    sg_unlock(&device->lock);
    return slot;
}

void sg_order_gone(struct sg_device *device, sg_slot slot)
{
    struct sg_order *order = &device->order;
    order->state[slot] = SG_SLOT_GONE;
    order->gone_at[slot] = sg_order_read(device, sg_slot_bit(slot)); /* later than all that it was given */
    sg_emit(device, SEGALLOC_RECORD_SLOT_GONE, 0, sg_device_slot_stream(device, slot), slot, 0);
    retire(device, slot);
}

void sg_core_slot_opaque(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device)
        return;
    sg_lock(&device->lock);
    device->order.opaque |= sg_slot_bit(slot);
    sg_unlock(&device->lock);
}

/* Comes after the driver's call. Whoever clears the bit asks the driver about the stream only afterwards. If the
   question came before this call, the bit is seen here as cleared. If it came later, the answer covers this work. */
void sg_core_slot_touched(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (device && !(atomic_load_explicit(&device->order.fresh, memory_order_relaxed) & sg_slot_bit(slot)))
        atomic_fetch_or_explicit(&device->order.fresh, sg_slot_bit(slot), memory_order_release);
}

/* Advances the time of those of `slots` that may have been given work, and of those of `unsure` in any case. What
   they are given from here on is later. Returns the bits of all of them. */
static uint64_t move_on(struct sg_device *device, uint64_t slots, uint64_t unsure)
{
    struct sg_order *order = &device->order;
    uint64_t fresh = atomic_load_explicit(&order->fresh, memory_order_acquire) & slots, moved = fresh | unsure;
    if (!moved)
        return 0;
    uint64_t now = sg_order_tick(device);
    if (fresh)
        atomic_fetch_and_explicit(&order->fresh, ~fresh, memory_order_acquire);
    order->unproven |= fresh;
    order->worked |= fresh;
    for (uint64_t left = moved; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        order->given[slot] = order->moved_on[slot] = now;
        if (fresh >> slot & 1)
            order->folded[slot] = now;
    }
    return moved;
}

static void emit_tick(struct sg_device *device, uint64_t moved)
{
    if (moved)
        sg_emit(device, SEGALLOC_RECORD_TICK, 0, sg_device_unknown_stream(device), moved, device->serial);
}

uint64_t sg_order_read(struct sg_device *device, uint64_t slots)
{
    emit_tick(device, move_on(device, slots, 0));
    return device->serial;
}

/* `slots` and those whose work may come before theirs by the legacy stream's rules, which no wait tells of. */
static uint64_t with_blocking(const struct sg_order *order, uint64_t slots)
{
    return slots & order->blocking ? slots | (order->blocking & order->alive) : slots;
}

/* Whether a slot is ordered after nothing but what it has waited for. */
static bool is_ordered_by_waits(const struct sg_order *order, sg_slot slot)
{
    return with_blocking(order, sg_slot_bit(slot)) == sg_slot_bit(slot);
}

/* Advances idle streams (R17). Those of `slots` that have been given nothing and joined nothing for a while are at
   `time` where they were. So is whatever is complete, and whoever is ordered after all of their work. A free that
   waits for several streams has one time for all of them, the latest. Without this nobody would be ordered after the
   idle ones up to it. */
static void stand_still(struct sg_device *device, uint64_t slots, uint64_t time)
{
    struct sg_order *order = &device->order;
    for (; slots; slots &= slots - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(slots);
        uint64_t since = order->moved_on[slot];
        if (since >= time || !is_ordered_by_waits(order, slot))
            continue;
        if (order->complete[slot] >= since && order->complete[slot] < time)
            order->complete[slot] = time;
        for (uint64_t left = order->alive & ~sg_slot_bit(slot); left; left &= left - 1) {
            uint64_t *known = &order->knows[__builtin_ctzll(left)].at[slot];
            if (*known >= since && *known < time)
                *known = time;
        }
        retire(device, slot); /* no event will say more of one that is gone */
    }
    order->version++;
}

uint64_t sg_order_freed(struct sg_device *device, sg_slot own, uint64_t others, bool unseen, bool *ret_worked)
{
    const struct sg_order *order = &device->order;
    uint64_t slots = with_blocking(order, others | sg_slot_bit(own)), last = 0;
    *ret_worked = false;
    if (order->alive == sg_slot_bit(own)) /* nobody else could gain anything by it */
        return sg_order_tick(device);
    uint64_t unsure = device->core->replay ? 0 : slots & (unseen ? UINT64_MAX : order->opaque); /* a replay is told */
    emit_tick(device, move_on(device, slots & ~sg_slot_bit(own), unsure & ~sg_slot_bit(own)));
    *ret_worked = move_on(device, sg_slot_bit(own), unsure & sg_slot_bit(own));
    for (uint64_t left = slots; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        last = order->moved_on[slot] > last ? order->moved_on[slot] : last;
    }
    if (others)
        stand_still(device, slots, last);
    return last;
}

/* Under the lock. By the legacy stream's rules an event recorded on a stream is ordered after work of others too.
   They may have been given work since this stream's clock was last read. Then the clock advances, or the event would
   give no news. */
static void read_clock(struct sg_device *device, sg_slot slot, struct sg_clock *ret)
{
    struct sg_order *order = &device->order;
    uint64_t now = sg_order_read(device, with_blocking(order, sg_slot_bit(slot)));
    order->eventless &= ~sg_slot_bit(slot);
    *ret = order->knows[slot];
    ret->at[slot] = now;
}

void sg_core_clock(struct sg_core *core, int ordinal, sg_slot slot, struct sg_clock *ret)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device) {
        memset(ret, 0, sizeof *ret);
        return;
    }
    sg_lock(&device->lock);
    read_clock(device, slot, ret);
    sg_unlock(&device->lock);
}

/* Whether the next step of a stream is ordered after unfinished work of the legacy stream that it has not waited for
   (R12). *ret_time: the time up to which that work is complete, 0 where it is not followed. */
static bool is_behind_legacy(const struct sg_order *order, sg_slot slot, uint64_t *ret_time)
{
    uint64_t busy = order->unproven | atomic_load_explicit(&order->fresh, memory_order_acquire);
    const struct sg_stream_id *id = &order->stream[slot];
    *ret_time = 0;
    if (!(order->blocking >> slot & 1) || id->flags & SG_STREAM_LEGACY)
        return false;
    for (uint64_t left = order->alive; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        if (!(order->stream[other].flags & SG_STREAM_LEGACY) || order->stream[other].context != id->context)
            continue;
        /* Of what it was given before it was followed nothing is known before something completes. */
        *ret_time = order->complete[other] > order->met_at[other] ? order->complete[other] : 0;
        return busy >> other & 1;
    }
    return true;
}

void sg_core_idle_clock(struct sg_core *core, int ordinal, sg_slot slot, struct sg_clock *ret_told, uint64_t *ret_done)
{
    struct sg_device *device = followed(core, ordinal, slot);
    uint64_t time;
    *ret_done = 0;
    if (!device) {
        memset(ret_told, 0, sizeof *ret_told);
        return;
    }
    sg_lock(&device->lock);
    read_clock(device, slot, ret_told);
    *ret_done = ret_told->at[slot];
    if (is_behind_legacy(&device->order, slot, &time) && time < *ret_done)
        *ret_done = time;
    sg_unlock(&device->lock);
}

uint64_t sg_order_slots_of(const struct sg_order *order, CUcontext context)
{
    uint64_t slots = 0;
    for (uint64_t left = order->alive; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        if (!context || order->stream[slot].context == context)
            slots |= sg_slot_bit(slot);
    }
    return slots;
}

void sg_core_context_clock(struct sg_core *core, int ordinal, CUcontext context, struct sg_clock *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    memset(ret, 0, sizeof *ret);
    if (!device)
        return;
    sg_lock(&device->lock);
    const struct sg_order *order = &device->order;
    uint64_t slots = sg_order_slots_of(order, context), now = sg_order_read(device, slots);
    for (uint64_t left = slots; left; left &= left - 1) {
        const struct sg_clock *known = &order->knows[__builtin_ctzll(left)]; /* of other contexts' streams too */
        for (sg_slot other = 1; other < SG_SLOTS; other++)
            ret->at[other] = known->at[other] > ret->at[other] ? known->at[other] : ret->at[other];
    }
    for (uint64_t left = slots; left; left &= left - 1)
        ret->at[__builtin_ctzll(left)] = now;
    sg_unlock(&device->lock);
    /* After the time: what was freed before it may have been used in any context that there was then. */
    ret->at[0] = !context || sg_core_is_only_context(core, context) ? now : 0;
}

/* Whether `slot` comes after all that `other` has come after since `since`. */
static bool comes_after_what_it_learnt(const struct sg_order *order, sg_slot slot, sg_slot other, uint64_t since)
{
    for (uint64_t left = order->alive & ~sg_slot_bit(slot); left; left &= left - 1) {
        unsigned third = (unsigned)__builtin_ctzll(left);
        uint64_t time = order->knows[other].at[third];
        bool known = order->knows[slot].at[third] >= time || order->complete[third] >= time;
        if (order->learnt[other].at[third] > since && !(known && is_ordered_by_waits(order, third)))
            return false;
    }
    return true;
}

/* Closes a join transitively (R18). `slot` is ordered after what `other` was given up to some time. Since then
   `other` may have joined clocks, and been given nothing. If `slot` is ordered after what was joined anyhow, it is
   ordered after all of `other` up to now. So a stream that waits for its neighbour keeps nothing from the neighbour
   by that. No clock is behind: `given` has all. */
static void catch_up(struct sg_order *order, sg_slot slot, sg_slot other)
{
    uint64_t *known = &order->knows[slot].at[other],
             since = *known > order->complete[other] ? *known : order->complete[other];
    if (slot == other || since >= order->moved_on[other] || since < order->given[other])
        return;
    if (is_ordered_by_waits(order, other) && comes_after_what_it_learnt(order, slot, other, since))
        *known = order->moved_on[other];
}

/* `slot` has joined a clock: it may be ordered after others now, and others after it. */
static void catch_up_all(struct sg_order *order, sg_slot slot)
{
    for (uint64_t left = order->alive; left; left &= left - 1) {
        sg_slot other = (sg_slot)__builtin_ctzll(left);
        catch_up(order, slot, other);
        catch_up(order, other, slot);
    }
}

/* Whether the clock has news of `other` for `slot`. */
static bool is_news(const struct sg_order *order, sg_slot slot, sg_slot other, const struct sg_clock *clock)
{
    return other != slot && clock->at[other] > order->knows[slot].at[other] && clock->at[other] > order->complete[other];
}

/* Under the lock. */
static void come_after(struct sg_device *device, sg_slot slot, const struct sg_clock *clock)
{
    struct sg_order *order = &device->order;
    bool read = false;
    for (sg_slot other = 1; other < SG_SLOTS; other++) {
        if (!is_news(order, slot, other, clock))
            continue;
        if (!read) /* who catches up comes after all that the others were given, so each clock has to have it */
            (void)sg_order_read(device, order->alive);
        read = true;
        order->knows[slot].at[other] = clock->at[other];
        order->version++;
        /* Who comes after the stream's work so far has not come after this. */
        order->moved_on[slot] = order->learnt[slot].at[other] = sg_order_tick(device);
        catch_up_all(order, slot);
        sg_emit(device, SEGALLOC_RECORD_ORDER, 0, sg_device_slot_stream(device, slot), other, clock->at[other]);
    }
}

void sg_order_waited(struct sg_device *device, sg_slot slot, const struct sg_clock *clock)
{
    sg_lock(&device->lock);
    come_after(device, slot, clock);
    sg_unlock(&device->lock);
}

void sg_core_waited(struct sg_core *core, int ordinal, sg_slot slot, const struct sg_clock *clock)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device)
        return;
    sg_lock(&device->lock);
    device->order.eventless &= ~sg_slot_bit(slot);
    come_after(device, slot, clock);
    sg_unlock(&device->lock);
}

void sg_core_told(struct sg_core *core, int ordinal, const struct sg_clock *clock)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_lock(&device->lock);
    if (!clock) /* of all that there is: an allocation's own slot tells when that began to hold */
        (void)sg_order_read(device, device->order.alive);
    for (sg_slot slot = 1; slot < SG_SLOTS; slot++) {
        uint64_t time = clock ? clock->at[slot] : device->serial;
        if (device->order.told[slot] < time)
            device->order.told[slot] = time;
    }
    sg_unlock(&device->lock);
}

void sg_order_marked(struct sg_device *device, uint64_t slots, uint64_t time)
{
    struct sg_order *order = &device->order;
    for (uint64_t left = slots; left; left &= left - 1)
        order->marked[__builtin_ctzll(left)] = time;
    sg_emit(device, SEGALLOC_RECORD_MARK, 0, sg_device_unknown_stream(device), slots, time);
}

void sg_core_marked(struct sg_core *core, int ordinal, uint64_t slots, uint64_t time)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_lock(&device->lock);
    sg_order_marked(device, slots, time);
    sg_unlock(&device->lock);
}

void sg_order_complete(struct sg_device *device, sg_slot slot, uint64_t time)
{
    struct sg_order *order = &device->order;
    if (time <= order->complete[slot])
        return;
    order->complete[slot] = time;
    order->version++;
    if (time >= order->folded[slot])
        order->unproven &= ~sg_slot_bit(slot);
    sg_emit(device, SEGALLOC_RECORD_COMPLETE, 0, sg_device_unknown_stream(device), slot, time);
    retire(device, slot);
}

void sg_core_completed(struct sg_core *core, int ordinal, const struct sg_clock *clock)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_lock(&device->lock);
    for (sg_slot slot = 0; slot < SG_SLOTS; slot++)
        if (clock->at[slot])
            sg_pending_complete(device, sg_slot_bit(slot), clock->at[slot]);
    sg_unlock(&device->lock);
}

/* Whether `slot` has come after all that `other` was given so far. `fresh`: bits of those given work since their clock
   was read. */
static bool has_come_after(const struct sg_order *order, sg_slot slot, unsigned other, uint64_t fresh)
{
    return !(fresh >> other & 1) && order->knows[slot].at[other] >= order->folded[other];
}

/* `seen` without those whose work comes before what another that stays is given: who comes after that one has come
   after them. */
static uint64_t without_those_before_others(const struct sg_order *order, uint64_t seen, uint64_t fresh)
{
    uint64_t stay = 0;
    for (uint64_t left = seen; left; left &= left - 1) {
        unsigned before = (unsigned)__builtin_ctzll(left);
        for (uint64_t rest = stay >> before & 1 ? 0 : seen & ~sg_slot_bit(before); rest; rest &= rest - 1) {
            unsigned after = (unsigned)__builtin_ctzll(rest);
            if (!has_come_after(order, after, before, fresh))
                continue;
            seen &= ~sg_slot_bit(before);
            stay |= sg_slot_bit(after);
            break;
        }
    }
    return seen;
}

uint32_t sg_order_quiet(const struct sg_order *order, sg_slot slot, uint64_t now)
{
    if (atomic_load_explicit(&order->fresh, memory_order_acquire) >> slot & 1)
        return 0;
    uint64_t since = order->folded[slot];
    bool worked = since > order->met_at[slot] + 1; /* the time at which it was followed */
    return worked && now - since < UINT32_MAX ? (uint32_t)(now - since) : UINT32_MAX;
}

/* The relay streams: those by which the address of a block allocated on `slot` at `born` may have leaked. They are
   the stream itself, and those that may have waited for it untracked. All blocking streams are, once one of them is
   a relay or is ordered after the allocation (R23): no clock shows the legacy stream's rules. */
static uint64_t passers_of(const struct sg_order *order, sg_slot slot, uint64_t born)
{
    uint64_t blocking = order->blocking & order->alive, passed = (sg_slot_bit(slot) | order->opaque) & blocking;
    for (uint64_t left = passed ? 0 : blocking; left && !passed; left &= left - 1)
        passed |= order->knows[__builtin_ctzll(left)].at[slot] >= born;
    return sg_slot_bit(slot) | (order->opaque & order->alive) | (passed ? blocking : 0);
}

static bool host_may_know(const struct sg_order *order, uint64_t passers, uint64_t born)
{
    for (; passers; passers &= passers - 1) {
        unsigned by = (unsigned)__builtin_ctzll(passers);
        if (order->complete[by] >= born || order->told[by] >= born)
            return true;
    }
    return false;
}

static bool may_have_come_after(const struct sg_order *order, unsigned other, uint64_t passers, uint64_t born)
{
    for (; passers; passers &= passers - 1)
        if (order->knows[other].at[__builtin_ctzll(passers)] >= born)
            return true;
    return false;
}

/* Those of `busy` that may hold the address of a block of `slot`, if what `slot` was given up to `born` precedes
   their work. All may where the host may have observed the allocation. Those of `given` may also by an order of
   their own (R21). */
static uint64_t may_be_shown(const struct sg_order *order, sg_slot slot, uint64_t born, uint64_t busy, uint64_t given)
{
    uint64_t passers = busy ? passers_of(order, slot, born) : 0, shown = 0;
    if (order->opaque & sg_slot_bit(slot) || host_may_know(order, passers, born))
        return busy;
    uint64_t known = order->opaque | order->eventless | passers;
    for (uint64_t left = given; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        if (known >> other & 1 || may_have_come_after(order, other, passers, born))
            shown |= sg_slot_bit(other);
    }
    return shown;
}

/* Those of `slots` that may have been given work since `time`. */
static uint64_t given_since(const struct sg_order *order, uint64_t slots, uint64_t time, uint64_t fresh)
{
    uint64_t given = slots & (fresh | order->opaque);
    for (uint64_t left = slots & ~given; left; left &= left - 1)
        if (order->folded[__builtin_ctzll(left)] > time)
            given |= sg_slot_bit((sg_slot)__builtin_ctzll(left));
    return given;
}

/* The possible users: the streams that must finish before the block may be reused. They have unfinished work that is
   not ordered before `slot`'s next step. Beside that one of two holds. They are, or may be, ordered after the
   allocation (R21). Or they are ordered after `slot`'s last work before the allocation, and have been given work
   since the allocation (R22). */
uint64_t sg_order_could_have_seen(struct sg_device *device, sg_slot slot, uint64_t born, uint32_t quiet)
{
    const struct sg_order *order = &device->order;
    uint64_t fresh = atomic_load_explicit(&order->fresh, memory_order_acquire);
    uint64_t busy = (fresh | order->unproven) & order->alive & ~sg_slot_bit(slot);
    uint64_t seen = may_be_shown(order, slot, born, busy, busy), rest = busy & ~seen;
    if (quiet && rest)
        seen |= may_be_shown(order, slot, quiet == UINT32_MAX ? 0 : born - quiet, rest,
            given_since(order, rest, born, fresh));
    for (uint64_t left = seen; left; left &= left - 1)
        if (has_come_after(order, slot, (unsigned)__builtin_ctzll(left), fresh))
            seen &= ~sg_slot_bit((sg_slot)__builtin_ctzll(left));
    return without_those_before_others(order, seen, fresh);
}
