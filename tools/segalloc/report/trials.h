/* Settings tried on the traces of a report, so that advice has its effect beside it. */
#ifndef SG_TRIALS_H
#define SG_TRIALS_H

#include "json.h"
#include "report/findings.h"

enum { SG_TRIALS_WHY = 704 };

struct sg_trials;

/* Replays the traces under settings around those recorded. Time is bounded once these and the defaults are played, memory
   is too. `redact`: names of files are left out. NULL where there is nothing to try, with
   the reason in why[SG_TRIALS_WHY]. The findings' paths must stay. */
struct sg_trials *sg_trials_run(const struct sg_findings *const *findings, size_t count, bool redact, char *why);
void sg_trials_free(struct sg_trials *trials);

/* The object that `segalloc tune --json` prints, without what differs from run to run. */
json_t *sg_trials_json(const struct sg_trials *trials);

#endif
