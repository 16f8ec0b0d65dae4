/* The names of tags of memory (state/tags.h), for a whole process.

   Nouns. A *tag* has a name, and says where a pause keeps contents: on the host, in files, or
   nowhere. Its *number* is from 1 to SG_TAGS - 1.

   Why numbers and not names: a request is compared with each region, and a region has a byte for its tag.

   How: a table that only grows. A tag is defined in the trace when it is made, before its first use. Limits: no tag ends,
   so a program that makes up names runs out of numbers after 31.

   For example, "weights" is number 1 and "kv", which discards, number 2. The trace has two records of 16 characters each. */
#ifndef SG_CORE_TAGS_H
#define SG_CORE_TAGS_H

#include "core/core_types.h"

/* The number of a tag, found or made. 0: there are SG_TAGS - 1 others, or the name is empty or too long. Takes `setup`
   where it is new. */
uint32_t sg_core_tag(struct sg_core *core, const char *name, enum sg_tag_keep keep);

/* The name of a tag, and where its contents are kept; NULL: there is no such tag. Valid for good. No lock. */
const char *sg_core_tag_name(const struct sg_core *core, uint32_t tag, enum sg_tag_keep *ret_keep);

#endif
