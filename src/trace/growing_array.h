/* Arrays of the readers that grow to the index that is written.

   Example: a definition of stream 20 comes first. The array had no room: it gets 32 elements, the first doubling of 16 that
   holds index 20, all zeros; its count is 21. Stream 5 then finds room, and the count stays. */
#ifndef SG_GROWING_ARRAY_H
#define SG_GROWING_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `index` in an array of `*count` used and `*room` allocated elements of `size` bytes; new elements are
   zeros. The caller bounds `index`, which a file may have named, and frees the array. 0 or -ENOMEM. */
static inline int sg_growing_array(void **array, uint32_t *count, uint32_t *room, uint32_t index, size_t size)
{
    enum { FIRST_ROOM = 16 };
    if (index >= *room) {
        uint32_t more = *room ? *room : FIRST_ROOM;
        while (more <= index)
            more *= 2;
        char *grown = realloc(*array, more * size);
        if (!grown)
            return -ENOMEM;
        memset(grown + *room * size, 0, (more - *room) * size);
        *array = grown;
        *room = more;
    }
    if (index >= *count)
        *count = index + 1;
    return 0;
}

#endif
