/* Two phases on one card, each with memory of its own: a training, and the rollouts of an engine.

   Nouns. A *phase* works while the other does not. To *keep* is to hold the memory of both all the time. To *pause* is to have
   the memory of the other off the card, saved on the host. To *discard* has the engine's weights sent anew instead of saved.

   How: each phase allocates under tags of segalloc's (docs/pause.md), which pauses and resumes them. Nothing else of the trainer
   knows of segalloc. A plan counts what is paused as not there.

   For example, a training of 31 GiB and an engine of 24 take 55 GiB where both keep their memory, and 31 with pauses. */
#ifndef TRAIN_PHASES_H
#define TRAIN_PHASES_H

#include "device/device.h"

enum colocate { COLOCATE_FREE /* the engine frees its memory */, COLOCATE_KEEP, COLOCATE_PAUSE, COLOCATE_DISCARD, COLOCATE_COUNT };
extern const char *const colocate_names[COLOCATE_COUNT];

enum phase { PHASE_TRAINING, PHASE_ROLLOUT, PHASE_COUNT };

struct phases {
    struct device *device;
    enum colocate way;
    enum phase now;
    size_t held[PHASE_COUNT]; /* bytes of the phase that does not work, where both keep theirs */
    struct paused paused[PHASE_COUNT]; /* of the phase that does not work, where it is paused */
    size_t peak[PHASE_COUNT]; /* bytes that a phase had by itself, at most */
    int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause)(const char *tag), (*resume)(const char *tag);
};

/* Begins with the training: what is taken from here on is of it. */
void phases_open(struct phases *phases, struct device *device, enum colocate way);
/* The other phase works from here on: `to` has its memory, the other's leaves. Nothing where each frees its own. */
void phases_turn(struct phases *phases, enum phase to);
/* Memory that is taken until the end of this is of keys and values, which no pause saves. */
void phases_begin_scratch(struct phases *phases);
void phases_end_scratch(struct phases *phases);
/* Notes the peak of the phase that works, in which nothing of the other counts. */
void phases_note_peak(struct phases *phases);
/* All memory is there again, to be freed. */
void phases_close(struct phases *phases);

#endif
