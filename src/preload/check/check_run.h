/* A run that checks itself: on a real GPU, where no hazard checker is, it says which block was written to by somebody
   whose time was over. On by `check`.

   Nouns. A *fill* writes a pattern over freed memory. The *canary* is bytes behind a block that nobody was given.
   A *finding* is a difference, with the block before and the block now.

   How. The fill is the last work of the stream in whose order a block is freed, and comes before the core notes that
   free. So whoever is ordered after the free is ordered after the fill. The stream that gets the memory next reads
   the pattern back as its first work on it. If the core gave it out too early, or somebody wrote to it after the free,
   another value is there. Nobody waits for that: samples.h.

   Limits. Nothing is looked at while a capture is active, nor where pattern.h, samples.h and the table of reasons in
   state.h say so. Such bytes leave the shadow, so that there is no false alarm.

   Why a stream has to be *fresh*. Work of ours on a stream of the program must not come where nobody expects any. Say
   that stream B has waited for an event of stream A, and that A was given nothing since. A program may now allocate on A
   and use that memory on B at once: B comes after all that A was given. It would not come after a fill that A is given
   now. So A is given work of ours only while it has work of the program's that nobody has waited for yet. Whoever waits
   for that later waits for our work too. An idle A may also be given some, and the host waits for it: a few
   microseconds.

      A: kernel, event          B: wait for the event
      A: allocates t            nothing is read back: A is not fresh, and busy
      A: kernel                 A is fresh again
      A: frees u                u is filled
      A: event                  B: wait for it: B comes after the fill of u

   Why a free may be made to wait for all work. Another thread may record an event on A between the look at A and the
   fill. Whoever waits for that event does not come after the fill. The free is then one that waits for all work, so the
   memory serves nobody before the fill is over.

   Why the shadow is cut at an allocation, and not at the read. The bytes are the new owner's from then on, whether they
   could be read or not. A part that could not be read is forgotten, because nobody knows what the owner writes.

   Why the library asks for more bytes than the program did. The tail has to be memory that no owner was ever given: only
   there may streams write in any order, and only there does an overrun show. One unit of the core's more keeps all
   blocks aligned as they were. An allocation that fails for these bytes is asked for again without them.

   Where it stands. This room is told of each block by `serve/`, before its free and after its allocation. It calls the
   driver itself, by the functions that hooks replace, so that its own work is not taken for the program's. The core has
   two questions for it: by which streams a free would go, and whether a stream is fresh. It decides nothing else by it.

   For example, stream 1 frees 4 KiB at A while stream 2 still writes there, of which nobody was told. Stream 1 fills A.
   Stream 2's kernel then writes 1.0. Stream 3 is given A, reads 0x3f800000 where 0xa5010203 was filled, and the finding
   says so. */
#ifndef SG_CHECK_RUN_H
#define SG_CHECK_RUN_H

#include "check/state.h"
#include "core/core.h"

/* Makes ready what `check` asks for; once, before the core. The core's driver is changed so that pages are followed. */
void sg_check_open(const struct sg_conf *conf, struct sg_driver *core_driver);

/* The program has waited, or has asked and found work ended: what has arrived is compared. `all`: whatever has, else a few. Calls
   the driver. */
void sg_check_poll(bool all);
static inline void sg_check_polls(bool all)
{
    if (sg_check_on())
        sg_check_poll(all);
}

/* A context is about to end, and has ended. */
void sg_check_context_ends(CUcontext context);
void sg_check_context_gone(CUcontext context);

/* In a forked child: nothing is looked at. */
void sg_check_forget(void);

#endif
