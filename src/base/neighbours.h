/* The processes of one user that hold device memory, in a table in the machine's shared memory.

   A *neighbour* is another process of the user that uses segalloc. A *row* of the table belongs to one process. A
   *request* is a count that rises in the row (`asked`); its *answer* is a second count that follows it (`answered`).

   Why: two programs share a card, and one holds 6 GiB of idle pages while the other runs out. The driver cannot move
   memory between them. So the one that runs out asks its neighbours to give idle pages back, and tries again.

   How: the owner of a row sleeps on `asked` (a futex). A process that asks sets the bits of the devices,
   raises `asked` and sleeps on `answered`. The owner sets `answered` to the value of `asked` that it saw before it began.
   So requests that come while one is under way are answered together by the next round.

   Example, rows of processes 100 and 200. Device ids are the same for both, here 7.
     row 100: devices {7}, asked 4, answered 4      row 200: devices {7}, asked 0, answered 0
     200 runs out and asks all others that use device 7, and waits for at most its timeout
     row 100: wanted 1 (bit 0: index 0), keep 0, asked 5; process 100 wakes up and trims device 7 to 0 bytes
     row 100: given + 6 GiB, held and idle set anew, answered 5; process 200 wakes up: 6 GiB were given back

   An *order* is a pause or resume of a tag of memory (core/pause.h), for one process. Whoever gives it owns the row's
   order until the answer is read: `what` goes from 0 to its number, and back.

   One file a user, /dev/shm/segalloc-UID, is made by the first process that needs it and left behind by the last. It has
   126 KiB. A row whose process has ended is taken by the next one; a process is known by its id and its start time.

   Limits: 256 processes, 16 devices each. Processes of other users are not asked, and a process in another namespace of
   process ids counts as ended. libc only; no heap; no lock, because every field is atomic. */
#ifndef SG_NEIGHBOURS_H
#define SG_NEIGHBOURS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SG_NEIGHBOURS = 256, SG_NEIGHBOUR_DEVICES = 16 };

/* The row of one process. Its owner alone changes `answered`, `started`, `given` and `devices`. */
struct sg_neighbour {
    _Atomic int32_t pid; /* 0: free; -1: being taken */
    _Atomic uint32_t asked, answered; /* counts of requests */
    _Atomic uint32_t wanted;  /* bit by index in `devices`: to be trimmed */
    _Atomic uint64_t started; /* when, in ticks since boot: a process id is used again */
    _Atomic uint64_t keep;    /* bytes that the latest request leaves on each device */
    _Atomic uint64_t given;   /* bytes given back in all because somebody asked */
    _Atomic uint64_t devices[SG_NEIGHBOUR_DEVICES]; /* ids, the same in all processes; 0: none */
};

/* The orders that a process may be given, and the bytes of a tag's name with its NUL. */
enum sg_neighbour_order { SG_NEIGHBOUR_NO_ORDER, SG_NEIGHBOUR_BEING_ORDERED, SG_NEIGHBOUR_PAUSE, SG_NEIGHBOUR_RESUME };
enum { SG_NEIGHBOUR_TAG = 64 };

struct sg_neighbours {
    uint64_t magic;
    _Alignas(64) struct sg_neighbour list[SG_NEIGHBOURS];
    /* Bytes that each process held of each of its devices when it answered last. At the end: versions without it use
       the rest of the table beside this one. */
    _Atomic uint64_t held[SG_NEIGHBOURS][SG_NEIGHBOUR_DEVICES];
    /* Bytes among those that it would have given back then. */
    _Atomic uint64_t idle[SG_NEIGHBOURS][SG_NEIGHBOUR_DEVICES];
    /* The order that each process was given last. */
    struct {
        _Atomic uint32_t what;   /* enum sg_neighbour_order, written last; NO_ORDER once the answer was read */
        _Atomic uint32_t result; /* the driver's number; UINT32_MAX: not carried out yet */
        _Atomic uint64_t bytes;  /* of pages that left, or came */
        _Atomic uint64_t tag[SG_NEIGHBOUR_TAG / 8]; /* its name; empty: all tags */
    } order[SG_NEIGHBOURS];
};

