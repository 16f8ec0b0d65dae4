#ifndef LAYOUT_TABLE_H
#define LAYOUT_TABLE_H

#include <stddef.h>

struct layout {
    const char *name;
    size_t value; /* a size, an offset or a number */
};
extern const struct layout ours[], theirs[]; /* end with a NULL name */

#endif
