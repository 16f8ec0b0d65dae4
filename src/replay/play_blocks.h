/* Plays what the program did with blocks: allocations, frees, streams that use a block, empty_cache.

   Each function takes one record and returns 0, or the error with which the play ends. The dictionary `live` has an entry
   for each id of the trace that is alive. That is an address of the core's or a block of PyTorch's. It is NO_BLOCK for an
   allocation that failed or was of zero bytes.

   Example, three records, and a card on which the second allocation does not fit:
     ALLOCATE id 1, 2 MiB     core gives 0x100000000000000        live {1 -> that address}
     ALLOCATE id 2, 30 GiB    core refuses; one oom is counted    live {1, 2 -> NO_BLOCK}
     FREE id 2                nothing to free, no complaint       live {1}
     FREE id 3                counts as unmatched: the trace began after its allocation
   A second ALLOCATE id 1 would end the play: "allocates what is alive already". */
#ifndef SG_PLAY_BLOCKS_H
#define SG_PLAY_BLOCKS_H

#include "player_state.h"

int sg_play_allocate(struct sg_player *player, const struct segalloc_trace_record *record);

int sg_play_free(struct sg_player *player, const struct segalloc_trace_record *record);

/* An allocation that failed in the recorded process. With the same settings it does so again, and that it was tried may
   have left its mark. With others it is tried anew; where it fits it is free at once, for the program went on without
   it. */
void sg_play_fail(struct sg_player *player, const struct segalloc_trace_record *record);

/* A second stream uses a block: the free of it waits for that stream too. */
int sg_play_record_stream(struct sg_player *player, const struct segalloc_trace_record *record);

/* A tag is about to be paused, or resumed. PyTorch's rules know no tags. */
int sg_play_pause(struct sg_player *player, const struct segalloc_trace_record *record);

/* The record that ends it, which says if it succeeded. With other settings than the recorded ones it is carried out here, for
   what failed when recorded has left the memory where it was. A resume that does not fit counts as an allocation that does
   not. */
void sg_play_pause_end(struct sg_player *player, const struct segalloc_trace_record *record);

/* The program has its allocator give back what is idle, down to the bytes of the record. */
int sg_play_empty_cache(struct sg_player *player, const struct segalloc_trace_record *record);

/* A device's idle pages on another one go back. Only a play of the recorded settings has such pages. */
int sg_play_return_far(struct sg_player *player, const struct segalloc_trace_record *record);

#endif
