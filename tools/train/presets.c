#include "presets.h"

#include <string.h>

const char *const variant_names[VARIANT_COUNT] = {"before", "after"};

static const size_t GIB = (size_t)1 << 30;

/* Shapes, as their entries of a table need them: braces and what is common to both variants. */
#define TINY .layers = 3, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 192, .vocabulary = 256,      \
             .rope_theta = 1e4, .norm_eps = 1e-6, .dtype = DTYPE_F32, .rank = 8, .lora_alpha = 16, .train_all = true
#define WORKSPACES .workspace = 8519680, .workspace_small = 1048576
#define QWEN25_7B .layers = 28, .hidden = 3584, .heads = 28, .kv_heads = 4, .head_dim = 128, .ffn = 18944,             \
                  .vocabulary = 152064, .rope_theta = 1e6, .norm_eps = 1e-6, .dtype = DTYPE_BF16, WORKSPACES
#define QWEN3_4B .layers = 36, .hidden = 2560, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 9728,               \
                 .vocabulary = 151936, .tied = true, .rope_theta = 1e6, .norm_eps = 1e-6, .dtype = DTYPE_BF16,         \
                 .no_bias = true, .qk_norm = true, WORKSPACES
#define LLAMA_3B6 .layers = 28, .hidden = 3072, .heads = 24, .kv_heads = 8, .head_dim = 128, .ffn = 8192,              \
                  .vocabulary = 128256, .rope_theta = 5e5, .norm_eps = 1e-5, .dtype = DTYPE_BF16, .no_bias = true,     \
                  .train_all = true, WORKSPACES
#define GSA_512M .layers = 8, .hidden = 1536, .heads = 12, .kv_heads = 6, .head_dim = 128, .ffn = 1536,                \
                 .vocabulary = 128256, .rope_theta = 5e5, .norm_eps = 1e-5, .dtype = DTYPE_BF16, .no_bias = true,      \
                 .mixed = true, .selected = 1024, .train_all = true, WORKSPACES
#define ADAMW .weight_decay = 0.01, .clip = 1
#define TINY_RUN .batch = 2, .accumulation = 2, .longest = 128, .steps = 50, .lengths = "lognormal:60:0.6", .rate = 3e-3

