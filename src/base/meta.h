/* Host memory for the allocator's own tables: straight from the kernel, touched lazily, never from the program's heap.

   Why not malloc(): the library runs inside the program's allocations and frees, in forked children, and while the
   program runs out of memory. Its heap may be locked by the very thread that called, replaced by another allocator, or
   exhausted.

   Example. The extents of a device are reserved as 1 GiB of addresses. A program with 10,000 extents touches 625 KiB of
   them, since an extent is 64 bytes. The kernel gives that much memory and no more. */
#ifndef SG_META_H
#define SG_META_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory of `bytes`, rounded up to pages by the kernel; NULL: there is none. Untouched parts cost nothing, also in
   a program that locks its memory (mlockall), where `bytes` is 1 MiB or more. Larger
   tables, from 16 MiB on, are advised to take huge pages behind their first 4 MiB. */
void *sg_meta_map(size_t bytes);

/* Gives the memory back. `bytes` is what was asked for; a `memory` of NULL is fine. */
void sg_meta_unmap(void *memory, size_t bytes);

/* Returns `memory`, and notes that the host had none where it is NULL: for memory of other functions, such as calloc(). */
void *sg_meta_noted(void *memory);

/* True once the host has refused this process memory for tables. Decisions after that depend on it, so a replay elsewhere
   cannot repeat them. Any thread may ask. */
bool sg_meta_ran_out(void);

#endif
