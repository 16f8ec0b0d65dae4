#include "layers/blocks.h"
#include "device/ops.h"

struct tensor *norm_forward(struct pass *pass, struct parameter *weight, struct tensor *x, struct norm_saved *saved)
{
    struct device *device = pass->device;
    struct tensor *wide = op_cast(device, x, DTYPE_F32);
    struct tensor *square = op_map(device, KERNEL_square, wide, NULL, 0);
    struct tensor *variance = op_row_mean(device, square);
    tensor_drop(&square);
    struct tensor *shifted = op_map(device, KERNEL_add_scalar, variance, NULL, (float)pass->model->shape.norm_eps);
    struct tensor *inverse = op_map(device, KERNEL_rsqrt, shifted, NULL, 0);
    tensor_drop(&shifted);
    struct tensor *product = op_mul_rows(device, wide, inverse);
    if (saved) {
        saved->x = tensor_keep(wide);
        saved->inverse = tensor_keep(inverse);
    }
    tensor_drop(&inverse);
    tensor_drop(&wide);
    struct tensor *normed = op_cast(device, product, x->dtype);
    struct tensor *result = op_mul_columns(device, normed, weight_of(pass, weight));
    if (saved && weight->trained)
        saved->normed = tensor_keep(normed);
    tensor_drop(&normed);
    tensor_drop(&product);
    tensor_drop(&variance);
    return result;
}

static void weight_backward(struct pass *pass, struct parameter *weight, struct norm_saved *saved,
                            struct tensor *gradient)
{
    if (!weight->trained)
        return;
    struct tensor *product = op_map(pass->device, KERNEL_mul, gradient, saved->normed, 0);
    parameter_accept(pass->device, weight, op_column_sum(pass->device, product));
    tensor_drop(&product);
    tensor_drop(&saved->normed);
}

/* From the gradient of 1 / rms to that of the mean of squares. Drops *gradient and *inverse. */
static struct tensor *inverse_backward(struct pass *pass, struct tensor **gradient, struct tensor **inverse)
{
    struct device *device = pass->device;
    struct tensor *cube = op_map(device, KERNEL_cube, *inverse, NULL, 0);
    struct tensor *half = op_map(device, KERNEL_scale, *gradient, NULL, -0.5F);
    struct tensor *result = op_map(device, KERNEL_mul, half, cube, 0);
    tensor_drop(&half);
    tensor_drop(&cube);
    tensor_drop(inverse);
    tensor_drop(gradient);
    return result;
}

struct tensor *norm_backward(struct pass *pass, struct parameter *weight, struct norm_saved *saved,
    struct tensor **gradient, struct tensor **last[], int last_count)
{
    struct device *device = pass->device;
    enum dtype dtype = (*gradient)->dtype;
    struct tensor *weighted = op_mul_columns(device, *gradient, weight_of(pass, weight));
    weight_backward(pass, weight, saved, *gradient);
    tensor_drop(gradient);
    struct tensor *wide = op_cast(device, weighted, DTYPE_F32);
    tensor_drop(&weighted);
    struct tensor *product = op_map(device, KERNEL_mul, wide, saved->x, 0);
    struct tensor *of_x = op_mul_rows(device, wide, saved->inverse);
    struct tensor *of_inverse = op_row_sum(device, product);
    tensor_drop(&product);
    tensor_drop(&wide);
    struct tensor *of_mean = inverse_backward(pass, &of_inverse, &saved->inverse);
    struct tensor *of_square = op_row_spread(device, of_mean, saved->x->columns, 1 / (float)saved->x->columns);
    tensor_drop(&of_mean);
    struct tensor *power = op_map(device, KERNEL_copy, saved->x, NULL, 0);
    struct tensor *twice = op_map(device, KERNEL_scale, power, NULL, 2);
    struct tensor *further = op_map(device, KERNEL_mul, of_square, twice, 0);
    tensor_drop(&twice);
    tensor_drop(&power);
    tensor_drop(&saved->x);
    tensor_drop(&of_square);
    for (int i = 0; i < last_count; i++)
        tensor_drop(last[i]);
    op_in_place(device, KERNEL_add_to, of_x, further, 0);
    tensor_drop(&further);
    struct tensor *result = op_cast(device, of_x, dtype);
    tensor_drop(&of_x);
    return result;
}
