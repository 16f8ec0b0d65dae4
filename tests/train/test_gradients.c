/* Every block's backward, and the whole model's, against differences of its forward. */
#include "fixture.h"
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 16, ROWS = BATCH * LENGTH };

static const struct shape small = {.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24,
                                   .vocabulary = 256, .rope_theta = 100, .norm_eps = 1e-6, .dtype = DTYPE_F32,
                                   .rank = 3, .lora_alpha = 6, .train_all = true};

static const struct shape small_qwen3 = {.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24,
                                         .vocabulary = 256, .rope_theta = 100, .norm_eps = 1e-6, .dtype = DTYPE_F32,
                                         .rank = 3, .lora_alpha = 6, .train_all = true, .tied = true, .no_bias = true,
                                         .qk_norm = true, .dropout = 0.2};
static const struct shape *shape_of_tests = &small;

struct block {
    struct device device;
    struct model model;
    struct pass pass;
    struct tensor *x, *k, *v, *weights; /* value = sum of weights times output */
    struct tensor *(*forward)(struct block *block);
    int64_t tokens[ROWS];
};

static void block_open(struct block *b)
{
    memset(b, 0, sizeof *b);
    fixture_open(&b->device);
    model_open(&b->model, &b->device, shape_of_tests, 3);
    for (int i = 0; i < b->model.parameter_count; i++) {
        struct tensor *value = b->model.parameters[i]->value;
        bool is_norm = value->rows == 1 && value->columns == small.hidden;
        fixture_randomise(value, is_norm ? 1 : 0, value->rows > 200 ? 1 : 0.3F);
    }
    b->pass = (struct pass){.device = &b->device, .model = &b->model, .batch = BATCH, .length = LENGTH};
    positions_make(&b->pass);
    for (int i = 0; i < ROWS; i++)
        b->tokens[i] = (i * 37 + i / 5) % 256;
}

static void block_close(struct block *b)
{
    struct tensor **all[] = {&b->x, &b->k, &b->v, &b->weights, &b->pass.mask, &b->pass.cosines, &b->pass.sines,
                             &b->pass.positions};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_drop(all[i]);
    model_close(&b->model, &b->device);
    fixture_close(&b->device);
}

static double block_value(void *context)
{
    struct block *b = context;
    struct tensor *out = b->forward(b);
    float *values = fixture_fetch(out), *weights = fixture_fetch(b->weights);
    double value = fixture_dot(values, weights, tensor_count(out));
    free(values);
    free(weights);
    tensor_drop(&out);
    return value;
}

static struct tensor *weighted_output(struct block *b, struct tensor *out)
{
    b->weights = fixture_random(&b->device, out->rows, out->columns, 1);
    tensor_drop(&out);
    return tensor_keep(b->weights);
}

static void check(struct block *b, const char *name, struct tensor *input, struct tensor **gradient)
{
    fixture_check_gradient(name, block_value, b, input, *gradient, 0.01);
    tensor_drop(gradient);
}

static void check_parameter(struct block *b, const char *name, struct parameter *parameter)
{
    assert_non_null(parameter->gradient);
    fixture_check_gradient(name, block_value, b, parameter->value, parameter->gradient, 0.01);
}

static struct tensor *norm_only(struct block *b)
{
    return norm_forward(&b->pass, &b->model.final_norm, b->x, NULL);
}

static void norm_differentiates(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    b.forward = norm_only;
    b.x = fixture_random(&b.device, ROWS, small.hidden, 2);
    struct norm_saved saved = {0};
    struct tensor *gradient = weighted_output(&b, norm_forward(&b.pass, &b.model.final_norm, b.x, &saved));
    struct tensor *of_x = norm_backward(&b.pass, &b.model.final_norm, &saved, &gradient, NULL, 0);
    check(&b, "norm, input", b.x, &of_x);
    check_parameter(&b, "norm, weight", &b.model.final_norm);
    block_close(&b);
}

static struct linear *linear_of(struct block *b, enum projection which)
{
    return &b->model.layers[0].projections[which];
}

static struct tensor *linear_only(struct block *b)
{
    return linear_forward(&b->pass, linear_of(b, PROJECTION_K), b->x, NULL, false);
}

