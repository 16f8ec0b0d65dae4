#include "model/optimizer.h"
#include "ranks/collectives.h"
#include "device/ops.h"
#include "model/shard.h"

#include <math.h>
#include <stdlib.h>

/* torch._foreach_norm reduces chunks of this many elements, each to one float, of as many as the largest tensor has. */
enum { NORM_CHUNK = 65536 };

static struct tensor *tensor_norm(struct device *device, struct tensor *x, enum dtype dtype)
{
    struct tensor *norm = tensor_new(device, dtype, 1, 1);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_norm, .dtype = x->dtype, .n = {tensor_count(x)},
                                                .p = {norm->data, x->data}});
    return norm;
}

static struct tensor *total_norm(struct device *device, struct parameter *const *trained, int count)
{
    int64_t largest = 1;
    for (int i = 0; i < count; i++)
        if (tensor_count(trained[i]->gradient) > largest)
            largest = tensor_count(trained[i]->gradient);
    enum dtype dtype = trained[0]->gradient->dtype;
    struct tensor **norms = malloc((size_t)count * sizeof *norms);
    if (!norms)
        abort();
    struct tensor *partial = tensor_new(device, DTYPE_F32, count, (largest + NORM_CHUNK - 1) / NORM_CHUNK);
    for (int i = 0; i < count; i++)
        norms[i] = tensor_norm(device, trained[i]->gradient, dtype);
    tensor_drop(&partial);
    struct tensor *stacked = tensor_new(device, dtype, 1, count);
    for (int i = 0; i < count; i++) {
        char *element = stacked->data;
        device_launch(device, &(struct kernel_args){
            .kernel = KERNEL_copy, .dtype = dtype, .n = {1},
            .p = {element ? element + (size_t)i * dtype_size(dtype) : NULL, norms[i]->data}});
    }
    struct tensor *total = tensor_norm(device, stacked, dtype);
    tensor_drop(&stacked);
    for (int i = count - 1; i >= 0; i--)
        tensor_drop(&norms[i]);
    free(norms);
    return total;
}

/* Over all ranks, where each has the norm of its parts. */
static struct tensor *joint_norm(struct device *device, const struct model *model, struct tensor *mine)
{
    const struct sharding *s = &model->shape.sharding;
    if (s->kind == SHARDING_NONE || s->ranks == 1)
        return mine;
    struct tensor *all = tensor_new(device, mine->dtype, 1, s->ranks);
    const size_t size = dtype_size(mine->dtype);
    device_launch(device, &(struct kernel_args){
        .kernel = KERNEL_copy, .dtype = mine->dtype, .n = {1},
        .p = {all->data ? (char *)all->data + (size_t)s->rank * size : NULL, mine->data}});
    if (device->comm)
        comm_all_gather(device->comm, device, all->data, size);
    struct tensor *joint = tensor_norm(device, all, mine->dtype);
    tensor_drop(&all);
    tensor_drop(&mine);
    return joint;
}

static void gradients_clip(struct device *device, const struct model *model, struct parameter *const *trained,
    int count, double most)
{
    struct tensor *total = joint_norm(device, model, total_norm(device, trained, count));
    struct tensor *shifted = op_map(device, KERNEL_add_scalar, total, NULL, 1e-6F);
    struct tensor *inverse = op_map(device, KERNEL_reciprocal, shifted, NULL, 0);
    struct tensor *factor = op_map(device, KERNEL_scale, inverse, NULL, (float)most);
    tensor_drop(&inverse);
    tensor_drop(&shifted);
    struct tensor *clamped = op_map(device, KERNEL_clamp_to_one, factor, NULL, 0);
    tensor_drop(&factor);
    for (int i = 0; i < count; i++)
        op_in_place(device, KERNEL_scale_by, trained[i]->gradient, clamped, 0);
    tensor_drop(&clamped);
    tensor_drop(&total);
}

static struct tensor *zeros_like(struct device *device, const struct tensor *x)
{
    struct tensor *zeros = tensor_new(device, x->dtype, x->rows, x->columns);
    op_in_place(device, KERNEL_fill, zeros, NULL, 0);
    return zeros;
}

