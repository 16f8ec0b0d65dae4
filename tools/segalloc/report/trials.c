#include "report/trials.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta.h"
#include "size.h"
#include "tune/report.h"
#include "tune/search.h"

/* A page is to be there within seconds, in less than 512 MiB of memory. */
enum { SETTINGS_MOST = 40, TRACES_MOST = 32, THREADS_MOST = 16 };
#define SECONDS_MOST 10.0
#define MEMORY_MOST (192 * SG_MIB)

struct sg_trials {
    struct sg_tune_space space;
    struct sg_tune_ranks ranks;
    struct sg_tune_trace *trace;
    char (*name)[32]; /* of each trace, in place of its path */
    atomic_bool stop;
    struct sg_tune_search search;
};

/* Why these files are not for trials; NULL: they are. */
static const char *trials_unfit(const struct sg_findings *const *findings, size_t count)
{
    if (count > TRACES_MOST)
        return "Settings are tried for up to 32 files at once; `segalloc tune` takes any number.";
    for (size_t i = 0; i < count; i++) {
        if (!findings[i]->trace)
            return "Settings can be tried on traces; of statistics there is nothing to replay.";
        if (findings[i]->damaged || findings[i]->dropped || findings[i]->running)
            return "Settings were not tried: a trace is not whole.";
    }
    return NULL;
}

/* Too long a trace is left to `segalloc tune`. */
static int trials_read_traces(struct sg_trials *trials, const struct sg_findings *const *findings, bool redact,
    char *why)
{
    char error[SG_TUNE_ERROR];
    uint64_t left = MEMORY_MOST;
    for (size_t i = 0; i < trials->search.traces; i++) {
        struct sg_tune_trace *trace = &trials->trace[i];
        int status = sg_tune_trace_open(findings[i]->path, left, &trials->stop, trace, error);
        if (status == -E2BIG)
            snprintf(why, SG_TRIALS_WHY,
                "Settings were not tried: there are more than %d million events. `segalloc tune` does it, with more "
                "time.",
                (int)(MEMORY_MOST / SG_TUNE_EVENT_BYTES / 1000000));
        else if (status)
            snprintf(why, SG_TRIALS_WHY, "Settings were not tried: %s.", redact ? "a trace can't be replayed" : error);
        if (status)
            return status;
        left -= trace->bytes;
        sg_tune_trace_divide(trace);
        snprintf(trials->name[i], sizeof trials->name[i], "trace %zu", i + 1);
        trace->path = redact ? trials->name[i] : findings[i]->path;
    }
    return 0;
}

/* Takes the recorded setting as the one in use. */
static void take_current(struct sg_trials *trials, const struct sg_findings *const *findings)
{
    char error[SG_TUNE_SPACE_ERROR];
    bool alike = true;
    for (size_t i = 1; i < trials->search.traces; i++)
        alike = alike && strcmp(trials->trace[i].conf, trials->trace[0].conf) == 0;
    trials->search.is_recorded = alike && !findings[0]->imported;
    if (alike && *trials->trace[0].conf)
        (void)sg_tune_space_current(&trials->space, trials->trace[0].conf, true, error); /* else the defaults */
}

static int trials_search(struct sg_trials *trials, const struct sg_findings *const *findings, bool redact, char *why)
{
    char error[SG_TUNE_ERROR];
    int status = trials_read_traces(trials, findings, redact, why);
    if (status)
        return status;
    take_current(trials, findings);
    sg_tune_space_decide(&trials->space);
    status = sg_tune_search(&trials->search, error);
    if (!status && sg_meta_ran_out())
        status = -ENOMEM;
    if (status)
        snprintf(why, SG_TRIALS_WHY, "Settings were not tried: %s.",
            status == -ENOMEM ? "there was no memory for it" : "a trace can't be replayed");
    return status;
}

struct sg_trials *sg_trials_run(const struct sg_findings *const *findings, size_t count, bool redact, char *why)
{
    const char *reason = trials_unfit(findings, count);
    struct sg_trials *trials = reason ? NULL : calloc(1, sizeof *trials);
    snprintf(why, SG_TRIALS_WHY, "%s", reason ? reason : "Settings were not tried: there was no memory for it.");
    if (!trials)
        return NULL;
    unsigned cores = sg_tune_ranks_cores();
    sg_tune_space_init(&trials->space, SG_POLICY_SEGALLOC);
    trials->ranks.count = 1;
    trials->trace = calloc(count, sizeof *trials->trace);
    trials->name = calloc(count, sizeof *trials->name);
    trials->search = (struct sg_tune_search){.space = &trials->space,
        .trace = trials->trace,
        .traces = count,
        .threads = cores < THREADS_MOST ? cores : THREADS_MOST,
        .candidates_max = SETTINGS_MOST,
        .seconds_max = SECONDS_MOST,
        .stop = &trials->stop,
        .progress = isatty(STDERR_FILENO),
        .ranks = &trials->ranks};
    if (!trials->trace || !trials->name || trials_search(trials, findings, redact, why) != 0) {
        sg_trials_free(trials);
        return NULL;
    }
    return trials;
}

void sg_trials_free(struct sg_trials *trials)
{
    if (!trials)
        return;
    sg_tune_search_free(&trials->search);
    for (size_t i = 0; trials->trace && i < trials->search.traces; i++)
        sg_tune_trace_close(&trials->trace[i]);
    sg_tune_space_free(&trials->space);
    free(trials->trace);
    free(trials->name);
    free(trials);
}

json_t *sg_trials_json(const struct sg_trials *trials)
{
    return sg_tune_json(&trials->search, -1);
}
