/* The four locks of the core, by function, so that clang knows which is held (lock_roles.h).

   Locks, in order: `asking`, then `grow` (one thread at a time creates, maps or takes pages away; held across driver calls),
   the core's `setup`, then `lock` (everything else; never held across a driver call). `asking` is not taken while `grow` is
   held.

   For example, a thread that grows by 300 MiB holds `grow` for some milliseconds of driver calls. It takes `lock` for a
   microsecond at a time in between. Others allocate meanwhile; one that has to grow too waits for `grow`. */
#ifndef SG_CORE_STATE_LOCKS_H
#define SG_CORE_STATE_LOCKS_H

#include "core/state/device.h"

/* Makes the locks of a device that has its number. Nobody holds them. */
SG_UNCHECKED_LOCKS static inline void sg_device_init_locks(struct sg_device *device)
{
    sg_lock_init(&device->fences.asking, SG_RANK_ASKING, (unsigned)device->ordinal);
    sg_lock_init(&device->growth.grow, SG_RANK_GROW, (unsigned)device->ordinal);
    sg_lock_init(&device->lock, SG_RANK_DEVICE, (unsigned)device->ordinal);
}

/* `lock`, for a moment: no driver call is made with it. */
SG_UNCHECKED_LOCKS static inline void sg_device_lock(struct sg_device *device) SG_ACQUIRES(lock)
{
    sg_lock(&device->lock);
}
SG_UNCHECKED_LOCKS static inline void sg_device_unlock(struct sg_device *device) SG_RELEASES(lock)
{
    sg_unlock(&device->lock);
}

/* `grow`: whose holder alone creates, maps and takes pages. sg_replay_grow_lock() waits for its turn in a replay too. */
SG_UNCHECKED_LOCKS static inline void sg_grow_lock(struct sg_device *device) SG_ACQUIRES(grow)
{
    sg_lock(&device->growth.grow);
}
SG_UNCHECKED_LOCKS static inline bool sg_grow_try(struct sg_device *device) SG_TRY_ACQUIRES(grow)
{
    return sg_lock_try(&device->growth.grow);
}
SG_UNCHECKED_LOCKS static inline void sg_grow_unlock(struct sg_device *device) SG_RELEASES(grow)
{
    sg_unlock(&device->growth.grow);
}

/* What only the holder of `grow` changes, under `lock` besides: that holder reads it without `lock`. */
static inline const struct sg_regions *sg_device_regions_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->regions;
}
static inline const struct sg_room *sg_device_room_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->room;
}
static inline const struct sg_access *sg_device_access_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->access;
}

/* `asking`: whose holder alone queries and waits for fences. */
SG_UNCHECKED_LOCKS static inline void sg_asking_lock(struct sg_device *device) SG_ACQUIRES(asking)
{
    sg_lock(&device->fences.asking);
}
SG_UNCHECKED_LOCKS static inline bool sg_asking_try(struct sg_device *device) SG_TRY_ACQUIRES(asking)
{
    return sg_lock_try(&device->fences.asking);
}
SG_UNCHECKED_LOCKS static inline void sg_asking_unlock(struct sg_device *device) SG_RELEASES(asking)
{
    sg_unlock(&device->fences.asking);
}

/* `setup`: whose holder alone makes a device, adds a range of addresses and changes the list of contexts. */
SG_UNCHECKED_LOCKS static inline void sg_setup_lock(struct sg_core *core) SG_ACQUIRES(setup)
{
    sg_lock(&core->setup);
}
SG_UNCHECKED_LOCKS static inline void sg_setup_unlock(struct sg_core *core) SG_RELEASES(setup)
{
    sg_unlock(&core->setup);
}

#endif
