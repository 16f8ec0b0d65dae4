/* Every function that a file of this layer calls on a floor above its own, with the reason for it.

   Why a table. Rooms call downwards, so that each can be read and tested without those above it. A few events have to
   go up. The first allocation makes the core, and a free that was put off is made by the room that frees. One constant
   table, filled in by main/startup.c, shows them all, and no call can come before it is set. The test `tree` finds any
   other call that runs up.

   For example, a capture ends with 3 frees put off. captures.c, in `track`, calls `free` of this table 3 times. That is
   sg_memory_free() of `serve`, two floors above it. */
#ifndef SG_UPWARD_CALLS_H
#define SG_UPWARD_CALLS_H

#include "process/process_state.h"

struct sg_request;

/* The purpose of a core: memory of ours needs a context, a note of the driver's memory needs none. */
enum sg_start_needs { SG_START_WITH_CONTEXT, SG_START_ANYHOW };

struct sg_upward_calls {
    /* process.c, at an allocation while the state is EARLY: makes the core. Returns the state then. */
    enum sg_process_state (*start)(enum sg_start_needs needs);

    /* process.c, at each allocation that a core is to serve: notes the call site, and whether memory is shared with
       other processes. */
    void (*allocates)(void);

    /* captures.c and graph_blocks.c, with a free that was put off: sg_memory_free(). Between sg_enter() and
       sg_leave(), with no lock. */
    CUresult (*free)(struct sg_core *core, CUdeviceptr address, const struct sg_request *request);

    /* torch_allocator.c, with what PyTorch records: segalloc_record_stream(). No lock. */
    int (*record_stream)(void *pointer, void *stream);

    /* trim.c, with an order from outside: pauses or resumes a tag, NULL: all (serve/pause.h). No lock, on a thread of
       ours. */
    CUresult (*order)(bool pause, const char *tag, uint64_t *ret_bytes);

    /* torch_module.c, for a program that waits for its device: sg_captures_synchronize(). No lock. */
    CUresult (*synchronize)(void);
};
extern const struct sg_upward_calls sg_upward_calls __attribute__((visibility("hidden")));

#endif
