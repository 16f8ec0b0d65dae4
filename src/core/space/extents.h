/* Extents: pieces of addresses, each of one state, numbered so that links are short.

   Nouns. An *extent* is a piece of a region's addresses with one state. The *array* has all extents of a device. A
   *cell* is an extent that is set aside for whatever begins at two units of the small region. *Spare* extents are
   kept for growing, moving and undoing.

   Why an array: an extent is one cache line, its number is 4 bytes, and no operation allocates host memory. How: the
   address space for 16 M extents is set aside at once and touched only as far as it is used. Extents that are given
   back form a list by `next`. Limits: with less address space the array is smaller, and a device that has used all
   but the spare ones refuses blocks.

   For example, in let used be 9, unused 4, and `next` of extent 4 be 7. extents_take_locked() returns 4, then 7, then
   9, and used becomes 10. extents_give_back_locked() of 7 makes unused 7.

   Cells save the one table look-up that is left on the way of a small block. A block of the small region that begins
   at unit 2,046 has the extent of cell 1,023 if that was unused. Its address alone then says where its extent is. */
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

/* 512 bytes: PyTorch's smallest block, and an alignment that users of cudaMalloc rely on. All positions and sizes
   inside a region are counted in these. */
enum { SG_UNIT_SHIFT = 9, SG_UNIT = 1 << SG_UNIT_SHIFT };

/* Bit 0 of users_mask: streams that are not followed, which is to say work of any stream and any context. */
#define SG_USERS_ALL UINT64_C(1)

/* The state of an extent. docs/design.md has the picture of how one follows from another. */
enum sg_extent_state {
    SG_EXTENT_UNUSED,   /* no addresses: in the list of extents that may be taken */
    SG_EXTENT_FREE,     /* a free range: has memory, nobody owns it, and stands in the index (free_index.h) */
    SG_EXTENT_BLOCK,    /* the program owns it */
    SG_EXTENT_PENDING,  /* freed, and queued work may still use it (streams/pending_frees.h) */
    SG_EXTENT_HOLE,     /* whole pages of addresses without memory */
    SG_EXTENT_BUSY,     /* the holder of `grow` maps or unmaps here, or an alias waits here: all others pass it by */
    SG_EXTENT_DEFERRED, /* free, kept whole on a quick list for the next request of its size */
    SG_EXTENT_PAUSED,   /* the program owns it, and its pages have no memory for now (paused.h) */
    SG_EXTENT_FRAGMENT  /* free, too short for an entry in the index beside the range that begins in its bucket */
};

/* One extent. Several fields mean another thing in each state, because an operation on one extent then reads one cache
   line. The comments begin with the states in which a field has that meaning. */
struct sg_extent {
    uint32_t begin, size; /* units, from the region's begin */
    /* The extents before and behind it by address; 0: none. In an unused extent `next` is the next unused one. */
    uint32_t prev, next;
    uint32_t state; /* enum sg_extent_state */
    union {
        uint32_t stream; /* block, pending: the stream's index in the trace (state/trace_streams.h) */
        uint32_t owner;  /* free, deferred, fragment: slot of the stream that may have it at once; 0: nobody's */
    };
    uint64_t requested; /* block, pending: bytes that the program asked for, before rounding */
    union {
        /* block: the time of its allocation. It differs for every allocation of the process, so it serves as an id. */
        uint64_t alloc_seq;
        /* free, deferred, fragment: all work that the owner was given before this time comes first. pending: all work
           that the streams of `users_mask` were given before it does. */
        uint64_t seq;
    };
    /* block: the CUcontext that was current when it was allocated. pending: SG_OWN_CONTEXT_IS_DONE, or that context. */
    uint64_t context;
    union {
        uint64_t event; /* in a fixed segment: the block of PyTorch's rules (segments/fixed_segments.c) */
        /* block: a bit for each slot on which it is used besides its own; bit 0: on streams that are not followed.
           pending: a bit for each slot that it waits for; bit 0: it waits for all work of all contexts. */
        uint64_t users_mask;
        struct {
            uint32_t less, more;
        } in_size_class; /* free: its neighbours in the list of its size class */
    };
    union {
        uint32_t later; /* pending, deferred, alias: the next extent of its queue or quick list */
        /* block: how long its stream had been given nothing when it was allocated (sg_clocks_idle_before()). */
        uint32_t idle_before;
    };
    uint32_t region; /* index of the region in its device */
};
_Static_assert(sizeof(struct sg_extent) == 64, "an extent is one cache line");

