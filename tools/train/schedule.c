#include "schedule.h"
#include "device/ops.h"
#include "model/shard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void schedule_open(struct schedule *schedule, struct device *device, struct model *model, bool checkpoint)
{
    *schedule = (struct schedule){.device = device, .model = model, .checkpoint = checkpoint};
    size_t layers = (size_t)model->shape.layers;
    schedule->inputs = calloc(layers, sizeof *schedule->inputs);
    schedule->saved = calloc(checkpoint ? 1 : layers, sizeof *schedule->saved);
    if (!schedule->inputs || !schedule->saved)
        abort();
}

static void drop_leftovers(struct leftovers *last)
{
    tensor_drop(&last->gradient);
    tensor_drop(&last->embedded);
    tensor_drop(&last->loss);
}

void schedule_close(struct schedule *schedule)
{
    tensor_drop(&schedule->last.tokens);
    tensor_drop(&schedule->last.loss);
    drop_leftovers(&schedule->last);
    free(schedule->inputs);
    free(schedule->saved);
}

static struct tensor *load_tokens(struct schedule *schedule, const struct micro_step *micro)
{
    struct tensor *tokens = tensor_new(schedule->device, DTYPE_I64, micro->batch, micro->length);
    if (micro->tokens)
        device_copy_in(schedule->device, tokens->data, micro->tokens, tokens->bytes);
    return tokens;
}

/* Gradients reduced or parameters gathered: a layer at a time, and what lies around the layers. */
struct unit {
    struct parameter *parameters[LAYER_PARAMETERS];
    int count;
};

static struct unit layer_unit(struct model *model, int l)
{
    struct unit unit;
    unit.count = layer_parameters(&model->layers[l], unit.parameters);
    return unit;
}

static struct unit embedding_unit(struct model *model)
{
    return (struct unit){{&model->embedding}, 1};
}

/* The last norm and the head, which may be the embedding. */
static struct unit head_unit(struct model *model)
{
    return (struct unit){{&model->final_norm, model->shape.tied ? &model->embedding : &model->head}, 2};
}

static void unit_gather(struct pass *pass, const struct unit *unit)
{
    shard_gather(pass->device, pass->model, unit->parameters, unit->count);
}

static void unit_release(struct pass *pass, const struct unit *unit)
{
    shard_release(pass->model, unit->parameters, unit->count);
}

static struct tensor *forward_layers(struct schedule *schedule, struct pass *pass, struct tensor *embedded, bool keep)
{
    struct tensor *x = tensor_keep(embedded);
    for (int l = 0; l < schedule->model->shape.layers; l++) {
        struct layer *layer = &schedule->model->layers[l];
        struct unit unit = layer_unit(schedule->model, l);
        unit_gather(pass, &unit);
        bool save = keep && !schedule->checkpoint;
        struct tensor *next = layer_forward(pass, layer, x, save ? &schedule->saved[l] : NULL, false);
        unit_release(pass, &unit);
        if (!save)
            casts_drop(unit.parameters, unit.count);
        if (keep && schedule->checkpoint) {
            schedule->inputs[l] = x;
            x = NULL;
        }
        tensor_drop(&x);
        x = next;
    }
    return x;
}

static void backward_layers(struct schedule *schedule, struct pass *pass, struct tensor *gradient)
{
    for (int l = schedule->model->shape.layers - 1; l >= 0; l--) {
        /* A recomputation holds all arguments of its layer. The embedding's output lives on in the leftovers, and the
           first layer is the last to let go of what all layers were given. */
        struct tensor **last[] = {&schedule->inputs[l], &pass->mask, &pass->sines, &pass->cosines, &pass->positions};
        int last_count = l == 0 ? 5 : 1;
        struct layer_saved *saved = &schedule->saved[schedule->checkpoint ? 0 : l];
        struct unit unit = layer_unit(schedule->model, l);
        unit_gather(pass, &unit);
        layer_backward(pass, &schedule->model->layers[l], saved, gradient, schedule->inputs[l], last, last_count);
        unit_release(pass, &unit);
        casts_drop(unit.parameters, unit.count);
        shard_reduce(pass->device, pass->model, unit.parameters, unit.count);
    }
}

