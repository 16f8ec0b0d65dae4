/* How far `check` goes, and what it has counted: the floor of this room.

   For example, an allocation in a capture is not looked at: sg_check_left_out(SG_LEFT_OUT_CAPTURE), and the last line of
   the process says "1 during captures". */
#ifndef SG_CHECK_STATE_H
#define SG_CHECK_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/shadow.h"
#include "core/core.h"

/* True if `check` is on. Set before the core is made; off for good once the driver has failed. No lock. */
extern atomic_bool sg_check_goes_on __attribute__((visibility("hidden")));
static inline bool sg_check_on(void)
{
    return __builtin_expect(atomic_load_explicit(&sg_check_goes_on, memory_order_relaxed), false);
}

/* The core's driver, and the parts that are on, of enum sg_check_part; both constant from the start on. */
extern const struct sg_driver *sg_check_driver __attribute__((visibility("hidden")));
extern unsigned sg_check_parts __attribute__((visibility("hidden")));
static inline bool sg_check_thorough(void)
{
    return sg_check_parts & SG_CHECK_THOROUGH;
}

/* LEFT_OUT(name, words): why an allocation or a free was not looked at.

     CAPTURE    work on any stream could ruin the capture, or become a node of its graph
     CONTEXT    the current context is a green one, or there is no lane for it; or a free that is to wait for all work
                has several contexts to wait for, and an event covers one
     STREAM     the stream is not fresh and not idle, is of another context, or cannot be named by this thread
     HELD       a stream may wait for the program, and the one that the work would go to is not idle (held.h)
     COMPLETE   the caller has waited by itself, so the core gives the memory out at once, without a wait for a fill
     RING       all batches of the context are out
     MANY       a large block took the place of more than 8 small ones, where it is not thorough
     DRIVER     the driver lacks a call, or has refused it
     LOST       the context has ended before the copies were known to be there
     END        the process ends, and the copies are behind work that goes on */
#define SG_LEFT_OUT_REASONS(LEFT_OUT)                                   \
    LEFT_OUT(CAPTURE, "during captures")                                \
    LEFT_OUT(CONTEXT, "beside other contexts")                          \
    LEFT_OUT(STREAM, "of streams that others may already come after")   \
    LEFT_OUT(HELD, "beside streams that may wait for the program")      \
    LEFT_OUT(COMPLETE, "after a wait of the caller")                    \
    LEFT_OUT(RING, "while too many samples were on their way")          \
    LEFT_OUT(MANY, "of more freed blocks than one allocation looks at") \
    LEFT_OUT(DRIVER, "refused by the driver")                           \
    LEFT_OUT(LOST, "gone with their context")                           \
    LEFT_OUT(END, "behind work that had not ended with the process")

enum sg_left_out {
#define LEFT_OUT(name, words) SG_LEFT_OUT_##name,
    SG_LEFT_OUT_REASONS(LEFT_OUT)
#undef LEFT_OUT
        SG_LEFT_OUT_COUNT
};

/* Counts what is not looked at, for the last line. */
void sg_check_left_out(enum sg_left_out why);

/* Counts that are not 0, each with its words, as one text: "3 during captures, 12 beside other contexts". */
void sg_check_write_counts(char *text, size_t size, const _Atomic uint64_t *counts, const char *const *words, int count);

/* Those of what was not looked at. */
void sg_check_write_left_out(char *text, size_t size);

/* Where and when an allocation or a free is made, by the calling thread. Counts it as an event. */
struct sg_check_note sg_check_note_now(const struct sg_tag *tag);

#endif
