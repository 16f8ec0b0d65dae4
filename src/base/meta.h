/* Host memory for the allocator's own tables: straight from the kernel, lazily touched, never from the program's
   heap, which may be locked, replaced or exhausted where we run. */
#ifndef SG_META_H
#define SG_META_H

#include <stddef.h>

/* Zeroed memory of `bytes`, or NULL. Untouched parts cost nothing. */
void *sg_meta_map(size_t bytes);

/* Gives it back; NULL is fine. */
void sg_meta_unmap(void *memory, size_t bytes);

#endif
