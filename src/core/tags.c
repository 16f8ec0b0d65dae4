/* The table is written under `setup`, and its count last, so that readers need no lock. */
#include "core/tags.h"

#include <string.h>

#include "core/state/locks.h"

/* The number of a tag that is there; 0: none of that name is. */
static uint32_t find_tag(const struct sg_core *core, const char *name, enum sg_tag_keep keep)
{
    uint32_t count = atomic_load_explicit(&((struct sg_core *)core)->tag_count, memory_order_acquire);
    for (uint32_t tag = 1; tag <= count; tag++)
        if (core->tag[tag].keep == keep && strcmp(core->tag[tag].name, name) == 0)
            return tag;
    return 0;
}

/* Emits the name of a tag, two words a record. */
static void define_tag(const struct sg_core *core, uint32_t tag)
{
    const char *name = core->tag[tag].name;
    size_t length = strlen(name);
    uint64_t piece[2];
    for (size_t at = 0; at < length; at += sizeof piece) {
        memcpy(piece, name + at, sizeof piece);
        sg_event_emit(&core->observer, SEGALLOC_RECORD_DEFINE_TAG,
            (uint8_t)((at == 0 ? SEGALLOC_FLAG_FIRST : 0) | (at + sizeof piece >= length ? SEGALLOC_FLAG_LAST : 0) |
                      (core->tag[tag].keep == SG_TAG_DISCARDED ? SEGALLOC_FLAG_NATIVE : 0)),
            tag, piece[0], piece[1]);
    }
}

uint32_t sg_core_tag(struct sg_core *core, const char *name, enum sg_tag_keep keep)
{
    size_t length = strlen(name);
    uint32_t tag = find_tag(core, name, keep);
    if (tag || length == 0 || length >= SG_TAG_NAME)
        return tag;
    sg_setup_lock(core);
    tag = find_tag(core, name, keep); /* another thread may have made it since */
    uint32_t count = atomic_load_explicit(&core->tag_count, memory_order_relaxed);
    if (!tag && count + 1 < SG_TAGS) {
        tag = count + 1;
        memcpy(core->tag[tag].name, name, length);
        core->tag[tag].keep = keep;
        define_tag(core, tag);
        atomic_store_explicit(&core->tag_count, tag, memory_order_release);
    }
    sg_setup_unlock(core);
    return tag;
}

const char *sg_core_tag_name(const struct sg_core *core, uint32_t tag, enum sg_tag_keep *ret_keep)
{
    uint32_t count = atomic_load_explicit(&((struct sg_core *)core)->tag_count, memory_order_acquire);
    if (tag == 0 || tag > count)
        return NULL;
    *ret_keep = core->tag[tag].keep;
    return core->tag[tag].name;
}
