#include "model/shard.h"
#include "ranks/collectives.h"
#include "device/ops.h"

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

static int64_t shard_part(const struct model *model, const struct parameter *p)
{
    int ranks = sharding_of(model)->ranks;
    return (p->rows * p->columns + ranks - 1) / ranks;
}

/* How many elements of the parameter are in the part of `rank`: the last parts may be short. */
static int64_t present_in(const struct model *model, const struct parameter *p, int rank)
{
    int64_t part = shard_part(model, p), left = p->rows * p->columns - rank * part;
    return left < 0 ? 0 : left < part ? left : part;
}

/* How many ranks' pieces really have to be moved: without arithmetic one stands for all. */
static int pieces_of(const struct device *device, const struct sharding *s)
{
    return device->arithmetic ? s->ranks : 1;
}

static void *shard_element(struct tensor *tensor, int64_t at)
{
    return tensor->data ? (char *)tensor->data + (size_t)at * dtype_size(tensor->dtype) : NULL;
}

/* Copies `count` elements from `from` at offset `from_at` to `to` at `to_at`, changing the dtype where they differ. */
static void shard_move(struct device *device, struct tensor *to, int64_t to_at, struct tensor *from, int64_t from_at,
    int64_t count)
{
    if (!to->data || !from->data || count <= 0)
        return;
    device_launch(device, &(struct kernel_args){.kernel = to->dtype == from->dtype ? KERNEL_copy : KERNEL_cast,
                              .dtype = to->dtype,
                              .n = {count, to->dtype, from->dtype},
                              .p = {shard_element(to, to_at), shard_element(from, from_at)}});
}

static void shard_clear(struct device *device, struct tensor *tensor, int64_t at, int64_t count)
{
    if (tensor->data && count > 0)
        device_launch(device, &(struct kernel_args){.kernel = KERNEL_fill,
                                  .dtype = tensor->dtype,
                                  .n = {count},
                                  .p = {shard_element(tensor, at)}});
}

/* This rank's part of `whole`, into `to`; what the parameter lacks is zero. */
static void keep_own(struct device *device, struct model *model, struct parameter *p, struct tensor *to,
                     struct tensor *whole)
{
    int64_t part = shard_part(model, p), present = present_in(model, p, sharding_of(model)->rank);
    shard_move(device, to, 0, whole, sharding_of(model)->rank * part, present);
    shard_clear(device, to, present, part - present);
}

void parameter_shard(struct device *device, struct model *model, struct parameter *p)
{
    const struct sharding *s = sharding_of(model);
    p->reduced = s->kind != SHARDING_NONE && p->trained;
    if (s->kind == SHARDING_NONE)
        return;
    int64_t part = shard_part(model, p);
    bool host_value = parameters_sharded(model) && s->offload_parameters;
    if (host_value || (p->trained && s->offload_optimizer)) {
        p->offload = offload_new(device, model->shape.dtype, part, p->trained, p->value, s->rank * part,
            present_in(model, p, s->rank));
        device_join(device); /* before the value goes */
    }
    if (parameters_sharded(model) && !host_value) {
        p->part = tensor_new(device, s->kind == SHARDING_FSDP ? DTYPE_F32 : p->value->dtype, 1, part);
        keep_own(device, model, p, p->part, p->value);
    }
    if (p->trained && !s->offload_optimizer && s->kind != SHARDING_FSDP) {
        enum budget before = device_label(device, BUDGET_optimizer);
        p->master = tensor_new(device, DTYPE_F32, 1, part);
        keep_own(device, model, p, p->master, p->value);
        device_label(device, before);
    }
    if (parameters_sharded(model))
        tensor_drop(&p->value);
}

void shard_settle(struct device *device, struct model *model)
{
    if (!sharding_of(model)->offload_optimizer && !sharding_of(model)->offload_parameters)
        return;
    device_wait(device);
    for (int i = 0; i < model->parameter_count; i++)
        if (model->parameters[i]->offload)
            offload_complete(model->parameters[i]->offload);
}

/* This rank's part of a value, from where it is kept, to `to` at element `at`. */
static void bring_own(struct device *device, struct parameter *p, struct tensor *to, int64_t at, int64_t part)
{
    if (p->part)
        shard_move(device, to, at, p->part, 0, part);
    else if (p->offload)
        device_fetch(device, shard_element(to, at), p->offload->value, (size_t)part * dtype_size(to->dtype));
    else
        shard_move(device, to, at, p->master, 0, part);
}

