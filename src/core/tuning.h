/* The core's tuning numbers, SG_ and the name that each has in tuning.def.

   A *tuning number* could be another without a rule being broken: it was measured, and its experiment is named. Sizes
   of tables and parts of formats are none, and stand where they are used.

   For example, TUNING(EPOCH_FREES, 32, …) makes the constant SG_EPOCH_FREES of 32 frees. docs/experiments/tuning.md
   has its figures. */
#ifndef SG_TUNING_H
#define SG_TUNING_H

enum sg_tuning {
#define TUNING(name, value, unit, reason, experiment) SG_##name = (value),
#include "core/tuning.def"
};

#endif
