/* The refused allocations of a trace, and what became of each (refusal.h has the rule). One thread has one open at
   most. */
#ifndef SG_ANALYSIS_REFUSALS_H
#define SG_ANALYSIS_REFUSALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

struct sg_refusal {
    bool open;
    bool raised;      /* its caller raises an error: nothing makes it good */
    uint64_t bytes;
    enum segalloc_outside by; /* the call; OTHER: one that segalloc serves */
    uint32_t device;  /* the owner's, as are the next */
    void *kept;
    uint64_t mark[2];
};

/* Zero at first. */
struct sg_refusals {
    struct sg_refusal *of_thread;
    uint32_t threads, open;
};

enum sg_refusal_end { SG_REFUSAL_STAYS, SG_REFUSAL_MADE_GOOD, SG_REFUSAL_FAILED };

/* The end that a record puts to the refusal which its thread had open. The refusal is copied to *ret unless it
   stays. */
enum sg_refusal_end sg_refusals_settle(struct sg_refusals *refusals, const struct segalloc_trace_record *record,
    struct sg_refusal *ret);

/* Opens that of an ALLOCATE_FAILURE or a REFUSED_OUTSIDE, after sg_refusals_settle(). NULL: no host memory. */
struct sg_refusal *sg_refusal_open(struct sg_refusals *refusals, const struct segalloc_trace_record *record);

/* At the end of the trace: takes one that is open, which has failed. False: none is. */
bool sg_refusals_take_open(struct sg_refusals *refusals, struct sg_refusal *ret);

void sg_refusals_free(struct sg_refusals *refusals);

#endif