/* Drops the denominator where the next needs its memory. */
static void adam_apply(struct device *device, struct parameter *p, struct tensor **denominator, float rate, float keep)
{
    struct tensor *target = shard_target(p);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_adam_update, .dtype = target->dtype, .f = {rate, keep},
                                                .n = {tensor_count(target)},
                                                .p = {target->data, p->mean->data, (*denominator)->data}});
    if (p->reduced)
        tensor_drop(denominator);
}

static struct adam step_of(const struct optimizer *o)
{
    return (struct adam){(float)o->beta1, (float)o->beta2, (float)sqrt(1 - pow(o->beta2, o->steps)), (float)o->epsilon,
                         (float)(o->rate / (1 - pow(o->beta1, o->steps))), (float)(1 - o->rate * o->weight_decay)};
}

/* Parameters in host memory are updated there, once the gradients have come. */
static void update_offloaded(struct optimizer *o, struct device *device, struct model *model,
    struct parameter *const *trained, int count)
{
    device_wait(device);
    if (!trained[0]->offload->gradient || device->state != DEVICE_OK) {
        shard_update(device, model, trained, count); /* a dry run's transfers */
        return;
    }
    float factor = 1;
    if (o->clip > 0) { /* in gradients_clip()'s operations, which are float ones */
        float norm = offload_norm(device, trained, count);
        factor = 1 / (norm + 1e-6F) * (float)o->clip;
        factor = factor < 1 ? factor : 1;
    }
    o->steps++;
    struct adam adam = step_of(o);
    for (int i = 0; i < count; i++)
        offload_step(trained[i]->offload, &adam, factor);
    shard_update(device, model, trained, count);
}

static void adam_step_all(struct optimizer *o, struct device *device, struct parameter *const *trained, int count)
{
    const bool fused = trained[0]->reduced; /* optimizers of parts have one kernel a part */
    for (int i = 0; i < count; i++)
        if (!trained[i]->mean) {
            trained[i]->mean = zeros_like(device, shard_target(trained[i]));
            trained[i]->variance = zeros_like(device, shard_target(trained[i]));
        }
    o->steps++;
    const struct adam adam = step_of(o);
    struct tensor **denominators = malloc((size_t)count * sizeof *denominators);
    if (!denominators)
        abort();
    for (int i = 0; i < count; i++) {
        struct parameter *p = trained[i];
        device_launch(device, &(struct kernel_args){.kernel = KERNEL_adam_moments, .dtype = p->mean->dtype,
                                                    .n = {tensor_count(p->mean)}, .f = {adam.beta1, adam.beta2},
                                                    .p = {p->mean->data, p->variance->data, p->gradient->data}});
    }
    for (int i = 0; i < count; i++) {
        struct tensor *variance = trained[i]->variance;
        denominators[i] = tensor_new(device, variance->dtype, variance->rows, variance->columns);
        device_launch(device, &(struct kernel_args){.kernel = KERNEL_adam_denominator, .dtype = variance->dtype,
                                                    .n = {tensor_count(variance)}, .f = {adam.correction, adam.epsilon},
                                                    .p = {denominators[i]->data, variance->data}});
        if (fused)
            adam_apply(device, trained[i], &denominators[i], adam.rate, adam.keep);
    }
    for (int i = 0; i < count && !fused; i++)
        adam_apply(device, trained[i], &denominators[i], adam.rate, adam.keep);
    for (int i = count - 1; i >= 0; i--)
        tensor_drop(&denominators[i]);
    free(denominators);
}

void optimizer_step(struct optimizer *optimizer, struct device *device, struct model *model)
{
    struct parameter **trained = malloc((size_t)model->parameter_count * sizeof *trained);
    if (!trained)
        abort();
    int count = 0;
    enum budget before = device_label(device, BUDGET_optimizer);
    for (int i = 0; i < model->parameter_count; i++)
        if (model->parameters[i]->gradient || (model->parameters[i]->reduced && model->parameters[i]->offload))
            trained[count++] = model->parameters[i];
    if (count && trained[0]->reduced && trained[0]->offload) {
        update_offloaded(optimizer, device, model, trained, count);
    } else if (count) {
        if (optimizer->clip > 0)
            gradients_clip(device, model, trained, count, optimizer->clip);
        adam_step_all(optimizer, device, trained, count);
        shard_update(device, model, trained, count);
    }
    device_label(device, before);
    free(trained);
    model_drop_gradients(model);
}
