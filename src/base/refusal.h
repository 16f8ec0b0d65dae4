/* The outcome of an allocation that was refused: made good, tried again, or failed.

   A *refusal* is an allocation that the library or the driver has answered with an error. It is *made good* where the
   program gets by without it, and otherwise it is a *failure*. Reports name failures first, for those have cost something.

   A refused call has cost the program nothing where its thread makes up for it. A cache above may give its idle memory
   back and ask again, ask for less, or go elsewhere. The thread's next success decides: half of what was refused, or
   more, makes it good. A refusal of that size or up to half of it is another try, which takes the place of the first.
   Whatever else the thread gets, or asks for, is other work: the program went on without. An end does as well.

   Example, a card of 4 GiB. Half of 3 GiB is 1.5 GiB, so 2.7 GiB and 2.4 GiB are enough, and 20 MiB are not.
     3 GiB refused, 12 frees, 3 GiB served             made good: one refusal, no failure
     3 GiB refused, 2.7 GiB refused, 2.4 GiB served    made good: two refusals, no failure
     3 GiB refused, 3 GiB refused, the process ends    one failure, the second
     3 GiB refused, 20 MiB served                      one failure, which the program survived

   Launches of graphs and loads of modules do not say how much they take. Their size is 0, and only another such call makes
   them good. */
#ifndef SG_REFUSAL_H
#define SG_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

/* The least bytes that make a refusal good: half, rounded up. A cache that asks for less halves at most. TensorFlow's takes 0.9 at a time, RMM's pool the
   middle between what it was refused and the least that it needs. Source: BFCAllocator::Extend() and
   pool_memory_resource::try_to_expand(). */
static inline uint64_t sg_refusal_enough(uint64_t refused)
{
    return refused - refused / 2;
}

/* True if `bytes`, served to the thread, make a refusal of `refused` bytes good. */
static inline bool sg_refusal_is_made_good(uint64_t refused, uint64_t bytes)
{
    return refused ? bytes >= sg_refusal_enough(refused) : !bytes;
}

/* True if a thread that was refused `refused` bytes, and now `bytes`, has only tried again. */
static inline bool sg_refusal_is_another_try(uint64_t refused, uint64_t bytes)
{
    return bytes <= refused && bytes >= sg_refusal_enough(refused);
}

#endif
