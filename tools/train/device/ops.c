#include "device/ops.h"

#include <assert.h>

struct tensor *op_map(struct device *device, enum kernel kernel, struct tensor *a, struct tensor *b, float scalar)
{
    struct tensor *result = tensor_new(device, a->dtype, a->rows, a->columns);
    assert(!b || (b->rows == a->rows && b->columns == a->columns));
    device_launch(device, &(struct kernel_args){
        .kernel = kernel, .dtype = a->dtype, .f = {scalar}, .n = {tensor_count(a)},
        .p = {result->data, a->data, b ? b->data : NULL}});
    return result;
}

void op_in_place(struct device *device, enum kernel kernel, struct tensor *target, struct tensor *source, float scalar)
{
    device_launch(device, &(struct kernel_args){
        .kernel = kernel, .dtype = target->dtype, .f = {scalar}, .n = {tensor_count(target)},
        .p = {target->data, source ? source->data : NULL}});
}

struct tensor *op_cast(struct device *device, struct tensor *x, enum dtype dtype)
{
    if (x->dtype == dtype)
        return tensor_keep(x);
    struct tensor *result = tensor_new(device, dtype, x->rows, x->columns);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_cast, .n = {tensor_count(x), dtype, x->dtype},
                                                .p = {result->data, x->data}});
    return result;
}

static struct tensor *reduce_rows(struct device *device, enum kernel kernel, struct tensor *x)
{
    struct tensor *result = tensor_new(device, x->dtype, x->rows, 1);
    device_launch(device, &(struct kernel_args){.kernel = kernel, .dtype = x->dtype, .n = {x->rows, x->columns},
                                                .p = {result->data, x->data}});
    return result;
}

struct tensor *op_row_mean(struct device *device, struct tensor *x)
{
    return reduce_rows(device, KERNEL_row_mean, x);
}

struct tensor *op_row_sum(struct device *device, struct tensor *x)
{
    return reduce_rows(device, KERNEL_row_sum, x);
}

struct tensor *op_row_spread(struct device *device, struct tensor *x, int64_t columns, float scalar)
{
    struct tensor *result = tensor_new(device, x->dtype, x->rows, columns);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_row_spread, .dtype = x->dtype, .f = {scalar},
                                                .n = {x->rows, columns}, .p = {result->data, x->data}});
    return result;
}

struct tensor *op_column_sum(struct device *device, struct tensor *x)
{
    struct tensor *result = tensor_new(device, x->dtype, 1, x->columns);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_column_sum, .dtype = x->dtype,
                                                .n = {x->rows, x->columns}, .p = {result->data, x->data}});
    return result;
}

static struct tensor *op_broadcast(struct device *device, enum kernel kernel, struct tensor *x, struct tensor *factor)
{
    struct tensor *result = tensor_new(device, x->dtype, x->rows, x->columns);
    device_launch(device, &(struct kernel_args){.kernel = kernel, .dtype = x->dtype, .n = {x->rows, x->columns},
                                                .p = {result->data, x->data, factor->data}});
    return result;
}

struct tensor *op_mul_rows(struct device *device, struct tensor *x, struct tensor *per_row)
{
    assert(tensor_count(per_row) == x->rows);
    return op_broadcast(device, KERNEL_mul_rows, x, per_row);
}

struct tensor *op_mul_columns(struct device *device, struct tensor *x, struct tensor *per_column)
{
    assert(tensor_count(per_column) == x->columns);
    return op_broadcast(device, KERNEL_mul_columns, x, per_column);
}

struct tensor *op_gemm(struct device *device, struct tensor *a, int a_is, struct tensor *b, int b_is,
                       struct tensor *bias)
{
    int64_t rows = a_is == TRANSPOSED ? a->columns : a->rows, inner = a_is == TRANSPOSED ? a->rows : a->columns;
    int64_t columns = b_is == TRANSPOSED ? b->rows : b->columns;
    assert(inner == (b_is == TRANSPOSED ? b->columns : b->rows));
    struct tensor *result = tensor_new(device, a->dtype, rows, columns);
    device_launch(device, &(struct kernel_args){
        .kernel = KERNEL_gemm, .dtype = a->dtype, .n = {rows, columns, inner, a_is, b_is},
        .p = {result->data, a->data, b->data, bias ? bias->data : NULL}});
    return result;
}
