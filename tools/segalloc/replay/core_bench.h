/* Times the core alone on a trace: everything is decoded, and blocks are numbered, before the clock starts. */
#ifndef SG_REPLAY_CORE_BENCH_H
#define SG_REPLAY_CORE_BENCH_H

#include "player.h"

/* Mean nanoseconds of an allocation or free over the whole trace, best of several lives. Returns 0, or -1 with a line
   in `error`. `play->next` is read to its end once. */
int sg_bench_run(const struct sg_play *play, double *ret_ns_per_op, char error[SG_PLAY_ERROR]);

#endif
