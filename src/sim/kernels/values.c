#include "kernels/values.h"

#include <string.h>

#include "base/wrap.h"
#include "narrow.h"

size_t sim_values_size(char type)
{
    switch (type) {
    case 'b':
    case 'h':
    case 'a':
        return 1;
    case 's':
    case 'H':
    case 'B':
        return 2;
    case 'i':
    case 'f':
        return 4;
    case 'l':
    case 'd':
        return 8;
    default:
        return 0;
    }
}

bool sim_values_are_real(char type)
{
    return type == 'f' || type == 'd' || type == 'H' || type == 'B';
}

/* The conversion of C, and the nearest number where C has none; 0 for what is no number. */
static int64_t whole_of_real(double value)
{
    if (value != value)
        return 0;
    if (value >= 0x1p63)
        return INT64_MAX;
    if (value < -0x1p63)
        return INT64_MIN;
    return (int64_t)value;
}

/* Elements one behind the other get a loop of their own, which compilers make fast. */
#define EACH_FROM(type, to, expression)                    \
    do {                                                   \
        type x;                                            \
        if (offsets)                                       \
            for (unsigned k = 0; k < count; k++) {         \
                memcpy(&x, base + offsets[k], sizeof x);   \
                (to)[k] = expression;                      \
            }                                              \
        else                                               \
            for (unsigned k = 0; k < count; k++) {         \
                memcpy(&x, base + k * sizeof x, sizeof x); \
                (to)[k] = expression;                      \
            }                                              \
    } while (0)

static void load_wholes(int64_t *to, const unsigned char *base, const uint64_t *offsets, char from, unsigned count)
{
    switch (from) {
    case 'b':
        EACH_FROM(unsigned char, to, x != 0);
        return;
    case 'h':
        EACH_FROM(uint8_t, to, x);
        return;
    case 'a':
        EACH_FROM(int8_t, to, x);
        return;
    case 's':
        EACH_FROM(int16_t, to, x);
        return;
    case 'i':
        EACH_FROM(int32_t, to, x);
        return;
    default:
        EACH_FROM(int64_t, to, x);
    }
}

static void load_reals(double *to, const unsigned char *base, const uint64_t *offsets, char from, unsigned count)
{
    switch (from) {
    case 'f':
        EACH_FROM(float, to, x);
        return;
    case 'H':
        EACH_FROM(uint16_t, to, narrow_from_float16(x));
        return;
    case 'B':
        EACH_FROM(uint16_t, to, narrow_from_bfloat16(x));
        return;
    default:
        EACH_FROM(double, to, x);
    }
}

/* A value as an element of that type would have it. */
static double value_rounded(char type, double value)
{
    return type == 'f'   ? (double)(float)value
           : type == 'H' ? (double)narrow_from_float16(narrow_to_float16((float)value))
           : type == 'B' ? (double)narrow_from_bfloat16(narrow_to_bfloat16((float)value))
                         : value;
}

void sim_values_load(union sim_values *to, char as, const unsigned char *base, const uint64_t *offsets, char from,
    unsigned count)
{
    bool real = sim_values_are_real(as);
    if (!sim_values_are_real(from)) {
        load_wholes(to->whole, base, offsets, from, count);
        for (unsigned k = 0; !real && as == 'b' && from != 'b' && k < count; k++)
            to->whole[k] = to->whole[k] != 0;
        for (unsigned k = 0; real && k < count; k++)
            to->real[k] = value_rounded(as, (double)to->whole[k]);
        return;
    }
    load_reals(to->real, base, offsets, from, count);
    for (unsigned k = 0; real && as != from && k < count; k++)
        to->real[k] = value_rounded(as, to->real[k]);
    for (unsigned k = 0; !real && k < count; k++)
        to->whole[k] = as == 'b' ? to->real[k] != 0 : whole_of_real(to->real[k]);
}

#define EACH_TO(type, expression)                                               \
    do {                                                                        \
        type x;                                                                 \
        for (unsigned k = 0; k < count; k++) {                                  \
            x = (type)(expression);                                             \
            memcpy(base + (offsets ? offsets[k] : k * sizeof x), &x, sizeof x); \
        }                                                                       \
    } while (0)

/* Whole numbers keep their lowest bits, as on a GPU. */
SG_WRAPS static void store_wholes(unsigned char *base, const uint64_t *offsets, char to, const int64_t *from,
    unsigned count)
{
    switch (to) {
    case 'b':
        EACH_TO(unsigned char, from[k] != 0);
        return;
    case 'h':
    case 'a':
        EACH_TO(uint8_t, (uint64_t)from[k] & UINT8_MAX);
        return;
    case 's':
        EACH_TO(uint16_t, (uint64_t)from[k] & UINT16_MAX);
        return;
    case 'i':
        EACH_TO(uint32_t, (uint64_t)from[k] & UINT32_MAX);
        return;
    default:
        EACH_TO(int64_t, from[k]);
    }
}

