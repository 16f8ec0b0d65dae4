/* A line of progress on stderr while that is a terminal and the work takes longer than half a second. */
#ifndef SG_PROGRESS_H
#define SG_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct sg_progress { /* begins as zeros */
    double began, shown;
    uint32_t calls;
    bool terminal, visible;
};

/* `share` from 0 to 1; negative when unknown: then nothing is shown. Cheap enough for every batch. */
void sg_progress_show(struct sg_progress *progress, const char *what, double share);
/* Removes the line. */
void sg_progress_end(struct sg_progress *progress);

#endif
