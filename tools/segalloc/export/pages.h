/* Which pages a picture shows as held: those that blocks lay in, as long as they fit the card. A trace tells where
   blocks lay, but not when pages between them came and went. */
#ifndef SG_EXPORT_PAGES_H
#define SG_EXPORT_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "idmap.h"

#define SG_SHOWN_PAGE (UINT64_C(2) << 20)

struct sg_shown_range {
    uint64_t begin, end;
};

struct sg_shown_pages {
    struct sg_idmap page;        /* number of the page -> blocks in it, and 1 */
    uint64_t most;               /* bytes that may be held; 0: unknown */
    struct sg_shown_range *range;
    size_t ranges, room;
};

/* Told of pages that come and go. */
typedef void sg_shown_fn(void *user, bool come, uint64_t begin, uint64_t size);

bool sg_shown_init(struct sg_shown_pages *pages, uint64_t most); /* false: no host memory */
void sg_shown_fini(struct sg_shown_pages *pages);

/* A block is made, or gone. Where its pages would be too many the empty ones go first. 0 or -ENOMEM. */
int sg_shown_add(struct sg_shown_pages *pages, uint64_t begin, uint64_t end, sg_shown_fn *report, void *user);
void sg_shown_remove(struct sg_shown_pages *pages, uint64_t begin, uint64_t end);

/* Puts the ranges that are held into pages->range, ascending. 0 or -ENOMEM. */
int sg_shown_ranges(struct sg_shown_pages *pages);

#endif
