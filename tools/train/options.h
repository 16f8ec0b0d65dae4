/* The command line of segalloc-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <signal.h>
#include <stdio.h>

#include "device/phases.h"
#include "scenario.h"

/* Where the arithmetic is done. */
enum backend { BACKEND_AUTO, BACKEND_CPU, BACKEND_GPU, BACKEND_COUNT };
extern const char *const backend_names[BACKEND_COUNT];

/* The setting of which --fit looks for the largest value. */
enum fit { FIT_NOTHING, FIT_BATCH, FIT_SEQ, FIT_RANK, FIT_COUNT };
extern const char *const fit_names[FIT_COUNT];

struct options {
    const struct preset *preset;
    enum variant variant;
    const struct scenario *scenario; /* or NULL */
    struct setting set; /* of the preset's variant, changed by the other options */
    const char *text;
    const char *config; /* file that the shape is from, or NULL */
    uint64_t seed;
    size_t card;   /* that --card names; else the preset's, 0 for none */
    enum fit fit;
    enum colocate colocate;
    enum backend backend;
    const char *save, *resume;
    int evaluate, evaluate_batch, threads;
    int ranks; /* that --ranks names, else 0 */
    bool pack;
    struct comm *comm; /* set by the caller: the other ranks, or NULL */
    const volatile sig_atomic_t *stop; /* set by the caller: the run ends after the step in which it becomes non-zero */
    bool card_named, compare, arena, dry, json, list, help, budget;
};

/* Returns 0, or -1 with one line in `error`. Strings of argv are kept, not copied. */
int options_parse(struct options *ret_options, int argc, char *const argv[], char *error, size_t error_size);
/* Takes the ranks that were started into account, NULL for a process alone. Returns 0, or -1 with one line in
   `error`. */
int options_join(struct options *options, struct comm *comm, char *error, size_t error_size);
/* True if the answer comes from a plan alone, without a device. */
bool options_plans(const struct options *options);
void options_print_help(FILE *out);
void options_print_list(FILE *out, bool json);

#endif
