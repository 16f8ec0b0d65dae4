#include "ranks/comm.h"
#include "compare.h"
#include "report.h"

#include <stdlib.h>

enum { STATUS_COMPLETED = 0, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_SIGNAL = 128 };

static volatile sig_atomic_t stop;

/* Once: the step that runs is the last. A second time the signal ends the program. */
static void on_interrupt(int signal)
{
    stop = signal;
}

static void print_step(void *context, const struct step_result *step)
{
    report_step(stdout, context, step);
}

/* Answers that need no device. */
static int plan_and_report(const struct options *options)
{
    if (options->fit != FIT_NOTHING) {
        if (!options->card) {
            fprintf(stderr, "segalloc-train: this preset names no card; add --card SIZE, such as 24GiB\n");
            return STATUS_USAGE;
        }
        bool more;
        int value = fit_largest(options, options->fit, options->card, &more);
        report_fit(stdout, options, value, more);
        return value ? STATUS_COMPLETED : STATUS_FAILED;
    }
    struct run_result planned;
    fit_plan(options, &planned);
    if (options->card && planned.peak > fit_usable(options->card)) {
        planned.outcome = OUTCOME_OUT_OF_MEMORY;
        snprintf(planned.error, sizeof planned.error, "the card has room for %zu bytes of tensors, %zu are needed",
                 fit_usable(options->card), planned.peak);
    }
    report_run(stdout, options, &planned, &planned);
    return planned.outcome == OUTCOME_COMPLETED ? STATUS_COMPLETED : STATUS_FAILED;
}

static int run_and_report(struct options *options)
{
    char error[256];
    struct cuda_rt rt;
    const bool first = !options->comm || options->comm->rank == 0;
    if (cuda_rt_open(&rt, options->comm ? options->comm->local_rank : 0, error, sizeof error)) {
        fprintf(stderr, "segalloc-train: %s\n", error);
        return STATUS_FAILED;
    }
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    if (options->comm || options->save) /* what mpirun makes of Ctrl-C, and a batch system before it kills */
        sigaction(SIGTERM, &action, NULL);
    options->stop = &stop;
    if (options->compare)
        return compare_backends(stdout, options, &rt) ? STATUS_COMPLETED : STATUS_FAILED;
    struct run_result result, planned;
    training_run(options, &rt, first ? print_step : NULL, options, &result);
    bool compares = options->budget || options->card_named ||
                    (result.outcome == OUTCOME_OUT_OF_MEMORY && !options->json);
    if (compares)
        fit_plan(options, &planned);
    if (first || (result.outcome != OUTCOME_COMPLETED && result.outcome != OUTCOME_INTERRUPTED))
        report_run(stdout, options, &result, compares ? &planned : NULL);
    free(result.losses);
    free(result.peaks);
    if (result.outcome == OUTCOME_INTERRUPTED)
        return STATUS_SIGNAL + (stop ? (int)stop : SIGTERM);
    return result.outcome == OUTCOME_COMPLETED ? STATUS_COMPLETED : STATUS_FAILED;
}

static int check_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return STATUS_COMPLETED;
    fprintf(stderr, "segalloc-train: standard output can't be written\n");
    return STATUS_FAILED;
}

int main(int argc, char *argv[])
{
    char error[256];
    struct options options;
    struct comm *comm;
    if (options_parse(&options, argc, argv, error, sizeof error)) {
        fprintf(stderr, "segalloc-train: %s\n", error);
        return STATUS_USAGE;
    }
    if (options.help) {
        options_print_help(stdout);
        return check_output();
    }
    if (options.list) {
        options_print_list(stdout, options.json);
        return check_output();
    }
    if (comm_open(&comm, error, sizeof error)) {
        fprintf(stderr, "segalloc-train: %s\n", error);
        return STATUS_FAILED;
    }
    int status = STATUS_USAGE;
    if (options_join(&options, comm, error, sizeof error)) {
        if (!comm || comm->rank == 0)
            fprintf(stderr, "segalloc-train: %s\n", error);
        comm_close(comm, false, status);
        return status;
    }
    if (options_plans(&options)) {
        status = comm && comm->rank ? STATUS_COMPLETED : plan_and_report(&options);
        comm_close(comm, false, status);
        return status;
    }
    status = run_and_report(&options);
    comm_close(comm, status == STATUS_FAILED, status);
    return status;
}
