/* Arithmetic on device memory, queued in stream order: one table entry a backend. */
#ifndef TRAIN_ARITHMETIC_H
#define TRAIN_ARITHMETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum kernel {
#define KERNEL(name, text) KERNEL_##name,
#include "backend/kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I64, DTYPE_U8, DTYPE_COUNT };

enum { KERNEL_POINTERS = 12, KERNEL_COUNTS = 7, KERNEL_SCALARS = 2 };

/* The arguments of a kernel, copied when it is queued. kernels.def says what each kernel makes of it. */
struct kernel_args {
    enum kernel kernel;
    enum dtype dtype; /* of what has no dtype of its own in kernels.def */
    float f[KERNEL_SCALARS];
    int64_t n[KERNEL_COUNTS];
    void *p[KERNEL_POINTERS];
};

struct cuda_rt;

struct arithmetic {
    const char *name;
    uint32_t dtypes;       /* bit set of the dtypes that weights may have */
    bool from_host;        /* runs on the host, which must be able to reach the device's memory */
    /* Before all else, with the device current. Returns 0, or -1 with one line in `error`. */
    int (*start)(const struct cuda_rt *rt, int threads, char *error, size_t error_size);
    void (*stop)(const struct cuda_rt *rt); /* NULL: nothing to do */
    /* Runs one kernel now, on the thread of the stream that reached it; NULL where kernels are queued. */
    void (*run)(const struct kernel_args *args);
    /* Queues one kernel on the default stream. Returns NULL, or what is wrong. */
    const char *(*queue)(const struct kernel_args *args);
};

extern const struct arithmetic arithmetic_cpu, arithmetic_gpu;

/* bfloat16 is the upper half of a float; rounded to nearest, ties to even. */
static inline float bf16_to_float(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) /* not a number: rounding could make an infinity of it */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
