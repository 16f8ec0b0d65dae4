/* The contexts of the process: which are alive, on which device, and which may be ending.

   An *entry* is a place in the list that has a context, or NULL since that context has gone. A context *may be ending*
   while a call that can destroy it is under way: cuCtxDestroy, cuDevicePrimaryCtxReset and the like.

   Why: a call of ours that names a context which ends at that moment is undefined. And a free that waits for all work has
   to know all contexts of the device. Both ask often, so look-ups take no lock: entries are atomic, and the count only
   grows. One lock of the owner guards all changes.

   Example. Device 0 has its primary context P, and the program makes Q and destroys it.
     add P         entries {P}          count 1
     add Q         entries {P, Q}       count 2
     ending Q      ending {0, 1}        all_ending 1: calls that would name Q are left out
     remove Q      entries {P, NULL}    count 2; P is the only one of device 0 again
     add R         entries {P, R}       the empty place is used again

   Limits: 1024 contexts. `missed` says that there were more; those are not followed. */
#ifndef SG_CONTEXT_LIST_H
#define SG_CONTEXT_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

enum { SG_CONTEXTS_MAX = 1024 /* more than a device has memory for */ };

/* All zero: no context. */
struct sg_context_list {
    _Atomic(CUcontext) context[SG_CONTEXTS_MAX]; /* NULL where one has gone */
    _Atomic uint8_t device[SG_CONTEXTS_MAX];
    _Atomic uint32_t count;                   /* entries in use or used before; only grows */
    _Atomic bool missed;                      /* there were more than fit */
    _Atomic uint32_t ending[SG_CONTEXTS_MAX]; /* calls under way that may end it: no call of ours names it meanwhile */
    _Atomic uint32_t all_ending;              /* the sum of those */
};

/* The number of entries to look at, empty ones included. */
static inline uint32_t sg_context_list_count(const struct sg_context_list *contexts)
{
    return atomic_load_explicit(&contexts->count, memory_order_acquire);
}

/* The context of an entry below the count; NULL: it has gone. */
static inline CUcontext sg_context_list_at(const struct sg_context_list *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->context[index], memory_order_relaxed);
}

/* The device of an entry below the count, as an ordinal. It means nothing where the context has gone. */
static inline int sg_context_list_device(const struct sg_context_list *contexts, uint32_t index)
{
    return atomic_load_explicit(&contexts->device[index], memory_order_relaxed);
}

/* The index of the entry of a context or, with NULL, of the first empty one; -1: there is none. Costs a pass over all. */
int sg_context_list_find(const struct sg_context_list *contexts, CUcontext context);

/* True if no context but this one is known. */
bool sg_context_list_is_only(const struct sg_context_list *contexts, CUcontext context);

/* The number of contexts that a device has. */
uint32_t sg_context_list_of(const struct sg_context_list *contexts, int device);

/* True while a call that may end the context is under way. Costs one look where no context is ending. */
bool sg_context_list_is_ending(const struct sg_context_list *contexts, CUcontext context);

/* Changes, under the owner's lock. A context that is known is not added again. For an unknown one the other two do nothing.
   Calls that may end a context nest: each sets `ending` as it begins, and clears it as it returns. */
void sg_context_list_add(struct sg_context_list *contexts, int device, CUcontext context);
void sg_context_list_remove(struct sg_context_list *contexts, CUcontext context);
void sg_context_list_set_ending(struct sg_context_list *contexts, CUcontext context, bool ending);

#endif
