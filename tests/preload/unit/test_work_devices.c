/* The calls that give streams work where the driver runs out of memory, before the order of streams is followed, and
   where there are several devices, against a driver and a core made up here: each by its own name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "track/streams.h"
#include "work_calls.h"
#include "work_fakes.h"

/* Memory of the first device, and of the second, as far as it is ours; and what others have. */
#define FIRST ((CUdeviceptr)(uintptr_t)&thing)
enum { SECOND = 1 << 20, THEIRS = 2 << 20 };

static CUresult make(const struct call *call)
{
    uintptr_t all = (uintptr_t)&thing;
    return call->function(all, all, all, all, all, all, all, all, all, all, all, all);
}

/* What runs out of memory has done nothing, and is made once more where room was made, by this process and then by others. */
static void what_ran_out_is_made_again(void **state)
{
    (void)state;
    for EACH(call, work) {
        for (int times = 0; times <= 3; times++) {
            for (int room = 0; room < 4; room++) {
                SEE_ANEW(.out = times, .room = room & 1, .room_of_others = room & 2);
                bool own = call->takes && times && seen.room, others = call->takes && times > own && seen.room_of_others;
                int again = own + others;
                CUresult result = make(call);
                if (seen.calls != 1 + again || seen.asked_for_room != (call->takes && times) ||
                    seen.asked_others != (call->takes && times > own))
                    fail_msg("%s: out of memory %d times, called %d times", call->name, times, seen.calls);
                if (result != (times > again ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS))
                    fail_msg("%s: out of memory %d times, and answers %d", call->name, times, (int)result);
            }
        }
    }
}

/* Before the order of streams matters to anybody, a call is the driver's and nothing more. */
static void nothing_is_noted_before_order_is_followed(void **state)
{
    (void)state;
    sg_following_order = false;
    for EACH(call, work) {
            SEE_ANEW(0);
            make(call);
            if (seen.calls != 1 || touches() || shows() || CALLS(sg_streams_host_observed_all))
                fail_msg("%s: something is noted", call->name);
    }
    for EACH(call, waits) {
            SEE_ANEW(0);
            make(call);
            if (seen.calls != 1 || touches() || CALLS(sg_streams_untracked_order) ||
                CALLS(sg_streams_host_observed_all) || CALLS(sg_streams_host_may_observe_all))
                fail_msg("%s: something is noted of its stream", call->name);
            if (CALLS(sg_streams_waited_early) != 1)
                fail_msg("%s: not kept that some stream waits for what can't be followed", call->name);
    }
}

/* Inside a call of ours nothing is noted for the core. */
static void nothing_is_told_from_inside(void **state)
{
    (void)state;
    given.no_core = true;
    for EACH(call, waits) {
            SEE_ANEW(0);
            make(call);
            if (seen.calls != 1 || CALLS(sg_streams_untracked_order) || CALLS(sg_streams_waited_early))
                fail_msg("%s: shown from inside", call->name);
    }
    for EACH(call, work) {
            SEE_ANEW(.devices = true);
            make(call);
            if (seen.calls != 1 || CALLS(sg_core_used_cross_device) + CALLS(sg_memory_record_stream) +
                                       CALLS(sg_memory_served_cross_device))
                fail_msg("%s: shown from inside", call->name);
    }
}

/* Makes a copy of this call between two addresses; 0: to, or from, the host where it has a field for that. */
static void copy(const struct call *call, CUdeviceptr dst, CUdeviceptr src)
{
    CUmemorytype to = dst ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
    CUmemorytype from = src ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    const CUDA_MEMCPY2D flat = {.dstMemoryType = to, .dstDevice = dst, .srcMemoryType = from, .srcDevice = src};
    const CUDA_MEMCPY3D deep = {.dstMemoryType = to, .dstDevice = dst, .srcMemoryType = from, .srcDevice = src};
    const CUDA_MEMCPY3D_PEER peer = {.dstMemoryType = to, .dstDevice = dst, .srcMemoryType = from, .srcDevice = src};
    const uintptr_t named[] = {[PLAIN] = 0, [FLAT] = (uintptr_t)&flat, [DEEP] = (uintptr_t)&deep,
        [DEEP_PEER] = (uintptr_t)&peer};
    uintptr_t one = named[call->shape], other = one;
    if (call->shape == PLAIN) {
        one = (uintptr_t)dst;
        other = (uintptr_t)src;
    }
    call->function(one, other, other, other, other, other, 0, 0, 0, 0, 0, 0);
    assert_int_equal(seen.calls, 1);
}

