/* Which allocations are guarded: one in so many, all of a size, all of a place in the program.

   Why a draw. A program that allocates the same things in each step would have each thousandth allocation be the same tensor, had
   the thousandth one been taken.

   The draw is a hash of the seed and of the allocation's number, not a generator with a state. So two threads need no
   lock for it, and a run that makes the same allocations in the same order guards the same ones.

   Limits. A site is known by its first line that differs, as lists show it. Threads that allocate at once draw their numbers in the
   order in which they come, which another run need not repeat.

   For example, guard_rate:1000 and guard_seed:1. Allocation 712 is the first whose hash is a multiple of 1,000. With
   guard_site:train.py:31 each allocation of that line is guarded besides. */
#ifndef SG_GUARD_CHOICE_H
#define SG_GUARD_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/conf.h"

/* Keeps what the configuration says; once. */
void sg_guard_choice_open(const struct sg_conf *conf);

/* True for an allocation of so many bytes at the place of this thread that is to be guarded. Counts it. Looks a site's text up
   once, under SG_LOCK_SITES. */
bool sg_guard_choose(size_t bytes);

#endif
