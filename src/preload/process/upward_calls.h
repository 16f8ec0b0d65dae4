/* Every function that a file of this layer calls on a floor above its own. One constant table holds them, in main/startup.c,
   so that no call can come before it is set. The test `tree` finds any other call that runs up. */
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

    /* make_room.c, for a call that has run out: sg_trim_ask_others_of(). No lock. */
    bool (*ask_others)(int device);

    /* torch_allocator.c, with what PyTorch records: segalloc_record_stream(). No lock. */
    int (*record_stream)(void *pointer, void *stream);

    /* torch_module.c, for a program that waits for its device: sg_captures_synchronize(). No lock. */
    CUresult (*synchronize)(void);

    /* events.c, after the host has waited: sg_outside_waited(). No lock. */
    void (*waited)(void);
};
extern const struct sg_upward_calls sg_upward_calls __attribute__((visibility("hidden")));

#endif