/* The plain copies fail between devices that have no access to each other, where memory is mapped piece by piece; the
   one that names both contexts does not. Where it isn't known to be of that kind, what the program called is called. */
static void copies_between_devices_name_both_contexts(void **state)
{
    static const struct {
        CUdeviceptr dst, src;
        struct given given;
        bool crosses, one_device;
    } list[] = {
        {1, 1, {0}, false, false}, /* 1: FIRST, which is no constant */
        {1, SECOND, {0}, true, false},
        {SECOND, 1, {0}, true, false},
        {1, SECOND, {0}, false, true},
        {1, SECOND, {.no_core = true}, false, false},
        {1, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 1}, true, false},
        {THEIRS, 1, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 1}, true, false},
        {1, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 0}, false, false},
        {1, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 1, .no_primary = true}, false, false},
        {THEIRS, 1, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 1, .no_primary = true}, false, false},
        {1, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_HOST}, false, false},
        {THEIRS, 1, {.theirs = THEIRS, .type = CU_MEMORYTYPE_HOST}, false, false},
        {1, THEIRS, {.theirs = THEIRS, .type_answer = CUDA_ERROR_INVALID_VALUE}, false, false},
        {1, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device_answer = CUDA_ERROR_INVALID_VALUE}, false,
         false},
        {1, THEIRS, {.theirs = THEIRS, .freed = true}, false, false},
        {THEIRS, THEIRS, {.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE}, false, false},
        {0, 1, {.theirs = THEIRS}, false, false},
        {1, 0, {.theirs = THEIRS}, false, false},
    };
    (void)state;
    for EACH(call, work) {
        for (size_t i = 0; call->ends == 2 && i < sizeof list / sizeof *list; i++) {
            if (call->shape == PLAIN && (!list[i].dst || !list[i].src))
                continue; /* nothing says there that it is the host's */
            SEE_ANEW(.devices = !list[i].one_device);
            given = list[i].given;
            copy(call, list[i].dst == 1 ? FIRST : list[i].dst, list[i].src == 1 ? FIRST : list[i].src);
            const char *expected = list[i].crosses && call->peer ? call->peer : call->name;
            if (strcmp(seen.called, expected) != 0)
                fail_msg("%s, %d: calls %s, not %s", call->name, (int)i, seen.called, expected);
        }
    }
}

/* By a stream of another device: with the block, whose frees would not ask about it, unless their caller records such
   streams. */
static void use_by_another_device_is_noted_for_each_end(void **state)
{
    (void)state;
    for EACH(call, work) {
            for (int i = 0; i < 3; i++) {
                bool guesses = i == 1;
                SEE_ANEW(.devices = true);
                given = (struct given){.guesses = i > 0, .records = i == 2};
                if (call->ends < 2)
                    make(call);
                else
                    copy(call, FIRST, FIRST);
                int noted = guesses ? CALLS(sg_memory_record_stream) : CALLS(sg_core_used_cross_device);
                if (noted != call->ends || CALLS(sg_memory_record_stream) + CALLS(sg_core_used_cross_device) != noted)
                    fail_msg("%s: %d of %d ends", call->name, noted, call->ends);
            }
    }
}

/* Nothing is noted of streams that are the block's device's own, of those whose device is not known, and of blocks that
   are freed; and of the driver's memory only that there is such use. */
static void other_use_is_not_noted(void **state)
{
    static const struct {
        struct given given;
        int served;
    } list[] = {
        {{.same_device = true}, 0},
        {{.no_device = true}, 0},
        {{.theirs = THEIRS, .freed = true}, 0},
        {{.theirs = THEIRS, .type = CU_MEMORYTYPE_DEVICE, .device = 0}, 1},
    };
    (void)state;
    for EACH(call, work) {
        for (size_t i = 0; call->ends == 2 && i < sizeof list / sizeof *list; i++) {
            SEE_ANEW(.devices = true);
            given = list[i].given;
            copy(call, FIRST, given.theirs ? THEIRS : FIRST);
            bool first = given.theirs; /* the other end's use is noted */
            if (CALLS(sg_core_used_cross_device) != first || CALLS(sg_memory_record_stream))
                fail_msg("%s, %d: %d uses by another device", call->name, (int)i,
                    CALLS(sg_core_used_cross_device) + CALLS(sg_memory_record_stream));
            /* A plain copy does not look at what is not ours. */
            if (CALLS(sg_memory_served_cross_device) > list[i].served)
                fail_msg("%s, %d: use of memory that nobody has", call->name, (int)i);
        }
    }
}

