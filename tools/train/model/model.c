#include "model/model.h"
#include "device/ops.h"
#include "model/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    size_t out, in; /* offsets in dims[] */
    bool bias;
} projection_shapes[PROJECTION_COUNT] = {
    [PROJECTION_Q] = {1, 0, true},     [PROJECTION_K] = {2, 0, true},   [PROJECTION_V] = {2, 0, true},
    [PROJECTION_O] = {0, 1, false},    [PROJECTION_GATE] = {3, 0, false}, [PROJECTION_UP] = {3, 0, false},
    [PROJECTION_DOWN] = {0, 3, false},
};

const char *shape_fault(const struct shape *s)
{
    if (s->layers < 1 || s->hidden < 1 || s->heads < 1 || s->kv_heads < 1 || s->head_dim < 1 || s->ffn < 1)
        return "layers, hidden, heads, kv-heads, head-dim and ffn must be at least 1";
    if (s->heads % s->kv_heads)
        return "heads must be a multiple of kv-heads";
    if (s->head_dim % 2)
        return "head-dim must be even";
    if (s->vocabulary < 256)
        return "vocabulary must be at least 256, for tokens are bytes";
    if (s->rank < 0)
        return "rank must not be negative";
    if (s->rank == 0 && !s->train_all)
        return "without adapters (rank 0) nothing is trained; add --train all";
    return NULL;
}

float model_lora_scale(const struct shape *shape)
{
    return shape->rank ? (float)(shape->lora_alpha / shape->rank) : 0;
}

struct builder {
    struct model *model;
    struct device *device;
    uint64_t seed, stream;
};

static struct parameter *builder_add(struct builder *b, struct parameter *parameter, int64_t rows, int64_t columns,
    enum kernel fill, float scale, bool trained, bool adapter)
{
    const struct shape *s = &b->model->shape;
    enum budget before = device_label(b->device, adapter ? BUDGET_adapters : BUDGET_weights);
    struct tensor *value = tensor_new(b->device, s->mixed && !adapter ? DTYPE_F32 : s->dtype, rows, columns);
    device_launch(b->device, &(struct kernel_args){
        .kernel = fill, .dtype = value->dtype, .f = {scale}, .p = {value->data},
        .n = {rows * columns, (int64_t)++b->stream, (int64_t)b->seed}});
    *parameter = (struct parameter){.value = value, .rows = rows, .columns = columns, .trained = trained,
                                    .adapter = adapter};
    parameter_shard(b->device, b->model, parameter);
    device_label(b->device, before);
    b->model->elements += rows * columns;
    if (trained)
        b->model->trained_elements += rows * columns;
    return parameter;
}

/* Weights first and then the adapters, as a loaded model gets them. */
static void add_weights(struct builder *b, const int64_t dims[4])
{
    struct model *m = b->model;
    const struct shape *s = &m->shape;
    const float spread = 0.02F;
    builder_add(b, &m->embedding, s->vocabulary, s->hidden, KERNEL_fill_normal, spread, s->train_all, false);
    for (int l = 0; l < s->layers; l++) {
        struct layer *layer = &m->layers[l];
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            int64_t out = dims[projection_shapes[p].out], in = dims[projection_shapes[p].in];
            layer->projections[p].number = 1 + l * PROJECTION_COUNT + p;
            builder_add(b, &layer->projections[p].weight, out, in, KERNEL_fill_normal, spread, s->train_all, false);
            if (projection_shapes[p].bias && !s->no_bias)
                builder_add(b, &layer->projections[p].bias, 1, out, KERNEL_fill, 0, s->train_all, false);
        }
        builder_add(b, &layer->input_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all, false);
        builder_add(b, &layer->attention_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all, false);
        if (s->qk_norm) {
            builder_add(b, &layer->q_norm, 1, s->head_dim, KERNEL_fill, 1, s->train_all, false);
            builder_add(b, &layer->k_norm, 1, s->head_dim, KERNEL_fill, 1, s->train_all, false);
        }
    }
    builder_add(b, &m->final_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all, false);
    struct tensor **frequencies[] = {&m->inverse_frequencies, &m->original_inverse_frequencies};
    for (int i = 0; i < 2; i++) {
        *frequencies[i] = tensor_new(b->device, DTYPE_F32, 1, s->head_dim / 2);
        device_launch(b->device, &(struct kernel_args){.kernel = KERNEL_fill_inverse_frequencies,
                                                       .f = {(float)s->rope_theta}, .n = {s->head_dim / 2},
                                                       .p = {(*frequencies[i])->data}});
    }
    if (!s->tied)
        builder_add(b, &m->head, s->vocabulary, s->hidden, KERNEL_fill_normal, spread, s->train_all, false);
}

