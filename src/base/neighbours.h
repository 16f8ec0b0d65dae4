/* The processes of one user that hold device memory, in a table in the machine's shared memory: where one that runs out
   finds the others that use the same device and asks them to give back what they hold idle. libc only; no heap.

   One file a user, /dev/shm/segalloc-UID, made by the first process that needs it and left behind by the last. A row
   whose process has ended is taken by the next one. */
#ifndef SG_NEIGHBOURS_H
#define SG_NEIGHBOURS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SG_NEIGHBOURS = 256, SG_NEIGHBOUR_DEVICES = 16 };

/* One process. The owner sleeps on `asked`; requests that come while one is under way are seen to together. */
struct sg_neighbour {
    _Atomic int32_t pid; /* 0: free; -1: being taken */
    _Atomic uint32_t asked, answered; /* counts of requests */
    _Atomic uint32_t wanted;  /* bit by index in `devices`: to be trimmed */
    _Atomic uint64_t started; /* when, in ticks since boot: a process id is used again */
    _Atomic uint64_t keep;    /* bytes that the latest request leaves on each device */
    _Atomic uint64_t given;   /* bytes given back in all because somebody asked */
    _Atomic uint64_t devices[SG_NEIGHBOUR_DEVICES]; /* ids, the same in all processes; 0: none */
};

struct sg_neighbours {
    uint64_t magic;
    _Alignas(64) struct sg_neighbour list[SG_NEIGHBOURS];
    /* Bytes that each process held of each of its devices when it answered last. At the end: versions without it use
       the rest of the table beside this one. */
    _Atomic uint64_t held[SG_NEIGHBOURS][SG_NEIGHBOUR_DEVICES];
    /* Of those, bytes that it would have given back then. */
    _Atomic uint64_t idle[SG_NEIGHBOURS][SG_NEIGHBOUR_DEVICES];
};

/* Maps the table of `user`, for good; `create` where it isn't there. 0 or a negative errno; -EPERM for a file that
   isn't the user's own or that others can write to. */
int sg_neighbours_map(uid_t user, bool create, struct sg_neighbours **ret);

/* This process's row: that of its id, a free one, or one whose process has ended. NULL when none is left. */
struct sg_neighbour *sg_neighbours_join(struct sg_neighbours *table);
void sg_neighbours_leave(struct sg_neighbour *own);

/* The row of a living process; NULL. */
struct sg_neighbour *sg_neighbours_find(struct sg_neighbours *table, pid_t pid);

/* Asks a row's owner to trim the devices in `wanted` (bits) to `keep` bytes. */
void sg_neighbour_ask(struct sg_neighbour *other, uint32_t wanted, uint64_t keep);

/* Asks all living processes but `own`, which may be NULL, that use the device `id`, and waits for them, `timeout_ns`
   at most in all. One that owes an answer to an earlier question may be stopped: `owing_ns` is its limit. Returns the bytes
   that they gave back meanwhile. */
uint64_t sg_neighbours_ask_all(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns, uint64_t owing_ns);

/* Asks the same processes what they hold idle of the device, and waits for their answers. Returns the sum, bytes. Who still
   owes an answer to somebody is not waited for, and counts as one that has nothing. `own`: NULL for who has no row. */
uint64_t sg_neighbours_idle(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns);

/* For the owner, before it answers: what it holds of the device at `index` in its row, and how much of that idle. */
void sg_neighbours_hold(struct sg_neighbours *table, const struct sg_neighbour *own, int index, uint64_t bytes,
    uint64_t idle);

/* What another process holds of a device, bytes, as of the last request that it has answered. */
struct sg_neighbour_holds {
    pid_t pid;
    uint64_t bytes;
};

/* The living processes but `own` that hold memory of the device `id`, in no order. Returns how many of them are in
   `ret`, `most` at most. */
size_t sg_neighbours_holding(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    struct sg_neighbour_holds *ret, size_t most);

/* Waits until the requests made so far are answered; false if that takes longer. */
bool sg_neighbour_wait(struct sg_neighbour *other, uint64_t timeout_ns);

/* For the owner: wakes those who wait, after `answered` was set. */
void sg_neighbour_answered(struct sg_neighbour *own);

/* For the owner: sleeps until somebody asks (true), for `timeout_ns` at most; 0: for ever. */
bool sg_neighbour_sleep(struct sg_neighbour *own, uint64_t timeout_ns);

#endif
