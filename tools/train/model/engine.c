#include "model/engine.h"

#include <stdlib.h>

enum { KV_PAIR = 2, LAYER_TENSORS = 4, SAMPLED = 16, BATCHED_TOKENS = 8192 };

static void engine_load(struct awake *a)
{
    const struct shape *s = a->shape;
    const int64_t q = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    for (int l = 0; l < s->layers; l++) {
        a->weights[a->weight_count++] = tensor_new(a->device, s->dtype, q + 2 * kv, s->hidden);
        a->weights[a->weight_count++] = tensor_new(a->device, s->dtype, s->hidden, q);
        a->weights[a->weight_count++] = tensor_new(a->device, s->dtype, 2 * (int64_t)s->ffn, s->hidden);
        a->weights[a->weight_count++] = tensor_new(a->device, s->dtype, s->hidden, s->ffn);
    }
    for (int i = s->tied; i < 2; i++)
        a->weights[a->weight_count++] = tensor_new(a->device, s->dtype, s->vocabulary, s->hidden);
}

/* Takes the part of the share that the weights and the largest batch of prompts leave. */
static void take_pool(struct awake *a, size_t share)
{
    const struct shape *s = a->shape;
    size_t used = 0, token = (size_t)KV_PAIR * (size_t)s->kv_heads * (size_t)s->head_dim * dtype_size(s->dtype);
    for (int i = 0; i < a->weight_count; i++)
        used += a->weights[i]->bytes;
    used += (size_t)BATCHED_TOKENS * (2 * (size_t)s->hidden + 2 * (size_t)s->ffn) * dtype_size(s->dtype);
    size_t tokens = used < share ? (share - used) / token / (size_t)s->layers : 0;
    for (int l = 0; l < s->layers && tokens; l++)
        a->pool[l] = tensor_new(a->device, s->dtype, (int64_t)tokens, (int64_t)(token / dtype_size(s->dtype)));
}

/* One pass over `rows` tokens: a hidden state a layer, what the layer's products make, and the last logits. */
static void pass_over(struct awake *a, int64_t rows, int64_t sequences)
{
    const struct shape *s = a->shape;
    const int64_t widths[] = {(int64_t)(s->heads + 2 * s->kv_heads) * s->head_dim, s->hidden, 2 * (int64_t)s->ffn,
                              s->ffn};
    struct tensor *hidden = tensor_new(a->device, s->dtype, rows, s->hidden);
    for (int l = 0; l < s->layers; l++) {
        for (int i = 0; i < LAYER_TENSORS; i++) {
            struct tensor *product = tensor_new(a->device, s->dtype, rows, widths[i]);
            tensor_drop(&product);
        }
        struct tensor *next = tensor_new(a->device, s->dtype, rows, s->hidden);
        tensor_drop(&hidden);
        hidden = next;
    }
    struct tensor *logits = tensor_new(a->device, s->dtype, sequences, s->vocabulary);
    struct tensor *wide = tensor_new(a->device, DTYPE_F32, sequences, s->vocabulary);
    tensor_drop(&logits);
    struct tensor *chances = tensor_new(a->device, DTYPE_F32, sequences, s->vocabulary);
    tensor_drop(&wide);
    tensor_drop(&chances);
    tensor_drop(&hidden);
}

/* Takes weights and pool. */
static void engine_wake(const struct engine *engine, struct phases *phases, struct awake *a, size_t card)
{
    a->device = phases->device;
    a->weights = calloc((size_t)a->shape->layers * LAYER_TENSORS + 2, sizeof *a->weights);
    a->pool = calloc((size_t)a->shape->layers, sizeof *a->pool);
    if (!a->weights || !a->pool)
        abort();
    engine_load(a);
    phases_begin_scratch(phases);
    take_pool(a, (size_t)((double)card * engine->share));
    phases_end_scratch(phases);
}

void engine_rollout(const struct engine *engine, struct phases *phases, struct awake *awake, const struct shape *shape,
    size_t card, int prompt)
{
    if (!(engine->share > 0))
        return;
    phases_turn(phases, PHASE_ROLLOUT);
    enum budget before = device_label(phases->device, BUDGET_other);
    awake->shape = shape;
    if (!awake->weights)
        engine_wake(engine, phases, awake, card);
    phases_begin_scratch(phases);
    int64_t prompts = (int64_t)prompt * engine->sequences;
    pass_over(awake, prompts < BATCHED_TOKENS ? prompts : BATCHED_TOKENS, engine->sequences);
    /* Every token makes the same allocations, so a few stand for all. */
    for (int t = 0; t < engine->tokens && t < SAMPLED; t++)
        pass_over(awake, engine->sequences, engine->sequences);
    phases_end_scratch(phases);
    if (phases->way == COLOCATE_FREE)
        engine_end(awake);
    device_label(phases->device, before);
    phases_turn(phases, PHASE_TRAINING);
}

void engine_end(struct awake *a)
{
    for (int i = a->weights ? a->shape->layers - 1 : -1; i >= 0; i--)
        tensor_drop(&a->pool[i]);
    for (int i = a->weight_count - 1; i >= 0; i--)
        tensor_drop(&a->weights[i]);
    free(a->weights);
    free(a->pool);
    *a = (struct awake){.weights = NULL};
}
