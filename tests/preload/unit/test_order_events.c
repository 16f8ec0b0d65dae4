/* The table of events, against a plain list: events that share their places in it are recorded, waited for and destroyed
   in random order, and each is believed by what it was recorded as last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "process/hooks.h"
#include "process/process.h"
#include "order_fakes.h"
#include "random.h"
#include "wrap.h"

enum { HANDLES = 24, STEPS = 20000, PLACES = 8192, NEAR = 6, STREAMS = 8 };

/* Handles whose places are a few, which also go round the end of the table. */
static void find_handles(CUevent *ret)
{
    uintptr_t next = 1 << 20;
    for (int found = 0; found < HANDLES; next += 64) {
        uint64_t place = (sg_hash(next) >> 40) % PLACES;
        if ((place + NEAR / 2) % PLACES < NEAR)
            ret[found++] = (CUevent)next;
    }
}

static void each_event_is_what_it_was_recorded_as_last(void **state)
{
    CUevent handles[HANDLES];
    uint64_t recorded[HANDLES] = {0}; /* when; 0: never, or it was destroyed since */
    uintptr_t by[HANDLES] = {0};
    struct random random = {1};
    (void)state;
    find_handles(handles);
    for (int step = 0; step < STEPS; step++) {
        int which = (int)random_below(&random, HANDLES);
        uintptr_t stream = 1 + random_below(&random, STREAMS);
        int waits = CALLS(sg_core_ordered_after), opaques = CALLS(sg_core_slot_untracked_order),
            completions = CALLS(sg_core_completed);
        switch (random_below(&random, 5)) {
        case 0:
        case 1:
            assert_int_equal(cuEventRecord(handles[which], stream_of(stream)), CUDA_SUCCESS);
            recorded[which] = fake.time;
            by[which] = stream;
            break;
        case 2:
            assert_int_equal(cuEventDestroy_v2(handles[which]), CUDA_SUCCESS);
            recorded[which] = 0;
            break;
        case 3:
            assert_int_equal(cuStreamWaitEvent(stream_of(stream), handles[which], 0), CUDA_SUCCESS);
            assert_int_equal(CALLS(sg_core_ordered_after) - waits, recorded[which] != 0);
            if (recorded[which])
                assert_int_equal(latest_waited().time, recorded[which]);
            break;
        default:
            assert_int_equal(cuEventSynchronize(handles[which]), CUDA_SUCCESS);
            assert_int_equal(CALLS(sg_core_completed) - completions, recorded[which] != 0);
            if (recorded[which]) {
                assert_int_equal(latest_completed().time, recorded[which]);
                assert_int_equal(latest_completed().slot, slot_of(by[which]));
            }
            break;
        }
        assert_int_equal(CALLS(sg_core_slot_untracked_order), opaques);
    }
}

/* A flag that matters in captures alone: outside of one the event is what it was recorded as. */
static void external_records_are_followed_outside_of_captures(void **state)
{
    CUevent event = event_of(1);
    (void)state;
    for (int i = 0; i < 2; i++) {
        int waits = CALLS(sg_core_ordered_after);
        capture(i == 1);
        assert_int_equal(cuEventRecordWithFlags(event, stream_of(1), CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
        capture(false);
        assert_int_equal(cuStreamWaitEvent(stream_of(2), event, 0), CUDA_SUCCESS);
        assert_int_equal(CALLS(sg_core_ordered_after) - waits, i == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_event_is_what_it_was_recorded_as_last, start_afresh),
        cmocka_unit_test_setup(external_records_are_followed_outside_of_captures, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