static struct tensor *schedule_embed(struct pass *pass, const struct unit *unit, struct tensor *tokens)
{
    unit_gather(pass, unit);
    struct tensor *embedded = embedding_forward(pass, tokens);
    unit_release(pass, unit);
    return embedded;
}

void schedule_evaluate(struct schedule *schedule, const struct micro_step *micro)
{
    struct model *model = schedule->model;
    struct pass pass = {.device = schedule->device, .model = model, .batch = micro->batch, .length = micro->length,
                        .policy = schedule->policy};
    struct unit first = embedding_unit(model), last = head_unit(model);
    struct tensor *tokens = load_tokens(schedule, micro);
    struct tensor *embedded = schedule_embed(&pass, &first, tokens);
    positions_make(&pass);
    struct tensor *x = forward_layers(schedule, &pass, embedded, false);
    tensor_drop(&embedded);
    unit_gather(&pass, &last);
    struct tensor *normed = norm_forward(&pass, &model->final_norm, x, NULL);
    tensor_drop(&x);
    struct loss_saved saved = {0};
    struct tensor *loss = loss_forward(&pass, &normed, tokens, &saved);
    loss_forget(&saved);
    unit_release(&pass, &last);
    casts_drop(last.parameters, last.count);
    if (micro->ret_loss)
        device_copy_out(schedule->device, micro->ret_loss, loss->data, sizeof *micro->ret_loss);
    tensor_drop(&loss);
    tensor_drop(&tokens);
    struct tensor **made[] = {&pass.mask, &pass.sines, &pass.cosines, &pass.positions};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        tensor_drop(made[i]);
}

void schedule_micro_step(struct schedule *schedule, const struct micro_step *micro)
{
    struct device *device = schedule->device;
    struct model *model = schedule->model;
    struct pass pass = {.device = device, .model = model, .batch = micro->batch, .length = micro->length,
                        .policy = schedule->policy, .packed = micro->packed, .starts = micro->starts,
                        .dropout_seed = schedule->seed + 1000003 * micro->number};
    struct unit first = embedding_unit(model), last = head_unit(model);
    struct tensor *tokens = load_tokens(schedule, micro);
    tensor_drop(&schedule->last.tokens);
    struct tensor *embedded = schedule_embed(&pass, &first, tokens);
    positions_make(&pass);

    struct tensor *x = forward_layers(schedule, &pass, embedded, true);
    unit_gather(&pass, &last);
    struct norm_saved final_saved = {0};
    struct loss_saved loss_saved = {0};
    struct tensor *normed = norm_forward(&pass, &model->final_norm, x, &final_saved);
    tensor_drop(&x);
    struct tensor *loss = loss_forward(&pass, &normed, tokens, &loss_saved);
    drop_leftovers(&schedule->last);
    if (micro->ret_loss)
        device_copy_out(device, micro->ret_loss, loss->data, sizeof *micro->ret_loss);

    struct tensor *scaled = op_map(device, KERNEL_scale, loss, NULL, 1 / (float)micro->parts);
    pass.backward = true;
    struct tensor *of_normed = loss_backward(&pass, &loss_saved, scaled, micro->parts);
    struct tensor *gradient = norm_backward(&pass, &model->final_norm, &final_saved, &of_normed, NULL, 0);
    unit_release(&pass, &last);
    casts_drop(last.parameters, last.count);
    if (!model->shape.tied)
        shard_reduce(device, model, last.parameters, last.count);
    backward_layers(schedule, &pass, gradient);
    embedding_backward(&pass, tokens, gradient);
    shard_reduce(device, model, first.parameters, first.count);
    if (model->shape.tied)
        shard_reduce(device, model, last.parameters, last.count);
    tensor_drop(&scaled);
    schedule->last = (struct leftovers){tokens, gradient, embedded, loss};
}
