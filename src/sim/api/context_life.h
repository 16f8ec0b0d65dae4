/* The life of contexts: how they are made, and what ends with them. Each table below is told from here. */
#ifndef SIM_API_CONTEXT_LIFE_H
#define SIM_API_CONTEXT_LIFE_H

#include "device/context.h"

/* Locked, here and below. */
CUresult sim_context_new(struct sim_device *device, unsigned flags, bool primary, CUcontext *ret);
/* Waits for its work, then takes all that it holds. VMM memory and pools outlive it. */
void sim_context_close(CUcontext context);
/* Takes the device's primary context up, makes it where it isn't there; gives it back, which waits where that was the last
   use. */
CUresult sim_context_retain(struct sim_device *device, CUcontext *ret);
void sim_context_release(struct sim_device *device);
/* A green context over the primary one; not current anywhere. */
CUresult sim_context_new_green(struct sim_device *device, CUcontext parent, CUgreenCtx green, CUcontext *ret);
/* Waits for its work. From here on calls that name one of its streams fail: the context is destroyed. */
void sim_context_detach(CUcontext green);

#endif
