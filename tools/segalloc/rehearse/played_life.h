/* The life of one process, which is played on cards.

   A life is a trace with the settings it was recorded with. It can be played on a card that is its own, or on a part of
   one of which others hold the rest. Pages then have the size that suits the whole card.

   For example, a program took 300 MiB at most. Played on cards of its own it needs 302 MiB. Beside another on a card of 40 GiB,
   whose pages have 4 MiB, it needs 304. */
#ifndef SG_PLAYED_LIFE_H
#define SG_PLAYED_LIFE_H

#include "rehearse/rehearse.h"
#include "replay/recorded.h"

/* Besides an exit status: the user has ended the playing. Findings up to then stand. */
enum { SG_PLAYED_CUT = -1 };

struct sg_played_life {
    struct sg_rehearse *rehearse;
    struct sg_trace_reader *reader;
    struct sg_recorded recorded;
    struct sg_play play;
    uint64_t order, random; /* of frees: 0 as recorded, and the state of what makes others */
    uint64_t fixed; /* bytes of a card of which the life may take a part; 0: the cards that are played are its own */
    bool stays;     /* its pauses are left out: all memory stays on the card */
    bool stopped;
};

/* Opens a trace, whose life is then to be played as it was recorded. 0, or an exit status after a line on stderr. Either way
   sg_played_close() is due. */
int sg_played_open(struct sg_played_life *life, struct sg_rehearse *rehearse, const char *path);
void sg_played_close(struct sg_played_life *life);

/* Plays it on these cards, or on parts of that size of a fixed card, a sg_smallest_play of `life`. 0, SG_PLAYED_CUT, or an exit
   status after a line on stderr. */
int sg_played_on_cards(void *life, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret);

/* The smallest card, or part of it, of each device; 0: none. `known`: the result of any play. */
int sg_played_smallest(struct sg_played_life *life, const struct sg_play_result *known, uint64_t ret[SG_DEVICES_MAX]);

/* The need of the next run, which frees in another order. It is the most that some orders take, and half of the range
   between the most and the least. Where the order makes no difference it is the need of this run, `exact`. */
int sg_played_robust(struct sg_played_life *life, const struct sg_play_result *known, uint64_t exact[SG_DEVICES_MAX],
    uint64_t ret[SG_DEVICES_MAX]);

/* The orders of frees that are tried besides the recorded one: 0 where the trace is so long that each would take too much
   time. */
uint64_t sg_played_orders(const struct sg_play_result *known);

#endif
