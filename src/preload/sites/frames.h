/* Frames of the calling thread's stack, and which of a deep one are kept.

   Why: the innermost frames say which line asks, and the outermost which program. A deep stack of a trainer has dozens
   between them. How: a stack is walked once, from the inside, and its depth is not known before its end. So
   the last frames take turns in the places of the outermost.

   For example, there are places for 23 frames, 6 of them for the outermost. A stack of 60 gives frames 1 to 16, the gap,
   and frames 55 to 60. One of 23 is kept whole. */
#ifndef SG_FRAMES_H
#define SG_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A frame of a thread's stack. Two are the same place if all bytes are the same. In the gap both are 0. */
struct sg_frame {
    uint64_t code; /* of Python: the code object; native: the return address */
    uint64_t at;   /* of Python: where in it, and a mark of what it is, whose address may be used again; native: 0 */
};

/* A stack on the way from the inside to the outside. */
struct sg_picked {
    struct sg_frame *ret; /* places for `most` frames, of the caller's */
    unsigned most, outer; /* outer < most; 0: the innermost frames only */
    unsigned met;         /* frames so far */
};

enum { SG_OUTER_FRAMES_MOST = 16 };

/* Where the next frame goes. NULL: nowhere, and no frame that follows goes anywhere either. */
static inline struct sg_frame *sg_picked_next(struct sg_picked *picked)
{
    unsigned at = picked->met++;
    if (at < picked->most)
        return &picked->ret[at];
    return picked->outer ? &picked->ret[picked->most - picked->outer + (at - picked->most) % picked->outer] : NULL;
}

/* Puts the outermost frames in their order, and the gap before them. The number of frames that are kept. */
static inline unsigned sg_picked_finish(struct sg_picked *picked)
{
    struct sg_frame turned[SG_OUTER_FRAMES_MOST];
    if (picked->met <= picked->most || !picked->outer)
        return picked->met < picked->most ? picked->met : picked->most;
    struct sg_frame *outer = picked->ret + picked->most - picked->outer;
    unsigned first = (picked->met - picked->most) % picked->outer; /* the innermost of them */
    for (unsigned i = 0; i < picked->outer && i < SG_OUTER_FRAMES_MOST; i++)
        turned[i] = outer[(first + i) % picked->outer];
    memcpy(outer, turned, picked->outer * sizeof *outer);
    outer[-1] = (struct sg_frame){0, 0};
    return picked->most;
}

static inline bool sg_frame_is_gap(const struct sg_frame *frame)
{
    return !frame->code;
}

#endif
