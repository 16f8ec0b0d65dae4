/* Files that were there before the rehearsal are kept. The kernel asks the tool before the program opens a file for writing,
   truncates, renames or removes one. It does so by seccomp's notifications, which see every program, also those that do not
   go through libc (safetensors). It asks before a process ends too, or sends a signal, so the ends of all are known,
   whatever shell or parent hides them. */
#ifndef SG_REHEARSE_KEEP_H
#define SG_REHEARSE_KEEP_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "install_paths.h"

struct sg_keep {
    const char *verb;            /* for messages */
    char run[SG_PLACE_BYTES];    /* the folder of the run: how its processes end is noted there (ends.h) */
    bool keeps;                  /* files are kept too; else the next three have no meaning */
    char folder[SG_PLACE_BYTES]; /* for what is kept, and its journal */
    struct timespec began;       /* by the file system of that folder */
    unsigned long long files;    /* that were kept so far */
};

/* rehearse/keep_files.c: called before a call of the program, with names from the root. False: it is to fail. */
bool sg_keep_before_write(struct sg_keep *keep, const char *path, bool truncates);
bool sg_keep_before_removal(struct sg_keep *keep, const char *path);
bool sg_keep_before_rename(struct sg_keep *keep, const char *from, const char *to);

/* rehearse/keep_watch.c. In the child: from here on such calls of this process and its children wait for an answer. Sends
   `socket` the file to be given to sg_keep_watch(), or nothing where the system does not let it. */
void sg_keep_install(int socket);
/* In the tool: takes that file from the other end. Negative: there is none. */
int sg_keep_receive(int socket);
/* Answers until no process is left that asks, on a thread of its own, with a copy of `keep`; takes `listener` over. False:
   no thread. */
bool sg_keep_watch(const struct sg_keep *keep, int listener);
/* Before the tool ends: leaves a process behind that answers for as long as others are there that ask. Without it the calls of
   what the program has left behind would fail. */
void sg_keep_leave(void);
/* True if this system has what it takes for keeping files, and for noting the ends of processes. */
bool sg_keep_possible(void);

/* rehearse/kept.c. Before the run: makes the folder for what is kept, within that of the run. False after a line on stderr. */
bool sg_kept_begin(struct sg_keep *keep, const char *run_folder);
/* After the run: puts the files back, and says so. False where one can't be: its folder must stay. */
bool sg_kept_end(const char *verb, const char *run_folder);
/* The same for rehearsals that were killed, in the folder for temporary files. */
void sg_kept_recover(const char *verb, const char *temporary);
/* Removes the folder of a run with all that is in it. */
void sg_kept_drop(const char *run_folder);

#endif