const struct preset presets[] = {
    {
        .name = "tiny",
        .text = "0.2 M parameters over bytes, all trained in float, adapters too: learns in seconds on one core",
        .settings = {{.shape = {TINY}, TINY_RUN, ADAMW, .no_checkpoint = true}, {.shape = {TINY}, TINY_RUN, ADAMW}},
    },
    {
        .name = "qwen25-7b-lora",
        .text = "Qwen2.5-7B in bfloat16, LoRA r128 on all linear layers, checkpointing, batch 1, up to 1536 tokens",
        .settings = {
            {.shape = {QWEN25_7B, .rank = 128, .lora_alpha = 256}, .batch = 2, .accumulation = 8, .longest = 2048,
             .steps = 2, .lengths = "lognormal:735:0.7", .rate = 2e-4, ADAMW, .card = 24 * GIB, .allocator = ""},
            {.shape = {QWEN25_7B, .rank = 128, .lora_alpha = 256}, .batch = 1, .accumulation = 16, .longest = 1536,
             .steps = 2, .lengths = "lognormal:735:0.7", .rate = 2e-4, ADAMW, .card = 24 * GIB,
             .allocator = "max_split_size_mb:128,expandable_segments:True"},
        },
    },
    {
        .name = "spiral-qwen3-4b",
        .text = "Qwen3-4B by reinforcement: rollouts and training in one loop, LoRA r32, ZeRO-3, Adam on the host",
        .settings = {
            {.shape = {QWEN3_4B, .train_all = true,
                       .sharding = {.kind = SHARDING_ZERO2, .ranks = 1, .bucket = 500000000, .prefetch = 50000000}},
             .batch = 4, .accumulation = 4, .longest = 2048, .steps = 3, .lengths = "growing:600", .rate = 1e-6, ADAMW,
             .engine = {.share = 0.4, .sequences = 4, .tokens = 1024}, .card = 40 * GIB,
             .allocator = "expandable_segments:True"},
            {.shape = {QWEN3_4B, .rank = 32, .lora_alpha = 32, .dropout = 0.1,
                       .sharding = {.kind = SHARDING_ZERO3, .ranks = 1, .bucket = 500000000, .prefetch = 50000000,
                                    .offload_optimizer = true}},
             .batch = 2, .accumulation = 4, .longest = 2048, .steps = 3, .lengths = "growing:600", .rate = 1e-6, ADAMW,
             .engine = {.share = 0.6, .sequences = 2, .tokens = 1024}, .card = 40 * GIB, .allocator = ""},
        },
    },
    {
        .name = "grpo-fsdp",
        .text = "GRPO of a 7B model, one of four FSDP ranks, micro-batch 16, parameters and optimizer on the host",
        .settings = {
            {.shape = {QWEN25_7B, .train_all = true, .sharding = {.kind = SHARDING_FSDP, .ranks = 4}}, .batch = 32,
             .accumulation = 2, .longest = 1952, .steps = 3, .lengths = "growing:1200", .rate = 1e-6, ADAMW,
             .policy = true, .engine = {.share = 0.6, .sequences = 64, .tokens = 1024},
             .card = (size_t)(79.18 * 1073741824), .allocator = ""},
            {.shape = {QWEN25_7B, .train_all = true,
                       .sharding = {.kind = SHARDING_FSDP, .ranks = 4, .offload_parameters = true,
                                    .offload_optimizer = true}},
             .batch = 16, .accumulation = 2, .longest = 1952, .steps = 3, .lengths = "growing:1200", .rate = 1e-6,
             ADAMW, .policy = true, .engine = {.share = 0.6, .sequences = 64, .tokens = 1024},
             .card = (size_t)(79.18 * 1073741824), .allocator = ""},
        },
    },
    {
        .name = "lmcleaner",
        .text = "3.6 B Llama shape, full bfloat16 fine-tuning, one of two ZeRO-3 ranks, batch 1, up to 1024 tokens",
        .settings = {
            {.shape = {LLAMA_3B6, .sharding = {.kind = SHARDING_ZERO3, .ranks = 2, .bucket = 500000000,
                                               .prefetch = 500000000}},
             .batch = 4, .accumulation = 4, .longest = 4096, .steps = 3, .lengths = "lognormal", .rate = 1e-5, ADAMW,
             .card = 48 * GIB, .allocator = ""},
            {.shape = {LLAMA_3B6, .sharding = {.kind = SHARDING_ZERO3, .ranks = 2, .bucket = 50000000,
                                               .prefetch = 50000000}},
             .batch = 1, .accumulation = 8, .longest = 1024, .steps = 3, .lengths = "lognormal", .rate = 1e-5, ADAMW,
             .card = 48 * GIB, .allocator = "expandable_segments:True,max_split_size_mb:64"},
        },
    },
    {
        .name = "gsa-512m",
        .text = "512 M decoder, gathered sparse attention, float weights under autocast, batch 2, 1024 tokens",
        .settings = {
            {.shape = {GSA_512M}, .batch = 8, .accumulation = 8, .longest = 2048, .steps = 3, .lengths = "lognormal",
             .rate = 3e-4, ADAMW, .no_checkpoint = true, .card = 44 * GIB, .allocator = "expandable_segments:True"},
            {.shape = {GSA_512M}, .batch = 2, .accumulation = 32, .longest = 1024, .steps = 3, .lengths = "lognormal",
             .rate = 3e-4, ADAMW, .no_checkpoint = true, .card = 44 * GIB, .allocator = "expandable_segments:True"},
        },
    },
};
const int preset_count = sizeof presets / sizeof *presets;

const struct preset *preset_find(const char *name)
{
    for (int i = 0; i < preset_count; i++)
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    return NULL;
}
