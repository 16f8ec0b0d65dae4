/* Patterns: names of files with letters behind a % that stand for the process.

     %p   process id               %h   host name                   %%   a percent sign
     %r   rank, 0 without one      %e   name of the program

   Why: one setting of `trace` or `stats` serves all ranks of a job, on all its hosts. Without a pattern the ranks would
   write into one file.

   Example: "/tmp/%e-%h-%r.trace" in rank 3 of "python" on node7 is /tmp/python-node7-3.trace. A host named "a/b" would
   give a_b: nothing that is put in can lead to another folder. */
#ifndef SG_PATH_PATTERN_H
#define SG_PATH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A variable of the environment, NULL where it is not set; getenv() is one. */
typedef char *sg_environment_fn(const char *name);

/* Writes `pattern` with %p (process id), %h (host name), %r (rank, from the variables that launchers set; 0 without),
   %e (name of the program) and %% replaced to path[size]. Nothing put in can add a folder to the path. Returns 0,
   -EINVAL for another letter after %, -ENAMETOOLONG. Needs neither heap nor locale. */
int sg_path_expand(const char *pattern, sg_environment_fn *environment, char *path, size_t size);

/* True if there is a file that `pattern` can stand for, in whichever process, last written at `since` (seconds since 1970)
   or later. True also where the folder has a % in it: then it is not known. */
bool sg_path_is_there(const char *pattern, int64_t since);

/* The place of a variable among those that say a rank, of which the first that is set counts; -1: it is none. */
int sg_path_rank_variable(const char *name, size_t length);

/* Creates the folders that lead to `path`, as mkdir -p does. 0 or a negative errno. */
int sg_path_make_parents(const char *path);

#endif
