#include "layers/blocks.h"
#include "device/ops.h"

#include <assert.h>

/* The norm of each head by itself. */
static struct tensor *head_norm(struct pass *pass, struct parameter *weight, struct tensor **x, int heads,
                                struct norm_saved *saved)
{
    struct tensor *flat = *x;
    const int64_t head_dim = pass->model->shape.head_dim;
    flat->rows *= heads;
    flat->columns = head_dim;
    struct tensor *normed = norm_forward(pass, weight, flat, saved);
    normed->rows /= heads;
    normed->columns *= heads;
    tensor_drop(x); /* if it was saved as it is, its backward wants rows of one head too */
    return normed;
}

static void head_norm_backward(struct pass *pass, struct parameter *weight, struct tensor **gradient, int heads,
                               struct norm_saved *saved)
{
    (*gradient)->rows *= heads;
    (*gradient)->columns /= heads;
    struct tensor *result = norm_backward(pass, weight, saved, gradient, NULL, 0);
    result->rows /= heads;
    result->columns *= heads;
    *gradient = result;
}

static struct tensor *attention_part(struct pass *pass, struct layer *layer, struct tensor *x,
                                     struct layer_saved *saved)
{
    const struct shape *s = &pass->model->shape;
    struct linear *p = layer->projections;
    struct linear_saved *ps = saved ? saved->projections : NULL;
    struct tensor *normed = norm_forward(pass, &layer->input_norm, x, saved ? &saved->input_norm : NULL);
    struct tensor *q = linear_forward(pass, &p[PROJECTION_Q], normed, ps ? &ps[PROJECTION_Q] : NULL, false);
    struct tensor *k = linear_forward(pass, &p[PROJECTION_K], normed, ps ? &ps[PROJECTION_K] : NULL, false);
    struct tensor *v = linear_forward(pass, &p[PROJECTION_V], normed, ps ? &ps[PROJECTION_V] : NULL, false);
    if (s->qk_norm) {
        q = head_norm(pass, &layer->q_norm, &q, s->heads, saved ? &saved->q_norm : NULL);
        k = head_norm(pass, &layer->k_norm, &k, s->kv_heads, saved ? &saved->k_norm : NULL);
    }
    struct tensor *turned_q = rotary_forward(pass, q, s->heads), *turned_k = rotary_forward(pass, k, s->kv_heads);
    tensor_drop(&q);
    tensor_drop(&k);
    struct tensor *mixed = attention_forward(pass, turned_q, turned_k, v, saved ? &saved->attention : NULL);
    struct tensor *out = linear_forward(pass, &p[PROJECTION_O], mixed, ps ? &ps[PROJECTION_O] : NULL, false);
    tensor_drop(&mixed);
    tensor_drop(&turned_q);
    tensor_drop(&turned_k);
    tensor_drop(&v);
    tensor_drop(&normed);
    struct tensor *result = op_map(pass->device, KERNEL_add, x, out, 0);
    tensor_drop(&out);
    return result;
}

struct tensor *layer_forward(struct pass *pass, struct layer *layer, struct tensor *x, struct layer_saved *saved,
                             bool stop_early)
{
    assert(saved || !stop_early);
    struct linear *p = layer->projections;
    struct linear_saved *ps = saved ? saved->projections : NULL;
    struct tensor *middle = attention_part(pass, layer, x, saved);
    struct tensor *normed = norm_forward(pass, &layer->attention_norm, middle, saved ? &saved->attention_norm : NULL);
    struct tensor *gate = linear_forward(pass, &p[PROJECTION_GATE], normed, ps ? &ps[PROJECTION_GATE] : NULL, false);
    struct tensor *activated = op_map(pass->device, KERNEL_silu, gate, NULL, 0);
    if (saved)
        saved->gate = tensor_keep(gate);
    tensor_drop(&gate);
    struct tensor *up = linear_forward(pass, &p[PROJECTION_UP], normed, ps ? &ps[PROJECTION_UP] : NULL, false);
    struct tensor *product = op_map(pass->device, KERNEL_mul, activated, up, 0);
    if (saved) {
        saved->activated = tensor_keep(activated);
        saved->up = tensor_keep(up);
    }
    tensor_drop(&activated);
    tensor_drop(&up);
    struct tensor *down =
        linear_forward(pass, &p[PROJECTION_DOWN], product, ps ? &ps[PROJECTION_DOWN] : NULL, stop_early);
    tensor_drop(&product);
    tensor_drop(&normed);
    struct tensor *result = NULL;
    if (down) {
        result = op_map(pass->device, KERNEL_add, middle, down, 0);
        tensor_drop(&down);
    }
    tensor_drop(&middle);
    return result;
}

