/* The report of a failed allocation: its cause, and what holds the memory. */
#ifndef SG_OOM_TEXT_H
#define SG_OOM_TEXT_H

#include "core/core.h"

/* The cause of a failed allocation: the first of these without which it would have been served, as sg_oom_cause()
   finds it. */
enum sg_oom_cause {
    SG_OOM_FRAGMENTED, /* as much is not in use, but in pieces */
    SG_OOM_QUEUED,     /* freed memory is in use by work that is still queued */
    SG_OOM_LIMIT,      /* the device has more than may be held */
    SG_OOM_OTHERS,     /* other processes hold it */
    SG_OOM_POOLS,      /* this process holds it idle, in pools of the driver */
    SG_OOM_OWN,        /* this process holds it by other calls */
    SG_OOM_TOO_BIG,    /* none of them: the device has not as much */
};

/* Another process that holds memory of the device, bytes. */
struct sg_oom_process {
    int pid;
    uint64_t bytes;
    char name[32]; /* "" where it is not known */
};

/* Memory that this process holds of the device by calls that the core does not serve. */
struct sg_oom_own {
    const char *how; /* after the bytes: "by cudaMallocAsync" */
    uint64_t bytes;
    bool idle; /* nobody uses it: a pool of the driver keeps it */
};

/* The part of an out-of-memory that the core cannot know. */
struct sg_oom_around {
    const struct sg_oom_own *own; /* as far as it is known */
    size_t owns;
    uint64_t used;                        /* bytes of the device that anybody uses, the core too; 0: not known */
    bool complete;                        /* `process` has all other processes: what none of them holds is this one's */
    const struct sg_oom_process *process; /* those that hold memory of the device, largest first */
    size_t processes;
    bool some_only;      /* there may be more processes, which nobody here can list */
    const char *command; /* of this process; NULL or "": unknown */
    uint64_t parked;     /* bytes of blocks that the program has freed and whose free has not reached the core yet */
    /* Writes the place in the program that a number stands for. False: it is not known. May be NULL. */
    bool (*site)(uint32_t site, char *text, size_t size);
};

enum sg_oom_cause sg_oom_cause(const struct sg_shortage *shortage, const struct sg_oom_around *around);

/* The text block of an out-of-memory (docs/memory.md), for the most recent failure on `device`; lines end in
   newlines. The first begins "segalloc: out of memory on device N: short by SIZE". `around` may be NULL. Returns the
   length as snprintf does. */
size_t sg_core_oom_text(struct sg_core *core, int device, const struct sg_oom_around *around, char *buffer, size_t size);

#endif
