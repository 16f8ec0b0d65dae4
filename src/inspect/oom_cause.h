/* The cause of a failed allocation: the first change that alone would have served it.

   Nouns. A *holder* has memory of the device: this process by other calls, pools of the driver, or other processes.

   How. The request is held against the device as it would be without each cause in turn. They are tried in this order:
   fragmentation, queued work, graphs, the limit, the quota, others. So a user is sent to the nearest change that helps. Where no
   change helps alone, the largest comes first, and further ones are added until the request would be served.

   For example, of 12 GiB, 5 are held by cudaMallocAsync, 4 by another process, 2 are in blocks, and 3 are asked for.
   The parts add up to 11, so 1 is free. Either holder's going would do, so the larger one is named: "other calls".
   With a limit of 4, 5 are needed and 3 may be had beside the others: the limit is named, and other calls too. */
#ifndef SG_OOM_CAUSE_H
#define SG_OOM_CAUSE_H

#include "core/core.h"

/* The cause of a failed allocation: the first of these without which it would have been served, as sg_oom_cause()
   finds it. */
enum sg_oom_cause {
    SG_OOM_FRAGMENTED, /* as much is not in use, but in pieces */
    SG_OOM_QUEUED,     /* freed memory is in use by work that is still queued */
    SG_OOM_GRAPHS,     /* graphs keep freed memory, which they touch at each launch */
    SG_OOM_LIMIT,      /* the device has more than may be held */
    SG_OOM_QUOTA,      /* the device has more than the driver lets be used */
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
    bool idle;   /* nobody uses it: a pool of the driver keeps it */
    bool guards; /* the library itself has it, for guarded blocks (check:guard) */
};

/* The host's memory, where the device has none of its own. Bytes. */
struct sg_oom_host {
    uint64_t total, available, kept;  /* `kept`: nobody here takes them (host_reserve) */
    uint64_t group_limit, group_used; /* of a control group; limit UINT64_MAX: none */
};

/* The part of an out-of-memory that the core cannot know. */
struct sg_oom_around {
    const struct sg_oom_own *own; /* as far as it is known */
    size_t owns;
    uint64_t used;                        /* bytes of the device that anybody uses, the core too; 0: not known */
    uint64_t quota; /* bytes of the device that may be used in all, by MPS, vGPU or a shim; 0: there is no such bound */
    bool complete;                        /* `process` has all other processes: what none of them holds is this one's */
    const struct sg_oom_process *process; /* those that hold memory of the device, largest first */
    size_t processes;
    bool some_only;      /* there may be more processes, which nobody here can list */
    const struct sg_oom_host *host; /* NULL: the device's memory is its own */
    const char *command; /* of this process; NULL or "": unknown */
    uint64_t parked;     /* bytes of blocks that the program has freed and whose free has not reached the core yet */
    uint64_t graphs;     /* bytes of blocks that the program has freed and that graphs keep until they are destroyed */
    /* Writes the place in the program that a number stands for. False: it is not known. May be NULL. */
    bool (*site)(uint32_t site, char *text, size_t size);
};

/* The smaller of two: a value bounded by another. */
static inline uint64_t sg_oom_at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* The holders of a device besides the core, bytes. The parts add up to all that is outside. */
struct sg_oom_holders {
    uint64_t own, pools; /* this process, by other calls: in use, and idle in pools of the driver */
    uint64_t guards;     /* the part of `own` that the library itself has, for guarded blocks */
    uint64_t others;     /* other processes */
    uint64_t rest;       /* contexts and libraries: whose is not known */
};

/* Divides the memory outside among its holders. */
struct sg_oom_holders sg_oom_holders(const struct sg_oom_around *around, const struct sg_shortage *shortage);

/* Bytes of the processes that are listed. */
uint64_t sg_oom_listed(const struct sg_oom_around *around);

/* Bytes of the device that may be used in all: the quota, or what it has. */
uint64_t sg_oom_total(const struct sg_shortage *shortage, const struct sg_oom_around *around);

/* Bytes that may be held of a device of `total` if the limit were `limit` and others held `outside`. */
uint64_t sg_oom_room(uint64_t total, uint64_t limit, uint64_t outside);

/* The first cause that needs no other change besides. Where it takes several changes together, the one that gives most. */
enum sg_oom_cause sg_oom_cause(const struct sg_shortage *shortage, const struct sg_oom_around *around);

/* The causes that have to go besides the first before the request would be served, a bit each: 1 << cause. */
unsigned sg_oom_also(const struct sg_shortage *shortage, const struct sg_oom_around *around, enum sg_oom_cause first);

/* Bytes that are short where the limit alone is raised; 0: that is enough. */
uint64_t sg_oom_short_unlimited(const struct sg_shortage *shortage, const struct sg_oom_around *around);

/* The source of the limit that is in the way: options, or the program while it ran. */
struct sg_oom_limit {
    bool option, fraction; /* `limit`; per_process_memory_fraction */
    uint64_t need;         /* bytes that would do */
};

/* Finds that source by asking what the limit would be without each option. Both may be needed. */
struct sg_oom_limit sg_oom_limit(const struct sg_conf *conf, const struct sg_shortage *shortage);

#endif
