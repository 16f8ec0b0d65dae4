/* The attributes of a device: as attribute.def has them, or as a card that is known by name has them. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

struct sim_model {
    const char *card; /* its name in driver/cards.def */
    const char *name; /* as the driver gives it */
    uint64_t bytes;   /* in all */
    uint64_t kept;    /* of them that the driver keeps for itself */
    int major, minor; /* compute capability */
    int processors;   /* multiprocessors */
};

/* NULL where model.def has no such card. Static storage. */
const struct sim_model *sim_model_named(const char *card);

/* The resources of a multiprocessor, by the compute capability of the card (NULL: no card in particular). */
struct sim_capability {
    int major, minor;
    int shared_kib, threads, blocks; /* shared memory; threads and blocks that reside at most */
    int reserved_kib;                /* of the shared memory, that each block takes besides its own */
};
const struct sim_capability *sim_model_capability(const struct sim_model *model);
int sim_model_processors(const struct sim_model *model);

/* An attribute of a card (NULL: of no card in particular). False where no table lists it. */
bool sim_model_attribute(const struct sim_model *model, CUdevice_attribute attribute, int *ret);

#endif