/* One flat buffer of what all ranks hold of these parameters, a piece for each, and from it the whole values. */
static void gather_flat(struct device *device, struct model *model, struct parameter *const *parameters, int count,
                        int64_t elements)
{
    const struct sharding *s = sharding_of(model);
    const int64_t each = elements / s->ranks;
    struct tensor *mine = NULL;
    /* A part to send must lie in one piece and in the dtype of the computation; from the host it is copied there. */
    if (s->kind == SHARDING_FSDP || (parameters_sharded(model) && s->offload_parameters))
        mine = tensor_new(device, model->shape.dtype, 1, each);
    struct tensor *flat = tensor_new(device, model->shape.dtype, 1, elements);
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        bring_own(device, parameters[i], mine ? mine : flat, mine ? at : s->rank * each + at,
            shard_part(model, parameters[i]));
        at += shard_part(model, parameters[i]);
    }
    device_join(device);
    if (mine)
        shard_move(device, flat, s->rank * each, mine, 0, each);
    if (device->comm)
        comm_all_gather(device->comm, device, flat->data, (size_t)each * dtype_size(flat->dtype));
    tensor_drop(&mine);
    at = 0;
    for (int i = 0; i < count; i++) {
        struct parameter *p = parameters[i];
        if (!p->value)
            p->value = tensor_new(device, model->shape.dtype, p->rows, p->columns);
        for (int r = 0; r < pieces_of(device, s); r++)
            shard_move(device, p->value, r * shard_part(model, p), flat, r * each + at, present_in(model, p, r));
        at += shard_part(model, p);
    }
    tensor_drop(&flat);
}

static void shard_gather_all(struct device *device, struct model *model, struct parameter *const *parameters, int count)
{
    const struct sharding *s = sharding_of(model);
    enum budget before = device_label(device, BUDGET_other);
    for (int first = 0, next; first < count; first = next) {
        int64_t elements = 0;
        for (next = first; next < count; next++) {
            int64_t more = shard_part(model, parameters[next]) * s->ranks;
            if (next > first && s->kind != SHARDING_FSDP && elements + more > s->prefetch)
                break;
            elements += more;
        }
        gather_flat(device, model, parameters + first, next - first, elements);
    }
    device_label(device, before);
}

void shard_gather(struct device *device, struct model *model, struct parameter *const *parameters, int count)
{
    if (parameters_sharded(model))
        shard_gather_all(device, model, parameters, count);
}

void shard_release(struct model *model, struct parameter *const *parameters, int count)
{
    if (parameters_sharded(model))
        for (int i = count - 1; i >= 0; i--)
            tensor_drop(&parameters[i]->value);
}

static void keep_part(struct device *device, struct model *model, struct parameter *p, struct tensor *flat, int64_t at)
{
    int64_t part = shard_part(model, p);
    if (sharding_of(model)->offload_optimizer) {
        offload_add_gradient(device, p->offload, flat, at);
        return;
    }
    struct tensor *mine = tensor_new(device, DTYPE_F32, 1, part);
    shard_move(device, mine, 0, flat, at, part);
    if (p->gradient) {
        op_in_place(device, KERNEL_add_to, p->gradient, mine, 0);
        tensor_drop(&mine);
    } else {
        tensor_relabel(mine, BUDGET_gradients);
        p->gradient = mine;
    }
}

/* Lays the gradients of these parameters out in `flat`, a piece for each rank; drops them. */
static void lay_out(struct device *device, struct model *model, struct parameter *const *parameters, int count,
                    struct tensor *flat)
{
    const struct sharding *s = sharding_of(model);
    const int64_t each = tensor_count(flat) / s->ranks;
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        struct parameter *p = parameters[i];
        const int64_t part = shard_part(model, p);
        for (int r = 0; r < pieces_of(device, s); r++) {
            int64_t present = present_in(model, p, r);
            shard_move(device, flat, r * each + at, p->whole_gradient, r * part, present);
            shard_clear(device, flat, r * each + at + present, part - present);
        }
        tensor_drop(&p->whole_gradient);
        at += part;
    }
}

/* The parameters of one bucket, and how many there are. */
static int next_bucket(struct model *model, struct parameter *const *parameters, int count, int *first,
                       struct parameter *ret[LAYER_PARAMETERS], int64_t *ret_elements)
{
    const struct sharding *s = sharding_of(model);
    int some = 0;
    int64_t elements = 0;
    for (; *first < count; ++*first) {
        struct parameter *p = parameters[*first];
        int64_t more = p->whole_gradient ? shard_part(model, p) * s->ranks : 0;
        if (elements && s->kind != SHARDING_FSDP && elements + more > s->bucket)
            break;
        elements += more;
        if (more)
            ret[some++] = p;
    }
    *ret_elements = elements;
    return some;
}

