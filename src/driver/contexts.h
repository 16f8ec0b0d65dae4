/* The contexts of the process: which are alive, on which device, and which may be ending. Lookups take no lock. Changes
   need one of the owner's, the same for all. */
#ifndef SG_CONTEXTS_H
#define SG_CONTEXTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

enum { SG_CONTEXTS_MAX = 1024 /* more than a device has memory for */ };

struct sg_contexts {
    _Atomic(CUcontext) context[SG_CONTEXTS_MAX]; /* NULL where one has gone */
    _Atomic uint8_t device[SG_CONTEXTS_MAX];
    _Atomic uint32_t count;                   /* entries in use or used before; only grows */
    _Atomic bool missed;                      /* there were more than fit */
    _Atomic uint32_t ending[SG_CONTEXTS_MAX]; /* calls under way that may end it: no call of ours names it meanwhile */
    _Atomic uint32_t all_ending;              /* the sum of those */
};

static inline uint32_t sg_contexts_count(const struct sg_contexts *contexts)
{
    return atomic_load_explicit(&contexts->count, memory_order_acquire);
}

/* The context of an entry below the count; NULL: it has gone. */
static inline CUcontext sg_contexts_at(const struct sg_contexts *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->context[index], memory_order_relaxed);
}

static inline int sg_contexts_device(const struct sg_contexts *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->device[index], memory_order_relaxed);
}

/* The entry of a context, or with NULL the first that is empty; -1: there is none. */
int sg_contexts_find(const struct sg_contexts *contexts, CUcontext context);

/* Whether no other context is known. */
bool sg_contexts_is_only(const struct sg_contexts *contexts, CUcontext context);

/* How many a device has. */
uint32_t sg_contexts_of(const struct sg_contexts *contexts, int device);

/* Whether a call that may end the context is under way. */
bool sg_contexts_is_ending(const struct sg_contexts *contexts, CUcontext context);

/* Changes, under the lock. A context that is known is not added again. An unknown one is not removed, nor ending. */
void sg_contexts_add(struct sg_contexts *contexts, int device, CUcontext context);
void sg_contexts_remove(struct sg_contexts *contexts, CUcontext context);
void sg_contexts_set_ending(struct sg_contexts *contexts, CUcontext context, bool ending);

#endif
