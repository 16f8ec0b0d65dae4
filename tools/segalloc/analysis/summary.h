/* A summary: all that one pass over a trace finds, for `trace info` and `report`. Memory grows with the blocks alive at
   once, not with the length of the trace. */
#ifndef SG_SUMMARY_H
#define SG_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/checked.h"
#include "analysis/order_bound.h"
#include "analysis/refusals.h"
#include "analysis/searches.h"
#include "reader/dictionary.h"
#include "idmap.h"
#include "live_groups.h"
#include "segalloc/trace_format.h"
#include "analysis/series.h"
#include "outside.h"
#include "stats.h"
#include "analysis/tags.h"
#include "reader/trace_reader.h"

/* The bound by order is worked out for all blocks, and for those of at least 1 MiB, whose share it is that streams can
   pass on. */
enum sg_bound_kind { SG_BOUND_ALL, SG_BOUND_LARGE, SG_BOUND_COUNT };

enum { SG_FAILURES_KEPT = 64, SG_LIVE_ROWS = 1024, SG_LIVE_ROWS_OF_FAILURE = 64 };

/* Blocks that were alive at one moment, in groups. */
struct sg_live_set {
    struct sg_live_row *row; /* the largest groups first; NULL where nothing was */
    uint32_t rows;
};

/* An allocation that failed. */
struct sg_summary_failure {
    uint64_t event; /* its number, from 1; of a call that segalloc does not serve: that of the last one before */
    uint64_t order; /* its place among all events, from 1 */
    uint64_t bytes, live_bytes;
    enum segalloc_outside by; /* the call; OTHER: one that segalloc serves */
    uint64_t needed;     /* bytes that were held then by any call, and these; 0: segalloc's replay says it better */
    uint64_t short_by;   /* bytes that it lacked; 0: unknown */
    uint16_t thread;
    uint32_t device;
    uint32_t site, phase; /* in the dictionary's book; 0: unknown */
    struct sg_live_set live;
};

struct sg_summary_device {
    bool used;
    char model[64];                                 /* as the driver calls it; "": unknown */
    bool has_uuid;
    unsigned char uuid[16];
    uint64_t granularity, total_bytes, limit_bytes; /* 0: unknown */
    uint64_t allocs, frees, alloc_bytes, failures, made_good, failed_largest, passed_on, passed_on_bytes;
    uint64_t live_bytes, live_blocks, peak_live_bytes, peak_live_blocks, largest_request;
    uint64_t class_count[SG_LIVE_CLASSES];
    struct sg_live live;    /* now, and kept: when most was taken */
    bool is_at_peak;        /* that is still to be kept */
    uint64_t peak_request;  /* of the program's requests, the last one then */
    struct sg_outside reading, outside; /* by other calls: what is being read, and what is held now */
    struct sg_outside outside_at_peak;  /* when most was taken: alive, and held by other calls */
    uint64_t peak_taken, peak_outside;  /* bytes then; and when most was held by other calls */
    bool lags; /* what is held at a moment depends on how far the GPU has come: by other calls, or freed without a wait */
    uint64_t peak_own;             /* bytes when most was taken without SEGALLOC_OUTSIDE_OTHER: by this process alone */
    struct sg_series over_time;    /* live bytes, by events from 0 */
    struct sg_stats stats; /* of the last complete snapshot */
    bool has_stats, has_stat[SG_STAT_COUNT]; /* which of them any snapshot named */
    uint64_t stats_age; /* events since then */
};

enum { SG_SUMMARY_CARDS = 32 };
struct sg_summary_card {
    uint64_t bytes, margin; /* in all; of it left for the context and for libraries */
};

struct sg_summary {
    uint64_t kind[256];
    uint64_t events;     /* of the program and of its surroundings: neither definitions nor statistics */
    uint64_t requests;   /* of them, the program's: what a replay counts */
    uint64_t until;      /* of them so many are looked at; 0: all */
    uint64_t live_bytes, peak_live_bytes; /* of all devices; the peak is the sum of theirs */
    uint64_t failures, made_good; /* allocations that failed; those that were refused, and have cost nothing */
    uint64_t retried; /* refusals made good by the program, which asked again or elsewhere: the call itself was served in no end */
    uint64_t last_failure, last_served; /* places among all events; 0: none. Served later: the program went on */
    struct sg_search search;            /* what it asks for, as one that looks for how much there is */
    struct sg_refusals refusals;  /* of which it is not known yet */
    struct sg_summary_failure failure[SG_FAILURES_KEPT]; /* the first of them */
    uint64_t unmatched_frees, repeated; /* of what was not allocated before; allocations at an address that is in use */
    uint64_t first_ns, last_ns;
    bool torch;          /* PyTorch asked for memory */
    bool limited;        /* less of a device than all may be held */
    char untracked_by[64]; /* the call by which the order of streams was lost; "": it was not */
    struct sg_summary_card card[SG_SUMMARY_CARDS]; /* of a rehearsal: those that it was asked about */
    uint32_t cards;
    struct sg_checked checked; /* what a run that checked itself found */
    struct sg_tag_book tags;
    struct sg_dictionary dictionary;
    struct sg_summary_device *device; /* SG_DICTIONARY_DEVICES of them */
    uint32_t devices;                 /* one more than the largest ordinal */
    struct sg_stats *pending;         /* snapshots that are not complete yet, one a device */
    struct sg_idmap live;             /* id -> number of its entry in `block`, from 1 */
    struct sg_summary_block {
        uint64_t size, birth;
        uint8_t tag;
        uint32_t device, group, spare; /* in `live` of the device; spare: the next unused entry */
    } *block;
    uint32_t blocks, spare;           /* entries in use ever, and the unused one that comes next, from 1 */
    uint32_t block_room;
    struct sg_bound *bound[SG_BOUND_COUNT]; /* NULL unless asked for (sg_summary_read) */
};

const char *sg_record_kind_name(unsigned kind); /* NULL for kinds of a later version */

/* Reads `reader` to its end, with a line of progress on stderr if that is a terminal. 0 or a negative errno; problems
   of the file are the reader's to report. `bounds`: also what the order of the work makes the program hold. */
int sg_summary_read(struct sg_summary *summary, struct sg_trace_reader *reader, bool bounds);
/* The same up to a request, by its number from 1. */
int sg_summary_read_until(struct sg_summary *summary, struct sg_trace_reader *reader, uint64_t request);
void sg_summary_free(struct sg_summary *summary);

/* The `most` largest groups of what is alive (as `kept`), for the caller to free. False: no host memory. */
bool sg_live_set_take(struct sg_live_set *ret, const struct sg_live *live, bool kept, uint32_t most);
void sg_live_set_free(struct sg_live_set *set);

#endif
