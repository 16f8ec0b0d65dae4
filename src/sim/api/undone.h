/* The functions of undone.c, which are exported by the names of the driver's. */
#ifndef SIM_UNDONE_H
#define SIM_UNDONE_H

#include "driver/cuda_abi.h"

#define SIM_UNDONE(symbol)                                                                                          \
    __attribute__((visibility("default"))) CUresult sim_undone_##symbol(uintptr_t, uintptr_t, uintptr_t, uintptr_t, \
        uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t) __asm__(#symbol);
#define UNSUPPORTED(name, symbol, version) SIM_UNDONE(symbol)
#define UNSUPPORTED_STREAM(name, symbol, version, variant) SIM_UNDONE(symbol) SIM_UNDONE(variant)
#include "unsupported.def"
#define TWIN(name, symbol, version) SIM_UNDONE(symbol)
#include "twin.def"

#endif
