#include "layers/blocks.h"
#include "device/ops.h"

#include <assert.h>

void workspace_take(struct pass *pass, bool with_bias)
{
    const struct shape *shape = &pass->model->shape;
    struct tensor **large = &pass->model->workspaces[pass->backward ? 2 : 0], **small = large + 1;
    enum budget before = device_label(pass->device, BUDGET_workspaces);
    if (shape->workspace && !*large)
        *large = tensor_new(pass->device, DTYPE_U8, 1, (int64_t)shape->workspace);
    if (shape->workspace_small && with_bias && !*small)
        *small = tensor_new(pass->device, DTYPE_U8, 1, (int64_t)shape->workspace_small);
    device_label(pass->device, before);
}

struct tensor *weight_of(struct pass *pass, struct parameter *parameter)
{
    if (!parameter->value || parameter->value->dtype == pass->model->shape.dtype)
        return parameter->value;
    if (!parameter->cast) {
        enum budget before = device_label(pass->device, BUDGET_other);
        parameter->cast = op_cast(pass->device, parameter->value, pass->model->shape.dtype);
        device_label(pass->device, before);
    }
    return parameter->cast;
}

void casts_drop(struct parameter *const *parameters, int count)
{
    for (int i = 0; i < count; i++)
        tensor_drop(&parameters[i]->cast);
}

/* Which elements are dropped depends on where they are and on nothing else. */
static struct tensor *drop_out(struct pass *pass, struct linear *linear, struct tensor *x, struct linear_saved *saved)
{
    double share = pass->model->shape.dropout;
    if (!(share > 0) || !pass->dropout_seed)
        return tensor_keep(x);
    struct tensor *result = tensor_new(pass->device, x->dtype, x->rows, x->columns);
    struct tensor *kept = tensor_new(pass->device, DTYPE_U8, x->rows, x->columns);
    device_launch(pass->device, &(struct kernel_args){
        .kernel = KERNEL_drop_out, .dtype = x->dtype, .f = {(float)share},
        .n = {tensor_count(x), linear->number, (int64_t)pass->dropout_seed}, .p = {result->data, kept->data, x->data}});
    if (saved)
        saved->kept = tensor_keep(kept);
    tensor_drop(&kept);
    return result;
}

struct tensor *linear_forward(struct pass *pass, struct linear *linear, struct tensor *x, struct linear_saved *saved,
                              bool only_low)
{
    struct device *device = pass->device;
    if (saved && linear->weight.trained)
        saved->x_base = tensor_keep(x);
    struct tensor *bias = weight_of(pass, &linear->bias);
    struct tensor *base = op_gemm(device, x, PLAIN, weight_of(pass, &linear->weight), TRANSPOSED, bias);
    workspace_take(pass, linear->bias.value != NULL);
    if (!linear->lora_a.value) {
        if (only_low)
            tensor_drop(&base);
        return base;
    }
    struct tensor *dropped = drop_out(pass, linear, x, saved);
    struct tensor *low = op_gemm(device, dropped, PLAIN, linear->lora_a.value, TRANSPOSED, NULL);
    if (saved) {
        saved->x = tensor_keep(dropped);
        saved->low = tensor_keep(low);
    }
    tensor_drop(&dropped);
    if (only_low) {
        tensor_drop(&base);
        tensor_drop(&low);
        return NULL;
    }
    struct tensor *high = op_gemm(device, low, PLAIN, linear->lora_b.value, TRANSPOSED, NULL);
    tensor_drop(&low);
    struct tensor *scaled = op_map(device, KERNEL_scale, high, NULL, model_lora_scale(&pass->model->shape));
    tensor_drop(&high);
    struct tensor *result = op_map(device, KERNEL_add, base, scaled, 0);
    tensor_drop(&scaled);
    tensor_drop(&base);
    return result;
}

struct tensor *linear_scale_gradient(struct pass *pass, struct linear *linear, struct tensor *gradient)
{
    if (!linear->lora_a.value)
        return NULL;
    return op_map(pass->device, KERNEL_scale, gradient, NULL, model_lora_scale(&pass->model->shape));
}

/* The engine adds further gradients of a tensor to the first in place if nobody else holds it, which is so from the
   second on: the sum is its own. */
static void add_to_sum(struct pass *pass, struct tensor **part, struct tensor *sum)
{
    op_in_place(pass->device, KERNEL_add_to, sum, *part, 0);
    tensor_drop(part);
}

static void base_backward(struct pass *pass, struct linear *linear, struct linear_saved *saved,
                          struct tensor *gradient)
{
    if (linear->weight.trained)
        parameter_accept(pass->device, &linear->weight,
                         op_gemm(pass->device, gradient, TRANSPOSED, saved->x_base, PLAIN, NULL));
    if (linear->bias.value && linear->bias.trained)
        parameter_accept(pass->device, &linear->bias, op_column_sum(pass->device, gradient));
    tensor_drop(&saved->x_base);
}

void linear_backward(struct pass *pass, struct linear *linear, struct linear_saved *saved, struct tensor **gradient,
                     struct tensor **scaled, struct tensor **sum)
{
    struct device *device = pass->device;
    struct tensor *of_x = NULL, *gradient_a = NULL;
    if (linear->lora_a.value) {
        struct tensor *gradient_b = op_gemm(device, *scaled, TRANSPOSED, saved->low, PLAIN, NULL);
        struct tensor *of_low = op_gemm(device, *scaled, PLAIN, linear->lora_b.value, PLAIN, NULL);
        tensor_drop(&saved->low);
        tensor_drop(scaled);
        parameter_accept(device, &linear->lora_b, gradient_b);
        gradient_a = op_gemm(device, of_low, TRANSPOSED, saved->x, PLAIN, NULL);
        of_x = op_gemm(device, of_low, PLAIN, linear->lora_a.value, PLAIN, NULL);
        tensor_drop(&saved->x);
        tensor_drop(&of_low);
        if (saved->kept) {
            struct tensor *of_dropped = of_x;
            of_x = tensor_new(device, of_dropped->dtype, of_dropped->rows, of_dropped->columns);
            device_launch(device, &(struct kernel_args){
                .kernel = KERNEL_drop_out_gradient, .dtype = of_x->dtype, .f = {(float)pass->model->shape.dropout},
                .n = {tensor_count(of_x)}, .p = {of_x->data, of_dropped->data, saved->kept->data}});
            tensor_drop(&of_dropped);
            tensor_drop(&saved->kept);
        }
        if (*sum)
            add_to_sum(pass, &of_x, *sum);
        parameter_accept(device, &linear->lora_a, gradient_a);
    }
    struct tensor *of_x_base = op_gemm(device, *gradient, PLAIN, weight_of(pass, &linear->weight), PLAIN, NULL);
    base_backward(pass, linear, saved, *gradient);
    tensor_drop(gradient);
    if (*sum) {
        add_to_sum(pass, &of_x_base, *sum);
    } else if (of_x) {
        *sum = op_map(device, KERNEL_add, of_x, of_x_base, 0);
        tensor_drop(&of_x);
        tensor_drop(&of_x_base);
    } else {
        *sum = of_x_base;
    }
}