void shard_reduce(struct device *device, struct model *model, struct parameter *const *parameters, int count)
{
    const struct sharding *s = sharding_of(model);
    if (s->kind == SHARDING_NONE)
        return;
    assert(count <= LAYER_PARAMETERS);
    enum budget before = device_label(device, BUDGET_other);
    struct parameter *bucket[LAYER_PARAMETERS];
    int64_t elements;
    for (int first = 0, some; (some = next_bucket(model, parameters, count, &first, bucket, &elements));) {
        enum dtype dtype = s->kind == SHARDING_FSDP ? DTYPE_F32 : model->shape.dtype;
        struct tensor *flat = tensor_new(device, dtype, 1, elements);
        lay_out(device, model, bucket, some, flat);
        int64_t each = elements / s->ranks, at = s->rank * each;
        if (device->comm)
            comm_reduce_scatter(device->comm, device, flat->data, each, dtype);
        for (int i = 0; i < some; i++) {
            keep_part(device, model, bucket[i], flat, at);
            at += shard_part(model, bucket[i]);
        }
        device_join(device);
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
        if (!p->reduced)
            continue;
        if (p->part && p->offload) /* under FSDP the part is float, else as the computation wants it */
            device_fetch(device, p->part->data, p->part->dtype == DTYPE_F32 ? p->offload->master : p->offload->value,
                p->part->bytes);
        else if (p->part && p->master)
            shard_move(device, p->part, 0, p->master, 0, tensor_count(p->master));
        else if (!p->part && s->ranks == 1 && p->value)
            bring_own(device, p, p->value, 0, tensor_count(p->value));
    }
    device_join(device);
    /* Under ZeRO-2 every rank's values are whole: what the others have changed is gathered. */
    if (s->kind == SHARDING_ZERO2 && s->ranks > 1)
        shard_gather_all(device, model, trained, count);
}

static struct tensor *slot_of(const struct parameter *p, enum stored what)
{
    return what == STORED_MEAN ? p->mean : what == STORED_VARIANCE ? p->variance : p->value;
}

struct tensor *shard_whole(struct device *device, struct model *model, struct parameter *p, enum stored what)
{
    const struct sharding *s = sharding_of(model);
    if (!p->reduced) {
        struct tensor *plain = slot_of(p, what);
        return plain ? op_cast(device, plain, DTYPE_F32) : NULL;
    }
    const struct offload *h = p->offload;
    struct tensor *own = what == STORED_VALUE ? shard_target(p) : slot_of(p, what);
    const float *host = !h ? NULL : what == STORED_VALUE ? h->master : what == STORED_MEAN ? h->mean : h->variance;
    if (what != STORED_VALUE && !own && !(h && h->has_moments))
        return NULL;
    int64_t part = shard_part(model, p);
    struct tensor *whole = tensor_new(device, DTYPE_F32, 1, part * s->ranks);
    if (h)
        device_fetch(device, shard_element(whole, s->rank * part), host, (size_t)part * sizeof *host);
    else
        shard_move(device, whole, s->rank * part, own, 0, part);
    device_join(device);
    if (device->comm)
        comm_all_gather(device->comm, device, whole->data, (size_t)part * sizeof *host);
    return whole;
}

void shard_store(struct device *device, struct model *model, struct parameter *p, enum stored what,
                 struct tensor *whole, const float *values)
{
    const struct sharding *s = sharding_of(model);
    if (what == STORED_VALUE && p->value)
        shard_move(device, p->value, 0, whole, 0, p->rows * p->columns);
    if (p->offload && p->reduced)
        offload_store(p->offload, what, values + s->rank * shard_part(model, p), present_in(model, p, s->rank));
    if (what == STORED_VALUE && p->reduced) {
        if (p->part)
            keep_own(device, model, p, p->part, whole);
        if (p->master)
            keep_own(device, model, p, p->master, whole);
    } else if (what != STORED_VALUE && !(p->offload && p->reduced)) {
        struct tensor **slot = what == STORED_MEAN ? &p->mean : &p->variance, *like = shard_target(p);
        *slot = tensor_new(device, like->dtype, like->rows, like->columns);
        if (p->reduced)
            keep_own(device, model, p, *slot, whole);
        else
            shard_move(device, *slot, 0, whole, 0, p->rows * p->columns);
    }
}
