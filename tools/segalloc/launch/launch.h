/* The environment of a program under the library, on the simulated GPU, or natively. */
#ifndef SG_LAUNCH_H
#define SG_LAUNCH_H

#include <stdbool.h>

/* The line of each process at its end with what it held: never, where its stderr is a terminal, or wherever that
   goes. */
enum sg_launch_summary { SG_SUMMARY_NEVER, SG_SUMMARY_ON_TERMINAL, SG_SUMMARY_ALWAYS };

struct sg_launch {
    const char *verb;    /* for messages */
    const char *sim;     /* what --sim says, NULL for the machine's own GPUs */
    bool preload;        /* false: natively, also where this process is under the library */
    bool torch;          /* with the Python module, for PyTorch's own functions; only where `preload` is */
    bool memory_saver;   /* torch_memory_saver's calls are answered by the library; only where `preload` is */
    const char *conf;    /* what --conf says, NULL */
    const char *trace;   /* what -o says, NULL */
    bool force;          /* a trace of that name is replaced */
    const char *stats;   /* a path or pattern for statistics, NULL */
    enum sg_launch_summary summary;
    char *const *command; /* the program and its arguments; asked whether stand-ins for CUDA's libraries are wanted */
};

/* True if `sim` can be understood; false after a line on stderr. */
bool sg_launch_check(const struct sg_launch *launch);

/* Checks all of it and sets this process's environment for the program. False after a line on stderr. */
bool sg_launch_prepare(const struct sg_launch *launch);
/* After it, for commands from here on: PyTorch's memory functions stay its own, as if --torch had not been given. */
void sg_launch_leave_torch(struct sg_launch *launch);

/* After it, in a child that becomes the program in place of this process: what is known by this process's number. */
void sg_launch_is_this(const struct sg_launch *launch);

/* Becomes the program: found on PATH, or else among our own. Returns only on failure, with the exit status for
   it, after a line on stderr. */
int sg_launch_exec(const struct sg_launch *launch, char **argv);

#endif
