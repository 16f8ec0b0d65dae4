/* What the streams of a program have been given, and how far that has come: what really comes before what, by which what
   the core believes is measured. A piece of work is complete once it was let come so far (work_progress()), and all that
   it comes after is. */
#ifndef FUZZ_WORK_H
#define FUZZ_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "program.h"

/* Of each stream how much of its work. */
struct work_after {
    uint32_t work[FUZZ_STREAMS];
};

struct work_stream {
    bool met, alive; /* there is or was one of that number; it is not destroyed */
    enum fuzz_nature nature;
    uint8_t context;
    uint32_t works, complete;
    struct work_after after;    /* what the next one comes after */
    struct work_after *of_work; /* what each comes after */
    uint32_t room;
};

extern struct work {
    struct work_stream stream[FUZZ_STREAMS];
    uint32_t streams; /* numbers in use */
} work;

void work_reset(void);

/* Stream `i` begins. */
void work_meet(int i, enum fuzz_nature nature, uint8_t context);

void work_join(struct work_after *into, const struct work_after *from);
bool work_is_complete(const struct work_after *after);

/* Lets at most `most` pieces of work of stream `i` complete, as far as what they come after is. */
void work_progress(int i, uint64_t most);

/* Until all of it is complete, and no more than that needs. */
void work_finish(const struct work_after *after);

/* All that a context's streams were given so far, waits for others included; below 0: of all. */
struct work_after work_of_context(int context);

/* What the next work of stream `i` comes after, its own included, by the legacy stream's rules too. */
struct work_after work_up_to(int i);

/* From here on it does. */
void work_come_after_by_rules(int i);
void work_come_after(int i, const struct work_after *after);

/* Gives stream `i` a piece of work; adds it to *touched unless that is NULL. */
void work_submit(int i, struct work_after *touched);

/* Whether the legacy stream's rules order these two. */
bool work_is_by_legacy_rules(int a, int b);

#endif
