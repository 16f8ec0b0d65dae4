#include "context_list.h"

int sg_context_list_find(const struct sg_context_list *contexts, CUcontext context)
{
    uint32_t count = sg_context_list_count(contexts);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load_explicit(&contexts->context[i], memory_order_acquire) == context)
            return (int)i;
    return -1;
}

bool sg_context_list_is_only(const struct sg_context_list *contexts, CUcontext context)
{
    uint32_t count = sg_context_list_count(contexts);
    for (uint32_t i = 0; i < count; i++) {
        CUcontext other = sg_context_list_at(contexts, i);
        if (other && other != context)
            return false;
    }
    return true;
}

uint32_t sg_context_list_of(const struct sg_context_list *contexts, int device)
{
    uint32_t count = sg_context_list_count(contexts), found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += sg_context_list_at(contexts, i) && sg_context_list_device(contexts, i) == device;
    return found;
}

bool sg_context_list_is_ending(const struct sg_context_list *contexts, CUcontext context)
{
    int at = atomic_load(&contexts->all_ending) == 0 ? -1 : sg_context_list_find(contexts, context);
    return at >= 0 && atomic_load(&contexts->ending[at]) > 0;
}

void sg_context_list_add(struct sg_context_list *contexts, int device, CUcontext context)
{
    uint32_t count = atomic_load_explicit(&contexts->count, memory_order_relaxed);
    bool known = sg_context_list_find(contexts, context) >= 0;
    int empty = sg_context_list_find(contexts, NULL);
    uint32_t at = empty >= 0 ? (uint32_t)empty : count;
    if (!known && at < SG_CONTEXTS_MAX) {
        /* The device first: whoever sees the context sees its device. */
        atomic_store_explicit(&contexts->device[at], (uint8_t)device, memory_order_relaxed);
        atomic_store_explicit(&contexts->context[at], context, memory_order_release);
        if (at == count)
            atomic_store_explicit(&contexts->count, count + 1, memory_order_release);
    } else if (!known) {
        atomic_store_explicit(&contexts->missed, true, memory_order_relaxed);
    }
}

void sg_context_list_remove(struct sg_context_list *contexts, CUcontext context)
{
    int at = sg_context_list_find(contexts, context);
    if (at < 0)
        return;
    atomic_store_explicit(&contexts->context[at], NULL, memory_order_relaxed);
    atomic_fetch_sub(&contexts->all_ending, atomic_exchange(&contexts->ending[at], 0));
}

void sg_context_list_set_ending(struct sg_context_list *contexts, CUcontext context, bool ending)
{
    int at = sg_context_list_find(contexts, context);
    /* Calls nest: two threads may try to end one context at the same time. */
    uint32_t calls = at >= 0 ? atomic_load(&contexts->ending[at]) : 0;
    if (at < 0 || (!ending && !calls)) /* another call may have ended it since, and it have come back */
        return;
    atomic_store(&contexts->ending[at], ending ? calls + 1 : calls - 1);
    (void)(ending ? atomic_fetch_add(&contexts->all_ending, 1) : atomic_fetch_sub(&contexts->all_ending, 1));
}
