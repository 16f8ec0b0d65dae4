/* The smallest card of each device on which every allocation of a trace fits.

   How: a card 1/50 above the peak is tried first, because nearly always that is enough. While it is not, one 1/16
   larger follows. Then what lies between the largest that failed and the smallest that fitted is halved, to a step of 2
   MiB. All devices are tried in one play.

   For example, a peak of 1000 MiB. A card of 998 surely fails, because it is a step below the peak. 1/50 more is 1020,
   and a step above that 1022, which fits. So 998 to 1022 are halved: 1010 fails, 1016 fits, 1012 fits. The answer is
   1012 MiB, after four plays. */
#ifndef SG_REPLAY_SMALLEST_CARD_H
#define SG_REPLAY_SMALLEST_CARD_H

#include "player.h"

#define SG_SMALLEST_STEP (2 * SG_MIB) /* to which it is found */
#define SG_SMALLEST_MOST (4 * SG_TIB) /* up to which it is looked for: what is alive beyond is no GPU's */

/* Plays the trace from its beginning on these cards, stopping as `stop` says (struct sg_play). 0, or what
   sg_smallest_find() then returns. */
typedef int sg_smallest_play(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret);

struct sg_smallest {
    sg_smallest_play *play;
    void *user;
    void (*progress)(uint64_t low, uint64_t high); /* of the device with the widest bounds; may be NULL */
    uint64_t most;                                 /* bytes; no larger card is tried */
    uint64_t card[SG_DEVICES_MAX];                 /* found; 0: none up to `most`, or not asked for */
    uint64_t failing[SG_DEVICES_MAX]; /* the largest card above it that failed; 0: none did, or none was tried */
};

/* Looks for those of the devices that `known`, the result of any play, says are used. A larger card is not quite always
   better. So each is a card on which all fits, while it does not on one that is a step smaller. 0, or what `play`
   returned. */
int sg_smallest_find(struct sg_smallest *smallest, const struct sg_play_result *known);

/* Tries a few cards up to a tenth larger than those found, since a larger card can fail. 0, or what `play` returned. */
int sg_smallest_look_above(struct sg_smallest *smallest);

/* The largest of the cards found; 0 where one is missing. */
uint64_t sg_smallest_largest(const struct sg_smallest *smallest, const struct sg_play_result *known);

#endif
