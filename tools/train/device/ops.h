/* Elementary operations: each takes its result from the device, queues one kernel and returns the one reference. The
   schedule is made of these and of dropping tensors, in PyTorch's order. */
#ifndef TRAIN_OPS_H
#define TRAIN_OPS_H

#include "device/tensor.h"

/* Result shaped and typed like `a`; `b` may be NULL. */
struct tensor *op_map(struct device *device, enum kernel kernel, struct tensor *a, struct tensor *b, float scalar);
/* Writes `target` in place from `source`, which may be NULL. */
void op_in_place(struct device *device, enum kernel kernel, struct tensor *target, struct tensor *source, float scalar);

/* Casts to a dtype. A tensor that has it already gets one more reference and is the result, as in PyTorch. */
struct tensor *op_cast(struct device *device, struct tensor *x, enum dtype dtype);

struct tensor *op_row_mean(struct device *device, struct tensor *x);
struct tensor *op_row_sum(struct device *device, struct tensor *x);
struct tensor *op_row_spread(struct device *device, struct tensor *x, int64_t columns, float scalar);
struct tensor *op_column_sum(struct device *device, struct tensor *x);
struct tensor *op_mul_rows(struct device *device, struct tensor *x, struct tensor *per_row);
struct tensor *op_mul_columns(struct device *device, struct tensor *x, struct tensor *per_column);

enum { PLAIN, TRANSPOSED };
/* op(a) op(b), plus `bias` (or NULL) on every row. */
struct tensor *op_gemm(struct device *device, struct tensor *a, int a_is, struct tensor *b, int b_is,
                       struct tensor *bias);

#endif
