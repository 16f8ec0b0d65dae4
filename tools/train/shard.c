#include "shard.h"
#include "ops.h"

#include <assert.h>

static const struct sharding *sharding_of(const struct model *model)
{
    return &model->shape.sharding;
}

static bool parameters_sharded(const struct model *model)
{
    enum sharding_kind kind = sharding_of(model)->kind;
    return kind == SHARDING_ZERO3 || kind == SHARDING_FSDP;
}

static int64_t part_of(const struct model *model, const struct parameter *p)
{
    int ranks = sharding_of(model)->ranks;
    return (p->rows * p->columns + ranks - 1) / ranks;
}

/* Copies `count` elements from `from` at offset `from_at` to `to` at `to_at`, changing the dtype where they differ. */
static void move(struct device *device, struct tensor *to, int64_t to_at, struct tensor *from, int64_t from_at,
                 int64_t count)
{
    if (!to->data || !from->data)
        return;
    device_launch(device, &(struct kernel_args){
        .kernel = to->dtype == from->dtype ? KERNEL_copy : KERNEL_cast, .n = {count, to->dtype, from->dtype},
        .p = {(char *)to->data + (size_t)to_at * dtype_size(to->dtype),
              (char *)from->data + (size_t)from_at * dtype_size(from->dtype)}});
}

void parameter_shard(struct device *device, struct model *model, struct parameter *p)
{
    const struct sharding *s = sharding_of(model);
    p->reduced = s->kind != SHARDING_NONE && p->trained;
    if (s->kind == SHARDING_NONE)
        return;
    int64_t part = part_of(model, p);
    if (parameters_sharded(model) && !s->offload_parameters) {
        p->part = tensor_new(device, s->kind == SHARDING_FSDP ? DTYPE_F32 : p->value->dtype, 1, part);
        move(device, p->part, 0, p->value, 0, s->ranks == 1 ? part : 0);
    }
    if (p->trained && !s->offload_optimizer && s->kind != SHARDING_FSDP) {
        enum budget before = device_label(device, BUDGET_optimizer);
        p->master = tensor_new(device, DTYPE_F32, 1, part);
        move(device, p->master, 0, p->value, 0, s->ranks == 1 ? part : 0);
        device_label(device, before);
    }
    if (parameters_sharded(model))
        tensor_drop(&p->value);
}

/* One flat buffer of what all ranks hold of these parameters, and from it the whole values. */
static void gather_flat(struct device *device, struct model *model, struct parameter *const *parameters, int count,
                        int64_t elements)
{
    const struct sharding *s = sharding_of(model);
    struct tensor *mine = NULL;
    /* What is sent must lie in one piece and in the dtype of the computation; from the host it is copied there. */
    if (s->kind == SHARDING_FSDP || s->offload_parameters)
        mine = tensor_new(device, model->shape.dtype, 1, (elements + s->ranks - 1) / s->ranks);
    struct tensor *flat = tensor_new(device, model->shape.dtype, 1, elements);
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        struct parameter *p = parameters[i];
        int64_t part = part_of(model, p);
        if (p->part)
            move(device, flat, at * s->ranks, p->part, 0, part);
        at += part;
    }
    tensor_drop(&mine);
    at = 0;
    for (int i = 0; i < count; i++) {
        struct parameter *p = parameters[i];
        p->value = tensor_new(device, model->shape.dtype, p->rows, p->columns);
        move(device, p->value, 0, flat, at, p->rows * p->columns);
        at += part_of(model, p) * s->ranks;
    }
    tensor_drop(&flat);
}

void shard_gather(struct device *device, struct model *model, struct parameter *const *parameters, int count)
{
    const struct sharding *s = sharding_of(model);
    if (!parameters_sharded(model))
        return;
    enum budget before = device_label(device, BUDGET_other);
    for (int first = 0, next; first < count; first = next) {
        int64_t elements = 0;
        for (next = first; next < count; next++) {
            int64_t more = part_of(model, parameters[next]) * s->ranks;
            if (next > first && s->kind == SHARDING_ZERO3 && elements + more > s->prefetch)
                break;
            elements += more;
        }
        gather_flat(device, model, parameters + first, next - first, elements);
    }
    device_label(device, before);
}

void shard_release(struct model *model, struct parameter *const *parameters, int count)
{
    if (parameters_sharded(model))
        for (int i = count - 1; i >= 0; i--)
            tensor_drop(&parameters[i]->value);
}

static void keep_part(struct device *device, struct model *model, struct parameter *p, struct tensor *flat, int64_t at)
{
    const struct sharding *s = sharding_of(model);
    int64_t part = part_of(model, p);
    if (s->offload_optimizer)
        return; /* it goes to the host, where the optimizer's step is made */
    struct tensor *mine = tensor_new(device, DTYPE_F32, 1, part);
    move(device, mine, 0, flat, at, part);
    if (p->gradient) {
        op_in_place(device, KERNEL_add_to, p->gradient, mine, 0);
        tensor_drop(&mine);
    } else {
        tensor_relabel(mine, BUDGET_gradients);
        p->gradient = mine;
    }
}

void shard_reduce(struct device *device, struct model *model, struct parameter *const *parameters, int count)
{
    const struct sharding *s = sharding_of(model);
    if (s->kind == SHARDING_NONE)
        return;
    enum budget before = device_label(device, BUDGET_other);
    for (int first = 0, next; first < count; first = next) {
        int64_t elements = 0, at = 0;
        for (next = first; next < count; next++) {
            int64_t more = parameters[next]->whole_gradient ? part_of(model, parameters[next]) * s->ranks : 0;
            if (elements && s->kind != SHARDING_FSDP && elements + more > s->bucket)
                break;
            elements += more;
        }
        if (!elements)
            continue;
        enum dtype dtype = s->kind == SHARDING_FSDP ? DTYPE_F32 : model->shape.dtype;
        struct tensor *flat = tensor_new(device, dtype, 1, elements);
        for (int i = first; i < next; i++)
            if (parameters[i]->whole_gradient) {
                move(device, flat, at, parameters[i]->whole_gradient, 0, tensor_count(parameters[i]->whole_gradient));
                tensor_drop(&parameters[i]->whole_gradient);
                keep_part(device, model, parameters[i], flat, at);
                at += part_of(model, parameters[i]) * s->ranks;
            }
        tensor_drop(&flat);
    }
    device_label(device, before);
}

struct tensor *shard_target(struct parameter *p)
{
    return p->master ? p->master : p->part ? p->part : p->value;
}

void shard_update(struct device *device, struct model *model, struct parameter *const *trained, int count)
{
    const struct sharding *s = sharding_of(model);
    for (int i = 0; i < count; i++) {
        struct parameter *p = trained[i];
        if (!p->master)
            continue;
        /* Under ZeRO-2 every rank's values are whole: what the others have changed is gathered. */
        struct tensor *to = p->part ? p->part : p->value;
        move(device, to, 0, p->master, 0, s->ranks == 1 || p->part ? tensor_count(p->master) : 0);
    }
}
