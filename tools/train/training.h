/* A whole run by its options: lengths, text, model, steps. */
#ifndef TRAIN_TRAINING_H
#define TRAIN_TRAINING_H

#include "options.h"
#include "schedule.h"

struct step_result {
    int step; /* from 1 */
    float loss;
    int64_t tokens;
    double seconds, left; /* left: until the last step, at this pace */
    size_t live, peak;
    bool evaluated;
    float evaluation; /* the loss of the evaluation after this step, if evaluated */
};

enum outcome { OUTCOME_COMPLETED, OUTCOME_OUT_OF_MEMORY, OUTCOME_FAILED, OUTCOME_INTERRUPTED };

struct run_result {
    enum outcome outcome;
    int steps, first; /* steps made by this run; the number of the first */
    bool interrupted;
    float *losses; /* one a step; NULL in a dry run; the caller frees */
    int64_t tokens, parameters, trained_parameters;
    uint64_t allocations;
    size_t peak, arena, live, refused;
    size_t phase_peak[PHASE_COUNT]; /* of each by itself, with --colocate; else 0 */
    size_t budget[BUDGET_COUNT]; /* of peak */
    size_t *peaks; /* of each rank, where there are several and all is well; the caller frees */
    /* Measured with --budget, or when memory ran out: the device's memory, and most used besides the tensors. */
    size_t device_bytes, outside;
    double seconds;
    char error[256]; /* one line unless completed */
};

/* Runs all steps, telling `report` (if any) about each. Arguments that turn out wrong only here (an unreadable file)
   end as OUTCOME_FAILED. */
void training_run(const struct options *options, const struct cuda_rt *rt,
                  void (*report)(void *context, const struct step_result *step), void *context,
                  struct run_result *ret_result);

/* The same allocations with nothing behind them, for the first steps of a run of `steps`. Always completes, unless the
   options are wrong. */
void training_plan(const struct options *options, int steps, struct run_result *ret_result);

#endif
