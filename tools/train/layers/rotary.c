#include "layers/blocks.h"
#include "device/ops.h"

/* transformers turns x to x * cos + rotate_half(x) * sin, with rotate_half(a beside b) = -b beside a. */

static struct tensor *mul_heads(struct pass *pass, struct tensor *x, struct tensor *factor, int heads)
{
    struct tensor *result = tensor_new(pass->device, x->dtype, x->rows, x->columns);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_mul_heads, .dtype = x->dtype,
                                                      .n = {x->rows, heads, factor->columns, factor->rows},
                                                      .p = {result->data, x->data, factor->data}});
    return result;
}

/* `result_columns` a row; kernels of halves see one row a head. */
static struct tensor *rotary_halves(struct pass *pass, enum kernel kernel, struct tensor *a, struct tensor *b,
    int64_t result_columns, int which)
{
    const int head_dim = pass->model->shape.head_dim;
    struct tensor *result = tensor_new(pass->device, a->dtype, a->rows, result_columns);
    int64_t wide = result_columns > a->columns ? result_columns : a->columns;
    device_launch(pass->device, &(struct kernel_args){.kernel = kernel, .dtype = a->dtype,
                                                      .n = {a->rows * wide / head_dim, which, head_dim / 2},
                                                      .p = {result->data, a->data, b ? b->data : NULL}});
    return result;
}

struct tensor *rotary_forward(struct pass *pass, struct tensor *x, int heads)
{
    struct tensor *straight = mul_heads(pass, x, pass->cosines, heads);
    struct tensor *negative = rotary_halves(pass, KERNEL_negate_half, x, NULL, x->columns / 2, 1);
    struct tensor *rotated = rotary_halves(pass, KERNEL_join_halves, negative, x, x->columns, 0);
    tensor_drop(&negative);
    struct tensor *across = mul_heads(pass, rotated, pass->sines, heads);
    tensor_drop(&rotated);
    struct tensor *result = op_map(pass->device, KERNEL_add, straight, across, 0);
    tensor_drop(&straight);
    tensor_drop(&across);
    return result;
}

struct tensor *rotary_backward(struct pass *pass, struct tensor **gradient, int heads)
{
    struct device *device = pass->device;
    struct tensor *across = mul_heads(pass, *gradient, pass->sines, heads);
    struct tensor *negative = rotary_halves(pass, KERNEL_negate_half, across, NULL, across->columns / 2, 0);
    struct tensor *result = rotary_halves(pass, KERNEL_pad_half, negative, NULL, across->columns, 1);
    tensor_drop(&negative);
    struct tensor *other = rotary_halves(pass, KERNEL_pad_half_of, across, NULL, across->columns, 0);
    tensor_drop(&across);
    op_in_place(device, KERNEL_add_to, result, other, 0);
    tensor_drop(&other);
    struct tensor *straight = mul_heads(pass, *gradient, pass->cosines, heads);
    tensor_drop(gradient);
    op_in_place(device, KERNEL_add_to, result, straight, 0);
    tensor_drop(&straight);
    return result;
}
