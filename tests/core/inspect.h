/* Looks into a core after each step of a test: its invariants, its accounts, and its books against the driver's. */
#ifndef TEST_INSPECT_H
#define TEST_INSPECT_H

#include "core.h"

/* Aborts the test with a message when something is not as it must be. Nobody else may be using the core. */
void inspect(struct sg_core *core, int devices);

/* Fails unless everything was given back: after all blocks are freed and the devices trimmed. */
void inspect_empty(struct sg_core *core, int devices);

#endif
