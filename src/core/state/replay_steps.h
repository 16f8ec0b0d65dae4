/* Turns: how an operation that drops `lock` is replayed exactly (struct sg_replay). Internal to the core.

   A decision depends on the state when the lock is held. Each section of such an operation that reads or changes
   anything that decides therefore emits one record. The record has the section's place among all others. A replay lets
   the operation have the lock when that record comes, never sooner. */
#ifndef SG_CORE_STATE_REPLAY_STEPS_H
#define SG_CORE_STATE_REPLAY_STEPS_H

#include "core/state/locks.h"

/* To be called after a section, before anything is done for the next one. NULL where this is no replay, or where the
   core is to decide afresh. No lock but `grow` is held. */
static inline const struct segalloc_trace_record *sg_replay_step(const struct sg_device *device)
{
    const struct sg_replay *replay = device->core->replay;
    return replay ? replay->step() : NULL;
}

/* Whether it is the turn of `what`, for what is only done where there is something to do: always so but in a replay. */
static inline bool sg_replay_step_is(const struct segalloc_trace_record *replayed, enum segalloc_turn what)
{
    return !replayed || (replayed->kind == SEGALLOC_RECORD_TURN && replayed->id == what);
}

/* What came of `what`, where that is not the core's to decide: as the record of a replay says, else as was `found`. */
static inline uint64_t sg_replay_step_outcome(const struct segalloc_trace_record *replayed, enum segalloc_turn what,
    uint64_t found)
{
    return replayed && sg_replay_step_is(replayed, what) ? replayed->size : found;
}

/* A section's record. */
static inline void sg_emit_step_locked(struct sg_device *device, enum segalloc_turn what, uint64_t outcome)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    sg_emit(device, SEGALLOC_RECORD_TURN, 0, sg_device_unknown_stream(device), what, outcome);
}

/* Takes `grow` for the next replay step. In a replay an operation gets `grow` only when its recorded step comes. No
   lock is held. */
SG_UNCHECKED_LOCKS static inline void sg_replay_grow_lock(struct sg_device *device) SG_ACQUIRES(grow)
{
    const struct sg_replay *replay = device->core->replay;
    if (!replay) {
        sg_grow_lock(device);
        return;
    }
    (void)sg_replay_step(device);
    while (!sg_grow_try(device))
        replay->give_way();
}

#endif
