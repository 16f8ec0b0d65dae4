/* The guarded blocks, from the allocation to the end of the quarantine.

   A block goes through these states, and never back but where a free was refused:

      UNUSED ──given──▶ LIVE ──freeing──▶ TAKEN ──freed──▶ FREED ──taken to be settled──▶ TAKEN ──▶ GONE ──▶ UNUSED
                          ▲                 │
                          └──refused────────┘

   LIVE is the program's. FREED has its pages still, and waits for the work before its free. GONE has addresses without
   memory. Whoever has TAKEN a block is alone with it.

   Why a quarantine. The driver may give addresses that are freed to the next block at once. A pointer that was kept would then
   lead to memory that is there, and nothing would stop. The longer the addresses stay empty, the more uses are seen.

   Limits. 4,096 blocks. The quarantine keeps 1,024 of them, and 64 GiB of addresses: the oldest go first. A real GPU has
   128 TiB of addresses for a process.

   Locks. All functions take SG_LOCK_GUARD, and give it back; views take SG_LOCK_CHECK before it. None calls the driver.

   For example, block 7 is freed as the 1,025th since the start. Its pages go, it joins the quarantine, and the addresses
   of the block that was freed first are the driver's again. */
#ifndef SG_GUARD_TABLE_H
#define SG_GUARD_TABLE_H

#include "check/shadow.h"
#include "process/stand_ins.h"

enum {
    SG_GUARDS = 4096,
    SG_GUARD_CONTEXTS = 8, /* that a free may wait for by events; a helper thread waits for more */
    SG_QUARANTINE_MOST = 1024
};
#define SG_QUARANTINE_BYTES (UINT64_C(64) << 30)

enum sg_guard_state { SG_GUARD_UNUSED, SG_GUARD_LIVE, SG_GUARD_TAKEN, SG_GUARD_FREED, SG_GUARD_GONE };

struct sg_guard {
    struct sg_stand_in at;
    enum sg_guard_state state;
    struct sg_freed *block; /* with a reference: who allocated and freed it */
    CUcontext context;      /* in which it was allocated */
    CUmemGenericAllocationHandle page;
    uint64_t mapped;   /* bytes at `at.begin` that have memory */
    uint64_t number;   /* of its free, from 1 on */
    bool with_context; /* it was freed as its context ended */
    bool fenced;       /* events were recorded on all contexts */
    struct {
        CUcontext context; /* NULL: it has passed, or its context has gone */
        CUevent event;
    } fence[SG_GUARD_CONTEXTS];
    struct sg_guard *next; /* of FREED ones, or of GONE ones, the oldest first */
};

/* An unused block, TAKEN; NULL: all are in use, and none is in quarantine. *ret_end: the addresses of the one in quarantine
   whose place it takes, which are the caller's to give back; of 0 bytes where there was none. */
struct sg_guard *sg_guards_new(struct sg_stand_in *ret_end);

/* A TAKEN block goes on as LIVE, FREED, GONE or UNUSED. False: no host memory to make it live. */
bool sg_guards_live(struct sg_guard *guard);
void sg_guards_freed(struct sg_guard *guard);
void sg_guards_gone(struct sg_guard *guard);
void sg_guards_unused(struct sg_guard *guard);

/* Takes the live block that the core has at `inner`; any live one of a context; or the FREED one that was freed first.
   NULL: there is none. back(): it goes to the front again. */
struct sg_guard *sg_guards_take(CUdeviceptr inner);
struct sg_guard *sg_guards_take_of(CUcontext context);
struct sg_guard *sg_guards_take_freed(void);
void sg_guards_back(struct sg_guard *guard);

/* Frees so far; and whether a freed block has its pages still. */
uint64_t sg_guards_frees(void);
bool sg_guards_await(void);

/* Freed blocks whose slack is still to be read. */
unsigned sg_guards_unread(void);

/* A TAKEN block has a number as if it was freed now; and it is FREED once more. */
void sg_guards_renumber(struct sg_guard *guard);
void sg_guards_freed_again(struct sg_guard *guard);

/* Takes the oldest in quarantine where that is too full; NULL. */
struct sg_guard *sg_guards_take_surplus(void);

/* A block as others see it. */
struct sg_guard_view {
    struct sg_freed *block;   /* with a reference of its own */
    CUdeviceptr base;         /* of the block */
    CUdeviceptr begin, end;   /* of the range of addresses that it has for itself */
    CUdeviceptr gap;          /* from which on they have no memory */
    bool freed, with_context; /* its context has ended, and it was freed by that */
};

/* The block in whose range an address lies; false: none. */
bool sg_guards_at(CUdeviceptr address, struct sg_guard_view *ret);

/* Up to `room` blocks, the nearest to an address first; with 0 those that were freed last come first, and live ones after
   them. Returns how many there are. */
size_t sg_guards_list(CUdeviceptr address, struct sg_guard_view *ret, size_t room);

/* Calls `look` for each block that is used, with SG_LOCK_GUARD held. */
void sg_guards_each(void (*look)(struct sg_guard *guard, void *user), void *user);

/* The pages of a device's blocks, one block after the other, by address: the next ones behind *at, which it sets. False: there
   are no more. */
bool sg_guards_next_pages(int device, CUdeviceptr *at, uint64_t *ret_bytes);

/* Bytes of a device's memory that guarded blocks have; more, or with a negative number less. */
uint64_t sg_guards_bytes(int device);
void sg_guards_add_bytes(int device, int64_t bytes);

#endif
