/* A file that is replaced in one step: a reader finds the one before or the new one, whole.

   Why: statistics are written twice a second while tools read them, and a process may be killed in the middle. The new
   content goes to PATH.PID.new first. Then rename() puts it in place, which either happens or does not.

   Example, stats.json and process 100:
     open     stats.json.100.new is made, for this user alone to have made it
     write    the caller writes to `fd`
     close    rename to stats.json; after an error the new file is removed, and the old stats.json stays

   A path that is no regular file (a device, a FIFO, a terminal) is written into and stays what it is. So is one that the
   program's own output goes to, such as /dev/stdout. */
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

/* Opens a file for its new content; `mode` is as of open(). A link is followed if it is this user's or root's; others could have put another one there, which is
   replaced itself. A FIFO that nobody reads is ENXIO. Returns 0 or -errno; then nothing is left behind. */
int sg_replaced_file_open(struct sg_replaced_file *ret, const char *path, mode_t mode);

/* Closes the file and puts it in its place. With an `error` (-errno), which says that it is not whole, it is removed
   instead. Returns `error`, or the -errno of closing and renaming. */
int sg_replaced_file_close(struct sg_replaced_file *file, int error);

#endif
