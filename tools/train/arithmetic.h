/* Arithmetic on device memory, queued in stream order: one table entry a backend. */
#ifndef TRAIN_ARITHMETIC_H
#define TRAIN_ARITHMETIC_H

#include <stdbool.h>
#include <stdint.h>

enum kernel {
#define KERNEL(name, text) KERNEL_##name,
#include "kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I64, DTYPE_U8, DTYPE_COUNT };

enum { KERNEL_POINTERS = 12, KERNEL_COUNTS = 7, KERNEL_SCALARS = 2 };

/* What a kernel is given, copied when it is queued. kernels.def says what each kernel makes of it. */
struct kernel_args {
    enum kernel kernel;
    float f[KERNEL_SCALARS];
    int64_t n[KERNEL_COUNTS];
    void *p[KERNEL_POINTERS];
};

struct arithmetic {
    const char *name;
    uint32_t dtypes;       /* bit set of the dtypes that weights may have */
    bool from_host;        /* runs on the host, which must be able to reach the device's memory */
    void (*start)(int threads);
    /* Runs one kernel now, on the thread of the stream that reached it. */
    void (*run)(const struct kernel_args *args);
};

extern const struct arithmetic arithmetic_cpu;

#endif
