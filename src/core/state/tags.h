/* Tags of memory: names under which a program pauses what it has allocated.

   Nouns. A *tag* is a name of the program's, with a number. Regions belong to a tag, and blocks of one tag never share a
   page with others'. Number 0 is memory without a tag, which is never paused. The tag says where its
   contents are *kept*: on the host, in files, or nowhere.

   Why by page and not by block: what leaves the device is a page, and what the driver can unmap is one too.

   Why by region: pages that leave must hold nothing else. And a program without tags asks nothing new, since its regions
   have tag 0 as its requests do.

   How: a name and a place to keep are one tag, so "kv" with contents saved and "kv" without have two numbers. A request names the
   number. It emits SEGALLOC_RECORD_TAG before its own record, so a replay asks for the same.

   Paused is a bit for each tag, apart from the regions: an allocation is refused before it looks at any.

   Limits: SG_TAGS (32) numbers a process, SG_TAG_NAME (64) bytes a name. A tag costs the last page of its small blocks and
   the last of the others.

   For example, a program allocates 3 MiB of "kv" and 1,000 bytes without a tag, in pages of 2 MiB. "kv" is number 1, and
   its region has 4 MiB. The 1,000 bytes stand in another region, on a page of their own. */
#ifndef SG_CORE_STATE_TAGS_H
#define SG_CORE_STATE_TAGS_H

#include "core/state/device.h"

/* True if the regions of a tag are paused. */
static inline bool sg_tag_is_paused_locked(const struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return device->tags.paused >> tag & 1;
}

/* Emits that the next record is of a tag; nothing for memory without one. */
static inline void sg_emit_tag_locked(struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    if (tag)
        sg_emit(device, SEGALLOC_RECORD_TAG, 0, sg_device_unknown_stream(device), tag, 0);
}

#endif
