#include "model.h"

#include <stddef.h>
#include <string.h>

#include "size.h"

/* A driver keeps what is no multiple of any page: there what is free never is one. */
#define ODD (192 * SG_KIB)

static const struct sim_model models[] = {
#define MODEL(card, c_name, name) {card, name, 0, 0},
#include "model.def"
};
enum {
#define MODEL(card, c_name, name) MODEL_##c_name,
#include "model.def"
    MODELS
};

static const struct {
    const char *card;
    uint64_t mib, rest_mib;
} cards[] = {
#define CARD(name, mib, rest_mib) {name, mib, rest_mib},
#include "cards.def"
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

bool sim_model_attribute(const struct sim_model *model, CUdevice_attribute attribute, int *ret)
{
    for (size_t i = 0; model && i < sizeof values / sizeof *values; i++) {
        if (strcmp(models[values[i].model].card, model->card) == 0 && values[i].attribute == attribute) {
            *ret = values[i].value;
            return true;
        }
    }
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
