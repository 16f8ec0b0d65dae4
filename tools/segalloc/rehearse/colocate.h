/* Two programs on one card, each rehearsed by itself: --with.

   Nouns. To *keep* is to hold all memory while the other works. To *pause* is to have the memory of all tags off the card then,
   saved on the host; to *discard* saves nothing (docs/pause.md). A program's *need* is the part of the card on which it runs
   through. Memory that *stays* is what it holds while it is paused: memory without a tag, of other calls, of processes without
   the library.

   The rules:
     keep     the sum of both needs without their pauses, for both may have their peaks at once
     pause    the larger of: the need of one, and what stays of the other
     discard  as pause: what leaves the card is the same
   Needs and what stays are those on that very card, for the size of its pages depends on its own. Contexts are in none of them,
   as in all figures of a rehearsal: each program has one, whether it is paused or not (--margin).

   A program that pauses its memory itself holds, while it is paused, the most that its trace has then. One that does not is paused
   from outside, at any moment: of its memory stays the most that has no tag at any moment.

   For example, a rollout engine needs 30 GiB, and 1 GiB of it has no tag. A trainer needs 26 GiB, all tagged. Keep takes 56
   GiB. Pause takes 30: the engine while nothing of the trainer is there; the trainer and 1 GiB of the engine are 27.

   Limits. Processes of one program count as there at once. A program that asks how much memory there is may do otherwise on
   that card, so nothing is said of it. */
#ifndef SG_COLOCATE_H
#define SG_COLOCATE_H

#include "rehearse/rehearse.h"

struct sg_colocation_program {
    uint64_t need, need_keep, stays; /* bytes: as it pauses, without pauses, and while it is paused */
    uint64_t saved, moved;           /* bytes on the host at most; copied in both directions */
    uint64_t switches;               /* pauses of it that were counted: its own, or one */
    bool pauses;                     /* it pauses its memory itself */
    bool tags;                       /* some of its memory has a tag */
};

struct sg_colocation_way {
    uint64_t card, host; /* bytes */
    double seconds;      /* of copies, in both directions */
};

struct sg_colocation {
    char *with;         /* the other program, a line for the shell; NULL: there is none */
    char folder[2][64]; /* the traces of both, "": not there */
    bool known;
    char reason[SG_REHEARSE_TEXT]; /* why it is not */
    struct sg_colocation_program program[2];
    struct sg_colocation_way keep, pause, discard;
};

/* Once both programs were rehearsed, with their traces in the folders. 0, or an exit status after a line on stderr. */
int sg_colocate_find(struct sg_rehearse *const program[2], struct sg_colocation *ret);

/* The verdict on a card of one way. */
enum sg_rehearse_verdict sg_colocate_verdict(const struct sg_rehearse *rehearse, const struct sg_colocation_way *way,
    const struct sg_rehearse_card *card);

/* rehearse/colocate_print.c: as text, and the member "colocation" of the JSON. */
void sg_colocate_print_text(struct sg_rehearse *const program[2], const struct sg_colocation *colocation);
json_t *sg_colocate_json(const struct sg_rehearse *rehearse, const struct sg_colocation *colocation);

#endif
