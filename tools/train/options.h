/* The command line of segalloc-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdio.h>

#include "presets.h"

struct options {
    const struct preset *preset;
    struct shape shape;
    const char *text, *lengths;
    uint64_t seed;
    int steps, batch, accumulation, longest;
    double rate, weight_decay, clip;
    bool arena, dry, json, list, help, checkpoint;
};

/* Returns 0, or -1 with one line in `error`. Strings of argv are kept, not copied. */
int options_parse(struct options *ret_options, int argc, char *const argv[], char *error, size_t error_size);
void options_print_help(FILE *out);
void options_print_list(FILE *out, bool json);

#endif
