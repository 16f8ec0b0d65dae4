/* Findings of a run that checked itself, from the runs of FINDING records of its trace (segalloc/trace_format.h).

   For example, the records KIND 0, BLOCK, FREED and BYTES, the first with FIRST and the last with LAST, are one finding: a
   write after a free. A field of a later version between them is skipped. A run that is cut off, or that names no kind, is
   none. */
#ifndef SG_CHECKED_H
#define SG_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

#include "findings.h"
#include "segalloc/trace_format.h"

/* All that one process tells; a trace of another version may have more. */
enum { SG_CHECKED_KEPT = SG_FINDINGS_TOLD, SG_CHECKED_ORDER = 96 };

/* Where and when something was done; an event of 0: not known. */
struct sg_checked_note {
    uint64_t event, stream; /* of `check`'s own count; the handle */
    uint32_t site, phase;   /* of the trace; 0: not known */
    uint32_t thread;        /* of the kernel */
    bool has_stream;
};

struct sg_checked_finding {
    uint64_t kind; /* enum segalloc_finding, or one of a later version */
    uint32_t device;
    bool has_kind, has_block, has_now, moved;
    uint64_t block, block_bytes, now, now_bytes; /* addresses and bytes; now_bytes 0: it was a free */
    uint64_t where, offset, last;                /* address of the first byte that differs; offsets in the block */
    uint64_t differ, compared;                   /* bytes; compared 0: nothing was read */
    uint32_t written, found;
    uint64_t missing;    /* slots, a bit each */
    uint64_t between_ns; /* from the free to what comes now */
    struct sg_checked_note allocated, freed, by;
    char order[SG_CHECKED_ORDER]; /* in which the free took effect; "": not known */
};

/* All findings of a trace: the first SG_CHECKED_KEPT, and how many there were. All zero is the beginning. */
struct sg_checked {
    struct sg_checked_finding finding[SG_CHECKED_KEPT];
    uint64_t count;
    struct sg_checked_finding open; /* a run that has no LAST yet */
    bool is_open;
};

/* Takes in a FINDING record. */
void sg_checked_take(struct sg_checked *checked, const struct segalloc_trace_record *record);

/* How many findings are kept. */
uint32_t sg_checked_kept(const struct sg_checked *checked);

#endif
