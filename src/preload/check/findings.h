/* Findings of `check`, for the user.

   Each kind of finding is told once for each place in the program that freed the block, in one block of text whose first
   line begins "segalloc: check:". All are counted, and the end says how many there were.

   Limits. 256 blocks of text for a process, and the end says how many findings were not told for that; a text is cut at 4 KiB.

   Why once for each place. A program with a mistake has it in a loop, and a thousand equal texts would hide the second
   mistake. The place is the one that freed the block, since the block before is what a user has to look at first. A free of what
   is no block has the place of that free.

   Errors of the GPU have a text of their own, since they are about several blocks at once: faults.c says them. They are counted
   and recorded here as all others, with the block that is nearest.

   Why a line of JSON begins as the text does. Programs that read standard error find both by the same beginning, whatever
   else the program writes there.

   For example, a loop writes to a tensor that it has freed, 100 times over. One text names the line that freed it. The
   end says "100 findings (write after free: 100)". */
#ifndef SG_CHECK_FINDINGS_H
#define SG_CHECK_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/findings.h"
#include "check/samples.h"

/* A finding. For example, somebody wrote 8 bytes at byte 100 of a freed block: `offset` 100, `last` 107, `address` base +
   100, `filled` 0xa59756ce, `found` 0x01010101, `differ` 8, and `compared` 5,504. `block` is the block before; of an overrun, the block itself; NULL: not known. */
struct sg_finding {
    enum sg_finding_kind kind;
    int device;
    const struct sg_freed *block;
    const struct sg_check_block *now;
    CUdeviceptr address;       /* of the first byte that differs */
    uint64_t offset;           /* of it in the block */
    uint64_t last;             /* offset of the last one */
    uint64_t differ, compared; /* bytes */
    uint32_t filled, found;    /* words */
    uint64_t missing;          /* stamps, a bit for a slot */
    bool moved;                /* the page stands at another address now */
    const char *call;          /* that named the address; NULL: none did */
    bool late;                 /* work of `late_stream` used the block, and its next owner did not come after that */
    CUstream late_stream;
};

/* How findings are said; once. */
void sg_findings_open(bool json);

/* Says a finding, and writes it to the trace, where it is the first of its kind and place. Any thread, no lock. */
void sg_findings_add(const struct sg_finding *finding);

/* The same for one that `say` says, as text or as JSON. */
typedef void sg_finding_say_fn(const struct sg_finding *finding, bool json, const void *user);
void sg_findings_add_by(const struct sg_finding *finding, sg_finding_say_fn *say, const void *user);

/* Findings so far: all, and of one kind. */
uint64_t sg_findings_count(void);
uint64_t sg_findings_of(enum sg_finding_kind kind);

/* The last line: what was done, and what was not looked at for which reason ("" where all was). */
void sg_findings_end(uint64_t frees, uint64_t filled, uint64_t read, const char *left_out);

#endif