static void store_reals(unsigned char *base, const uint64_t *offsets, char to, const double *from, unsigned count)
{
    switch (to) {
    case 'f':
        EACH_TO(float, from[k]);
        return;
    case 'H':
        EACH_TO(uint16_t, narrow_to_float16((float)from[k]));
        return;
    case 'B':
        EACH_TO(uint16_t, narrow_to_bfloat16((float)from[k]));
        return;
    default:
        EACH_TO(double, from[k]);
    }
}

void sim_values_store(unsigned char *base, const uint64_t *offsets, char to, const union sim_values *from, char as,
    unsigned count)
{
    bool real = sim_values_are_real(as), stores_real = sim_values_are_real(to);
    union sim_values turned;
    for (unsigned k = 0; real != stores_real && k < count; k++) {
        if (stores_real)
            turned.real[k] = (double)from->whole[k];
        else
            turned.whole[k] = to == 'b' ? from->real[k] != 0 : whole_of_real(value_rounded(as, from->real[k]));
    }
    if (real != stores_real)
        from = &turned;
    else if (real && as != to) {
        for (unsigned k = 0; k < count; k++)
            turned.real[k] = value_rounded(as, from->real[k]);
        from = &turned;
    }
    if (stores_real)
        store_reals(base, offsets, to, from->real, count);
    else
        store_wholes(base, offsets, to, from->whole, count);
}

bool sim_values_are_truths(enum sim_operation operation)
{
    switch (operation) {
    case SIM_LOGICAL_NOT:
    case SIM_LOGICAL_AND:
    case SIM_LOGICAL_OR:
    case SIM_EQUAL:
    case SIM_COMPARE:
        return true;
    default:
        return false;
    }
}

/* PyTorch's numbers of comparisons: EqOpType of an equality, OpType of an order. */
enum { IS_EQUAL = 0, IS_GE = 0, IS_GT = 1, IS_LE = 2, IS_LT = 3 };

#define EACH(result, expression)             \
    do {                                     \
        for (unsigned k = 0; k < count; k++) \
            (result)[k] = expression;        \
    } while (0)

#define COMPARE(result, a, b)               \
    do {                                    \
        switch (constants->comparison) {    \
        case IS_GE:                         \
            EACH(result, (a)[k] >= (b)[k]); \
            break;                          \
        case IS_GT:                         \
            EACH(result, (a)[k] > (b)[k]);  \
            break;                          \
        case IS_LE:                         \
            EACH(result, (a)[k] <= (b)[k]); \
            break;                          \
        case IS_LT:                         \
            EACH(result, (a)[k] < (b)[k]);  \
            break;                          \
        default:                            \
            EACH(result, 0);                \
        }                                   \
    } while (0)

/* Integers of tensors wrap. */
SG_WRAPS static void combine_whole(enum sim_operation operation, char type, const struct sim_constants *constants,
    union sim_values in[3], unsigned count)
{
    int64_t *a = in[0].whole;
    const int64_t *b = in[1].whole, *c = in[2].whole;
    switch (operation) {
    case SIM_FILL:
    case SIM_COPY:
    case SIM_ABSOLUTE: /* of floating point alone, the four */
    case SIM_INVERT:
    case SIM_DIVIDE:
    case SIM_MEAN:
    case SIM_COUNT: /* of CUB's sums alone */
    case SIM_LARGEST:
        return;
    case SIM_NOT:
        EACH(a, type == 'b' ? !a[k] : ~a[k]);
        return;
    case SIM_NEGATE:
        EACH(a, (int64_t)(0 - (uint64_t)a[k]));
        return;
    case SIM_AND:
        EACH(a, a[k] & b[k]);
        return;
    case SIM_OR:
        EACH(a, a[k] | b[k]);
        return;
    case SIM_XOR:
        EACH(a, a[k] ^ b[k]);
        return;
    case SIM_LOGICAL_NOT:
        EACH(a, !a[k]);
        return;
    case SIM_LOGICAL_AND:
        EACH(a, a[k] && b[k]);
        return;
    case SIM_LOGICAL_OR:
        EACH(a, a[k] || b[k]);
        return;
    case SIM_EQUAL:
        EACH(a, (a[k] == b[k]) == (constants->comparison == IS_EQUAL));
        return;
    case SIM_COMPARE:
        COMPARE(a, a, b);
        return;
    case SIM_ADD:
        EACH(a, (int64_t)((uint64_t)a[k] + (uint64_t)constants->alpha * (uint64_t)b[k]));
        return;
    case SIM_MULTIPLY:
        EACH(a, (int64_t)((uint64_t)a[k] * (uint64_t)b[k]));
        return;
    case SIM_MAX:
        EACH(a, a[k] > b[k] ? a[k] : b[k]);
        return;
    case SIM_MIN:
        EACH(a, a[k] < b[k] ? a[k] : b[k]);
        return;
    case SIM_WHERE:
        EACH(a, a[k] ? b[k] : c[k]);
        return;
    }
}

