/* Blocks with pages of their own that end at an unmapped one, by `check:guard`.

   Nouns. A *guarded* block is shown to the program at the end of pages of its own. The *gap* is the unmapped granule behind
   them. *Slack* is what lies between the end of the block and the gap: a block begins at a multiple of 512 bytes, so it is
   511 bytes at most. A block in *quarantine* is freed, and its addresses have no memory.

   Why. A fill shows a write after a free, some time later. It shows no read, and not who it was. A GPU stops at an access
   to an unmapped address. So a few blocks are placed where a wrong access is one. Which few is a draw, since each costs
   a granule: a mistake that comes again and again meets one of them in the end.

   Why the core knows nothing of it. It serves the block as any other, and has its books, its streams and its graphs right.
   The program is shown another address (process/stand_ins.h). So a replay decides as the run did. The core's own bytes of
   the block lie idle meanwhile.

   How. The pages are taken by calls of the driver. When the core has freed the block, events over all contexts follow. Once
   they have passed the pages go back. The addresses stay reserved, for as long as guard_table.h says. A helper thread
   waits where the driver has no events over a context.

   Limits. No block is guarded during a capture, on a device without pages, or in memory that legacy IPC could give away.
   Guarded blocks take 1/32 of a device at most. Between the free and the moment when the work before it is known to be
   over, a wrong access finds the memory still there.

   Errors. A call of the driver that fails leaves a block where the core has it, and the program notices nothing. After an error
   that stays nothing more is guarded. Blocks that are placed stay known, so their frees are answered as the core answers them.

   Threads. Whoever frees a block, or gives its pages back, has taken it out of the table and is alone with it. No lock is held
   across a call of the driver. Calls that may wait are made where no capture can be ruined by them.

   Costs. A block that is placed takes some calls of the driver, each of which takes microseconds. Blocks that are not drawn pay
   for a hash. Where nothing is freed a copy, a set or a wait pays for one load.

   For example, a block of 5,000 bytes takes one page of 2 MiB at 0x7f1000000000 and reserves 4 MiB there. It is shown at
   0x7f10001fec00. Its slack is the 120 bytes in front of 0x7f1000200000. A kernel that writes byte 5,000 changes the
   slack, which is compared after the free. One that writes byte 5,120 ends with error 700. After the free both pages of
   addresses are empty, and a read of byte 0 ends with error 700 too. */
#ifndef SG_GUARD_H
#define SG_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/guard_state.h"
#include "core/core.h"

/* The beginning, once. sg_guard_close() is the end. */
void sg_guard_open(const struct sg_conf *conf);

/* True if the allocation that this thread makes now is to be guarded; counts it. */
bool sg_guard_wants(size_t bytes);

/* Places a block that the core has just handed out at *address, for `bytes`, where it is guarded; *address is then what the
   program gets. False: it stays where it is, and is counted. Between sg_enter() and sg_leave(), with the context of the
   tag current. Calls the driver. */
bool sg_guard_given(struct sg_core *core, int device, const struct sg_tag *tag, size_t bytes, CUdeviceptr *address);

/* The core is about to free the block that it has at `inner`; NULL: that is none of ours. The result belongs to
   sg_guard_freed(), which says whether it did, and by which tag. */
struct sg_guard;
struct sg_guard *sg_guard_freeing(struct sg_core *core, CUdeviceptr inner, const struct sg_tag *tag);
void sg_guard_freed(struct sg_core *core, struct sg_guard *guard, const struct sg_tag *tag, bool done);

/* True if a free of this address of the program's is none: no guarded block begins there, or it is freed already. It is said
   as a finding. Between sg_enter() and sg_leave(). */
bool sg_guard_refuses(CUdeviceptr address, const struct sg_tag *tag);

/* A call of the program's is about to use memory at an address: a finding if that is a freed block's. */
void sg_guard_used(CUdeviceptr address, const char *call);
static inline void sg_guard_uses(CUdeviceptr address, const char *call)
{
    if (sg_guard_any_freed())
        sg_guard_used(address, call);
}

/* Gives back the pages of some freed blocks, as far as the work before their frees is over, without a wait. all(): of all, and
   waits for that work, up to `limit_ns`; true if any went. poll(): the same by a thread that is not between sg_enter() and
   sg_leave(). */
void sg_guard_settle(void);
bool sg_guard_settle_all(uint64_t limit_ns);
void sg_guard_poll(uint64_t limit_ns);
static inline void sg_guard_polls(uint64_t limit_ns)
{
    if (sg_guard_any_freed())
        sg_guard_poll(limit_ns);
}
enum { SG_GUARD_MOMENT_NS = 100000 }; /* for poll() after a wait of the program's */

/* A context has ended, and the core's blocks in it are about to be free. */
void sg_guard_context_gone(CUcontext context);

#endif