/* In place of a pending block's context: the free has waited for the block's own context. Only other contexts of the
   device may still use it. cuMemGetInfo counts such memory as free, because the driver would have freed it by then. */
enum { SG_OWN_CONTEXT_IS_DONE = 1 };

/* The extents of one device, addressed by index. The array never moves, so an index stays good for ever. */
struct sg_extents {
    struct sg_extent *extent; /* [0] is never used: 0 means none */
    uint32_t live;            /* in use now, cells too */
    uint32_t capacity;        /* extents that are no cells */
    uint32_t used;            /* extents below this one have been taken at some time */
    uint32_t unused;          /* first of the list of those below `used` that were given back */
    uint32_t cells;           /* extents [capacity, capacity + cells) are cells (struct sg_region_lookup) */
    bool cells_taken;         /* one small region has them; a second one does without */
#ifdef SG_LOCK_CHECKS
    const struct sg_lock *lock; /* of the device, which guards its regions; NULL: a test's, without one */
#endif
    /* The place in the program that asked for a block, and what that was doing (struct sg_tag), by the extent's
       number. NULL: no site was ever noted, so nothing is looked up on the way of an allocation. */
    struct sg_extent_site_locked {
        uint32_t site, phase;
    } * sites;
};

/* Asserts that the calling thread holds the device's `lock`, in builds that check locks (base/lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_EXTENTS_LOCK(extents)      \
    do {                                     \
        if ((extents)->lock)                 \
            SG_ASSERT_HELD((extents)->lock); \
    } while (0)
#else
#define SG_ASSERT_EXTENTS_LOCK(extents) ((void)0)
#endif

/* Names the lock that guards all regions whose extents these are. Builds that do not check locks keep nothing. */
static inline void sg_extents_guard(struct sg_extents *extents, const struct sg_lock *lock)
{
#ifdef SG_LOCK_CHECKS
    extents->lock = lock;
#else
    (void)extents, (void)lock;
#endif
}

/* Notes the place in the program that asked for a block. Its slow half maps 8 bytes for each extent when the first site
   comes. Without host memory for that the place stays unknown, and nothing else changes. */
void sg_extents_note_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock);
static inline void sg_extent_set_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    if (__builtin_expect(extents->sites || site || phase, 0))
        sg_extents_note_site_locked(extents, extent, site, phase);
}
/* The site and phase of a block; zeros where they are unknown. */
static inline struct sg_extent_site_locked sg_extent_site_locked(const struct sg_extents *extents, uint32_t extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->sites ? extents->sites[extent] : (struct sg_extent_site_locked){0, 0};
}

/* Sets addresses aside for the array. The kernel backs a page of it when that is first written, so a program with few
   blocks pays for few. False: even 64 K extents found no address space, and `extents` is as it was. The caller ends
   it by sg_extents_fini(). */
bool sg_extents_init(struct sg_extents *extents);
void sg_extents_fini(struct sg_extents *extents);

/* Blocks leave SG_EXTENTS_SPARE (4,096) extents alone, a claim of growing 1,024, and a cut of a source 512. So each
   can be ended or undone with what the one before it has left, and none stops half-way for want of an extent. */
enum { EXTENTS_SPARE_OF_CLAIM = SG_EXTENTS_SPARE / 4, EXTENTS_SPARE_OF_CUT = SG_EXTENTS_SPARE / 8 };

/* True if more than `want` extents may still be taken. */
static inline bool extents_left_locked(const struct sg_extents *extents, uint32_t want) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->capacity - extents->live > want;
}

/* Takes an extent, which the caller fills in. The caller has asked extents_left_locked() first: this cannot fail. */
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

/* Gives an extent back. A cell joins no list, because only a block that begins at its two units may have it. */
static inline void extents_give_back_locked(struct sg_extents *extents, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    extents->live--;
    extents->extent[id].state = SG_EXTENT_UNUSED;
    if (id >= extents->capacity)
        return;
    extents->extent[id].next = extents->unused;
    extents->unused = id;
}

#endif
