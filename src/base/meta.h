/* Host memory for the allocator's own tables: straight from the kernel, lazily touched, never from the program's
   heap, which may be locked, replaced or exhausted where we run. */
#ifndef SG_META_H
#define SG_META_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory of `bytes`, or NULL. Untouched parts cost nothing. */
void *sg_meta_map(size_t bytes);

/* Gives it back; NULL is fine. */
void sg_meta_unmap(void *memory, size_t bytes);

/* Notes that there was no host memory where `memory` is NULL. Returns it. */
void *sg_meta_noted(void *memory);

/* Whether the host has refused this process memory for tables: what was decided without is an answer to that, and not
   what would be decided elsewhere. */
bool sg_meta_ran_out(void);

#endif
