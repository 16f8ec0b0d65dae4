#include "report.h"

#include <stdlib.h>

enum { STATUS_COMPLETED = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

static void print_step(void *context, const struct step_result *step)
{
    report_step(stdout, context, step);
}

int main(int argc, char *argv[])
{
    char error[256];
    struct options options;
    if (options_parse(&options, argc, argv, error, sizeof error)) {
        fprintf(stderr, "segalloc-train: %s\n", error);
        return STATUS_USAGE;
    }
    if (options.help) {
        options_print_help(stdout);
        return STATUS_COMPLETED;
    }
    if (options.list) {
        options_print_list(stdout, options.json);
        return STATUS_COMPLETED;
    }
    struct cuda_rt rt;
    if (cuda_rt_open(&rt, error, sizeof error)) {
        fprintf(stderr, "segalloc-train: %s\n", error);
        return STATUS_FAILED;
    }
    struct run_result result;
    training_run(&options, &rt, print_step, &options, &result);
    report_run(stdout, &options, &result);
    free(result.losses);
    return result.outcome == OUTCOME_COMPLETED ? STATUS_COMPLETED : STATUS_FAILED;
}
