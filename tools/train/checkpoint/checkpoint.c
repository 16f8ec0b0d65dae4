#include "checkpoint/checkpoint.h"
#include "ranks/comm.h"
#include "checkpoint/safetensors.h"
#include "model/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const projection_names[PROJECTION_COUNT] = {
    [PROJECTION_Q] = "self_attn.q_proj", [PROJECTION_K] = "self_attn.k_proj", [PROJECTION_V] = "self_attn.v_proj",
    [PROJECTION_O] = "self_attn.o_proj", [PROJECTION_GATE] = "mlp.gate_proj", [PROJECTION_UP] = "mlp.up_proj",
    [PROJECTION_DOWN] = "mlp.down_proj",
};

enum { NAME = 96 };

struct named {
    char name[NAME];
    struct parameter *parameter;
};

struct names {
    struct named *list;
    int count;
};

static void names_add(struct names *names, struct parameter *parameter, const char *format, int layer, const char *part)
{
    if (!parameter->rows || !parameter->trained)
        return;
    struct named *named = &names->list[names->count++];
    named->parameter = parameter;
    snprintf(named->name, sizeof named->name, format, layer, part);
}

/* The trained parameters, under their names in PEFT's and transformers' files. The caller frees the list. */
static struct names name_all(struct model *m)
{
    struct names names = {calloc((size_t)m->parameter_count, sizeof *names.list), 0};
    if (!names.list)
        abort();
    names_add(&names, &m->embedding, "model.embed_tokens.weight", 0, "");
    for (int l = 0; l < m->shape.layers; l++) {
        struct layer *layer = &m->layers[l];
        for (int p = 0; p < PROJECTION_COUNT; p++) {
            struct linear *linear = &layer->projections[p];
            const char *name = projection_names[p];
            names_add(&names, &linear->weight, "model.layers.%d.%s.weight", l, name);
            names_add(&names, &linear->bias, "model.layers.%d.%s.bias", l, name);
            names_add(&names, &linear->lora_a, "base_model.model.model.layers.%d.%s.lora_A.weight", l, name);
            names_add(&names, &linear->lora_b, "base_model.model.model.layers.%d.%s.lora_B.weight", l, name);
        }
        names_add(&names, &layer->input_norm, "model.layers.%d.%s.weight", l, "input_layernorm");
        names_add(&names, &layer->attention_norm, "model.layers.%d.%s.weight", l, "post_attention_layernorm");
        names_add(&names, &layer->q_norm, "model.layers.%d.%s.weight", l, "self_attn.q_norm");
        names_add(&names, &layer->k_norm, "model.layers.%d.%s.weight", l, "self_attn.k_norm");
    }
    names_add(&names, &m->final_norm, "model.norm.weight", 0, "");
    names_add(&names, &m->head, "lm_head.weight", 0, "");
    return names;
}

/* The values of all ranks, which the caller frees; NULL for moments that are not there. */
static const float *parameter_fetch(struct device *device, struct model *model, struct parameter *p, enum stored what)
{
    const size_t bytes = (size_t)(p->rows * p->columns) * sizeof(float);
    struct tensor *whole = shard_whole(device, model, p, what);
    if (!whole)
        return NULL;
    float *values = device_pin(device, bytes), *copy = malloc(bytes);
    if (!copy)
        abort();
    if (values) {
        device_copy_out(device, values, whole->data, bytes);
        device_wait(device);
        memcpy(copy, values, bytes);
        device_unpin(device, values);
    }
    tensor_drop(&whole);
    return copy;
}

static void parameter_store(struct device *device, struct model *model, struct parameter *p, enum stored what,
    const float *values)
{
    const size_t bytes = (size_t)(p->rows * p->columns) * sizeof(float);
    float *pinned = device_pin(device, bytes);
    if (!pinned)
        return;
    memcpy(pinned, values, bytes);
    struct tensor *whole = tensor_new(device, DTYPE_F32, p->rows, p->columns);
    device_copy_in(device, whole->data, pinned, bytes);
    device_wait(device);
    shard_store(device, model, p, what, whole, pinned);
    device_wait(device);
    tensor_drop(&whole);
    device_unpin(device, pinned);
}

static void entry_fill(struct safetensors_entry *entry, const char *prefix, const struct named *named,
    const float *values)
{
    const struct parameter *p = named->parameter;
    *entry = (struct safetensors_entry){.rows = p->rows == 1 && !p->adapter ? 0 : p->rows, .columns = p->columns,
                                        .values = values};
    snprintf(entry->name, sizeof entry->name, "%s%s", prefix, named->name);
}

