#include "layers/blocks.h"
#include "device/ops.h"

#include <math.h>

/* Memory of PyTorch's memory-efficient attention kernel. It takes log-sum-exps padded to 32 rows. Backward it takes a
   float copy of one head's output padded to 128 rows, with two counters for each 64 of them. */
enum { LOG_SUM_ROWS = 32, SCRATCH_ROWS = 128, COUNTER_ROWS = 64, SCRATCH_FROM_DIM = 96 };

static int64_t attention_padded(int64_t rows, int64_t to)
{
    return (rows + to - 1) / to * to;
}

static struct tensor *attention_repeat(struct pass *pass, struct tensor *x)
{
    const struct shape *s = &pass->model->shape;
    if (s->heads == s->kv_heads)
        return tensor_keep(x);
    struct tensor *result = tensor_new(pass->device, x->dtype, x->rows, (int64_t)s->heads * s->head_dim);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_repeat_heads, .dtype = x->dtype,
                                                      .n = {x->rows, s->kv_heads, s->heads / s->kv_heads, s->head_dim},
                                                      .p = {result->data, x->data}});
    return result;
}

static struct tensor *sum_repeats(struct pass *pass, struct tensor **x)
{
    const struct shape *s = &pass->model->shape;
    struct tensor *result = *x;
    if (s->heads != s->kv_heads) {
        result = tensor_new(pass->device, (*x)->dtype, (*x)->rows, (int64_t)s->kv_heads * s->head_dim);
        device_launch(pass->device,
                      &(struct kernel_args){.kernel = KERNEL_sum_heads, .dtype = (*x)->dtype,
                                            .p = {result->data, (*x)->data},
                                            .n = {result->rows, s->kv_heads, s->heads / s->kv_heads, s->head_dim}});
        tensor_drop(x);
    }
    *x = NULL;
    return result;
}

static struct tensor *make_bias(struct pass *pass, enum dtype dtype)
{
    struct tensor *zero = tensor_new(pass->device, dtype, 1, 1), *least = tensor_new(pass->device, dtype, 1, 1);
    struct tensor *bias = tensor_new(pass->device, dtype, pass->mask->rows, pass->mask->columns);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_mask_bias, .n = {tensor_count(bias), dtype},
                                                      .p = {bias->data, pass->mask->data}});
    tensor_drop(&least);
    tensor_drop(&zero);
    return bias;
}

/* Sparse attention takes the selected keys and values of each query together, side by side. */
static struct tensor *gather_selected(struct pass *pass, struct tensor *like)
{
    const struct shape *s = &pass->model->shape;
    int64_t selected = pass->length / 2 < s->selected ? pass->length / 2 : s->selected;
    return tensor_new(pass->device, like->dtype, pass->batch * pass->length, selected * 2 * s->kv_heads * s->head_dim);
}

struct tensor *attention_forward(struct pass *pass, struct tensor *q, struct tensor *k, struct tensor *v,
                                 struct attention_saved *saved)
{
    const struct shape *s = &pass->model->shape;
    struct tensor *all_k = attention_repeat(pass, k), *all_v = attention_repeat(pass, v);
    struct tensor *gathered = s->selected ? gather_selected(pass, q) : NULL;
    struct tensor *bias = make_bias(pass, q->dtype);
    struct tensor *out = tensor_new(pass->device, q->dtype, q->rows, q->columns);
    int64_t log_rows = attention_padded(pass->length, LOG_SUM_ROWS);
    struct tensor *log_sums = tensor_new(pass->device, DTYPE_F32, pass->batch * s->heads, log_rows);
    device_launch(pass->device, &(struct kernel_args){
        .kernel = KERNEL_attention, .dtype = q->dtype, .f = {1 / sqrtf((float)s->head_dim)},
        .n = {pass->batch, pass->length, s->heads, s->head_dim, log_rows},
        .p = {out->data, log_sums->data, q->data, all_k->data, all_v->data, bias->data}});
    if (saved)
        *saved = (struct attention_saved){tensor_keep(q), tensor_keep(all_k), tensor_keep(all_v), tensor_keep(bias),
                                          tensor_keep(out), tensor_keep(log_sums),
                                          gathered ? tensor_keep(gathered) : NULL};
    tensor_drop(&gathered);
    tensor_drop(&log_sums);
    tensor_drop(&bias);
    tensor_drop(&all_k);
    tensor_drop(&all_v);
    return out;
}

void attention_backward(struct pass *pass, struct attention_saved *saved, struct tensor **gradient,
                        struct tensor **ret_q, struct tensor **ret_k, struct tensor **ret_v)
{
    const struct shape *s = &pass->model->shape;
    struct device *device = pass->device;
    const struct tensor *like = saved->q;
    struct tensor *q = tensor_new(device, like->dtype, like->rows, like->columns);
    struct tensor *k = tensor_new(device, like->dtype, like->rows, like->columns);
    struct tensor *v = tensor_new(device, like->dtype, like->rows, like->columns);
    struct tensor *of_gathered = s->selected ? gather_selected(pass, q) : NULL;
    struct tensor *delta = tensor_new(device, DTYPE_F32, pass->batch * s->heads, pass->length);
    int64_t rows = attention_padded(pass->length, SCRATCH_ROWS);
    struct tensor *scratch = NULL;
    if (s->head_dim >= SCRATCH_FROM_DIM)
        scratch = tensor_new(device, DTYPE_F32, pass->batch * s->heads, rows * s->head_dim + 2 * rows / COUNTER_ROWS);
    device_launch(device, &(struct kernel_args){
        .kernel = KERNEL_attention_gradient, .dtype = like->dtype, .f = {1 / sqrtf((float)s->head_dim)},
        .n = {pass->batch, pass->length, s->heads, s->head_dim, saved->log_sums->columns},
        .p = {q->data, k->data, v->data, delta->data, scratch ? scratch->data : NULL, saved->log_sums->data,
              saved->q->data, saved->k->data, saved->v->data, saved->bias->data, saved->out->data, (*gradient)->data}});
    tensor_drop(&of_gathered);
    tensor_drop(&saved->gathered);
    tensor_drop(&delta);
    tensor_drop(&scratch);
    tensor_drop(&saved->out);
    tensor_drop(&saved->log_sums);
    tensor_drop(&saved->v);
    tensor_drop(&saved->q);
    tensor_drop(&saved->k);
    tensor_drop(&saved->bias);
    tensor_drop(gradient);
    *ret_v = sum_repeats(pass, &v);
    *ret_k = sum_repeats(pass, &k);
    *ret_q = q;
}
