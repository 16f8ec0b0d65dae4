/* Entries are written under SG_LOCK_PROCESS, and counted last; so a reader needs no lock. */
#include "track/memory_tags.h"

#include <stdatomic.h>
#include <string.h>

static struct {
    struct entry {
        char name[SG_TAG_NAME];
        enum sg_tag_keep keep;
        _Atomic uint32_t number; /* in the core; 0: not looked up yet */
    } entry[SG_TAGS];            /* the first is none */
    _Atomic uint32_t count;
} names;

_Atomic uint32_t sg_memory_tags_standard;

/* The place of a name that is in the table; 0: it is not. */
static uint32_t names_find(const char *name, enum sg_tag_keep keep)
{
    uint32_t count = atomic_load_explicit(&names.count, memory_order_acquire);
    for (uint32_t i = 1; i <= count; i++)
        if (names.entry[i].keep == keep && strcmp(names.entry[i].name, name) == 0)
            return i;
    return 0;
}

/* The place of a name, which is made if it is new; 0: there is no room. */
static uint32_t names_intern(const char *name, enum sg_tag_keep keep)
{
    uint32_t at = names_find(name, keep);
    if (at)
        return at;
    sg_process_lock(SG_LOCK_PROCESS);
    at = names_find(name, keep);
    uint32_t count = atomic_load_explicit(&names.count, memory_order_relaxed);
    if (!at && count + 1 < SG_TAGS) {
        at = count + 1;
        strcpy(names.entry[at].name, name);
        names.entry[at].keep = keep;
        atomic_store_explicit(&names.count, at, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_PROCESS);
    return at;
}

/* Makes the findings of the fast path stale: the tag is one of them. */
static void tags_changed(struct sg_thread *self)
{
    unsigned stale = atomic_load_explicit(&sg_fast_path_epoch, memory_order_acquire) - 1;
    self->fast_path.epoch = self->stream_fast_path.epoch = stale;
}

CUresult sg_memory_tags_push(const char *name, enum sg_tag_keep keep)
{
    struct sg_thread *self = sg_this_thread();
    size_t length = name ? strlen(name) : 1;
    if (length == 0 || length >= SG_TAG_NAME)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t at = name ? names_intern(name, keep) : 0;
    if ((name && !at) || self->rare.tags.depth == SG_TAGS_DEEP)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->rare.tags.stack[self->rare.tags.depth++] = (uint8_t)at;
    tags_changed(self);
    return CUDA_SUCCESS;
}

CUresult sg_memory_tags_pop(void)
{
    struct sg_thread *self = sg_this_thread();
    if (self->rare.tags.depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    self->rare.tags.depth--;
    tags_changed(self);
    return CUDA_SUCCESS;
}

bool sg_memory_tags_open(const char *name)
{
    bool fits = strlen(name) < SG_TAG_NAME;
    atomic_store(&sg_memory_tags_standard, *name && fits ? names_intern(name, /* discard */ false) : 0);
    return fits;
}

uint32_t sg_memory_tags_now_slow(struct sg_core *core)
{
    const struct sg_thread *self = sg_this_thread();
    uint32_t at = self->rare.tags.depth ? self->rare.tags.stack[self->rare.tags.depth - 1]
                                        : atomic_load_explicit(&sg_memory_tags_standard, memory_order_relaxed);
    if (!at)
        return 0;
    struct entry *entry = &names.entry[at];
    uint32_t number = atomic_load_explicit(&entry->number, memory_order_relaxed);
    if (!number) {
        number = sg_core_tag(core, entry->name, entry->keep);
        atomic_store_explicit(&entry->number, number, memory_order_relaxed);
    }
    return number;
}