/* Maps the table of `user` for as long as the process lives; `create` makes the file where it isn't there. Returns 0 or a
   negative errno. -EPERM: the file isn't the user's own, or others can write to it. -ENOSPC: shared memory is full.
   -EPROTO: the table has another layout. */
int sg_neighbours_map(uid_t user, bool create, struct sg_neighbours **ret);

/* Takes a row for this process: that of its own id, else a free one, else one whose process has ended. NULL: all 256 are
   in use. sg_neighbours_leave() answers every open request and frees the row. */
struct sg_neighbour *sg_neighbours_join(struct sg_neighbours *table);
void sg_neighbours_leave(struct sg_neighbour *own);

/* The row of the living process `pid`; NULL: it has none. */
struct sg_neighbour *sg_neighbours_find(struct sg_neighbours *table, pid_t pid);

/* Asks the owner of a row to trim the devices in `wanted`, a bit for each index of `devices`, to `keep` bytes each.
   Does not wait. */
void sg_neighbour_ask(struct sg_neighbour *other, uint32_t wanted, uint64_t keep);

/* Gives the owner of a row an order, and wakes it. `tag`: below SG_NEIGHBOUR_TAG bytes; NULL: all. False: another one's is
   under way. Does not wait. */
bool sg_neighbour_order(struct sg_neighbours *table, struct sg_neighbour *other, enum sg_neighbour_order what,
    const char *tag);

/* Reads the answer to an order once sg_neighbour_wait() has returned true, and ends it. False: the process did not know what
   was asked: it has an older library. */
bool sg_neighbour_order_end(struct sg_neighbours *table, struct sg_neighbour *other, uint32_t *ret_result,
    uint64_t *ret_bytes);

/* For the owner, before it answers: its open order, and what became of it. NO_ORDER: there is none. `ret_tag` has
   SG_NEIGHBOUR_TAG bytes. */
enum sg_neighbour_order sg_neighbour_take_order(struct sg_neighbours *table, const struct sg_neighbour *own,
    char *ret_tag);
void sg_neighbour_note_order(struct sg_neighbours *table, const struct sg_neighbour *own, uint32_t result,
    uint64_t bytes);

/* Asks all living processes but `own`, which may be NULL, that use the device `id`, and waits for them, `timeout_ns`
   at most in all. One that owes an answer to an earlier question may be stopped: `owing_ns` is its limit. Returns the bytes
   that they gave back meanwhile. */
uint64_t sg_neighbours_ask_all(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns, uint64_t owing_ns);

/* Asks the same processes what they hold idle of the device, and waits for their answers, `timeout_ns` at most in all.
   Returns the sum in bytes; nothing is given back. A process that still owes an answer to somebody is not waited for, and
   counts as one that has nothing. `own`: NULL for a caller without a row. */
uint64_t sg_neighbours_idle(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns);

/* For the owner, before it answers: what it holds of the device at `index` in its row, and how much of that idle. */
void sg_neighbours_hold(struct sg_neighbours *table, const struct sg_neighbour *own, int index, uint64_t bytes,
    uint64_t idle);

/* Bytes that another process held of a device when it last answered a request. */
struct sg_neighbour_holds {
    pid_t pid;
    uint64_t bytes;
};

/* The living processes but `own` that hold memory of the device `id`, in no order. Returns how many of them are in
   `ret`, `most` at most. */
size_t sg_neighbours_holding(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    struct sg_neighbour_holds *ret, size_t most);

/* Waits until all requests that the row has by now are answered, for `timeout_ns` at most. False: that took longer. */
bool sg_neighbour_wait(struct sg_neighbour *other, uint64_t timeout_ns);

/* For the owner: wakes those who wait, after `answered` was set. */
void sg_neighbour_answered(struct sg_neighbour *own);

/* For the owner: sleeps until somebody asks (true), for `timeout_ns` at most; 0: for ever. */
bool sg_neighbour_sleep(struct sg_neighbour *own, uint64_t timeout_ns);

#endif
