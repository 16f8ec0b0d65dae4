/* Host memory that only grows, for work that is repeated: there is no allocation once it is large enough.

   Example. A plan lists 100 entries of 24 bytes: 64 KiB are mapped, the least. A later one lists 5000, which are 120,000
   bytes: 128 KiB are mapped, the old bytes are copied, the 64 KiB go back. A third of 5400 entries finds room. */
#ifndef SG_SCRATCH_H
#define SG_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* All zero: none yet. A user at a time: two that work at once have one each. */
struct sg_scratch {
    void *memory;
    size_t bytes;
};

/* Makes room for `count` elements of `size` bytes. The bytes that are there stay, perhaps at another address. False: no host
   memory, and nothing has changed. */
bool sg_scratch_reserve(struct sg_scratch *scratch, size_t count, size_t size);

/* Gives the memory back; it is all zero then. */
void sg_scratch_fini(struct sg_scratch *scratch);

#endif
