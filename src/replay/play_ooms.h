/* Allocations that do not fit the played card: counted for each device and for the play, with the first one of each.

   An *oom* is an allocation that does not fit here. It is a *new oom* too if it had not failed when it was recorded. The
   first one of a device keeps its marks: event, size, place, bytes alive then, and how much was short.

   Example, a card of 20 GiB. Event 1000 asks for 2 GiB with 19 GiB reserved, none of it free in one piece or movable:
     ooms 1, new_ooms 1, largest_oom 2 GiB, first_oom_event 1000, first_oom_bytes 2 GiB, first_oom_short 1 GiB
   Event 1001 was recorded as a failure of 4 GiB, and fails here too:
     ooms 2, new_ooms 1, largest_oom 4 GiB; the marks of the first one stay */
#ifndef SG_PLAY_OOMS_H
#define SG_PLAY_OOMS_H

#include "player_state.h"

/* Counts the allocation of a record, which does not fit. A record ALLOCATE_FAILURE had failed when it was recorded. The
   core still has the marks of the failure, so no other call of it may come in between. */
void sg_play_count_oom(struct sg_player *player, const struct segalloc_trace_record *record);

/* True if the caller wants no more: each device of `stop_at_oom` has had an allocation that does not fit. */
bool sg_play_may_stop(const struct sg_player *player);

#endif
