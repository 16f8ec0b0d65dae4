/* The four locks of the core, by function, so that clang knows which is held (lock_roles.h).

   Nouns. `asking` of a device belongs to the thread that queries and waits for fences. `grow` belongs to the thread
   that creates, maps or takes pages away. `setup` of the core is for making devices, ranges of addresses and the list
   of contexts. `lock` of a device guards everything else of it.

   Why several: driver calls take microseconds to seconds, and nobody may wait for them who needs no new page. So
   `lock` is never held across one. `asking` and `grow` are, and they are two: a thread that waits for a fence must
   not stop one that can grow. The fence may wait for that one's work.

   How: a thread takes a lock only before those later in this order: `asking`, `grow`, `setup`, `lock`
   (base/locks.def). Builds with assertions check that. Limits: `asking` is not taken while `grow` is held, so a
   thread that grows asks nobody.

   For example, a thread that grows by 300 MiB, as in grow.h, makes 44 + 1 + 75 + 1 driver calls under `grow`. It
   takes `lock` a few times in between, for a moment. Others allocate and free meanwhile. One that has to grow too
   waits for `grow`, and then searches again before it plans. */
#ifndef SG_CORE_STATE_LOCKS_H
#define SG_CORE_STATE_LOCKS_H

#include "core/state/device.h"

/* Makes the locks of a device whose ordinal is set. For a new device, and for a forked child, in which their holders
   are gone. */
SG_UNCHECKED_LOCKS static inline void sg_device_init_locks(struct sg_device *device)
{
    sg_lock_init(&device->fences.asking, SG_RANK_ASKING, (unsigned)device->ordinal);
    sg_lock_init(&device->growth.grow, SG_RANK_GROW, (unsigned)device->ordinal);
    sg_lock_init(&device->lock, SG_RANK_DEVICE, (unsigned)device->ordinal);
}

/* Takes and gives back `lock`, for a moment: no driver call is made with it. */
SG_UNCHECKED_LOCKS static inline void sg_device_lock(struct sg_device *device) SG_ACQUIRES(lock)
{
    sg_lock(&device->lock);
}
SG_UNCHECKED_LOCKS static inline void sg_device_unlock(struct sg_device *device) SG_RELEASES(lock)
{
    sg_unlock(&device->lock);
}

/* Takes and gives back `grow`. Operations of their own take it by sg_replay_grow_lock(), which in a replay waits for
   their step too. */
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

/* Parts that only the holder of `grow` changes, under `lock` besides. So the holder may read them without `lock`, by
   these. */
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

/* Takes and gives back `asking`. A thread that only wants news tries it, and goes on where another thread is asking
   already. */
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

/* Takes and gives back `setup`. A device that is being made calls the driver under it, so others wait for as long as
   that takes. */
SG_UNCHECKED_LOCKS static inline void sg_setup_lock(struct sg_core *core) SG_ACQUIRES(setup)
{
    sg_lock(&core->setup);
}
SG_UNCHECKED_LOCKS static inline void sg_setup_unlock(struct sg_core *core) SG_RELEASES(setup)
{
    sg_unlock(&core->setup);
}

#endif
