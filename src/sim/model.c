#include "model.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/size.h"

/* A driver keeps what is no multiple of any page: there what is free never is one. */
#define ODD (192 * SG_KIB)

static const struct sim_model models[] = {
#define MODEL(card, c_name, name, major, minor, processors) {card, name, 0, 0, major, minor, processors},
#include "model.def"
};
enum {
#define MODEL(card, c_name, name, major, minor, processors) MODEL_##c_name,
#include "model.def"
    MODELS
};

static const struct {
    const char *card;
    uint64_t mib, rest_mib;
} cards[] = {
#define CARD(name, mib, rest_mib) {name, mib, rest_mib},
#include "driver/cards.def"
};

static const struct {
    int model;
    CUdevice_attribute attribute;
    int value;
} values[] = {
#define VALUE(c_name, attribute, value) {MODEL_##c_name, CU_DEVICE_ATTRIBUTE_##attribute, value},
#include "model.def"
};

const struct sim_model *sim_model_named(const char *card)
{
    static struct sim_model found[MODELS];
    for (int i = 0; i < MODELS; i++) {
        for (size_t k = 0; strcmp(models[i].card, card) == 0 && k < sizeof cards / sizeof *cards; k++) {
            if (strcmp(cards[k].card, card) != 0)
                continue;
            found[i] = models[i];
            found[i].bytes = cards[k].mib * SG_MIB;
            found[i].kept = cards[k].rest_mib * SG_MIB + ODD;
            return &found[i];
        }
    }
    return NULL;
}

/* A device that is no card in particular. */
static const struct sim_model plain = {.major = 8, .minor = 0, .processors = 108};

const struct sim_capability *sim_model_capability(const struct sim_model *model)
{
    static const struct sim_capability known[] = {
#define CAPABILITY(major, minor, shared_kib, threads, blocks, reserved_kib) \
    {major, minor, shared_kib, threads, blocks, reserved_kib},
#include "device/capability.def"
    };
    enum { KNOWN = sizeof known / sizeof *known };
    size_t i = 0;
    model = model ? model : &plain;
    while (i < KNOWN - 1 && (known[i].major != model->major || known[i].minor != model->minor))
        i++;
    assert(known[i].major == model->major && known[i].minor == model->minor); /* the table has that of each model */
    return &known[i];
}

int sim_model_processors(const struct sim_model *model)
{
    return model ? model->processors : plain.processors;
}

/* Attributes that the compute capability and the number of multiprocessors decide. */
static bool capability_attribute(const struct sim_model *model, CUdevice_attribute attribute, int *ret)
{
    enum { KIB = 1024 };
    const struct sim_capability *capability = sim_model_capability(model);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *ret = capability->major;
        return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *ret = capability->minor;
        return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *ret = sim_model_processors(model);
        return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *ret = capability->shared_kib * KIB;
        return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *ret = (capability->shared_kib - capability->reserved_kib) * KIB;
        return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *ret = capability->reserved_kib * KIB;
        return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *ret = capability->threads;
        return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        *ret = capability->blocks;
        return true;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: /* came with 9.0 */
        *ret = capability->major >= 9;
        return true;
    default:
        return false;
    }
}

bool sim_model_attribute(const struct sim_model *model, CUdevice_attribute attribute, int *ret)
{
    for (size_t i = 0; model && i < sizeof values / sizeof *values; i++) {
        if (strcmp(models[values[i].model].card, model->card) == 0 && values[i].attribute == attribute) {
            *ret = values[i].value;
            return true;
        }
    }
    if (capability_attribute(model, attribute, ret))
        return true;
    switch ((int)attribute) {
#define VALUE(name, value)            \
    case CU_DEVICE_ATTRIBUTE_##name:  \
        *ret = value;                 \
        return true;
#include "device/attribute.def"
#undef VALUE
    default:
        return false;
    }
}
