/* A training on disk: a folder with the adapters as PEFT reads them (adapter_model.safetensors, adapter_config.json),
   and with all that the training needs to go on (training_state.safetensors). */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "model/model.h"

/* The state of a training that is not in the model. */
struct progress {
    uint64_t step, lengths, lengths_next, text;
};

/* The folder to save in is made where there is none, by the first rank: to be called before a training too, not only
   after it. Returns 0, or -1 with one line in `error`. */
int saved_make(const char *folder, const struct device *device, char *error, size_t error_size);

/* Both wait for the device, and for the other ranks, of which the first writes; both return 0, or -1 with one line in
   `error`. */
int saved_write(const char *folder, struct device *device, struct model *model, const struct progress *progress,
                char *error, size_t error_size);
int saved_read(const char *folder, struct device *device, struct model *model, struct progress *ret_progress,
               char *error, size_t error_size);

#endif
