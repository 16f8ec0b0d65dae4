/* What a run prints: lines for people, or JSON objects one a line. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "training.h"

void report_step(FILE *out, const struct options *options, const struct step_result *step);
/* Without JSON, a run that did not complete ends with one line on stderr instead. */
void report_run(FILE *out, const struct options *options, const struct run_result *result);

#endif
