/* Libraries that the processes of a command had loaded when they ended. The kernel lists them, since our library may
   not have been loaded at all. */
#ifndef SG_LAUNCH_LOADED_LIBRARIES_H
#define SG_LAUNCH_LOADED_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launch/launch.h"

struct sg_watched {
    pid_t pid;
    char program[256];  /* file name of the program that it ran last */
    bool seen;          /* what follows is known: it ended while we looked, and not by SIGKILL */
    bool dynamic;       /* the loader was in it: LD_PRELOAD can have an effect */
    bool library;       /* libsegalloc.so was loaded */
    bool driver;        /* libcuda.so was */
    bool runtime;       /* libcudart was, as a library of its own */
    int runtime_major;  /* of the newest such library, by its file name; 0: none, or it does not say */
    char drivers[2][512]; /* paths of the libcuda.so that were, as far as they differ; "": none */
    bool torch;         /* PyTorch's CUDA library was */
    bool verbs;         /* libibverbs was */
    uint64_t modules;   /* those of preload/process/modules.def that were, a bit for each row */
    uint64_t excused;   /* rows whose module says nothing, because another one that needs it was loaded */
    char own_runtime[256]; /* file name of the program or a library of it that has NVIDIA's runtime within; "": none */
};

struct sg_watch {
    struct sg_watched *process; /* in the order of their beginning, the command first */
    size_t count;
    bool traced;                /* false: the system doesn't let us look; there is only the command, not `seen` */
    int status;                 /* the command's, as a shell would say it */
};

/* Notes the modules of a line of /proc/PID/maps. */
void sg_watched_note_modules(struct sg_watched *process, const char *line);

/* The first module of a process that gives memory to network cards or other processes, as the table names it; NULL: none. */
const char *sg_watched_sharer(const struct sg_watched *process);

/* True if the process had a module of that table, named by the prefix that stands there: "libnccl.so". */
bool sg_watched_has(const struct sg_watched *process, const char *module);

/* Runs argv, found as sg_launch_exec() does, and waits for it. The environment has been prepared. SIGINT,
   SIGQUIT, SIGTERM and SIGHUP are the command's; ended by one, it leaves no process behind. 0, or a negative errno. */
int sg_watch_run(const struct sg_launch *launch, char **argv, bool stdout_to_stderr, struct sg_watch *ret);
void sg_watch_free(struct sg_watch *watch);

#endif
