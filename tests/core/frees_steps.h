/* Steps of tests of frees. */
#ifndef FREES_STEPS_H
#define FREES_STEPS_H

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "inspect.h"
#include "scene.h"
#include "strict_driver.h"
#include "locked.h"

static const uint64_t first_bit = 1 << 1, second_bit = 1 << 2, third_bit = 1 << 3; /* of the contexts */

static inline void work(sg_slot slot)
{
    sg_core_slot_submitted(scene.core, 0, slot);
}

static inline uint64_t users_of(struct sg_device *device, sg_slot slot, uint64_t alloc_seq, enum sg_user_rule rule)
{
    return LOCKED(device, sg_clocks_possible_users(&device->clocks, slot, alloc_seq, 0, rule));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_start, scene_stop)

#endif
