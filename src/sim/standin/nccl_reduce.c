#include "nccl_reduce.h"

#include "base/wrap.h"
#include "sim/narrow.h"

#include <stdint.h>
#include <string.h>

enum nccl_type {
    INT8,
    UINT8,
    INT32,
    UINT32,
    INT64,
    UINT64,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    BFLOAT16,
    FP8_E4M3,
    FP8_E5M2,
    TYPES
};
enum nccl_op { SUM, PRODUCT, MAX, MIN, AVERAGE };

size_t sg_nccl_bytes(int type)
{
    static const unsigned char bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < TYPES ? bytes[type] : 1;
}

static double from_bfloat16(uint16_t bits)
{
    return (double)narrow_from_bfloat16(bits);
}

static uint16_t to_bfloat16(double value)
{
    return narrow_to_bfloat16((float)value);
}

static double from_float16(uint16_t bits)
{
    return (double)narrow_from_float16(bits);
}

static uint16_t to_float16(double value)
{
    return narrow_to_float16((float)value);
}

#define SAME(value) (value)
#define COMBINE(op, a, b)                                                                                   \
    ((op) == PRODUCT ? (a) * (b)                                                                            \
     : (op) == MAX ? ((a) > (b) ? (a) : (b)) : (op) == MIN ? ((a) < (b) ? (a) : (b)) : (a) + (b))

/* name, how it is kept, what it is computed with, and the ways from one to the other */
#define REDUCER(name, kept, computed, read, write)                                                             \
    SG_WRAPS static void reduce_##name(int op, void *to, const void *from, size_t count)                       \
    {                                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                                   \
            computed a = (computed)read(((kept *)to)[i]), b = (computed)read(((const kept *)from)[i]);         \
            ((kept *)to)[i] = (kept)write((computed)COMBINE(op, a, b));                                        \
        }                                                                                                      \
    }                                                                                                          \
    static void divide_##name(void *to, size_t count, int by)                                                  \
    {                                                                                                          \
        for (size_t i = 0; i < count; i++)                                                                     \
            ((kept *)to)[i] = (kept)write((computed)read(((kept *)to)[i]) / (computed)by);                     \
    }

/* Sums of integers wrap, so they are unsigned; what has a sign is compared with it. */
REDUCER(int8, int8_t, int64_t, SAME, SAME)
REDUCER(uint8, uint8_t, uint64_t, SAME, SAME)
REDUCER(int32, int32_t, int64_t, SAME, SAME)
REDUCER(uint32, uint32_t, uint64_t, SAME, SAME)
REDUCER(uint64, uint64_t, uint64_t, SAME, SAME)
REDUCER(float16, uint16_t, double, from_float16, to_float16)
REDUCER(float32, float, float, SAME, SAME)
REDUCER(float64, double, double, SAME, SAME)
REDUCER(bfloat16, uint16_t, double, from_bfloat16, to_bfloat16)

static void reduce_int64(int op, void *to, const void *from, size_t count)
{
    if (op != MAX && op != MIN) {
        reduce_uint64(op, to, from, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t a = ((int64_t *)to)[i], b = ((const int64_t *)from)[i];
        ((int64_t *)to)[i] = COMBINE(op, a, b);
    }
}

static void divide_int64(void *to, size_t count, int by)
{
    for (size_t i = 0; i < count; i++)
        ((int64_t *)to)[i] /= by;
}

static const struct {
    void (*reduce)(int op, void *to, const void *from, size_t count);
    void (*divide)(void *to, size_t count, int by);
} types[TYPES] = {
    [INT8] = {reduce_int8, divide_int8}, [UINT8] = {reduce_uint8, divide_uint8}, [INT32] = {reduce_int32, divide_int32},
    [UINT32] = {reduce_uint32, divide_uint32}, [INT64] = {reduce_int64, divide_int64},
    [UINT64] = {reduce_uint64, divide_uint64}, [FLOAT16] = {reduce_float16, divide_float16},
    [FLOAT32] = {reduce_float32, divide_float32}, [FLOAT64] = {reduce_float64, divide_float64},
    [BFLOAT16] = {reduce_bfloat16, divide_bfloat16},
};

void sg_nccl_reduce(int type, int op, void *to, const void *from, size_t count)
{
    if (type >= 0 && type < TYPES && types[type].reduce)
        types[type].reduce(op, to, from, count);
}

void sg_nccl_average(int type, int op, void *to, size_t count, int ranks)
{
    if (op == AVERAGE && type >= 0 && type < TYPES && types[type].divide)
        types[type].divide(to, count, ranks);
}
