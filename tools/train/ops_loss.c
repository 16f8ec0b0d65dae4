#include "blocks.h"
#include "ops.h"

struct tensor *embedding_forward(struct pass *pass, struct tensor *tokens)
{
    const struct shape *s = &pass->model->shape;
    struct tensor *result = tensor_new(pass->device, s->dtype, tensor_count(tokens), s->hidden);
    device_launch(pass->device, &(struct kernel_args){
        .kernel = KERNEL_embed, .n = {result->rows, s->hidden},
        .p = {result->data, tokens->data, pass->model->embedding.value->data}});
    return result;
}

void embedding_backward(struct pass *pass, struct tensor *tokens, struct tensor *gradient)
{
    const struct shape *s = &pass->model->shape;
    if (!pass->model->embedding.trained)
        return;
    struct tensor *result = tensor_new(pass->device, s->dtype, s->vocabulary, s->hidden);
    op_in_place(pass->device, KERNEL_fill, result, NULL, 0);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_embed_gradient,
                                                      .n = {gradient->rows, s->hidden},
                                                      .p = {result->data, tokens->data, gradient->data}});
    parameter_accept(pass->device, &pass->model->embedding, result);
}

static struct parameter *head(struct model *model)
{
    return model->head.value ? &model->head : &model->embedding;
}

struct tensor *loss_forward(struct pass *pass, struct tensor **x, struct tensor *tokens, struct loss_saved *saved)
{
    struct device *device = pass->device;
    if (head(pass->model)->trained)
        saved->x_head = tensor_keep(*x);
    struct tensor *logits = op_gemm(device, *x, PLAIN, head(pass->model)->value, TRANSPOSED, NULL);
    workspace_take(pass, false);
    struct tensor *wide = op_cast(device, logits, DTYPE_F32);
    saved->labels = tensor_new(device, DTYPE_I64, pass->batch, pass->length + 1);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_shift_labels, .n = {pass->batch, pass->length},
                                                .p = {saved->labels->data, tokens->data}});
    saved->log_softmax = tensor_new(device, DTYPE_F32, wide->rows, wide->columns);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_log_softmax, .n = {wide->rows, wide->columns},
                                                .p = {saved->log_softmax->data, wide->data}});
    struct tensor *mean = tensor_new(device, DTYPE_F32, 1, 1);
    saved->count = tensor_new(device, DTYPE_F32, 1, 1);
    device_launch(device, &(struct kernel_args){
        .kernel = KERNEL_nll, .n = {pass->batch, pass->length, wide->columns},
        .p = {mean->data, saved->count->data, saved->log_softmax->data, saved->labels->data}});
    tensor_drop(&wide);
    tensor_drop(x);
    tensor_drop(&logits);
    struct tensor *loss = op_map(device, KERNEL_copy, mean, NULL, 0);
    tensor_drop(&mean);
    return loss;
}

struct tensor *loss_backward(struct pass *pass, struct loss_saved *saved, struct tensor *scaled, int parts)
{
    struct device *device = pass->device;
    struct parameter *weight = head(pass->model);
    struct tensor *start = tensor_new(device, DTYPE_F32, scaled->rows, scaled->columns);
    op_in_place(device, KERNEL_fill, start, NULL, 1 / (float)parts);
    struct tensor *log_softmax = saved->log_softmax;
    struct tensor *picked = tensor_new(device, DTYPE_F32, log_softmax->rows, log_softmax->columns);
    device_launch(device, &(struct kernel_args){
        .kernel = KERNEL_nll_gradient, .n = {pass->batch, pass->length, log_softmax->columns},
        .p = {picked->data, start->data, saved->count->data, saved->labels->data}});
    tensor_drop(&start);
    tensor_drop(&saved->labels);
    tensor_drop(&saved->count);
    struct tensor *wide = tensor_new(device, DTYPE_F32, log_softmax->rows, log_softmax->columns);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_log_softmax_gradient,
                                                .n = {wide->rows, wide->columns},
                                                .p = {wide->data, picked->data, log_softmax->data}});
    tensor_drop(&picked);
    tensor_drop(&saved->log_softmax);
    struct tensor *logits = op_cast(device, wide, pass->model->shape.dtype);
    tensor_drop(&wide);
    struct tensor *result = op_gemm(device, logits, PLAIN, weight->value, PLAIN, NULL);
    workspace_take(pass, false);
    if (weight->trained)
        parameter_accept(device, weight, op_gemm(device, logits, TRANSPOSED, saved->x_head, PLAIN, NULL));
    tensor_drop(&saved->x_head);
    tensor_drop(&logits);
    return result;
}