static void add_to_residual(struct pass *pass, struct tensor *residual, struct tensor **branch)
{
    op_in_place(pass->device, KERNEL_add_to, residual, *branch, 0);
    tensor_drop(branch);
}

static void projection_backward(struct pass *pass, struct layer *layer, struct layer_saved *saved,
                                enum projection which, struct tensor **gradient, struct tensor **sum)
{
    struct linear *linear = &layer->projections[which];
    struct tensor *scaled = linear_scale_gradient(pass, linear, *gradient);
    linear_backward(pass, linear, &saved->projections[which], gradient, &scaled, sum);
}

static void feed_forward_backward(struct pass *pass, struct layer *layer, struct layer_saved *saved,
                                  struct tensor *gradient, struct tensor **scaled)
{
    struct device *device = pass->device;
    struct tensor *residual = tensor_keep(gradient), *of_product = NULL, *of_normed = NULL;
    linear_backward(pass, &layer->projections[PROJECTION_DOWN], &saved->projections[PROJECTION_DOWN], &residual, scaled,
                    &of_product);
    struct tensor *of_up = op_map(device, KERNEL_mul, of_product, saved->activated, 0);
    struct tensor *of_activated = op_map(device, KERNEL_mul, of_product, saved->up, 0);
    tensor_drop(&saved->activated);
    tensor_drop(&saved->up);
    tensor_drop(&of_product);
    projection_backward(pass, layer, saved, PROJECTION_UP, &of_up, &of_normed);
    struct tensor *of_gate = op_map(device, KERNEL_silu_gradient, of_activated, saved->gate, 0);
    tensor_drop(&saved->gate);
    tensor_drop(&of_activated);
    projection_backward(pass, layer, saved, PROJECTION_GATE, &of_gate, &of_normed);
    struct tensor *branch =
        norm_backward(pass, &layer->attention_norm, &saved->attention_norm, &of_normed, NULL, 0);
    add_to_residual(pass, gradient, &branch);
}

/* PyTorch copies each gradient here because its own is laid out head by head; ours is not, and the copy stays to keep
   the same tensors alive at the same time. */
static void gradient_copy(struct pass *pass, struct tensor **gradient)
{
    struct tensor *copy = op_map(pass->device, KERNEL_copy, *gradient, NULL, 0);
    tensor_drop(gradient);
    *gradient = copy;
}

static void attention_part_backward(struct pass *pass, struct layer *layer, struct layer_saved *saved,
    struct tensor *gradient, struct tensor **last[], int last_count)
{
    const struct shape *s = &pass->model->shape;
    struct tensor *residual = tensor_keep(gradient), *of_mixed = NULL, *of_normed = NULL;
    projection_backward(pass, layer, saved, PROJECTION_O, &residual, &of_mixed);
    struct tensor *turned_q, *turned_k, *v;
    attention_backward(pass, &saved->attention, &of_mixed, &turned_q, &turned_k, &v);
    struct tensor *k = rotary_backward(pass, &turned_k, s->kv_heads);
    struct tensor *q = rotary_backward(pass, &turned_q, s->heads);
    if (s->qk_norm) {
        head_norm_backward(pass, &layer->k_norm, &k, s->kv_heads, &saved->k_norm);
        head_norm_backward(pass, &layer->q_norm, &q, s->heads, &saved->q_norm);
    }
    gradient_copy(pass, &v);
    projection_backward(pass, layer, saved, PROJECTION_V, &v, &of_normed);
    gradient_copy(pass, &k);
    projection_backward(pass, layer, saved, PROJECTION_K, &k, &of_normed);
    gradient_copy(pass, &q);
    projection_backward(pass, layer, saved, PROJECTION_Q, &q, &of_normed);
    struct tensor *branch = norm_backward(pass, &layer->input_norm, &saved->input_norm, &of_normed, last, last_count);
    add_to_residual(pass, gradient, &branch);
}

void layer_backward(struct pass *pass, struct layer *layer, struct layer_saved *saved, struct tensor *gradient,
    struct tensor *recompute, struct tensor **last[], int last_count)
{
    /* The first node that asks for a saved tensor comes after this one: only then is the layer computed again. */
    struct tensor *scaled = linear_scale_gradient(pass, &layer->projections[PROJECTION_DOWN], gradient);
    if (recompute) {
        struct tensor *nothing = layer_forward(pass, layer, recompute, saved, true);
        assert(!nothing);
        tensor_drop(&nothing);
    }
    feed_forward_backward(pass, layer, saved, gradient, &scaled);
    attention_part_backward(pass, layer, saved, gradient, last, last_count);
}