static void linear_differentiates(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    b.forward = linear_only;
    b.x = fixture_random(&b.device, ROWS, small.hidden, 1);
    struct linear *linear = linear_of(&b, PROJECTION_K);
    struct linear_saved saved = {0};
    struct tensor *gradient = weighted_output(&b, linear_forward(&b.pass, linear, b.x, &saved, false)), *of_x = NULL;
    struct tensor *scaled = linear_scale_gradient(&b.pass, linear, gradient);
    linear_backward(&b.pass, linear, &saved, &gradient, &scaled, &of_x);
    check(&b, "linear, input", b.x, &of_x);
    check_parameter(&b, "linear, weight", &linear->weight);
    check_parameter(&b, "linear, bias", &linear->bias);
    check_parameter(&b, "linear, A", &linear->lora_a);
    check_parameter(&b, "linear, B", &linear->lora_b);
    block_close(&b);
}

static struct tensor *rotary_only(struct block *b)
{
    return rotary_forward(&b->pass, b->x, small.heads);
}

static void rotary_differentiates(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    b.forward = rotary_only;
    b.x = fixture_random(&b.device, ROWS, small.heads * small.head_dim, 1);
    struct tensor *gradient = weighted_output(&b, rotary_only(&b));
    struct tensor *of_x = rotary_backward(&b.pass, &gradient, small.heads);
    check(&b, "rotary", b.x, &of_x);
    block_close(&b);
}

static struct tensor *attention_only(struct block *b)
{
    return attention_forward(&b->pass, b->x, b->k, b->v, NULL);
}

static void attention_differentiates(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    b.forward = attention_only;
    b.x = fixture_random(&b.device, ROWS, small.heads * small.head_dim, 1);
    b.k = fixture_random(&b.device, ROWS, small.kv_heads * small.head_dim, 1);
    b.v = fixture_random(&b.device, ROWS, small.kv_heads * small.head_dim, 1);
    struct attention_saved saved = {0};
    struct tensor *gradient = weighted_output(&b, attention_forward(&b.pass, b.x, b.k, b.v, &saved));
    struct tensor *of_q, *of_k, *of_v;
    attention_backward(&b.pass, &saved, &gradient, &of_q, &of_k, &of_v);
    check(&b, "attention, q", b.x, &of_q);
    check(&b, "attention, k", b.k, &of_k);
    check(&b, "attention, v", b.v, &of_v);
    block_close(&b);
}

/* A later token must not be seen: changing it leaves the outputs before it as they are. */
static void attention_is_causal(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    struct tensor *of[3];
    const int columns[] = {small.heads * small.head_dim, small.kv_heads * small.head_dim,
                           small.kv_heads * small.head_dim};
    for (int i = 0; i < 3; i++)
        of[i] = fixture_random(&b.device, ROWS, columns[i], 1);
    struct tensor *out = attention_forward(&b.pass, of[0], of[1], of[2], NULL);
    float *before = fixture_fetch(out);
    for (int i = 1; i < 3; i++) {
        float *values = fixture_fetch(of[i]);
        for (int c = 0; c < columns[i]; c++)
            values[(LENGTH - 1) * columns[i] + c] += 1;
        fixture_store(of[i], values);
        free(values);
    }
    tensor_drop(&out);
    out = attention_forward(&b.pass, of[0], of[1], of[2], NULL);
    float *after = fixture_fetch(out);
    size_t row = (size_t)columns[0] * sizeof(float);
    assert_memory_equal(before, after, (LENGTH - 1) * row);
    assert_memory_not_equal(before + (LENGTH - 1) * columns[0], after + (LENGTH - 1) * columns[0], row);
    assert_memory_equal(before + LENGTH * columns[0], after + LENGTH * columns[0], LENGTH * row);
    free(before);
    free(after);
    tensor_drop(&out);
    for (int i = 0; i < 3; i++)
        tensor_drop(&of[i]);
    block_close(&b);
}

static struct tensor *layer_only(struct block *b)
{
    return layer_forward(&b->pass, &b->model.layers[0], b->x, NULL, false);
}

static void layer_differentiates(void **state)
{
    (void)state;
    struct block b;
    block_open(&b);
    b.forward = layer_only;
    b.x = fixture_random(&b.device, ROWS, small.hidden, 1);
    struct layer *layer = &b.model.layers[0];
    struct layer_saved saved = {0};
    struct tensor *out = weighted_output(&b, layer_forward(&b.pass, layer, b.x, &saved, false));
    struct tensor *gradient = op_map(&b.device, KERNEL_copy, out, NULL, 0);
    tensor_drop(&out);
    layer_backward(&b.pass, layer, &saved, gradient, NULL, NULL, 0);
    check(&b, "layer, input", b.x, &gradient);
    check_parameter(&b, "layer, gate", &layer->projections[PROJECTION_GATE].weight);
    check_parameter(&b, "layer, down A", &layer->projections[PROJECTION_DOWN].lora_a);
    block_close(&b);
}

