/* The state of a core, for the layers above: statistics, lists of its blocks and pages, and the text for an
   allocation that failed.

   Nouns. A *snapshot* is all statistics at one moment. A *piece* is a row of addresses in one state. A *mark* is a
   row of pages that may not move. A *cause* is the first change without which a failed allocation would have been
   served.

   Why apart from the core: the core calls none of this and decides nothing by it. All of it reads under a device's
   `lock`. The one exception is sg_core_mem_info(), which joins free memory first and says so in the trace, since that
   changes later decisions.

   Limits. A list is a copy: the next moment it may be out of date. With fixed segments there are no pieces.

   For example, a card of 24 GiB has two blocks of 1,000 bytes and one of 300 MiB and 1 byte. sg_core_placed() returns
   five pieces. The two come first, then 2,046 KiB free behind them in their page of 2 MiB. Then come the large one
   and 4,095.5 KiB free in its last page of 4 MiB. sg_core_stats() says that 306 MiB are reserved. */
#ifndef SG_CORE_STATE_H
#define SG_CORE_STATE_H

#include "core/core.h"
#include "base/stats.h"

/* Takes a snapshot with the peaks since the start. False: the device was never used. Takes `lock`, as all of these
   do. */
bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret);

/* Takes a snapshot with the peaks since sg_core_reset_peaks(), which lets the peaks of levels begin again at the
   present value. Neither decisions by a peak nor sg_core_stats() change by that. */
bool sg_core_stats_recent(struct sg_core *core, int device, struct sg_stats *ret);
void sg_core_reset_peaks(struct sg_core *core, int device);

/* Takes a snapshot with the peaks since the last call of this function, for which they begin again at the present
   value. The peaks of the two snapshots above stay as they are. False: the device was never used. */
bool sg_core_take_peaks(struct sg_core *core, int device, struct sg_stats *ret);

/* A piece of the addresses that have memory. Pieces come region by region in the order of their addresses. Addresses
   between two that don't touch have none. */
enum sg_piece_state { SG_PIECE_NONE, SG_PIECE_ALLOCATED, SG_PIECE_PENDING, SG_PIECE_FREE };
struct sg_piece {
    CUdeviceptr address;
    uint64_t bytes, requested; /* requested: 0 of free ones */
    CUstream stream;           /* that a block was allocated for, NULL if not known */
    enum sg_piece_state state;
    bool small;                /* in the region of small blocks */
};

/* Writes up to `room` pieces of `device`, and returns how many there are: 0 with fixed segments. The caller asks
   again with more room if that is more. */
size_t sg_core_pieces(struct sg_core *core, int device, struct sg_piece *ret, size_t room);

/* A piece with the pages that it lies in: they follow each other from the region's first. */
struct sg_placed {
    struct sg_piece piece;
    CUdeviceptr region; /* where its first page begins */
    uint64_t page_bytes;
    uint32_t site;      /* of a block: the place in the program that asked; 0: unknown */
};
size_t sg_core_placed(struct sg_core *core, int device, struct sg_placed *ret, size_t room);

/* Pages next to each other whose memory may not move. Pinned: somebody remembers it. Shared: it has an alias too
   (core/remap/page_alias.h). */
struct sg_page_mark {
    CUdeviceptr address;
    uint64_t bytes;
    bool pinned, shared;
};

/* Writes up to `room` runs of such pages, region by region in the order of their addresses, and returns how many
   there are. Aliases are not among them. */
size_t sg_core_page_marks(struct sg_core *core, int device, struct sg_page_mark *ret, size_t room);

/* Changes the driver's answer to cuMemGetInfo, in bytes, into ours: idle pages count as free, within the limit. It
   may ask the driver about fences, because memory whose work is complete would be free natively. */
void sg_core_mem_info(struct sg_core *core, int device, size_t *free_bytes, size_t *total_bytes);

/* True if there is memory that nobody holds and that sg_core_mem_info() leaves out, because its work is not known to
   be complete. */
bool sg_core_awaits(struct sg_core *core, int device);

/* Bytes that are held of `device` now. Cheap, for a caller that asks after each event of a replay. */
uint64_t sg_core_reserved(struct sg_core *core, int device);

/* A COUNTER of stats.def that the core keeps in no TOTAL; 0 for a device that was never used. Cheap too, and without
   a lock. */
uint64_t sg_core_counter(struct sg_core *core, int device, enum sg_stat stat);

/* The levels of a device, bytes. Cheap too; zeros for a device that was never used. */
struct sg_levels {
    uint64_t requested, allocated, pending, reserved, pinned, aliased; /* as the statistics of these names */
};
void sg_core_levels(struct sg_core *core, int device, struct sg_levels *ret);

/* The most recent failed allocation on `device`. False: there was none. */
bool sg_core_shortage(struct sg_core *core, int device, struct sg_shortage *ret);

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
    bool idle;       /* nobody uses it: a pool of the driver keeps it */
};

/* The part of an out-of-memory that the core cannot know. */
struct sg_oom_around {
    const struct sg_oom_own *own; /* as far as it is known */
    size_t owns;
    uint64_t used;       /* bytes of the device that anybody uses, the core too; 0: not known */
    bool complete;       /* `process` has all other processes: what none of them holds is this one's */
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
size_t sg_core_oom_text(struct sg_core *core, int device, const struct sg_oom_around *around, char *buffer,
    size_t size);

#endif
