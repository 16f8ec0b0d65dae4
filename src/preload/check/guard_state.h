/* The floor of the guards: their flag and their counts.

   Why apart. Findings print the counts, errors of the GPU end the guarding, and each hook of a copy asks whether there is any
   freed block. None of them is to depend on how a block gets its pages.

   Counts. A block that is guarded counts once, when it is placed. One that was drawn and is not guarded counts under the first
   reason that applies, in the order of the table below. Blocks that were not drawn count nowhere: the rate says how many they are.

   How. All of it is atomic, so no lock is taken. A thread that sees the flag a moment too late places one block more, or one
   block less: nothing depends on it.

   For example, an allocation is drawn during a capture: sg_guard_not(SG_UNGUARDED_CAPTURE), and the last line of the process
   says "not guarded: 1 during captures". */
#ifndef SG_GUARD_STATE_H
#define SG_GUARD_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if blocks are being guarded. No lock. */
extern atomic_bool sg_guard_goes_on __attribute__((visibility("hidden")));
static inline bool sg_guard_on(void)
{
    return __builtin_expect(atomic_load_explicit(&sg_guard_goes_on, memory_order_relaxed), false);
}

/* Guarded blocks that are freed, with those in quarantine. */
extern atomic_uint sg_guard_freed_now __attribute__((visibility("hidden")));
static inline unsigned sg_guard_freed_count(void)
{
    return atomic_load_explicit(&sg_guard_freed_now, memory_order_relaxed);
}
static inline bool sg_guard_any_freed(void)
{
    return __builtin_expect(sg_guard_freed_count(), 0);
}

/* UNGUARDED(name, words): why a block that was drawn is not guarded.

     CAPTURE    calls of ours could ruin the capture
     DEVICE     the device has no pages, or the block lies in memory that legacy IPC could give away
     ROOM       guarded blocks take 1/32 of the device by now, or 4,096 are live
     DRIVER     the driver had no memory or no addresses for it, or refused a step */
#define SG_UNGUARDED_REASONS(UNGUARDED)                          \
    UNGUARDED(CAPTURE, "during captures")                        \
    UNGUARDED(DEVICE, "in memory without pages of its own")      \
    UNGUARDED(ROOM, "beyond 1/32 of the device or 4,096 blocks") \
    UNGUARDED(DRIVER, "for want of memory, or refused by the driver")

enum sg_unguarded {
#define UNGUARDED(name, words) SG_UNGUARDED_##name,
    SG_UNGUARDED_REASONS(UNGUARDED)
#undef UNGUARDED
        SG_UNGUARDED_COUNT
};

/* From here on; and no more, after an error that stays or in a forked child. */
void sg_guard_begin(void);
void sg_guard_close(void);

/* Counts a block that is guarded; and one that is not, for which it returns false. */
void sg_guard_one_more(void);
bool sg_guard_not(enum sg_unguarded why);

/* How many were guarded, and why others that were drawn were not: "3 during captures, 2 for want of memory". */
uint64_t sg_guard_count(void);
void sg_guard_write_counts(char *text, size_t size);

#endif
