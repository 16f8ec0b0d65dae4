/* Findings: the facts of one process's memory, from its trace or its statistics file, and their consequences. */
#ifndef SG_FINDINGS_H
#define SG_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/findings.h"
#include "replay/page_map.h"
#include "stats.h"
#include "analysis/growth.h"
#include "analysis/roles.h"
#include "analysis/summary.h"

enum { SG_FINDINGS_ERROR = 512, SG_FINDINGS_DEVICES = 64 };

struct sg_findings_device {
    uint32_t ordinal;
    char model[64]; /* as the driver calls it; "": unknown */
    bool has_uuid;  /* of a trace alone */
    unsigned char uuid[16];
    struct sg_stats stats;
    bool known[SG_STAT_COUNT];                      /* without: no source for this figure */
    uint64_t granularity, total_bytes, limit_bytes; /* 0: unknown, or no limit */
    uint64_t largest_request, failed_largest;       /* 0: unknown, or none */
    uint64_t alloc_bytes;                           /* that the allocations of a trace asked for; 0: unknown */
    uint64_t stats_age;                             /* events after the allocator's last snapshot */
    bool has_classes;
    uint64_t class_count[SG_LIVE_CLASSES]; /* as in summary.h */
    struct sg_live_set at_peak;            /* when most was taken */
    struct sg_outside outside;             /* held then by calls that segalloc does not serve */
    uint64_t peak_taken, peak_outside;     /* requested, and held by such calls, at once; the latter alone */
    bool lags;                             /* what is held at a moment depends on how far the GPU has come */
    uint64_t peak_own;                     /* peak_taken by what this process is known to have; 0: not known */
    uint64_t peak_request;                 /* the program's last request then */
    struct sg_roles roles;                 /* of what was alive at that peak */
    struct sg_live_set at_reserved;        /* when most was reserved, as of `fullest`; empty: not known */
    struct sg_steps requested, reserved;   /* over time; width 0: not known */
    struct sg_page_map fullest;              /* when most was reserved; event 0: not known */
    struct sg_page_map failed;               /* at the largest allocation that failed; event 0: none, or not known */
    uint64_t smallest_card;                /* on which every allocation of the trace fits; 0: unknown */
};

struct sg_findings {
    const char *path;
    bool trace;    /* else a statistics file */
    bool imported; /* a trace of another program: there is nothing in it of what an allocator did */
    char *conf, *command;
    int64_t rank; /* of the process among those of its run, by the name of the file; negative: unknown */
    uint64_t pid, duration_ns, events, requests, dropped, unmatched_frees, repeated; /* as in summary.h */
    bool unplayed; /* there was no memory for the replay that adds the smallest card and what the end lacks */
    bool at_least; /* more may be needed than there is in the file: it has no end, or an allocation failed */
    bool running;  /* the process is: what is said of the end is of now */
    bool replayed; /* levels and peaks are a replay's of the recorded run, for the file has no last statistics */
    bool torch;    /* PyTorch asked for memory */
    bool limited;  /* less of a device than all may be held */
    char untracked_by[64]; /* the call by which the order of streams was lost; "": it was not */
    const char *begin_text; /* why what was before it is not known, or NULL */
    char begin_room[SG_FINDINGS_ERROR];
    const char *end_text; /* why the trace is incomplete, or NULL */
    char end_room[SG_FINDINGS_ERROR];
    bool damaged; /* why: part of it is not what was written, and neither that nor what follows was read */
    uint32_t devices;
    struct sg_findings_device *device;
    /* All devices together. */
    uint64_t allocs, alloc_bytes, frees, passed_on, passed_on_bytes, ooms, refused, failed_largest, largest_request;
    uint64_t peak_requested, peak_allocated, peak_pending, peak_reserved, peak_stranded, stranded;
    uint64_t retried;       /* of `refused`: the program had the error, and asked again or elsewhere */
    bool survived;          /* memory was served after the last failure: the program went on without what failed */
    struct sg_search search;
    uint64_t peak_taken, peak_outside; /* sums of the devices' */
    uint64_t smallest_card; /* of the device that needs most; 0: unknown */
    struct sg_summary_failure failure[SG_FAILURES_KEPT]; /* the first of them */
    struct sg_roles failure_roles[SG_FAILURES_KEPT];     /* of what was alive at each */
    uint32_t failures;                                   /* that are kept */
    struct sg_site_book book;                            /* of the sites and phases in it */
    struct sg_summary_card card[SG_SUMMARY_CARDS]; /* that a rehearsal was asked about, whose trace this is */
    uint32_t cards;
    struct sg_checked checked; /* what `check` found; of a trace alone */
    struct sg_tag_book tags;
    struct sg_growth growth; /* of a trace alone */
    bool knows_reserved;
    double served_share, utilization; /* negative: nothing to divide */
};

/* Reads either kind of file. A trace that was not closed has its peaks from a replay. With `cards` the replay finds
   the smallest card too, where the trace is short enough. 0, or a negative errno with one line in
   error[SG_FINDINGS_ERROR]. */
int sg_findings_read(const char *path, bool cards, struct sg_findings *ret, char *error);
void sg_findings_free(struct sg_findings *findings);

/* report/findings_replay.c: takes in what a replay of the trace shows, as far as there is one. */
void sg_findings_play(struct sg_findings *findings, struct sg_trace_reader *reader, bool cards);

/* How many findings of a kind there are: as the statistics have them, or as the trace does, where those are older. */
uint64_t sg_findings_checked(const struct sg_findings *findings, enum sg_finding_kind kind);
/* Those of all kinds. *ret_ran: the program checked itself, as far as this file says. */
uint64_t sg_findings_checked_all(const struct sg_findings *findings, bool *ret_ran);

/* The largest of a device's failures, among those kept; NULL: none. */
const struct sg_summary_failure *sg_findings_largest_failure(const struct sg_findings *findings,
    const struct sg_findings_device *device);

/* The share that segalloc served, of the allocations. Where the program took memory by other calls too, it is the share
   of all bytes at the peak. `taken` are those bytes, with what is in `outside`. */
double sg_findings_share(double of_allocations, uint64_t taken, const struct sg_outside *outside);

/* Peak allocated ÷ peak reserved, negative when unknown. */
double sg_findings_utilization(const struct sg_findings_device *device);

/* The step at which a device has no more room for what grows there; 0: nothing does, or its size is not known. */
uint64_t sg_findings_growth_ends(const struct sg_findings *findings, uint32_t ordinal);

/* One sentence that says how it went and what to do. Returns `text`. */
char *sg_findings_verdict(const struct sg_findings *findings, char *text, size_t size);

/* Calls `say` with each piece of advice; none names a setting that is on. */
typedef void sg_advice_fn(void *user, const char *line);
void sg_findings_advice(const struct sg_findings *findings, sg_advice_fn *say, void *user);

#endif