/* Between devices, or where it may be: such a copy comes after all that both have. */
static void copies_without_a_stream_show_all_devices(void **state)
{
    (void)state;
    for EACH(call, work) {
        if (call->ends < 2 || !call->of_default)
            continue;
        SEE_ANEW(.devices = true);
        given = (struct given){0};
        copy(call, FIRST, SECOND);
        if (CALLS(sg_streams_host_may_observe_all) != 2 || CALLS(sg_streams_host_may_observe))
            fail_msg("%s: between devices", call->name);
        SEE_ANEW(.devices = true);
        given = (struct given){.theirs = THEIRS};
        copy(call, THEIRS, THEIRS);
        if (CALLS(sg_streams_host_may_observe_all) != 2 || CALLS(sg_streams_host_may_observe))
            fail_msg("%s: between what may be devices", call->name);
        SEE_ANEW(.devices = true);
        given = (struct given){0};
        copy(call, FIRST, FIRST);
        if (shows() != 2 || (CALLS(sg_streams_host_may_observe) != 0) != (call->peer != NULL))
            fail_msg("%s: on one device", call->name);
    }
}

/* What names nothing is the driver's to refuse. */
static void nothing_is_looked_for_in_what_is_missing(void **state)
{
    (void)state;
    for (int devices = 0; devices < 2; devices++) {
        for EACH(call, work) {
                SEE_ANEW(.devices = devices);
                call->function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
                if (seen.calls != 1 || strcmp(seen.called, call->name) != 0)
                    fail_msg("%s without any argument calls %s", call->name, seen.called);
        }
        for EACH(call, waits) {
                SEE_ANEW(.devices = devices);
                call->function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
                if (seen.calls != 1 || strcmp(seen.called, call->name) != 0 || CALLS(sg_streams_host_may_observe_all))
                    fail_msg("%s without any argument calls %s", call->name, seen.called);
        }
    }
    /* More operations than a batch may have are refused unread, and count as writes. */
    SEE_ANEW(0);
    (void)cuStreamBatchMemOp_v2(NULL, 257, NULL, 0);
    assert_int_equal(CALLS(sg_streams_host_may_observe_all), 2);
    SEE_ANEW(0);
    (void)cuStreamBatchMemOp_v2(NULL, 256, NULL, 0);
    assert_int_equal(CALLS(sg_streams_host_may_observe_all), 0);
}

/* Launches and nodes of kinds that record and wait for nothing. */
static void other_launches_and_nodes_taint_nothing(void **state)
{
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_EMPTY,
        CU_GRAPH_NODE_TYPE_MEMCPY};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    CUlaunchConfig config = {.attrs = &attribute, .numAttrs = 1};
    (void)state;
    (void)cuLaunchKernelEx(&config, NULL, NULL, NULL);
    config.attrs = NULL;
    (void)cuLaunchKernelEx_ptsz(&config, NULL, NULL, NULL);
    (void)cuGraphAddNode_v2(NULL, NULL, NULL, NULL, 0, NULL);
    (void)cuGraphExecNodeSetParams(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CUgraphNodeParams params = {.type = types[i]};
        (void)cuGraphAddNode(NULL, NULL, NULL, 0, &params);
        (void)cuGraphNodeSetParams(NULL, &params);
    }
    assert_int_equal(CALLS(sg_events_distrust), 0);
    SEE_ANEW(0);
    (void)cuGraphLaunch(NULL, NULL);
    assert_int_equal(CALLS(sg_streams_untracked_order), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_ran_out_is_made_again, start_afresh),
        cmocka_unit_test_setup(nothing_is_noted_before_order_is_followed, start_afresh),
        cmocka_unit_test_setup(nothing_is_told_from_inside, start_afresh),
        cmocka_unit_test_setup(copies_between_devices_name_both_contexts, start_afresh),
        cmocka_unit_test_setup(use_by_another_device_is_noted_for_each_end, start_afresh),
        cmocka_unit_test_setup(other_use_is_not_noted, start_afresh),
        cmocka_unit_test_setup(copies_without_a_stream_show_all_devices, start_afresh),
        cmocka_unit_test_setup(nothing_is_looked_for_in_what_is_missing, start_afresh),
        cmocka_unit_test_setup(other_launches_and_nodes_taint_nothing, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
