/* Elements of tensors by the batch: they are loaded as whole numbers or as real ones, counted with, and stored.

   Types are the letters of the C++ ABI (b, h, a, s, i, l; f and d), and two of our own: H is c10::Half, B c10::BFloat16.
   Real numbers are counted with in double, and rounded to the type when stored. One sum, product or quotient of floats
   comes out as on a GPU then. A sum of many is rounded once, where a GPU rounds in each of its threads. For example,
   5 times 0.1f is 0.5f here, and may end one bit off there. */
#ifndef SIM_VALUES_H
#define SIM_VALUES_H

#include "kernels/integers.h"

enum { SIM_VALUES_BATCH = 256 };

union sim_values {
    int64_t whole[SIM_VALUES_BATCH];
    double real[SIM_VALUES_BATCH];
};

/* Bytes of an element; 0 for a letter that is no type. */
size_t sim_values_size(char type);
bool sim_values_are_real(char type);

/* `count` elements of type `from`, as values of the type `as`. Element k lies at base + offsets[k]; NULL: one behind the
   other. A real number becomes a whole one as in C, and the nearest there is where C has none; as a truth value it is
   whether it is not zero. */
void sim_values_load(union sim_values *to, char as, const unsigned char *base, const uint64_t *offsets, char from,
    unsigned count);

/* Values of the type `as`, to elements of the type `to`. */
void sim_values_store(unsigned char *base, const uint64_t *offsets, char to, const union sim_values *from, char as,
    unsigned count);

/* Constants of an operation, beside its operands. */
struct sim_constants {
    unsigned comparison; /* PyTorch's number of it */
    int64_t number, alpha;
    double real, real_alpha;
};

/* The results replace in[0]. They are of the type `type`, or truth values, as the operation has it. Operands that the
   operation has not got are not looked at. */
void sim_values_combine(enum sim_operation operation, char type, const struct sim_constants *constants,
    union sim_values in[3], unsigned count);
/* The first of the values, times a factor; both are of that type. */
void sim_values_scale(union sim_values *values, char type, double factor);
/* True where truth values come out. */
bool sim_values_are_truths(enum sim_operation operation);

/* A reduction of elements of one type: begins with `first` elements' value, then takes on batch after batch. */
struct sim_fold {
    enum sim_operation operation;
    char type;
    bool begun;
    int64_t whole;
    double real;
};
void sim_values_fold(struct sim_fold *fold, const union sim_values *values, unsigned count);

#endif
