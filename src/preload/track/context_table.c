/* Entries never move, so a reader without the lock finds either the handle or another one, never half of each. Changes
   are made under SG_LOCK_CONTEXTS; each one that may end a context raises the epoch of context_pins.h first.

   For example, `used` is 3 and entry 1 is free. A reader that looks for a handle passes entries 0 to 2 and finds
   NULL in entry 1, which no handle equals. */
#include "track/context_table.h"

#include <stddef.h>

#include "process/process.h"

struct sg_context_table sg_context_table;
atomic_uint sg_context_pins_epoch;

/* The index of a handle, NULL being a free entry. Without the lock the entry may change right after. */
static int table_find(CUcontext context)
{
    int used = atomic_load_explicit(&sg_context_table.used, memory_order_acquire);
    for (int index = 0; index < used; index++) {
        if (atomic_load_explicit(&sg_context_table.entry[index].context, memory_order_relaxed) == context)
            return index;
    }
    return -1;
}

int sg_context_index(CUcontext context)
{
    return context ? table_find(context) : -1;
}

struct sg_context_info *sg_context_info_locked(CUcontext context)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int index = sg_context_index(context);
    return index >= 0 ? &sg_context_table.entry[index].info : NULL;
}

struct sg_context_info *sg_context_alive_locked(int i)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    return i < sg_context_table.alive ? &sg_context_table.entry[sg_context_table.index[i]].info : NULL;
}

/* A free entry below `used`, or the next one. The handle is stored last, after the facts. */
bool sg_context_add_locked(const struct sg_context_info *info)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int used = atomic_load_explicit(&sg_context_table.used, memory_order_relaxed), index = table_find(NULL);
    if (!info->context || (index < 0 && used == SG_CONTEXTS_KNOWN))
        return false;
    if (index < 0)
        index = used;
    sg_context_table.entry[index].info = *info;
    sg_context_table.index[sg_context_table.alive++] = (uint16_t)index;
    atomic_store(&sg_context_table.entry[index].context, info->context);
    if (index == used)
        atomic_store_explicit(&sg_context_table.used, used + 1, memory_order_release);
    return true;
}

/* The epoch first, so that no thread takes the short way to it any more. The last index of the list fills the gap. */
void sg_context_remove_locked(CUcontext context)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int index = sg_context_index(context);
    if (index < 0)
        return;
    atomic_fetch_add(&sg_context_pins_epoch, 1);
    atomic_store(&sg_context_table.entry[index].context, NULL);
    atomic_store(&sg_context_table.entry[index].ending, 0);
    int i = 0;
    while (sg_context_table.index[i] != index)
        i++;
    sg_context_table.index[i] = sg_context_table.index[--sg_context_table.alive];
}

/* Raises the epoch both ways: at the begin so that nobody takes the short way, at the end so that they look again. */
void sg_context_ending_locked(CUcontext context, int more)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int index = sg_context_index(context);
    /* another call may have ended it since, and it have come back */
    if (index < 0 || (more < 0 && atomic_load(&sg_context_table.entry[index].ending) == 0))
        return;
    atomic_fetch_add(&sg_context_table.entry[index].ending, more);
    atomic_fetch_add(&sg_context_pins_epoch, 1);
}

bool sg_context_is_ending(CUcontext context)
{
    int index = sg_context_index(context);
    return index >= 0 && atomic_load(&sg_context_table.entry[index].ending) > 0 &&
           atomic_load(&sg_context_table.entry[index].context) == context;
}
