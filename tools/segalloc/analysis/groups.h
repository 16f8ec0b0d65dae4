/* Blocks that were alive at a moment of a trace, in groups: by device, where it was asked for, phase and size. */
#ifndef SG_GROUPS_H
#define SG_GROUPS_H

#include <stddef.h>
#include <stdint.h>

#include "live_groups.h"
#include "analysis/walk.h"

enum { SG_GROUP_TEXT = 1024 };

struct sg_group {
    uint32_t device;
    unsigned size_class;   /* sg_live_class() */
    uint64_t blocks, bytes;
    char *site, *phase;    /* one line each; NULL: the trace does not say */
    char *stack;           /* its frames, a line each, the outermost first; NULL with `site` */
};

struct sg_groups {
    struct sg_group *group; /* largest first */
    size_t count;
    uint64_t bytes;         /* of all of them */
    struct sg_moment_found moment;
};

/* Reads the trace twice. 0, or a negative errno as of sg_moment_find(). */
int sg_groups_read(struct sg_trace_reader *reader, enum sg_moment moment, uint64_t time_ns, struct sg_groups *ret);

/* Groups of the moment where most was in use within a window. Results are those of sg_groups_read(). */
int sg_groups_read_window(struct sg_trace_reader *reader, const struct sg_window *window, struct sg_groups *ret);

/* Groups of the moment just before a request of the program, by the number that reports give an event. Reads the trace
   once, from its beginning. 0, or a negative errno. */
int sg_groups_read_before(struct sg_trace_reader *reader, uint64_t request, struct sg_groups *ret);
void sg_groups_free(struct sg_groups *groups);

/* "64 to 128 MiB". Returns `text`. */
char *sg_group_size(unsigned size_class, char text[SG_GROUP_TEXT]);

#endif
