#include "layers/blocks.h"
#include "device/ops.h"

struct tensor *embedding_forward(struct pass *pass, struct tensor *tokens)
{
    const struct shape *s = &pass->model->shape;
    struct tensor *result = tensor_new(pass->device, s->dtype, tensor_count(tokens), s->hidden);
    device_launch(pass->device, &(struct kernel_args){
        .kernel = KERNEL_embed, .dtype = result->dtype, .n = {result->rows, s->hidden},
        .p = {result->data, tokens->data, pass->model->embedding.value->data}});
    return result;
}

void embedding_backward(struct pass *pass, struct tensor *tokens, struct tensor *gradient)
{
    const struct shape *s = &pass->model->shape;
    if (!pass->model->embedding.trained)
        return;
    struct tensor *result = tensor_new(pass->device, s->mixed ? DTYPE_F32 : s->dtype, s->vocabulary, s->hidden);
    op_in_place(pass->device, KERNEL_fill, result, NULL, 0);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_embed_gradient, .dtype = gradient->dtype,
                                                      .n = {gradient->rows, s->hidden},
                                                      .p = {result->data, tokens->data, gradient->data}});
    parameter_accept(pass->device, &pass->model->embedding, result);
}

static struct parameter *loss_head(struct model *model)
{
    return model->shape.tied ? &model->embedding : &model->head;
}

/* Scores tokens as trainers of GRPO do. The model's own logits stay with its output. Log-probabilities and entropies
   are taken of a copy by temperature, fused, so that only their gradients are as large. */
static struct tensor *policy_forward(struct pass *pass, struct tensor **x, struct loss_saved *saved)
{
    struct device *device = pass->device;
    if (loss_head(pass->model)->trained)
        saved->x_head = tensor_keep(*x);
    saved->raw = op_gemm(device, *x, PLAIN, weight_of(pass, loss_head(pass->model)), TRANSPOSED, NULL);
    tensor_drop(x);
    workspace_take(pass, false);
    saved->scaled = op_map(device, KERNEL_scale, saved->raw, NULL, 1);
    struct tensor *scores = tensor_new(device, DTYPE_F32, saved->scaled->rows, 1);
    struct tensor *entropies = tensor_new(device, DTYPE_F32, saved->scaled->rows, 1);
    tensor_drop(&scores);
    tensor_drop(&entropies);
    return tensor_new(device, DTYPE_F32, 1, 1);
}

static struct tensor *policy_backward(struct pass *pass, struct loss_saved *saved)
{
    struct device *device = pass->device;
    struct tensor *of_scores = op_map(device, KERNEL_copy, saved->scaled, NULL, 0);
    struct tensor *of_entropies = op_map(device, KERNEL_copy, saved->scaled, NULL, 0);
    op_in_place(device, KERNEL_add_to, of_scores, of_entropies, 0);
    tensor_drop(&of_entropies);
    tensor_drop(&saved->scaled);
    struct tensor *logits = op_map(device, KERNEL_scale, of_scores, NULL, 1);
    tensor_drop(&of_scores);
    tensor_drop(&saved->raw);
    return logits;
}

static struct tensor *entropy_forward(struct pass *pass, struct tensor **x, struct tensor *tokens,
                                      struct loss_saved *saved)
{
    struct device *device = pass->device;
    if (loss_head(pass->model)->trained)
        saved->x_head = tensor_keep(*x);
    struct tensor *logits = op_gemm(device, *x, PLAIN, weight_of(pass, loss_head(pass->model)), TRANSPOSED, NULL);
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

static struct tensor *entropy_backward(struct pass *pass, struct loss_saved *saved, struct tensor *scaled, int parts)
{
    struct device *device = pass->device;
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
    return logits;
}

struct tensor *loss_forward(struct pass *pass, struct tensor **x, struct tensor *tokens, struct loss_saved *saved)
{
    enum budget before = device_label(pass->device, BUDGET_logits);
    struct tensor *loss = pass->policy ? policy_forward(pass, x, saved) : entropy_forward(pass, x, tokens, saved);
    device_label(pass->device, before);
    return loss;
}

void loss_forget(struct loss_saved *saved)
{
    tensor_drop(&saved->labels);
    tensor_drop(&saved->log_softmax);
    tensor_drop(&saved->count);
    tensor_drop(&saved->x_head);
    tensor_drop(&saved->raw);
    tensor_drop(&saved->scaled);
}

struct tensor *loss_backward(struct pass *pass, struct loss_saved *saved, struct tensor *scaled, int parts)
{
    struct device *device = pass->device;
    struct parameter *weight = loss_head(pass->model);
    enum budget before = device_label(device, BUDGET_logits);
    struct tensor *logits = pass->policy ? policy_backward(pass, saved) : entropy_backward(pass, saved, scaled, parts);
    struct tensor *result = op_gemm(device, logits, PLAIN, weight_of(pass, weight), PLAIN, NULL);
    workspace_take(pass, false);
    if (weight->trained)
        parameter_accept(device, weight, op_gemm(device, logits, TRANSPOSED, saved->x_head, PLAIN, NULL));
    tensor_drop(&saved->x_head);
    tensor_drop(&logits);
    device_label(device, before);
    return result;
}
