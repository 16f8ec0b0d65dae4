/* The output of a run: lines for people, or JSON objects one a line. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "fit.h"

void report_step(FILE *out, const struct options *options, const struct step_result *step);
/* `planned` (may be NULL) is what a plan says the run needs, for --budget and --card. Without JSON, a run that did not
   complete ends with one line on stderr instead. */
void report_run(FILE *out, const struct options *options, const struct run_result *result,
                const struct run_result *planned);

/* The answer to --fit. */
void report_fit(FILE *out, const struct options *options, int value, bool more);

#endif
