/* Runs of the program on cards of their true size, beside the one on a card without end. They are made where a replay of that
   knows only nearly what happens there, or where the program may make do with less. */
#ifndef SG_TRUE_SIZE_H
#define SG_TRUE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/launch.h"
#include "rehearse/rehearse.h"

/* How far the GPU is when the host asks. On a card without end work is done where it is submitted. On one of its true size the
   lag of frees counts, as in `segalloc run --sim`. Soonest: all work is done at once. Latest: it is done
   only where the host waits for it. Between them it is done at the next allocation. */
enum sg_rehearse_pace {
    SG_REHEARSE_ENDLESS,
    SG_REHEARSE_AS_IS,
    SG_REHEARSE_SOONEST,
    SG_REHEARSE_BETWEEN,
    SG_REHEARSE_LATEST
};

/* The machine that the command runs on; `name`: of a card that is known, or NULL. On a card without end each process has one of
   its own. Else processes share the one that is called `shared` (NULL: they do not). */
void sg_rehearse_sim_text(char *text, size_t size, uint64_t bytes, int devices, const char *name,
    enum sg_rehearse_pace pace, const char *shared);

/* Runs the command once, and plays it on the cards; `keeps`: its trace is the one to be kept. 0, or an exit status. */
typedef int sg_rehearse_once_fn(struct sg_rehearse *rehearse, struct sg_launch *launch, bool keeps);

/* After the run on a card without end: tries the cards that need it, and corrects what is said of them. `judge` sets the
   outcome anew. 0, or an exit status after a line on stderr. */
int sg_rehearse_true_sizes(struct sg_rehearse *rehearse, struct sg_launch *launch, sg_rehearse_once_fn *once,
    void (*judge)(struct sg_rehearse *rehearse));

#endif
