/* A file that is replaced in one step: whoever reads it finds the one before or the new one, whole. What is no regular
   file (a device, a FIFO, a terminal) is written into and stays what it is. */
#ifndef SG_REPLACED_FILE_H
#define SG_REPLACED_FILE_H

#include <stdbool.h>
#include <sys/types.h>

enum { SG_REPLACED_BYTES = 4096 };

struct sg_replaced_file {
    int fd;                            /* to write to */
    char temporary[SG_REPLACED_BYTES]; /* where it is written; empty: into `path` itself */
    char path[SG_REPLACED_BYTES];      /* where it will stand */
};

/* Opens it. A link is followed if it is this user's or root's; others could have put another one there, which is
   replaced itself. A FIFO that nobody reads is ENXIO. Returns 0 or -errno; then nothing is left behind. */
int sg_replaced_file_open(struct sg_replaced_file *ret, const char *path, mode_t mode);

/* Closes it and puts it in its place, unless `error` (0 or -errno) says that it is not whole. Returns that, or -errno. */
int sg_replaced_file_close(struct sg_replaced_file *file, int error);

#endif
