/* Runs of images: what a launch does, step by step, and what others are to know of it before. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "graphs/image.h"

/* A launch, whose payload is its image: its run, not locked. Then the bytes that its nodes touch, whichever way conditions
   turn out. Then whether the host can notice that it ran. */
void sim_image_run(struct sim_work *launch);
void sim_image_parts(CUstream stream, const struct sim_work *launch);
bool sim_image_host_sees(const struct sim_image *image);
/* True where a launch may take as long as it likes: by host functions, waits, kernels that keep their stream busy, conditions. */
bool sim_image_may_wait(const struct sim_image *image);

#endif
