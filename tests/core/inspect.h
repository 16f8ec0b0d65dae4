/* Looks into a core after each step of a test: its invariants, its accounts, and its books against the driver's. */
#ifndef TEST_INSPECT_H
#define TEST_INSPECT_H

#include "apply.h"
#include "core/core.h"

/* A core over the strict driver's two devices, emptied, of `total` bytes each with pages of 2 MiB, by the text of a
   configuration. */
struct sg_core *inspect_start(const char *text, uint64_t total);

/* What a record of a trace would say to a replay. */
static inline void apply(struct sg_core *of, int ordinal, enum segalloc_record_kind kind, uint64_t id, uint64_t size)
{
    sg_core_apply(of, ordinal, &(struct segalloc_trace_record){.kind = (uint8_t)kind, .id = id, .size = size});
}

/* A capture is live: nothing can be recorded. False when a core starts. */
extern bool inspect_capturing;

/* Aborts the test with a message when something is not as it must be. Nobody else may be using the core. */
void inspect(struct sg_core *core, int devices);

/* Fails unless everything was given back: after all blocks are freed and the devices trimmed. */
void inspect_empty(struct sg_core *core, int devices);

#endif
