/* The search: which settings are replayed, in which order, and what is made of the results. */
#ifndef SG_TUNE_SEARCH_H
#define SG_TUNE_SEARCH_H

#include <stdatomic.h>

#include "tune/space.h"
#include "tune/decoded_trace.h"

/* Differences below this share are noise: the next run of the same program differs by more. */
#define SG_TUNE_NOISE 0.005
/* What more may be spent on moving pages than the defaults spend, for a setting to be recommended: this an allocation,
   or what the defaults spend on growing, whichever is more. */
#define SG_TUNE_MOVE_NS 1000

/* Of memory, where a trace does not say. */
#define SG_TUNE_GRANULARITY (2 * SG_MIB)

/* By what settings are compared, as sums over the traces. */
struct sg_tune_figures {
    uint64_t reserved, calls, ooms;
};

/* Whether a setting reserves as much when a GPU lags behind the program. */
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

/* What a setting is chosen on. */
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
    size_t candidates_max; /* the budget: this many settings … */
    double seconds_max;    /* … and this long */
    atomic_bool *stop;     /* ends the search with what is known */
    bool progress;         /* on stderr */
    const struct sg_tune_ranks *ranks; /* each plays a part of the settings; the result is alike on all */
    bool is_recorded;      /* the current setting is the one that the traces were recorded with */
    /* found */
    struct sg_tune_candidate **candidate; /* the first is the defaults */
    size_t count;
    size_t current; /* index; 0 when it is the defaults or unknown */
    enum sg_tune_basis basis;
    bool complete;  /* neither time nor `stop` cut it off */
};

/* Runs the search. 0 when at least the defaults were played to the end; -EINTR when not even that; another negative
   errno with a line in error[SG_TUNE_ERROR]. */
int sg_tune_search(struct sg_tune_search *search, char *error);
void sg_tune_search_free(struct sg_tune_search *search);

/* Plays the trace of `cursor` under a setting; `lag`: as on a GPU that is so many allocations behind; 0: not at all. 0, or
   as sg_play_run(). */
int sg_tune_play(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate,
    struct sg_tune_cursor *cursor, uint64_t lag, struct sg_play_result *ret, char error[SG_PLAY_ERROR]);

/* Size of the card that trace `index` is played on. */
uint64_t sg_tune_card(const struct sg_tune_search *search, size_t index);

/* Marks the candidates of the Pareto front of (reserved, driver calls): of those with the fewest allocations out of
 * memory. */
void sg_tune_front(struct sg_tune_search *search);

/* The figures by which the candidate is chosen. */
struct sg_tune_figures sg_tune_chosen_by(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate);

/* Whether the candidate is on no trace worse than the defaults, in what it is chosen on: in memory, and in what moving
   costs. */
bool sg_tune_no_worse(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate);

/* Index of the best setting: the least memory without being worse than the defaults; within SG_TUNE_NOISE of that, the
   simple one that makes few driver calls. */
size_t sg_tune_best(const struct sg_tune_search *search);

/* Whether what the first parts recommend is worse than the defaults on a trace as a whole: then the defaults stay. */
bool sg_tune_is_refuted(const struct sg_tune_search *search);

/* Index of the setting to recommend. The defaults, else the current one, stay where they are within SG_TUNE_NOISE of the
   best. The defaults also stay where the rest of the traces refutes it. */
size_t sg_tune_recommend(const struct sg_tune_search *search);

/* The candidate equal to `value`, or NULL. */
const struct sg_tune_candidate *sg_tune_find(const struct sg_tune_search *search, const char *const *value);

#endif
