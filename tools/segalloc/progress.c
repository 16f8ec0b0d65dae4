#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double progress_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void sg_progress_show(struct sg_progress *progress, const char *what, double share)
{
    if (!progress->calls++) {
        progress->terminal = isatty(STDERR_FILENO);
        progress->began = progress->shown = progress_now();
    }
    if (!progress->terminal || share < 0 || progress->calls % 16)
        return;
    double time = progress_now();
    if (time - progress->began < 0.5 || time - progress->shown < 0.1)
        return;
    progress->shown = time;
    progress->visible = true;
    fprintf(stderr, "\r%s %3.0f %%", what, share < 1 ? share * 100 : 100);
    fflush(stderr);
}

void sg_progress_end(struct sg_progress *progress)
{
    if (progress->visible)
        fputs("\r\033[K", stderr);
}
