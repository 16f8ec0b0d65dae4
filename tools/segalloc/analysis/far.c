#include "analysis/far.h"

#include <errno.h>

#include "analysis/phase_step.h"
#include "analysis/walk.h"
#include "idmap.h"

struct far_walk {
    struct sg_far *found;
    struct sg_idmap live; /* number of a block -> its far bytes */
    uint64_t now, most;   /* far bytes; most: of the step */
    int64_t step;         /* -1: none has begun */
    uint32_t phase;       /* looked at last, with its step: neighbours are alike */
    int64_t phase_step;
};

static void far_end_step(struct far_walk *walk)
{
    walk->found->steps += walk->step >= 0 && walk->most > 0;
    walk->found->of_steps += walk->step >= 0;
    walk->found->step_bytes += walk->most;
    walk->most = walk->now;
}

static int far_take(void *user, const struct sg_walk_event *event)
{
    struct far_walk *walk = user;
    if (event->kind == SG_WALK_FREE)
        walk->now -= sg_idmap_take(&walk->live, event->block);
    if (event->kind != SG_WALK_ALLOC)
        return 0;
    if (event->phase != walk->phase) {
        walk->phase = event->phase;
        walk->phase_step = sg_phase_step(&event->dictionary->book, event->phase);
    }
    if (walk->phase && walk->phase_step > walk->step) {
        if (walk->step >= 0 || walk->most) /* what comes before the first step is a part of that */
            far_end_step(walk);
        walk->step = walk->phase_step;
    }
    if (!event->far)
        return 0;
    if (!sg_idmap_put(&walk->live, event->block, event->far))
        return -ENOMEM;
    walk->found->blocks++;
    walk->now += event->far;
    walk->most = walk->now > walk->most ? walk->now : walk->most;
    walk->found->peak_bytes = walk->now > walk->found->peak_bytes ? walk->now : walk->found->peak_bytes;
    return 0;
}

int sg_far_read(struct sg_trace_reader *reader, struct sg_far *ret)
{
    struct far_walk walk = {.found = ret, .step = -1, .phase_step = -1};
    *ret = (struct sg_far){0};
    if (!sg_idmap_init(&walk.live))
        return -ENOMEM;
    int error = sg_trace_rewind(reader);
    if (!error)
        error = sg_walk(reader, far_take, &walk);
    if (!error)
        far_end_step(&walk);
    sg_idmap_fini(&walk.live);
    return error;
}
