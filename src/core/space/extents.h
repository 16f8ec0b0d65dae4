/* Extents: pieces of addresses, each of one state, numbered so that links are short.

   Nouns. An *extent* is a piece of a region's addresses with one state. The *array* has all extents of a device. A *cell*
   is an extent that is set aside for whatever begins at two units of the small region. *Spare* extents are kept for
   growing, moving and undoing.

   Why an array: an extent is one cache line, its number is 4 bytes, and no operation allocates host memory. How: the
   address space for 16 M extents is set aside at once and touched only as far as it is used. Extents that are given back
   form a list by `next`. Limits: with less address space the array is smaller, and a device that has used all but the
   spare ones refuses blocks.

   For example, in an array with used = 9 and unused = 4, whose extent 4 has next = 7: extents_take_locked() returns 4,
   then 7, then 9, and used becomes 10. extents_give_back_locked() of 7 makes unused 7. */
#ifndef SG_CORE_SPACE_EXTENTS_H
#define SG_CORE_SPACE_EXTENTS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "core/lock_roles.h"
#include "order/stream_clock.h"
#include "core/tuning.h"

enum {
    SG_UNIT_SHIFT = 9,
    SG_UNIT = 1 << SG_UNIT_SHIFT
}; /* 512 B: PyTorch's smallest block, and the alignment of
                                                             cudaMalloc's users */

enum sg_extent_state {
    SG_EXTENT_UNUSED,
    SG_EXTENT_FREE,
    SG_EXTENT_BLOCK,
    SG_EXTENT_PENDING,
    SG_EXTENT_HOLE,
    SG_EXTENT_BUSY,
    SG_EXTENT_DEFERRED,
    SG_EXTENT_FRAGMENT
};

struct sg_extent {
    uint32_t begin, size; /* units */
    uint32_t prev, next;  /* by address; 0: none. Of unused extents, next is the next unused one */
    uint32_t state;       /* enum sg_extent_state */
    union {
        uint32_t stream; /* tag of a block, index in the device's list */
        uint32_t owner;  /* free, deferred, fragment: slot of a stream, 0: nobody */
    };
    uint64_t requested; /* bytes asked for, of a block or pending block */
    union {
        uint64_t alloc_seq; /* block: the time of its allocation, differs for every allocation of the process */
        uint64_t seq;       /* free, deferred, fragment: comes after what the owner was given before; pending: what
                              `users_mask` was given */
    };
    uint64_t context; /* block: the CUcontext that was current when it was allocated; pending: whether its work is
                              done */
    union {
        uint64_t event;      /* for who keeps other things in extents */
        uint64_t users_mask; /* block: bits of the slots on which it is used besides its own, bit 0: on
                                              others; pending: bits of those it has to wait for, bit 0: for the whole
                                              context */
        struct {
            uint32_t less, more;
        } in_size_class; /* free: its neighbours in the list of its class */
    };
    union {
        uint32_t later;       /* pending: the next one in order */
        uint32_t idle_before; /* block: how long its stream had been given nothing when it was allocated
                              (sg_clocks_idle_before()) */
    };
    uint32_t region; /* index of the region in its device */
};
_Static_assert(sizeof(struct sg_extent) == 64, "an extent is one cache line");

/* In place of a pending block's context: that has done its work, others may not have. */
enum { SG_OWN_CONTEXT_IS_DONE = 1 };

/* The extents of one device, addressed by index so that links are short and the array can move nowhere. */
struct sg_extents {
    struct sg_extent *extent; /* [0] is never used: 0 means none */
    uint32_t live, capacity;
    uint32_t used, unused; /* high-water mark; first of the list of unused ones below it */
    uint32_t cells;        /* extents [capacity, capacity + cells): see struct sg_region */
    bool cells_taken;      /* one region has them */
#ifdef SG_LOCK_CHECKS
    const struct sg_lock *lock; /* of the device, which guards its regions; NULL: a test's, without one */
#endif
    struct sg_extent_site_locked { /* of blocks, by the number of their extent: as in struct sg_tag */
        uint32_t site, phase;
    } * sites; /* NULL: no site was ever noted */
};

/* The device's `lock` is held by the calling thread, in builds that check it (lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_EXTENTS_LOCK(extents)      \
    do {                                     \
        if ((extents)->lock)                 \
            SG_ASSERT_HELD((extents)->lock); \
    } while (0)
#else
#define SG_ASSERT_EXTENTS_LOCK(extents) ((void)0)
#endif

/* The lock that guards all regions whose extents these are. */
static inline void sg_extents_guard(struct sg_extents *extents, const struct sg_lock *lock)
{
#ifdef SG_LOCK_CHECKS
    extents->lock = lock;
#else
    (void)extents, (void)lock;
#endif
}

/* Notes who asked for a block. Without host memory for that it stays unknown. */
void sg_extents_note_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock); /* the slow half */
static inline void sg_extent_set_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    if (__builtin_expect(extents->sites || site || phase, 0))
        sg_extents_note_site_locked(extents, extent, site, phase);
}
static inline struct sg_extent_site_locked sg_extent_site_locked(const struct sg_extents *extents, uint32_t extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->sites ? extents->sites[extent] : (struct sg_extent_site_locked){0, 0};
}

/* Sets the array aside, which is memory only where it is used. False: there is not even address space for it. */
bool sg_extents_init(struct sg_extents *extents);
void sg_extents_fini(struct sg_extents *extents);

/* Not given to ordinary blocks, so that growing, moving and undoing either never run out half-way. */
enum { EXTENTS_SPARE_OF_CLAIM = SG_EXTENTS_SPARE / 4, EXTENTS_SPARE_OF_CUT = SG_EXTENTS_SPARE / 8 };

static inline bool extents_left_locked(const struct sg_extents *extents, uint32_t want) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->capacity - extents->live > want;
}

/* Callers have asked extents_left_locked(). */
static inline uint32_t extents_take_locked(struct sg_extents *extents) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    uint32_t id = extents->unused;
    extents->live++;
    if (id)
        extents->unused = extents->extent[id].next;
    else
        id = extents->used++;
    assert(id < extents->capacity);
    return id;
}

static inline void extents_give_back_locked(struct sg_extents *extents, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    extents->live--;
    extents->extent[id].state = SG_EXTENT_UNUSED;
    if (id >= extents->capacity)
        return; /* a cell is for whatever begins there */
    extents->extent[id].next = extents->unused;
    extents->unused = id;
}

#endif
