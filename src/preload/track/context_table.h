/* The table of the contexts that are alive. contexts.c fills it.

   Nouns. An *entry* is a context's place. It keeps its *index* while its context lives, so that hazard pointers
   (context_pins.h) can count by index. The list `index` has the indexes of the live ones without gaps.

   Why. Every strict free looks a context up, so a look-up takes no lock: handles are atomic and an entry never moves.

   For example, contexts A, B and C have entries 0, 1 and 2, and the list is 0 1 2. B ends: its entry's handle is NULL,
   the list is 0 2. D comes: it takes entry 1, and the list is 0 2 1. A thread that counted for C at index 2 meanwhile
   still does. */
#ifndef SG_CONTEXT_TABLE_H
#define SG_CONTEXT_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* More contexts than this are served too, more slowly. The core gets to know of them when they first allocate. */
enum { SG_CONTEXTS_KNOWN = 1024 };

/* Facts about a context. */
struct sg_context_info {
    CUcontext context;
    uint64_t id; /* the driver's number, which no other context has had; 0: it gives none */
    int device;
    bool primary;
    bool end_announced; /* a thread is announcing the end to all other parts */
    CUgreenCtx green;   /* of which it was made */
};

struct sg_context_entry {
    _Atomic(CUcontext) context;  /* NULL: unused. Changed with SG_LOCK_CONTEXTS, as `ending` */
    atomic_int ending;           /* calls under way that may end it */
    struct sg_context_info info; /* guarded by SG_LOCK_CONTEXTS */
};

struct sg_context_table {
    struct sg_context_entry entry[SG_CONTEXTS_KNOWN];
    atomic_int used;                   /* entries that are, or were, a context's; changed with SG_LOCK_CONTEXTS */
    int alive;                         /* contexts; guarded by SG_LOCK_CONTEXTS, as the next */
    uint16_t index[SG_CONTEXTS_KNOWN]; /* of the entries of those; the last one fills the place of one that goes */
};
extern struct sg_context_table sg_context_table __attribute__((visibility("hidden")));

/* Counts the beginnings and ends of calls that may end a context, and the contexts that have gone. */
extern atomic_uint sg_context_pins_epoch __attribute__((visibility("hidden")));

/* The index of a context's entry; below 0: it has none, or is NULL. Unless SG_LOCK_CONTEXTS is held, the context may go meanwhile. */
int sg_context_index(CUcontext context);

/* The facts about a context; NULL: it has no entry. `_locked`: SG_LOCK_CONTEXTS is held. */
struct sg_context_info *sg_context_info_locked(CUcontext context);

/* Context number `i` of those that are alive, from 0 on; NULL: there are fewer. */
struct sg_context_info *sg_context_alive_locked(int i);

/* Adds a context that has no entry; removes one. False: the table is full. */
bool sg_context_add_locked(const struct sg_context_info *info);
void sg_context_remove_locked(CUcontext context);

/* Counts calls under way that may end the context: one more (1) or less (-1). No call that names it begins meanwhile. */
void sg_context_ending_locked(CUcontext context, int more);

/* True if such a call is under way. No lock. */
bool sg_context_is_ending(CUcontext context);

#endif
