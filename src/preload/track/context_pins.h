/* Calls of ours that name a context which another thread may end: the ending thread waits for them.

   Nouns. A *pin* says that a call names the context. It is a *hazard pointer*: published by the user, looked for by
   whoever ends the context.

   Why. Each strict free beside a second context is such a call. So pins take no lock and write no cache line that
   threads share. The expensive half is left to the thread that ends a context.

   How. Each of the first 63 threads has a row. On the short way it stores the handle there, then checks that nothing
   has begun to end. On the long way it raises a count by index. The ending thread announces itself, makes all stores
   visible by membarrier, and scans all rows.

   Limits. Further threads share row 63, and take the long way always.

   For example, thread 1 frees a block of context A and pins A in row 0. Thread 2 destroys A: it raises the epoch from 4
   to 5, scans, finds A in row 0, and rests for 20 us. Thread 1's wait ends and it clears the row; thread 2 asks the
   driver. A later free of thread 1 finds epoch 5 and looks A up anew: it is gone. */
#ifndef SG_CONTEXT_PINS_H
#define SG_CONTEXT_PINS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/core.h"
#include "process/process.h"
#include "track/context_table.h"
#include "base/wrap.h"

/* Where a thread publishes the context that it names: a row for each of the first threads; later threads share the
   last. */
struct sg_hazard_record {
    _Alignas(64) _Atomic(CUcontext) pinned; /* by the short way, of a row that isn't shared; NULL: none */
    atomic_int pins[SG_CONTEXTS_KNOWN];     /* by the long one: how many name the context of each index */
};

/* Around a call of ours that names a context of another thread's. Nobody destroys it meanwhile; one that is being
   destroyed is waited for. Returns what sg_context_unpin() takes. Below 0, and no end then: the context is gone, with
   its work. No lock. */
int sg_context_pin(CUcontext context);
void sg_context_unpin(int use);

/* Names a context as sg_context_pin() does, and makes it current meanwhile. */
int sg_context_pin_current(CUcontext context);
void sg_context_unpin_current(int use);

/* An asymmetric hazard pointer, for a thread that names one context at a time and has named it before. The user
   publishes the context, then checks `changes`. The ending thread raises `changes`, then scans all rows. Both orders
   need a fence. Where the kernel can make one in all threads (membarrier), the ending thread does: a locked
   instruction in each free would be a tenth of it. False: take the slow path, which caches its finding for the next
   call. */
static inline struct sg_pin_entry *sg_context_pin_entry(struct sg_thread *self, CUcontext context)
{
    return &self->pin_cache[sg_hash((uintptr_t)context) >> (64 - SG_PIN_CACHE_BITS)];
}
static inline bool sg_context_pin_cached(struct sg_thread *self, CUcontext context)
{
    const struct sg_pin_entry *entry = sg_context_pin_entry(self, context);
    if (entry->context != context || !context)
        return false;
    atomic_store_explicit(&self->hazard->pinned, context, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (entry->changes == atomic_load_explicit(&sg_context_pins_epoch, memory_order_acquire))
        return true;
    atomic_store_explicit(&self->hazard->pinned, NULL, memory_order_release);
    return false;
}
static inline void sg_context_unpin_cached(struct sg_thread *self)
{
    atomic_store_explicit(&self->hazard->pinned, NULL, memory_order_release);
}

/* True if calls are under way that name the context, after sg_context_ending_locked(). For contexts.c. */
bool sg_context_is_pinned(CUcontext context);

/* Between two looks at that, or at sg_context_is_ending(): sleeps 20 us. Such waits are rare and short. */
void sg_context_pins_rest(void);

/* When there is a second context: makes calls that name one cheaper from here on, where the kernel
   can. */
void sg_context_pins_use_membarrier(void);

#endif
