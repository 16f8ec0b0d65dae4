/* What one pass over a trace tells: for `trace info` and `report`. Memory grows with the blocks alive at once, not with
   the length of the trace. */
#ifndef SG_SUMMARY_H
#define SG_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "bound.h"
#include "dictionary.h"
#include "idmap.h"
#include "segalloc/trace_format.h"
#include "stats.h"
#include "trace_reader.h"

/* The bound by order is worked out for all blocks, and for those of at least 1 MiB, whose share it is that streams can
   pass on. */
enum sg_bound_kind { SG_BOUND_ALL, SG_BOUND_LARGE, SG_BOUND_COUNT };

enum { SG_SIZE_CLASSES = 65 }; /* class n: sizes of n binary digits, 0 is for empty ones */

struct sg_summary_device {
    bool used;
    uint64_t granularity, total_bytes, limit_bytes; /* 0: unknown */
    uint64_t allocs, frees, alloc_bytes, failures, failed_largest, passed_on, passed_on_bytes;
    uint64_t live_bytes, live_blocks, peak_live_bytes, peak_live_blocks, largest_request;
    uint64_t class_count[SG_SIZE_CLASSES];
    struct sg_stats stats; /* of the last complete snapshot */
    bool has_stats;
    uint64_t stats_age; /* events since then */
};

struct sg_summary {
    uint64_t kind[256];
    uint64_t events;     /* of the program and of its surroundings: neither definitions nor statistics */
    uint64_t live_bytes, peak_live_bytes; /* all devices together */
    uint64_t unmatched_frees, repeated; /* of what was not allocated before; allocations at an address that is in use */
    uint64_t first_ns, last_ns;
    char untracked_by[64]; /* the call by which the order of streams was lost; "": it was not */
    struct sg_dictionary dictionary;
    struct sg_summary_device *device; /* SG_DICTIONARY_DEVICES of them */
    uint32_t devices;                 /* one more than the largest ordinal */
    struct sg_stats *pending;         /* snapshots that are not complete yet, one a device */
    struct sg_idmap live;
    struct sg_bound *bound[SG_BOUND_COUNT]; /* NULL unless asked for (sg_summary_read) */
};

const char *sg_record_kind_name(unsigned kind); /* NULL for kinds of a later version */

/* Reads `reader` to its end, with a line of progress on stderr if that is a terminal. 0 or a negative errno; problems
   of the file are the reader's to tell. `bounds`: also what the order of the work makes the program hold. */
int sg_summary_read(struct sg_summary *summary, struct sg_trace_reader *reader, bool bounds);
void sg_summary_free(struct sg_summary *summary);

#endif