/* The whole model: losses of one micro-step, whose gradients schedule_micro_step leaves in the parameters. */
struct whole {
    struct block block;
    bool checkpoint;
    float *loss;
    int64_t *tokens;
};

static double whole_loss(struct whole *w)
{
    struct schedule schedule;
    schedule_open(&schedule, &w->block.device, &w->block.model, w->checkpoint);
    struct micro_step micro = {.batch = BATCH, .length = LENGTH, .tokens = w->tokens, .ret_loss = w->loss,
                               .number = 1, .parts = 1};
    schedule_micro_step(&schedule, &micro);
    device_wait(&w->block.device);
    schedule_close(&schedule);
    return *w->loss;
}

static double whole_value(void *context)
{
    struct whole *w = context;
    double loss = whole_loss(w);
    model_drop_gradients(&w->block.model);
    return loss;
}

static void whole_open(struct whole *w, bool checkpoint)
{
    block_open(&w->block);
    w->checkpoint = checkpoint;
    w->loss = device_pin(&w->block.device, sizeof *w->loss);
    w->tokens = device_pin(&w->block.device, sizeof w->block.tokens);
    memcpy(w->tokens, w->block.tokens, sizeof w->block.tokens);
}

static void whole_close(struct whole *w)
{
    device_unpin(&w->block.device, w->loss);
    device_unpin(&w->block.device, w->tokens);
    block_close(&w->block);
}

static void model_differentiates(void **state)
{
    (void)state;
    struct whole w;
    whole_open(&w, true);
    whole_loss(&w);
    int count = w.block.model.parameter_count;
    struct tensor **gradients = calloc((size_t)count, sizeof *gradients);
    assert_non_null(gradients);
    for (int i = 0; i < count; i++)
        gradients[i] = tensor_keep(w.block.model.parameters[i]->gradient);
    model_drop_gradients(&w.block.model);
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "model, parameter %d of %d", i, count);
        fixture_check_gradient(name, whole_value, &w, w.block.model.parameters[i]->value, gradients[i], 0.002);
        tensor_drop(&gradients[i]);
    }
    free(gradients);
    whole_close(&w);
}

static void qwen3_with_dropout_differentiates(void **state)
{
    shape_of_tests = &small_qwen3;
    model_differentiates(state);
    shape_of_tests = &small;
}

static void recomputing_changes_no_bit(void **state)
{
    (void)state;
    float losses[2], *gradients[2][128];
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        struct whole w;
        whole_open(&w, checkpoint);
        for (int i = 0; i < w.block.model.parameter_count; i++) {
            struct tensor *value = w.block.model.parameters[i]->value;
            device_launch(&w.block.device, &(struct kernel_args){.kernel = KERNEL_fill_normal, .f = {0.3F},
                                                                 .n = {tensor_count(value), i, 11},
                                                                 .p = {value->data}});
        }
        losses[checkpoint] = (float)whole_loss(&w);
        for (int i = 0; i < w.block.model.parameter_count; i++) {
            struct tensor *gradient = w.block.model.parameters[i]->gradient;
            gradients[checkpoint][i] = fixture_fetch(gradient);
            if (checkpoint) {
                assert_memory_equal(gradients[0][i], gradients[1][i], gradient->bytes);
                free(gradients[0][i]);
                free(gradients[1][i]);
            }
        }
        model_drop_gradients(&w.block.model);
        whole_close(&w);
    }
    assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_differentiates),
        cmocka_unit_test(linear_differentiates),
        cmocka_unit_test(rotary_differentiates),
        cmocka_unit_test(attention_differentiates),
        cmocka_unit_test(attention_is_causal),
        cmocka_unit_test(layer_differentiates),
        cmocka_unit_test(model_differentiates),
        cmocka_unit_test(qwen3_with_dropout_differentiates),
        cmocka_unit_test(recomputing_changes_no_bit),
    };
    return cmocka_run_group_tests_name("train gradients", tests, NULL, NULL);
}
