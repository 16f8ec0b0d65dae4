/* The contexts of the process: which are alive, on which device, and which may be ending. Lookups take no lock. One lock
   of the owner guards all changes. */
#ifndef SG_CONTEXT_LIST_H
#define SG_CONTEXT_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

enum { SG_CONTEXTS_MAX = 1024 /* more than a device has memory for */ };

struct sg_context_list {
    _Atomic(CUcontext) context[SG_CONTEXTS_MAX]; /* NULL where one has gone */
    _Atomic uint8_t device[SG_CONTEXTS_MAX];
    _Atomic uint32_t count;                   /* entries in use or used before; only grows */
    _Atomic bool missed;                      /* there were more than fit */
    _Atomic uint32_t ending[SG_CONTEXTS_MAX]; /* calls under way that may end it: no call of ours names it meanwhile */
    _Atomic uint32_t all_ending;              /* the sum of those */
};

static inline uint32_t sg_context_list_count(const struct sg_context_list *contexts)
{
    return atomic_load_explicit(&contexts->count, memory_order_acquire);
}

/* The context of an entry below the count; NULL: it has gone. */
static inline CUcontext sg_context_list_at(const struct sg_context_list *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->context[index], memory_order_relaxed);
}

static inline int sg_context_list_device(const struct sg_context_list *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->device[index], memory_order_relaxed);
}

/* The entry of a context, or with NULL the first that is empty; -1: there is none. */
int sg_context_list_find(const struct sg_context_list *contexts, CUcontext context);

/* Whether no other context is known. */
bool sg_context_list_is_only(const struct sg_context_list *contexts, CUcontext context);

/* How many a device has. */
uint32_t sg_context_list_of(const struct sg_context_list *contexts, int device);

/* Whether a call that may end the context is under way. */
bool sg_context_list_is_ending(const struct sg_context_list *contexts, CUcontext context);

/* Changes, under the lock. A context that is known is not added again. An unknown one is not removed, nor ending. */
void sg_context_list_add(struct sg_context_list *contexts, int device, CUcontext context);
void sg_context_list_remove(struct sg_context_list *contexts, CUcontext context);
void sg_context_list_set_ending(struct sg_context_list *contexts, CUcontext context, bool ending);

#endif
