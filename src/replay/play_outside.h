/* Plays events that came to the allocator from outside. These are memory that others took of the device, the order of
   streams as it was observed, limits, pins, and contexts that ended.

   A play *as recorded* repeats the recorded process with its own settings, so all of these are applied as they stand. Any
   other play is a what-if: the card may have another size, so the answers of the recorded driver mean nothing there. Then
   only facts about the program are applied, such as memory of its other calls.

   Example, a card of 24 GiB on which the core holds 20 GiB, 1 GiB of them idle. A record says that the program has taken
   5 GiB by cuMemCreate:
     24 < 20 + 5    the card lacks 1 GiB; the core is trimmed and holds 19
     24 = 19 + 5    it fits, and nothing is counted
   With 6 GiB it would lack 1 GiB still: an oom by PHYSICAL, first_oom_short 1 GiB. PyTorch's cache is not trimmed. */
#ifndef SG_PLAY_OUTSIDE_H
#define SG_PLAY_OUTSIDE_H

#include "player_state.h"

/* Memory was taken from a device by other calls, or given back (SEGALLOC_RECORD_OUTSIDE). Where the card lacks some, idle
   memory goes back first: that of pools by the driver, for memory of theirs; then ours. */
void sg_play_take_outside(struct sg_player *player, const struct segalloc_trace_record *record);

/* A record of another kind that the allocator did not decide, from SEGALLOC_RECORD_DONE on; the core is there. 0, or the
   error with which the play ends. */
int sg_play_apply_outside(struct sg_player *player, const struct segalloc_trace_record *record);

#endif
