#include "scenario.h"

#include <string.h>

static const int64_t MIB = 1 << 20;

static struct tensor *scenario_take(struct device *device, int64_t bytes)
{
    return tensor_new(device, DTYPE_U8, 1, bytes);
}

/* Moments come into being at the end of the first step, between tensors that go, in sizes just above those that are
   kept apart as small. */
static void adjust_lora_sft(struct setting *s)
{
    s->shape.layers = 8;
    s->shape.rank = 16;
    s->longest = 4096;
    s->accumulation = 8;
}

static void adjust_checkpoints(struct setting *s)
{
    s->shape.layers = 16;
    s->shape.rank = 16;
    s->longest = 4096;
    s->accumulation = 8;
    s->lengths = "uniform";
}

static void adjust_zero3(struct setting *s)
{
    s->shape.layers = 12;
    s->batch = 4;
    s->longest = 4096;
    s->accumulation = 4;
    s->lengths = "uniform";
}

static void adjust_fsdp(struct setting *s)
{
    s->shape.layers = 8;
    s->shape.sharding.ranks = 8;
    s->batch = 2;
    s->longest = 4096;
    s->accumulation = 4;
    s->policy = false;
    s->engine.share = 0;
    s->lengths = "lognormal:735:0.7";
}

/* A rollout engine wakes with its weights and a key-value pool a layer, and sleeps; the training that follows leaves
   one batch of experience behind, of answers that grow, somewhere in the memory of a pool. */
static void round_rl(struct device *device, struct tensor **kept, int number)
{
    enum { LAYERS = 24, TEMPORARIES = 40 };
    struct tensor *weights[LAYERS], *pools[LAYERS], *taken[TEMPORARIES];
    for (int l = 0; l < LAYERS; l++)
        weights[l] = scenario_take(device, 192 * MIB);
    for (int l = 0; l < LAYERS; l++)
        pools[l] = scenario_take(device, 455 * MIB);
    for (int l = LAYERS - 1; l >= 0; l--) {
        tensor_drop(&pools[l]);
        tensor_drop(&weights[l]);
    }
    int64_t tokens = 600 + 90 * number;
    for (int i = 0; i < TEMPORARIES; i++)
        taken[i] = scenario_take(device, tokens * (i % 4 == 3 ? 38912 : 5120) * 2);
    kept[number % SCENARIO_KEPT] = scenario_take(device, tokens * 10240);
    for (int i = TEMPORARIES - 1; i >= 0; i--)
        tensor_drop(&taken[i]);
}

/* The classes of one long batch after another: the logits, in bfloat16 and in float, of as many tokens as there are. */
static void round_logits(struct device *device, struct tensor **kept, int number)
{
    static const int64_t tokens[] = {17000, 19000, 20480, 14500};
    const int64_t classes = 65536;
    (void)kept;
    int64_t rows = tokens[number % 4];
    struct tensor *logits = tensor_new(device, DTYPE_BF16, rows, classes);
    struct tensor *wide = tensor_new(device, DTYPE_F32, rows, classes);
    tensor_drop(&logits);
    struct tensor *chances = tensor_new(device, DTYPE_F32, rows, classes);
    tensor_drop(&wide);
    struct tensor *gradient = tensor_new(device, DTYPE_BF16, rows, classes);
    tensor_drop(&chances);
    tensor_drop(&gradient);
}

/* An optimizer on the host gets its groups of up to 1e9 float elements through the device, between layers' activations
   whose sizes change; a few tensors of each phase stay until the next. */
static void round_offload(struct device *device, struct tensor **kept, int number)
{
    static const int64_t group_mib[] = {3815, 3815, 1907};
    struct tensor *activations[24];
    int64_t tokens = 1024 + 256 * (number * 7 % 11);
    for (int i = 0; i < 24; i++)
        activations[i] = scenario_take(device, tokens * 7168 * (1 + i % 3));
    for (int i = 0; i < 24; i++)
        if (i != 11)
            tensor_drop(&activations[i]);
    for (int i = 0; i < 3; i++) {
        struct tensor *group = scenario_take(device, group_mib[i] * MIB),
                      *state = scenario_take(device, group_mib[i] * MIB / 2);
        device_fetch(device, group->data, NULL, group->bytes);
        device_fetch(device, state->data, NULL, state->bytes);
        device_send(device, NULL, group->data, group->bytes);
        device_join(device);
        tensor_drop(&group);
        tensor_drop(&state);
    }
    tensor_drop(&kept[0]);
    kept[0] = activations[11];
}

/* Quantised weights are made from larger ones: each leaves a remainder that the next cannot use. */
static void round_load(struct device *device, struct tensor **kept, int number)
{
    struct tensor *loaded = scenario_take(device, 530 * MIB);
    tensor_drop(&loaded);
    kept[number % SCENARIO_KEPT] = scenario_take(device, 270 * MIB);
}

/* Two large tensors, a small one that stays behind them, and the two go: where large ranges may not be split for small
   requests, nor taken by others, every round needs new memory (pytorch#123548). */
static void round_fence(struct device *device, struct tensor **kept, int number)
{
    struct tensor *a = scenario_take(device, 91 * MIB), *b = scenario_take(device, 91 * MIB / 2);
    kept[number % SCENARIO_KEPT] = scenario_take(device, 2 * MIB);
    tensor_drop(&a);
    tensor_drop(&b);
}

const struct scenario scenarios[] = {
    {"lora-sft", "moments of many adapters settle between tensors that go", "", "qwen25-7b-lora", 3, adjust_lora_sft,
        NULL},
    {"ckpt", "checkpoints of all layers, and what is computed again between them", "", "qwen25-7b-lora", 2,
        adjust_checkpoints, NULL},
    {"logits", "logits of 17000, 19000, 20480, 14500 tokens in turn", "", NULL, 12, NULL, round_logits},
    {"zero3", "parameters gathered and let go layer by layer, gradients in buckets", "", "lmcleaner", 2, adjust_zero3,
        NULL},
    {"offload", "groups of the optimizer pass through the device between phases", "", NULL, 24, NULL, round_offload},
    {"fsdp", "whole layers gathered, gradients reduced in float", "", "grpo-fsdp", 2, adjust_fsdp, NULL},
    {"rl", "a rollout engine wakes and sleeps, training leaves a little of each round behind", "", NULL, 12, NULL,
        round_rl},
    {"load", "weights of 270 MiB made from 530 MiB", "", NULL, 24, NULL, round_load},
    {"fence", "a small tensor stays behind two large ones", "max_split_size_mb:128,expandable_segments:True", NULL, 100,
        NULL, round_fence},
    {"arena", "one allocation for everything: nothing to fragment", "", "qwen25-7b-lora", 2, adjust_lora_sft, NULL},
};
const int scenario_count = sizeof scenarios / sizeof *scenarios;

const struct scenario *scenario_find(const char *name)
{
    for (int i = 0; i < scenario_count; i++)
        if (!strcmp(scenarios[i].name, name))
            return &scenarios[i];
    return NULL;
}
