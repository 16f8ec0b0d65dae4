/* Allocations that were refused, until it is known what became of each (base/refusal.h has the rule).

   Why it waits. Many programs ask for much, are refused, and make do with less. A report at each refusal would cry
   wolf; none at all would hide the real failure.

   How. A refusal is open from the call that returned it to the next success, refusal or error of its thread. The report
   of what held the memory is composed when it is refused, for later the memory is held by others. It is printed if the
   refusal turns out to be a failure. That is so if other work is served, an error is raised, or the process ends. A
   refusal that is made good prints nothing.

   Limits. 16 threads at once; a further one's refusal counts as a failure at once.

   For example, a program is refused 8 GiB and then gets 4 GiB. That is half, which makes the refusal good, so nothing
   is printed. Had it called abort() instead, the report would come first. */
#ifndef SG_REFUSALS_H
#define SG_REFUSALS_H

#include <stdatomic.h>
#include <stddef.h>

#include "core/core.h"

/* How many are open in the process. */
extern atomic_uint sg_refusals_open __attribute__((visibility("hidden")));

/* The calling thread is refused `bytes` of `device`, by the core and by the driver. Files are opened for the report. */
void sg_refusals_add(struct sg_core *core, int device, size_t bytes);

/* The calling thread got `bytes`, served or passed on. */
void sg_refusals_serve(size_t bytes);
static inline void sg_refusals_note_served(size_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&sg_refusals_open, memory_order_relaxed) != 0, 0))
        sg_refusals_serve(bytes);
}

/* It got `bytes` by a call that is not served here: of the host, of managed memory, of a pool; 0: not known. Little is no
   sign of anything. */
void sg_refusals_serve_elsewhere(size_t bytes);
static inline void sg_refusals_note_elsewhere(size_t bytes)
{
    if (__builtin_expect(atomic_load_explicit(&sg_refusals_open, memory_order_relaxed) != 0, 0))
        sg_refusals_serve_elsewhere(bytes);
}

/* The driver has refused the calling thread `bytes` (0: not known) by a call that the core does not serve, though room was
   made. `devices`: whose memory that is, as a bit; 0: the current context's. Nothing for a thread that is inside. The call may be
   the first that the process asks memory by, so the core is made, except while a capture is active. */
void sg_refusals_add_outside(uint64_t devices, enum segalloc_outside by, size_t bytes);
static inline void sg_refusals_note_outside(CUresult result, uint64_t devices, enum segalloc_outside by, size_t bytes)
{
    if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0))
        sg_refusals_add_outside(devices, by, bytes);
}

/* Its caller raises an error now. */
void sg_refusals_raise(void);

/* PyTorch was refused. Without its cache it has nothing to give back, and raises its error at once. With it, it writes the
   text of its error the next time that the thread asks how much memory is free. Source: CUDACachingAllocator.cpp, malloc(). */
void sg_refusals_of_torch(void);
void sg_refusals_ask(void);

/* Counts the questions so far, for the statistics of the device. */
void sg_refusals_count_questions(struct sg_core *core, int device);

/* The process ends: what is open has failed. In a forked child nothing is open. */
void sg_refusals_end(void);
void sg_refusals_forget(void);

#endif
