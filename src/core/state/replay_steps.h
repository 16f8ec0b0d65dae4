/* Replay steps: how an operation that drops `lock` is replayed exactly (struct sg_replay). Internal to the core.

   Nouns. A *section* is a part of an operation under `lock`. A *replay step* is a section with the driver calls
   before it. The *outcome* of a step is the part of it that is not the core's to decide, such as a driver's answer.
   In the trace a step is a record, SEGALLOC_RECORD_TURN or another.

   Why: a decision depends on the state when the lock is held, and other threads change that between two sections. A
   replay that ran the operation as a whole would decide otherwise.

   How: each section that reads or changes anything that decides emits one record, which has the section's place among
   all others. A replay lets the operation have the lock when that record comes, never sooner, and hands it the
   recorded outcome. Limits: a section that emits nothing must decide nothing.

   For example, two threads grow at once. The trace has the steps "A plans", "B frees", "A commits" in that order. The
   replay stops A after its plan, carries out B's free, and then lets A commit. If A's map failed in the run, the
   record of the step says so, and the replay's A undoes its plan as well. */
#ifndef SG_CORE_STATE_REPLAY_STEPS_H
#define SG_CORE_STATE_REPLAY_STEPS_H

#include "core/state/locks.h"

/* Waits in a replay for the next step of this operation, and returns its record. NULL: this is no replay, or the core
   is to decide afresh. Called after each section, before anything is done for the next one. The caller holds no lock
   but `grow`. */
static inline const struct segalloc_trace_record *sg_replay_step(const struct sg_device *device)
{
    const struct sg_replay *replay = device->core->replay;
    return replay ? replay->step() : NULL;
}

/* True if the step `what` comes next. For steps that are only made where there is something to do. Always true but in
   a replay. */
static inline bool sg_replay_step_is(const struct segalloc_trace_record *replayed, enum segalloc_turn what)
{
    return !replayed || (replayed->kind == SEGALLOC_RECORD_TURN && replayed->id == what);
}

/* The outcome of the step `what`: as the record of a replay says, else as was `found`. */
static inline uint64_t sg_replay_step_outcome(const struct segalloc_trace_record *replayed, enum segalloc_turn what,
    uint64_t found)
{
    return replayed && sg_replay_step_is(replayed, what) ? replayed->size : found;
}

/* Emits the record of a section. */
static inline void sg_emit_step_locked(struct sg_device *device, enum segalloc_turn what, uint64_t outcome)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    sg_emit(device, SEGALLOC_RECORD_TURN, 0, sg_device_unknown_stream(device), what, outcome);
}

/* Takes `grow` for the next replay step. In a replay another operation may hold `grow` and wait for a step that comes
   first. So this one gives way until it can have it. The caller holds no lock. */
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
