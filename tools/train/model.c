#include "model.h"
#include "ops.h"

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

static struct parameter *add(struct builder *b, struct parameter *parameter, int64_t rows, int64_t columns,
                             enum kernel fill, float scale, bool trained)
{
    struct tensor *value = tensor_new(b->device, b->model->shape.dtype, rows, columns);
    device_launch(b->device, &(struct kernel_args){.kernel = fill, .f = {scale}, .p = {value->data},
                                                   .n = {rows * columns, (int64_t)++b->stream, (int64_t)b->seed}});
    *parameter = (struct parameter){.value = value, .trained = trained};
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
    add(b, &m->embedding, s->vocabulary, s->hidden, KERNEL_fill_normal, spread, s->train_all);
    for (int l = 0; l < s->layers; l++) {
        struct layer *layer = &m->layers[l];
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            int64_t out = dims[projection_shapes[p].out], in = dims[projection_shapes[p].in];
            add(b, &layer->projections[p].weight, out, in, KERNEL_fill_normal, spread, s->train_all);
            if (projection_shapes[p].bias)
                add(b, &layer->projections[p].bias, 1, out, KERNEL_fill, 0, s->train_all);
        }
        add(b, &layer->input_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all);
        add(b, &layer->attention_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all);
    }
    add(b, &m->final_norm, 1, s->hidden, KERNEL_fill, 1, s->train_all);
    struct tensor **frequencies[] = {&m->inverse_frequencies, &m->original_inverse_frequencies};
    for (int i = 0; i < 2; i++) {
        *frequencies[i] = tensor_new(b->device, DTYPE_F32, 1, s->head_dim / 2);
        device_launch(b->device, &(struct kernel_args){.kernel = KERNEL_fill_inverse_frequencies,
                                                       .f = {(float)s->rope_theta}, .n = {s->head_dim / 2},
                                                       .p = {(*frequencies[i])->data}});
    }
    if (!s->tied)
        add(b, &m->head, s->vocabulary, s->hidden, KERNEL_fill_normal, spread, s->train_all);
}

static void add_adapters(struct builder *b, const int64_t dims[4])
{
    const struct shape *s = &b->model->shape;
    for (int l = 0; s->rank && l < s->layers; l++)
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            struct linear *linear = &b->model->layers[l].projections[p];
            int64_t out = dims[projection_shapes[p].out], in = dims[projection_shapes[p].in];
            /* As PEFT: A is uniform within 1 / sqrt(in) (Kaiming with a = sqrt 5), B is zero. */
            float bound = 1 / sqrtf((float)in);
            add(b, &linear->lora_a, s->rank, in, KERNEL_fill_uniform, bound, true)->adapter = true;
            add(b, &linear->lora_b, out, s->rank, KERNEL_fill, 0, true)->adapter = true;
        }
}

static void list(struct model *m, struct parameter *parameter)
{
    if (parameter->value)
        m->parameters[m->parameter_count++] = parameter;
}

static void list_parameters(struct model *m)
{
    m->parameters = malloc((size_t)(3 + m->shape.layers * (2 + 4 * PROJECTION_COUNT)) * sizeof *m->parameters);
    if (!m->parameters)
        abort();
    list(m, &m->embedding);
    for (int l = 0; l < m->shape.layers; l++) {
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            struct linear *linear = &m->layers[l].projections[p];
            list(m, &linear->weight);
            list(m, &linear->bias);
            list(m, &linear->lora_a);
            list(m, &linear->lora_b);
        }
        list(m, &m->layers[l].input_norm);
        list(m, &m->layers[l].attention_norm);
    }
    list(m, &m->final_norm);
    list(m, &m->head);
}

void model_open(struct model *model, struct device *device, const struct shape *shape, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    model->shape = *shape;
    model->layers = calloc((size_t)shape->layers, sizeof *model->layers);
    if (!model->layers)
        abort();
    struct builder builder = {model, device, seed, 0};
    const int64_t dims[] = {shape->hidden, (int64_t)shape->heads * shape->head_dim,
                            (int64_t)shape->kv_heads * shape->head_dim, shape->ffn};
    add_weights(&builder, dims);
    add_adapters(&builder, dims);
    list_parameters(model);
}

void model_drop_weights(struct model *model)
{
    for (int i = 0; i < model->parameter_count; i++)
        if (!model->parameters[i]->adapter && model->parameters[i] != &model->head)
            tensor_drop(&model->parameters[i]->value);
    tensor_drop(&model->inverse_frequencies);
    tensor_drop(&model->original_inverse_frequencies);
    tensor_drop(&model->head.value);
    for (int i = 0; i < model->parameter_count; i++) {
        tensor_drop(&model->parameters[i]->mean);
        tensor_drop(&model->parameters[i]->variance);
    }
}

void model_close(struct model *model)
{
    model_drop_weights(model);
    model_drop_gradients(model);
    for (int i = 0; i < model->parameter_count; i++)
        tensor_drop(&model->parameters[i]->value);
    for (size_t i = 0; i < sizeof model->workspaces / sizeof *model->workspaces; i++)
        tensor_drop(&model->workspaces[i]);
    free(model->parameters);
    free(model->layers);
}

void parameter_accept(struct device *device, struct parameter *parameter, struct tensor *gradient)
{
    if (!parameter->gradient) {
        parameter->gradient = gradient;
        return;
    }
    op_in_place(device, KERNEL_add_to, parameter->gradient, gradient, 0);
    tensor_drop(&gradient);
}

void model_drop_gradients(struct model *model)
{
    for (int i = 0; i < model->parameter_count; i++)
        tensor_drop(&model->parameters[i]->gradient);
}
