/* What the files of `integers.h` share: how a launch's arguments are kept, and elements read and written. */
#ifndef SIM_INTEGERS_PARTS_H
#define SIM_INTEGERS_PARTS_H

#include <string.h>

#include "kernels/integers.h"

/* More than this is no message, mask or count that a host looks at, and a rehearsal is to touch little memory. */
enum { BYTES_MOST = 1 << 20, ELEMENTS_MOST = 1 << 16 };

/* torch.nonzero: the sizes that its last kernel is given (Nonzero.cu). */
enum { UNRAVELLED_DIMS = 16 };

/* What a launch keeps; the arguments follow, one behind the other, each aligned to 8. */
struct kept {
    struct sim_integers what;
    unsigned count;
};

/* Where a kept argument begins. */
const unsigned char *sim_integers_argument(const struct kept *kept, unsigned wanted);

/* Locked. Whether all of it is memory of a device, or of the host as a device sees it. */
bool sim_integers_there(uint64_t address, uint64_t bytes, bool write);

/* What finds elements: CUB's sums and selection, and PyTorch's kernel that makes indices of them. */
void sim_integers_count(const struct kept *kept);
void sim_integers_select(const struct kept *kept);
void sim_integers_unravel(const struct kept *kept);

static inline uint32_t word(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t pointer(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Bytes of an element of a type; 0 for those that are no integers. */
static inline size_t size_of(char type)
{
    switch (type) {
    case 'b':
    case 'h':
    case 'a':
        return 1;
    case 's':
        return 2;
    case 'i':
        return 4;
    case 'l':
        return 8;
    default:
        return 0;
    }
}

static inline int64_t load(const void *from, char type)
{
    switch (type) {
    case 'b':
        return *(const unsigned char *)from != 0;
    case 'h':
        return *(const uint8_t *)from;
    case 'a':
        return *(const int8_t *)from;
    case 's': {
        int16_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    case 'i': {
        int32_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    default: {
        int64_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    }
}

static inline void store(void *to, char type, int64_t value)
{
    unsigned char truth = value != 0;
    memcpy(to, type == 'b' ? (void *)&truth : (void *)&value, size_of(type)); /* the lowest bytes come first */
}

#endif
