/* Steps of tests of hooks. */
#ifndef HOOKS_STEPS_H
#define HOOKS_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hooks_fakes.h"
#include "hooks/pin_hooks.h"
#include "process/capture_mode.h"
#include "serve/make_room.h"
#include "segalloc/segalloc.h"
#include "track/streams.h"

static inline void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

#endif
