/* How long the sequences of a run are: one table entry a model, the same lengths for the same seed. */
#ifndef TRAIN_LENGTHS_H
#define TRAIN_LENGTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LENGTH_STEP = 8, LENGTH_LEAST = 8 }; /* lengths are padded to multiples of 8, as collators do for tensor cores */

struct length_model;

struct lengths {
    const struct length_model *model;
    uint64_t state;
    int longest;
    double a, b;
    int *list;
    size_t count, next;
};

/* Parses "lognormal[:MEDIAN[:SIGMA]]", "bimodal[:SHORT[:SHARE]]", "growing[:FROM]", "uniform", "fixed[:N]"
   or "file:PATH" (whole numbers, over again when they end).
   Returns 0, or -1 with one line in `error`. */
int lengths_open(struct lengths *ret_lengths, const char *text, int longest, uint64_t seed, char *error,
                 size_t error_size);
void lengths_close(struct lengths *lengths);

/* True if the lengths are drawn at random: the longest may then never come by itself. */
bool lengths_drawn(const struct lengths *lengths);

/* A run takes `among` of the lengths of a file. The longest of them becomes the one at place `at`; those after it are not
   asked for. A plan of a few steps then shows what the whole run comes to. Lengths of other kinds stay. */
void lengths_bring(struct lengths *lengths, size_t among, size_t at);

int lengths_next(struct lengths *lengths);

/* The next of a reproducible sequence of numbers (SplitMix64). */
uint64_t random_next(uint64_t *state);

#endif
