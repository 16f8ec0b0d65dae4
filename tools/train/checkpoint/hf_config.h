/* Shapes of models as Hugging Face's transformers writes them down: config.json beside the weights. */
#ifndef TRAIN_HF_CONFIG_H
#define TRAIN_HF_CONFIG_H

#include "model/model.h"

enum { HF_CONFIG_NAME = 32 };

/* Sets what the file says of the decoder's shape: layers, widths, heads, vocabulary, type. Adapters, sharding and
   workspaces stay. `name` gets the type of the model, "llama". Returns 0, or -1 with one line in `error`. */
int hf_config_read(const char *path, struct shape *shape, char name[HF_CONFIG_NAME], char *error, size_t error_size);

#endif
