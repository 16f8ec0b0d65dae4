#include "presets.h"

#include <string.h>

const struct preset presets[] = {
    {
        .name = "tiny",
        .text = "0.2 M parameters over bytes, all trained in float, adapters too: learns in seconds on one core",
        .shape = {.layers = 3, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 192, .vocabulary = 256,
                  .rope_theta = 1e4, .norm_eps = 1e-6, .dtype = DTYPE_F32, .rank = 8, .lora_alpha = 16,
                  .train_all = true},
        .batch = 2, .accumulation = 2, .longest = 128, .steps = 50, .lengths = "lognormal:60:0.6",
        .rate = 3e-3, .weight_decay = 0.01, .clip = 1,
    },
    {
        .name = "qwen25-7b-lora",
        .text = "Qwen2.5-7B in bfloat16, LoRA r128 on all linear layers, checkpointing, batch 1, up to 1536 tokens",
        .shape = {.layers = 28, .hidden = 3584, .heads = 28, .kv_heads = 4, .head_dim = 128, .ffn = 18944,
                  .vocabulary = 152064, .rope_theta = 1e6, .norm_eps = 1e-6, .dtype = DTYPE_BF16, .rank = 128,
                  .lora_alpha = 256, .workspace = 8519680, .workspace_small = 1048576},
        .batch = 1, .accumulation = 16, .longest = 1536, .steps = 2, .lengths = "lognormal:735:0.7",
        .rate = 2e-4, .weight_decay = 0.01, .clip = 1,
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