static void add_adapters(struct builder *b, const int64_t dims[4])
{
    const struct shape *s = &b->model->shape;
    for (int l = 0; s->rank && l < s->layers; l++)
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            struct linear *linear = &b->model->layers[l].projections[p];
            int64_t out = dims[projection_shapes[p].out], in = dims[projection_shapes[p].in];
            /* PEFT's start: A is uniform within 1 / sqrt(in) (Kaiming with a = sqrt 5), B is zero. */
            float bound = 1 / sqrtf((float)in);
            builder_add(b, &linear->lora_a, s->rank, in, KERNEL_fill_uniform, bound, true, true);
            builder_add(b, &linear->lora_b, out, s->rank, KERNEL_fill, 0, true, true);
        }
}

static void model_list(struct model *m, struct parameter *parameter)
{
    if (parameter->rows)
        m->parameters[m->parameter_count++] = parameter;
}

int layer_parameters(struct layer *layer, struct parameter **ret)
{
    struct parameter *all[LAYER_PARAMETERS] = {0};
    int count = 0, present = 0;
    for (int p = 0; p < PROJECTION_COUNT; p++) {
        struct linear *linear = &layer->projections[p];
        all[count++] = &linear->weight;
        all[count++] = &linear->bias;
        all[count++] = &linear->lora_a;
        all[count++] = &linear->lora_b;
    }
    all[count++] = &layer->input_norm;
    all[count++] = &layer->attention_norm;
    all[count++] = &layer->q_norm;
    all[count++] = &layer->k_norm;
    for (int i = 0; i < count; i++)
        if (all[i]->rows)
            ret[present++] = all[i];
    return present;
}

static void list_parameters(struct model *m)
{
    m->parameters = malloc((size_t)(3 + m->shape.layers * LAYER_PARAMETERS) * sizeof *m->parameters);
    if (!m->parameters)
        abort();
    model_list(m, &m->embedding);
    for (int l = 0; l < m->shape.layers; l++) {
        m->parameter_count += layer_parameters(&m->layers[l], m->parameters + m->parameter_count);
    }
    model_list(m, &m->final_norm);
    model_list(m, &m->head);
}

void model_open(struct model *model, struct device *device, const struct shape *shape, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    model->shape = *shape;
    model->layers = calloc((size_t)shape->layers, sizeof *model->layers);
    if (!model->layers)
        abort();
    if (model->shape.sharding.ranks < 1)
        model->shape.sharding.ranks = 1;
    struct builder builder = {model, device, seed, 0};
    const int64_t dims[] = {shape->hidden, (int64_t)shape->heads * shape->head_dim,
                            (int64_t)shape->kv_heads * shape->head_dim, shape->ffn};
    add_weights(&builder, dims);
    add_adapters(&builder, dims);
    list_parameters(model);
    shard_settle(device, model);
}

void model_drop_weights(struct model *model)
{
    for (int i = 0; i < model->parameter_count; i++)
        if (!model->parameters[i]->adapter && model->parameters[i] != &model->head) {
            tensor_drop(&model->parameters[i]->value);
            tensor_drop(&model->parameters[i]->part);
        }
    tensor_drop(&model->inverse_frequencies);
    tensor_drop(&model->original_inverse_frequencies);
    tensor_drop(&model->head.value);
    for (int i = 0; i < model->parameter_count; i++) {
        tensor_drop(&model->parameters[i]->mean);
        tensor_drop(&model->parameters[i]->variance);
        tensor_drop(&model->parameters[i]->master);
    }
}

void model_close(struct model *model, struct device *device)
{
    model_drop_weights(model);
    model_drop_gradients(model);
    for (int i = 0; i < model->parameter_count; i++) {
        tensor_drop(&model->parameters[i]->value);
        tensor_drop(&model->parameters[i]->part);
        tensor_drop(&model->parameters[i]->cast);
        tensor_drop(&model->parameters[i]->whole_gradient);
        offload_free(device, model->parameters[i]->offload);
    }
    for (size_t i = 0; i < sizeof model->workspaces / sizeof *model->workspaces; i++)
        tensor_drop(&model->workspaces[i]);
    free(model->parameters);
    free(model->layers);
}

void parameter_accept(struct device *device, struct parameter *parameter, struct tensor *gradient)
{
    if (gradient->dtype != DTYPE_F32 && parameter->value && parameter->value->dtype == DTYPE_F32) {
        struct tensor *wide = op_cast(device, gradient, DTYPE_F32);
        tensor_drop(&gradient);
        gradient = wide;
    }
    struct tensor **slot = parameter->reduced ? &parameter->whole_gradient : &parameter->gradient;
    if (!*slot) {
        tensor_relabel(gradient, parameter->reduced ? BUDGET_other : BUDGET_gradients);
        *slot = gradient;
        return;
    }
    op_in_place(device, KERNEL_add_to, *slot, gradient, 0);
    tensor_drop(&gradient);
}

void model_drop_gradients(struct model *model)
{
    for (int i = 0; i < model->parameter_count; i++)
        tensor_drop(&model->parameters[i]->gradient);
}
