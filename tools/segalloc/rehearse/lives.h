/* The processes of a run, and which of them were there at once: what they need on one card counts together. */
#ifndef SG_REHEARSE_LIVES_H
#define SG_REHEARSE_LIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "rehearse/rehearse.h"

/* The needs of a process on one device, bytes. Smallest cards that are 0 are not known. */
struct sg_life_need {
    bool used;
    uint64_t exact;                      /* the smallest card for this very run */
    struct sg_rehearse_alone alone;      /* smallest cards that stand other orders of frees */
    uint64_t requested, reserved, taken; /* peaks; `taken` by any calls, and by this process alone */
};

/* How a process ended: by its own account or its own fault, by a signal of another one, or nobody knows (it goes on,
   too). */
enum sg_end { SG_END_IS_NOT_KNOWN, SG_END_IS_GOOD, SG_END_IS_AN_ERROR, SG_END_BY_ANOTHER };

struct sg_life {
    char name[64];         /* of its file: the trace, or the simulator's where there is none */
    unsigned began, ended; /* by numbers that grow as processes begin and end */
    unsigned first, last;  /* those of its job: all of its ranks are there for so long */
    int rank;              /* in its job, as its launcher has named it; 0 without one */
    uint64_t pid;
    char command[64];
    struct sg_life_need need[SG_DEVICES_MAX]; /* by the machine's index of the device */
    /* ends.h judges by the rest. Where a process has a trace, its file by the simulator says nothing but the end. */
    enum sg_end end;
    bool asked;            /* for memory of a device, and got some, or was refused */
    bool refused, later;   /* a call for it stays refused; others were served after the last of those */
    uint64_t most, failed; /* bytes: that it held of all devices, and of the largest such call */
};

struct sg_lives {
    int watch; /* negative: there is none, and all count as there at once */
    bool broken; /* events were lost */
    unsigned count, room, events;
    struct sg_life *life;
};

/* Before the run: watches the folder of its traces. A process has its trace open from its first allocation until it
   ends, however it ends, and the kernel tells both in their order.

   An example. `a; b` gives open a, closed a, open b: they need what the larger one needs. `a & b` gives open a, open b,
   and they need the sum.

   Ranks of a job are meant to be there at once, and it is chance if one has ended before another begins. So each counts from the
   begin of the first to the end of the last. A rank that comes again is another job's. With `mpirun -np 2 a; mpirun -np 2 b` there
   are two jobs of two processes. */
void sg_lives_begin(struct sg_lives *lives, const char *folder);
/* After the command has ended: waits for processes that it has left behind, which are children of this one now. Some
   seconds for any of them, for it may be about to ask for memory; longer for those that have begun to. Once a signal
   asks the tool to end it ends them. Returns the number of those that go on all the same. */
unsigned sg_lives_wait(struct sg_lives *lives);
/* After it: reads who was there when. */
void sg_lives_end(struct sg_lives *lives);
/* The process that has written the trace of that name; NULL: no host memory left. */
struct sg_life *sg_lives_of(struct sg_lives *lives, const char *name);
/* Joins what they need into `rehearse`: smallest cards, peaks, and devices that several used at once. Cards on which
   those do not fit together are marked. */
void sg_lives_join(struct sg_lives *lives, struct sg_rehearse *rehearse);
void sg_lives_free(struct sg_lives *lives);

#endif
