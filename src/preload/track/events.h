/* The program's events: what comes before each, as far as it is known. */
#ifndef SG_EVENTS_H
#define SG_EVENTS_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* The event is recorded by means that can't be seen: it gives no knowledge from here on until it is destroyed. */
void sg_events_distrust(CUevent event);

/* A context has gone; events that were recorded in it are forgotten. */
void sg_events_context_gone(CUcontext context);

#endif
