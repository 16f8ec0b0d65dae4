#include "checkpoint/hf_config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Decoders of this build's kind: RMSNorm, RoPE, grouped-query attention, SwiGLU; what they differ in. */
static const struct {
    const char *name;
    bool bias, qk_norm; /* of the projections to queries, keys and values, where the file doesn't say */
} types[] = {{"llama", false, false}, {"mistral", false, false}, {"qwen2", true, false}, {"qwen3", false, true}};
enum { TYPES = sizeof types / sizeof *types };

struct reading {
    const json_t *root;
    const char *path;
    char *error;
    size_t error_size;
};

/* A whole number, `otherwise` where there is none (negative: there must be). False after an error. */
static bool config_whole(const struct reading *in, const char *key, int otherwise, int *ret)
{
    const json_t *value = json_object_get(in->root, key);
    if ((!value || json_is_null(value)) && otherwise >= 0) {
        *ret = otherwise;
        return true;
    }
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > 1 << 24) {
        snprintf(in->error, in->error_size, "%s: \"%s\" is no whole number from 1 to 16777216", in->path, key);
        return false;
    }
    *ret = (int)number;
    return true;
}

static double config_real(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) && json_number_value(value) > 0 ? json_number_value(value) : otherwise;
}

static bool config_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static int find_type(const struct reading *in)
{
    const char *name = json_string_value(json_object_get(in->root, "model_type"));
    for (int i = 0; name && i < TYPES; i++)
        if (!strcmp(types[i].name, name))
            return i;
    snprintf(in->error, in->error_size, "%s: model_type is %s; --config takes llama, mistral, qwen2 and qwen3",
             in->path, name ? name : "missing");
    return -1;
}

/* float16 takes the same memory as bfloat16; transformers before 5 calls the key torch_dtype. */
static enum dtype type_of_weights(const json_t *root)
{
    const json_t *value = json_object_get(root, "dtype");
    const char *name = json_string_value(value ? value : json_object_get(root, "torch_dtype"));
    return name && !strcmp(name, "float32") ? DTYPE_F32 : DTYPE_BF16;
}

static int config_take(const struct reading *in, struct shape *ret, char name[HF_CONFIG_NAME])
{
    struct shape shape = *ret;
    int type = find_type(in);
    if (type < 0 || !config_whole(in, "num_hidden_layers", -1, &shape.layers) ||
        !config_whole(in, "hidden_size", -1, &shape.hidden) ||
        !config_whole(in, "num_attention_heads", -1, &shape.heads) ||
        !config_whole(in, "num_key_value_heads", shape.heads, &shape.kv_heads) ||
        !config_whole(in, "head_dim", shape.hidden / shape.heads, &shape.head_dim) ||
        !config_whole(in, "intermediate_size", -1, &shape.ffn) || !config_whole(in, "vocab_size", -1, &shape.vocabulary))
        return -1;
    shape.tied = config_flag(in->root, "tie_word_embeddings", false);
    shape.no_bias = !config_flag(in->root, "attention_bias", types[type].bias);
    shape.qk_norm = types[type].qk_norm;
    shape.norm_eps = config_real(in->root, "rms_norm_eps", 1e-6);
    shape.rope_theta =
        config_real(json_object_get(in->root, "rope_parameters"), "rope_theta", 1e4); /* since transformers 5 */
    shape.rope_theta = config_real(in->root, "rope_theta", shape.rope_theta);
    shape.dtype = type_of_weights(in->root);
    shape.mixed = false;
    shape.selected = 0;
    *ret = shape;
    snprintf(name, HF_CONFIG_NAME, "%s", types[type].name);
    return 0;
}

int hf_config_read(const char *path, struct shape *shape, char name[HF_CONFIG_NAME], char *error, size_t error_size)
{
    json_error_t problem;
    json_t *root = json_load_file(path, 0, &problem);
    const struct reading in = {root, path, error, error_size};
    int status = -1;
    if (!root && problem.line < 0)
        snprintf(error, error_size, "%s: %s", path, problem.text);
    else if (!root)
        snprintf(error, error_size, "%s, line %d: %s", path, problem.line, problem.text);
    else if (!json_is_object(root))
        snprintf(error, error_size, "%s: no JSON object", path);
    else
        status = config_take(&in, shape, name);
    json_decref(root);
    return status;
}