static int write_config(const char *path, const struct shape *shape, char *error, size_t error_size)
{
    char temporary[4096 + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (!file) {
        snprintf(error, error_size, "cannot write %s: %s", path, strerror(errno));
        return -1;
    }
    fprintf(file, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                  "  \"base_model_name_or_path\": null,\n  \"bias\": \"none\",\n  \"r\": %d,\n  \"lora_alpha\": %g,\n"
                  "  \"lora_dropout\": %g,\n  \"target_modules\": [", shape->rank, shape->lora_alpha, shape->dropout);
    for (int p = 0; p < PROJECTION_COUNT; p++)
        fprintf(file, "%s\"%s\"", p ? ", " : "", strchr(projection_names[p], '.') + 1);
    fputs("]\n}\n", file);
    if (fclose(file) == 0 && rename(temporary, path) == 0)
        return 0;
    unlink(temporary);
    snprintf(error, error_size, "cannot write %s: %s", path, strerror(errno));
    return -1;
}

static const char *path_join(char *buffer, size_t size, const char *folder, const char *file)
{
    snprintf(buffer, size, "%s/%s", folder, file);
    return buffer;
}

int saved_make(const char *folder, const struct device *device, char *error, size_t error_size)
{
    char inside[4096]; /* what is no folder has nothing inside */
    if (device->comm && device->comm->rank)
        return 0;
    if ((mkdir(folder, 0777) && errno != EEXIST) || access(path_join(inside, sizeof inside, folder, "."), W_OK)) {
        snprintf(error, error_size, "cannot save in '%s': %s", folder, strerror(errno));
        return -1;
    }
    return 0;
}

int saved_write(const char *folder, struct device *device, struct model *model, const struct progress *progress,
                char *error, size_t error_size)
{
    char path[4096], metadata[256];
    const bool writes = !device->comm || device->comm->rank == 0;
    if (saved_make(folder, device, error, error_size))
        return -1;
    struct names names = name_all(model);
    struct safetensors_entry *adapters = calloc((size_t)names.count + 1, sizeof *adapters);
    struct safetensors_entry *state = calloc(3 * (size_t)names.count + 1, sizeof *state);
    if (!adapters || !state)
        abort();
    size_t adapter_count = 0, state_count = 0;
    for (int i = 0; i < names.count; i++) {
        struct parameter *p = names.list[i].parameter;
        const float *values = parameter_fetch(device, model, p, STORED_VALUE),
                    *mean = parameter_fetch(device, model, p, STORED_MEAN);
        if (p->adapter)
            entry_fill(&adapters[adapter_count++], "", &names.list[i], values);
        entry_fill(&state[state_count++], "", &names.list[i], values);
        if (mean) {
            entry_fill(&state[state_count++], "mean.", &names.list[i], mean);
            entry_fill(&state[state_count++], "variance.", &names.list[i],
                parameter_fetch(device, model, p, STORED_VARIANCE));
        }
    }
    snprintf(metadata, sizeof metadata,
             "\"step\":\"%" PRIu64 "\",\"lengths\":\"%" PRIu64 "\",\"lengths_next\":\"%" PRIu64 "\",\"text\":\"%" PRIu64
             "\"",
             progress->step, progress->lengths, progress->lengths_next, progress->text);
    int rc = 0;
    if (writes && adapter_count)
        rc = safetensors_write(path_join(path, sizeof path, folder, "adapter_model.safetensors"), adapters,
            adapter_count, "\"format\":\"pt\"", error, error_size);
    if (writes && !rc && adapter_count)
        rc = write_config(path_join(path, sizeof path, folder, "adapter_config.json"), &model->shape, error, error_size);
    if (writes && !rc)
        rc = safetensors_write(path_join(path, sizeof path, folder, "training_state.safetensors"), state, state_count,
            metadata, error, error_size);
    for (size_t i = 0; i < state_count; i++)
        free((void *)(uintptr_t)state[i].values);
    free(adapters);
    free(state);
    free(names.list);
    return rc;
}

static bool read_one(const struct safetensors *file, struct device *device, struct model *model,
                     const struct named *named)
{
    struct parameter *p = named->parameter;
    char name[NAME + 16];
    const float *values = safetensors_find(file, named->name, p->rows * p->columns);
    snprintf(name, sizeof name, "mean.%s", named->name);
    const float *mean = safetensors_find(file, name, p->rows * p->columns);
    snprintf(name, sizeof name, "variance.%s", named->name);
    const float *variance = safetensors_find(file, name, p->rows * p->columns);
    if (!values || !mean != !variance)
        return false;
    parameter_store(device, model, p, STORED_VALUE, values);
    if (mean) {
        enum budget before = device_label(device, BUDGET_optimizer);
        parameter_store(device, model, p, STORED_MEAN, mean);
        parameter_store(device, model, p, STORED_VARIANCE, variance);
        device_label(device, before);
    }
    return true;
}

int saved_read(const char *folder, struct device *device, struct model *model, struct progress *ret_progress,
               char *error, size_t error_size)
{
    char path[4096];
    struct safetensors file;
    if (safetensors_open(&file, path_join(path, sizeof path, folder, "training_state.safetensors"), error, error_size))
        return -1;
    struct progress progress;
    const char *missing = NULL;
    if (safetensors_number(&file, "step", &progress.step) || progress.step > INT_MAX ||
        safetensors_number(&file, "lengths", &progress.lengths) ||
        safetensors_number(&file, "lengths_next", &progress.lengths_next) ||
        safetensors_number(&file, "text", &progress.text))
        missing = "where the training was";
    struct names names = name_all(model);
    for (int i = 0; i < names.count && !missing; i++)
        if (!read_one(&file, device, model, &names.list[i]))
            missing = names.list[i].name;
    if (missing)
        snprintf(error, error_size, "%s is of another model: it has not, in this shape, %s", path, missing);
    else
        *ret_progress = progress;
    free(names.list);
    safetensors_close(&file);
    return missing ? -1 : 0;
}
