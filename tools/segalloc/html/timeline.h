/* A timeline: the levels, failures and phases of a whole trace, and how long blocks lived, as a page shows them. Memory
   grows with the blocks alive at once, not with the length of the trace. */
#ifndef SG_HTML_TIMELINE_H
#define SG_HTML_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "live_groups.h"
#include "analysis/series.h"

enum { SG_TIMELINE_FAILURES = 256, SG_TIMELINE_PHASES = 1000, SG_LIFETIMES = 64 };

/* Where the levels besides `requested` come from. */
enum sg_timeline_source {
    SG_TIMELINE_EVENTS,     /* they are not known */
    SG_TIMELINE_STATISTICS, /* what the allocator said now and then */
    SG_TIMELINE_REPLAY      /* a replay, after each event */
};

struct sg_timeline {
    uint64_t requests;     /* the program's, in all */
    uint64_t first_ns, duration_ns;
    uint64_t walked, shown; /* events of memory; samples that stand for them */
    enum sg_timeline_source source;
    uint64_t diverged;     /* request from which on the replay is not the recorded run; 0: none */
    struct sg_series series[SG_DICTIONARY_DEVICES];
    struct sg_timeline_failure {
        uint64_t request, time_ns, bytes, lacked;
        uint32_t device, site, phase;
    } failure[SG_TIMELINE_FAILURES];
    uint32_t failures;     /* that are kept: the first ones */
    struct sg_timeline_phase {
        uint64_t request, time_ns;
        uint32_t phase;    /* from here on; 0: none */
    } phase[SG_TIMELINE_PHASES];
    uint32_t phases,
        phase_depth; /* depth: how many levels of phases are told apart; 0: they change too often to be drawn */
    /* Blocks by the binary digits of their life in requests, and of their size. */
    struct sg_lifetime {
        uint64_t blocks, bytes;
    } lifetime[SG_LIFETIMES][SG_LIVE_CLASSES], alive[SG_LIVE_CLASSES]; /* alive: at the end */
};

/* Reads `reader` twice or more; `points`: samples a device at most, roughly. `replay`: the levels of a replay where the
   trace has what one takes. 0, or a negative errno. The result is some 130 KB, for the caller to zero and to free. */
int sg_timeline_read(struct sg_trace_reader *reader, uint64_t points, bool replay, struct sg_timeline *ret);
void sg_timeline_free(struct sg_timeline *timeline);

#endif