static double value_larger(double a, double b)
{
    return a != a || a > b ? a : b; /* what is no number wins */
}

static double value_smaller(double a, double b)
{
    return a != a || a < b ? a : b;
}

static void combine_real(enum sim_operation operation, const struct sim_constants *constants, union sim_values in[3],
    unsigned count)
{
    double *a = in[0].real;
    const double *b = in[1].real, *c = in[2].real;
    switch (operation) {
    case SIM_FILL:
    case SIM_COPY:
    case SIM_NOT: /* of integers alone, the four */
    case SIM_AND:
    case SIM_OR:
    case SIM_XOR:
    case SIM_MEAN:
    case SIM_COUNT:
    case SIM_LARGEST:
        return;
    case SIM_NEGATE:
        EACH(a, -a[k]);
        return;
    case SIM_ABSOLUTE:
        EACH(a, a[k] < 0 ? -a[k] : a[k] + 0.0); /* -0 becomes 0 */
        return;
    case SIM_INVERT:
        EACH(a, 1 / a[k]);
        return;
    case SIM_LOGICAL_NOT:
        EACH(in[0].whole, in[0].real[k] == 0);
        return;
    case SIM_LOGICAL_AND:
        EACH(in[0].whole, in[0].real[k] != 0 && b[k] != 0);
        return;
    case SIM_LOGICAL_OR:
        EACH(in[0].whole, in[0].real[k] != 0 || b[k] != 0);
        return;
    case SIM_EQUAL:
        EACH(in[0].whole, (in[0].real[k] == b[k]) == (constants->comparison == IS_EQUAL));
        return;
    case SIM_COMPARE:
        COMPARE(in[0].whole, in[0].real, b);
        return;
    case SIM_ADD:
        EACH(a, a[k] + constants->real_alpha * b[k]);
        return;
    case SIM_MULTIPLY:
        EACH(a, a[k] * b[k]);
        return;
    case SIM_DIVIDE:
        EACH(a, a[k] / b[k]);
        return;
    case SIM_MAX:
        EACH(a, value_larger(a[k], b[k]));
        return;
    case SIM_MIN:
        EACH(a, value_smaller(a[k], b[k]));
        return;
    case SIM_WHERE:
        EACH(a, in[0].whole[k] ? b[k] : c[k]);
        return;
    }
}

void sim_values_combine(enum sim_operation operation, char type, const struct sim_constants *constants,
    union sim_values in[3], unsigned count)
{
    if (sim_values_are_real(type))
        combine_real(operation, constants, in, count);
    else
        combine_whole(operation, type, constants, in, count);
}

void sim_values_scale(union sim_values *values, char type, double factor)
{
    values->real[0] = value_rounded(type, values->real[0]) * factor;
}

SG_WRAPS static void fold_whole(struct sim_fold *fold, const int64_t *v, unsigned count)
{
    bool truth = fold->operation == SIM_LOGICAL_OR || fold->operation == SIM_LOGICAL_AND;
    int64_t sum = fold->begun ? fold->whole : truth ? v[0] != 0 : v[0];
    for (unsigned k = fold->begun ? 0 : 1; k < count; k++)
        sum = fold->operation == SIM_LOGICAL_OR    ? sum | (v[k] != 0)
              : fold->operation == SIM_LOGICAL_AND ? sum & (v[k] != 0)
              : fold->operation == SIM_MAX         ? (v[k] > sum ? v[k] : sum)
              : fold->operation == SIM_MIN         ? (v[k] < sum ? v[k] : sum)
              : fold->operation == SIM_MULTIPLY    ? (int64_t)((uint64_t)sum * (uint64_t)v[k])
                                                   : (int64_t)((uint64_t)sum + (uint64_t)v[k]);
    fold->whole = sum;
}

static void fold_real(struct sim_fold *fold, const double *v, unsigned count)
{
    bool truth = fold->operation == SIM_LOGICAL_OR || fold->operation == SIM_LOGICAL_AND;
    double sum = fold->begun ? fold->real : truth ? v[0] != 0 : v[0];
    for (unsigned k = fold->begun ? 0 : 1; k < count; k++)
        sum = fold->operation == SIM_LOGICAL_OR    ? sum != 0 || v[k] != 0
              : fold->operation == SIM_LOGICAL_AND ? sum != 0 && v[k] != 0
              : fold->operation == SIM_MAX         ? value_larger(sum, v[k])
              : fold->operation == SIM_MIN         ? value_smaller(sum, v[k])
              : fold->operation == SIM_MULTIPLY    ? sum * v[k]
                                                   : sum + v[k];
    fold->real = sum;
}

void sim_values_fold(struct sim_fold *fold, const union sim_values *values, unsigned count)
{
    if (count == 0)
        return;
    if (sim_values_are_real(fold->type))
        fold_real(fold, values->real, count);
    else
        fold_whole(fold, values->whole, count);
    fold->begun = true;
}
