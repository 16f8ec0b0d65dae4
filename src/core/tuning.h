/* The core's tuning numbers, SG_ and the name that each has in tuning.def. */
#ifndef SG_TUNING_H
#define SG_TUNING_H

enum sg_tuning {
#define TUNING(name, value, unit, reason, experiment) SG_##name = (value),
#include "core/tuning.def"
};

#endif
