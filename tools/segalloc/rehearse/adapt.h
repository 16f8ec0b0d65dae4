/* Programs that adapt: they make do with less than they take on a card without end. */
#ifndef SG_REHEARSE_ADAPT_H
#define SG_REHEARSE_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

#include "reader/site_book.h"
#include "rehearse/rehearse.h"

/* True if a caller of the site, in Python, has a handler around its call that goes on after running out of memory. A thread that
   keeps the error, or ends by it, counts as one. */
bool sg_rehearse_is_caught(const struct sg_site_book *book, uint32_t site);

/* True if the program is to run on this card, which it does not fit by the run on a card without end. Memory that is
   not PyTorch's is a reason: a cache above may give back and ask again. PyTorch's programs end there, with exceptions.
   A handler stands around the line that runs out, or the program has run out already. It asks how much memory is free,
   or each of its processes fits alone. */
bool sg_rehearse_may_adapt(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);

/* True if the run on a card without end stopped by an error that there may have been no cause for on the cards named.
   It had taken more than any of them has, or a fault ended it.

   An example. PyTorch reserves addresses for 9/8 of what the card says that it has. On one without end it gets memory
   for all of them, and then looks for more addresses where there are none. */
bool sg_rehearse_stopped_beyond(const struct sg_rehearse *rehearse);

/* True if `trial`, a run on a card of its true size, came to its end because the program adapts. An adapting program
   asks how much memory is free, or goes on without what failed. Or else it asks for less at a time than in `endless`,
   by other requests or once it was refused. */
bool sg_rehearse_has_adapted(const struct sg_rehearse *endless, const struct sg_rehearse *trial);

/* True if the program may make do with less on a smaller card than that of `trial`, which it does not fit. It asks how much memory
   is free, or was refused in `trial` and made that good.

   An example. It halves what it asks for, from 16 GiB, until it is served, and takes 1 GiB more. On 4 GiB it has 4 GiB and fails, on
   3 GiB it has 2 GiB and does not. */
bool sg_rehearse_may_take_less(const struct sg_rehearse *endless, const struct sg_rehearse *trial);

/* True if `trial` came to its end, and that was no refusal which a search in `endless` does not explain. For a program
   that does not adapt that is what fits: a replay knows only nearly where the library's blocks lie. Where memory lags,
   one good end may be luck, and each pace that a GPU may have is tried. */
bool sg_rehearse_has_ended_well(const struct sg_rehearse *endless, const struct sg_rehearse *trial);

/* True if processes that need more together than the card has took turns on it. `trial`, a run on a card of this size,
   came to its end without a failure then, and had all that it had in `endless`. The moment at which each of them has
   its peak is the system's to say, unless the program says it. */
bool sg_rehearse_took_turns(const struct sg_rehearse *endless, const struct sg_rehearse_card *card,
    const struct sg_rehearse *trial);

/* True if processes of the run had no library while others were there. Such a stranger can't ask those for what they
   hold idle. On a smaller card they hold less, so it may have room there and none on a larger one. */
bool sg_rehearse_has_strangers(const struct sg_rehearse *rehearse);

/* True if the program may fit a card and not a larger one. It does so beside strangers, and where some memory of its peak
   leaves a card that lacks room: what pools keep idle, and managed memory.

   An example. A pool's 24 MiB are freed, and then its threshold is raised. On 26 MiB the next call waits for them, and
   they leave. On 36 MiB they stay idle in the pool, and the last call fails. */
bool sg_rehearse_is_uneven(const struct sg_rehearse *rehearse);

/* True if a card that it fits is to be tried all the same. Less than four pages are left there, and some memory is by
   other calls or of several processes. The place of its own blocks then depends on when the others came, which a replay
   knows only nearly.

   An example. 41 MiB by graphs and 3 MiB of ours on a card of 48 MiB: in two pages ours fit, in four they do not.

   Memory that leaves a card where room is short is no room for each call: cudaMalloc gets nothing of what pools keep idle.
   A card is tried if it has less than four pages beside all that was taken at the peak.

   Beside strangers a card is tried if it has less to spare than what others may hold idle: all that they asked for. */
bool sg_rehearse_is_tight(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);

#endif
