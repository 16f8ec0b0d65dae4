/* Candidates: settings that are replayed, with what came of it, and the search that they are of.

   For example, a search over two traces of which one has two parts: each candidate has two results. `first` sums up the first
   part of the one and the whole of the other; `rest` is the second part of the one. */
#ifndef SG_TUNE_CANDIDATES_H
#define SG_TUNE_CANDIDATES_H

#include <stdatomic.h>

#include "tune/space.h"
#include "tune/decoded_trace.h"

/* Differences below this share are noise: the next run of the same program differs by more. */
#define SG_TUNE_NOISE 0.005
/* A recommended setting may spend so much more on moving pages than the defaults. It is this an allocation, or as much as the
   defaults spend on growing, whichever is more. */
#define SG_TUNE_MOVE_NS 1000

/* The granularity of memory where a trace does not say. */
#define SG_TUNE_GRANULARITY (2 * SG_MIB)

/* The figures by which settings are compared, as sums over the traces. */
struct sg_tune_figures {
    uint64_t reserved, calls, ooms;
};

/* A steady setting reserves as much when a GPU lags behind the program. */
enum sg_tune_steadiness { SG_TUNE_NOT_TRIED, SG_TUNE_STEADY, SG_TUNE_UNSTEADY };

struct sg_tune_candidate {
    struct sg_tune_setting setting;
    enum sg_tune_steadiness steadiness;
    bool done;      /* every trace was played to its end */
    bool reference; /* of those that guides tell people to paste: what is recommended is never above them */
    bool expanded;  /* its neighbours are candidates too */
    bool front;
    uint64_t lagging;              /* what is reserved under the lag of the GPU at which that is most; 0: not known */
    struct sg_play_result *result; /* one a trace */
    /* sums over the traces */
    uint64_t requested, reserved, calls, ooms, pages_moved, bytes_moved, growth_ns, move_ns, allocs;
    struct sg_tune_figures first, rest; /* first: of the first parts, and of traces without parts as a whole; rest: of
                                           the traces that have parts */
};

/* The parts of traces that a setting is chosen on. */
enum sg_tune_basis {
    SG_TUNE_FIRST_PARTS, /* the rest of the traces judges it */
    SG_TUNE_UNDIVIDED,   /* the whole, since no trace has parts */
    SG_TUNE_RUNS_OUT     /* the whole, since memory runs out in the rest */
};

struct sg_tune_search {
    /* given */
    struct sg_tune_space *space;
    const struct sg_tune_trace *trace;
    size_t traces;
    uint64_t limit; /* of the card, bytes; 0: each trace's own, or 1 TiB */
    unsigned threads;
    size_t candidates_max;             /* the budget: this many settings … */
    double seconds_max;                /* … and this long */
    atomic_bool *stop;                 /* ends the search with what is known */
    bool progress;                     /* on stderr */
    const struct sg_tune_ranks *ranks; /* each plays a part of the settings; the result is alike on all */
    bool is_recorded;                  /* the current setting is the one that the traces were recorded with */
    /* found */
    struct sg_tune_candidate **candidate; /* the first is the defaults */
    size_t count;
    size_t current; /* index; 0 when it is the defaults or unknown */
    enum sg_tune_basis basis;
    bool complete; /* neither time nor `stop` cut it off */
};

#endif
