/* Steps of tests of order. */
#ifndef ORDER_STEPS_H
#define ORDER_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/hooks.h"
#include "process/process.h"
#include "apart.h"
#include "order_fakes.h"
#include "track/streams.h"

/* A wait for the event makes its stream untracked and orders nothing. The host observes all, if it waits. */
static inline void expect_doubt(uintptr_t event)
{
    static uintptr_t fresh;
    uintptr_t stream = 20 + fresh++ % 16;
    int waits = CALLS(sg_core_ordered_after), completions = CALLS(sg_core_completed),
        opaques = CALLS(sg_core_slot_untracked_order), tolds = fake.tolds;
    cuStreamWaitEvent(stream_of(stream), event_of(event), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), waits);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), opaques + 1);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(stream));
    cuEventSynchronize(event_of(event));
    cuEventQuery(event_of(event));
    assert_int_equal(CALLS(sg_core_completed), completions);
    assert_true(fake.tolds >= tolds + 2);
}

/* Does without cmocka: in a child its long jump would go on with the parent's tests. */
static inline void expect(bool held)
{
    if (!held)
        _exit(1);
}

#endif
