/* Kept arguments of a launch, and elements read and written: for the files of `integers.h`. */
#ifndef SIM_INTEGERS_PARTS_H
#define SIM_INTEGERS_PARTS_H

#include <string.h>

#include "kernels/values.h"

/* Tensors that are not large: the former by their bytes alone, the latter by their elements too. */
enum { WIDE_BYTES = 64 << 20, BYTES_MOST = 1 << 20, ELEMENTS_MOST = 1 << 16 };

/* torch.nonzero: the sizes that its last kernel is given (Nonzero.cu). */
enum { UNRAVELLED_DIMS = 16 };

/* A kept launch; the arguments follow, one behind the other, each aligned to 8. */
struct kept {
    struct sim_integers what;
    unsigned count;
};

/* Sizes of at::native's OffsetCalculator, LoadWithCast and ReduceConfig. */
enum { DIMS_MAX = 25, DIVIDER_BYTES = 12, CONFIG_BYTES = 64, OPERANDS_MAX = 4, JOINED_DIMS = 4 };

/* Behind ReduceOp's input and its two outputs: a buffer for sums, after two more pointers and a number whether it takes on
   an earlier launch's, and whether it is the last. */
enum { BUFFER_AT = 24, ACCUMULATES_AT = 56 };

enum { ARGUMENTS_MOST = 8 };

/* The functor: which comparison, then the constant, then the factor of a sum. */
struct sim_integers_functor {
    size_t comparison, number, alpha, bytes;
    bool compares, has_number, has_alpha;
};
struct sim_integers_functor sim_integers_functor(const struct sim_integers *what);

/* OffsetCalculator<operands>: dimensions, divisors, strides. */
size_t sim_integers_calculator_bytes(unsigned operands);
/* Where ReduceOp has its config, and, behind config and calculators, its pointers. */
size_t sim_integers_config_at(const struct sim_integers *what);
size_t sim_integers_pointers_at(const struct sim_integers *what);
/* How many bytes an argument has; 0 for those that are not looked at, and behind the last. */
size_t sim_integers_argument_bytes(const struct sim_integers *what, unsigned i);

/* Where a kept argument begins. */
const unsigned char *sim_integers_argument(const struct kept *kept, unsigned wanted);

/* Locked. True where all of it is memory of a device, or of the host as a device sees it. */
bool sim_integers_there(uint64_t address, uint64_t bytes, bool write);

static inline size_t round_up_to(size_t value, size_t to)
{
    return (value + to - 1) / to * to;
}

static inline uint32_t argument_word(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t argument_pointer(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline int64_t integer_load(const void *from, char type)
{
    switch (type) {
    case 'b':
        return *(const unsigned char *)from != 0;
    case 'h':
        return *(const uint8_t *)from;
    case 'a':
        return *(const int8_t *)from;
    case 's': {
        int16_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    case 'i': {
        int32_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    default: {
        int64_t value;
        memcpy(&value, from, sizeof value);
        return value;
    }
    }
}

static inline void integer_store(void *to, char type, int64_t value)
{
    unsigned char truth = value != 0;
    memcpy(to, type == 'b' ? (void *)&truth : (void *)&value, sim_values_size(type)); /* the lowest bytes come first */
}

#endif
