/* Every call, by its own name, that gives a stream work, makes it wait, or names an event in a way that can't be
   followed. The right stream, or event, is noted, at the right moment. So is whether the host may observe the work, before and
   after. All calls are made alike, with one value for all arguments, against a driver that does nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/hooks.h"
#include "track/streams.h"
#include "work_calls.h"
#include "work_fakes.h"

static CUlaunchAttribute launch_attribute;

/* They name an event that is recorded in ways that can't be followed. */
static const struct call records[] = {
    {CALL(cuIpcGetEventHandle)}, {CALL(cuGraphAddEventRecordNode)}, {CALL(cuGraphEventRecordNodeSetEvent)},
    {CALL(cuGraphExecEventRecordNodeSetEvent)},
};

/* They make a graph wait for what can't be followed. */
static const struct call wait_nodes[] = {
    {CALL(cuGraphAddEventWaitNode)}, {CALL(cuGraphEventWaitNodeSetEvent)}, {CALL(cuGraphExecEventWaitNodeSetEvent)},
    {CALL(cuGraphAddBatchMemOpNode)}, {CALL(cuGraphBatchMemOpNodeSetParams)},
    {CALL(cuGraphExecBatchMemOpNodeSetParams)},
    {CALL(cuGraphAddExternalSemaphoresWaitNode)},
};

/* They may do either, by the kind of node that they are given. */
static const struct call any_node[] = {
    {CALL(cuGraphAddNode)}, {CALL(cuGraphAddNode_v2)}, {CALL(cuGraphAddNode_v3)}, {CALL(cuGraphNodeSetParams)},
    {CALL(cuGraphNodeSetParams_v2)}, {CALL(cuGraphExecNodeSetParams)},
};

static void make(const struct call *call)
{
    uintptr_t all = (uintptr_t)&thing;
    bool capturing = seen.capturing, devices = seen.devices;
    SEE_ANEW(0);
    seen.capturing = capturing;
    seen.devices = devices;
    call->function(all, all, all, all, all, all, all, all, all, all, all, all);
    assert_int_equal(seen.calls, 1);
}

static void expect_noted(const struct call *call)
{
    CUstream stream = call->of_default ? NULL : (CUstream)&thing;
    make(call);
    bool own;
    if (touches() != 1 || touched(&own) != stream || own != call->own)
        fail_msg("%s: its stream is not noted", call->name);
    if (CALLS(sg_streams_untracked_order) != call->waits)
        fail_msg("%s: whether its stream waits for what can't be followed", call->name);
    if (CALLS(sg_streams_host_may_observe) != 2 * call->shows ||
        (CALLS(sg_streams_host_may_observe) && (POINTER(sg_streams_host_may_observe, 0) != stream ||
                                                   ARGUMENT(sg_streams_host_may_observe, 1) != call->own)))
        fail_msg("%s: whether it shows the host", call->name);
    if (CALLS(sg_streams_host_may_observe_all) != 2 * (call->serializes || call->writes))
        fail_msg("%s: whether it shows the host all streams", call->name);
    if (2 * seen.shown_early != shows())
        fail_msg("%s: who acts before it returns, or after, is not reckoned with", call->name);
    if (seen.early)
        fail_msg("%s: noted before the driver was called", call->name);
}

static void work_is_noted_after_it_was_given(void **state)
{
    (void)state;
    thing.config.hStream = (CUstream)&thing;
    for EACH(call, work)
        expect_noted(call);
    memset(&thing, 0, sizeof thing);
    thing.operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    for EACH(call, waits)
        expect_noted(call);
}

static int tells_of(any_call *function, const void *first, uintptr_t second)
{
    SEE_ANEW(0);
    function((uintptr_t)first, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    assert_int_equal(seen.calls, 1);
    return shows();
}
#define SHOWN_BY(symbol, first, second) tells_of((any_call *)(void (*)(void))symbol, first, (uintptr_t)(second))

/* What is named beside the end that a copy has means nothing; no host reads an array. Without a stream all tell. */
static void copies_show_the_host_by_their_destination(void **state)
{
    static const CUmemorytype types[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY,
        CU_MEMORYTYPE_UNIFIED};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const CUdeviceptr ours = 1 << 20, theirs = 2 << 20;
        for (CUdeviceptr dst = ours; dst <= theirs; dst += theirs - ours) {
            const CUDA_MEMCPY2D flat = {.dstMemoryType = types[i], .dstDevice = dst};
            const CUDA_MEMCPY3D deep = {.dstMemoryType = types[i], .dstDevice = dst};
            const CUDA_MEMCPY3D_PEER peer = {.dstMemoryType = types[i], .dstDevice = dst};
            bool shows = types[i] == CU_MEMORYTYPE_HOST || (types[i] != CU_MEMORYTYPE_ARRAY && dst == theirs);
            given.ours = ours;
            assert_int_equal(SHOWN_BY(cuMemcpy2DAsync_v2, &flat, 0), 2 * shows);
            assert_int_equal(SHOWN_BY(cuMemcpy3DAsync_v2, &deep, 0), 2 * shows);
            assert_int_equal(SHOWN_BY(cuMemcpy3DPeerAsync, &peer, 0), 2 * shows);
            assert_int_equal(SHOWN_BY(cuMemcpy2D_v2, &flat, 0), 2);
            assert_int_equal(SHOWN_BY(cuMemcpy3D_v2, &deep, 0), 2);
            assert_int_equal(SHOWN_BY(cuMemcpyAsync, (const void *)(uintptr_t)dst, 0), 2 * (dst == theirs));
            assert_int_equal(SHOWN_BY(cuMemsetD32Async, (const void *)(uintptr_t)dst, 0), 2 * (dst == theirs));
            given.ours = 0;
        }
    }
}

/* There, and on another device, the host may observe at once what a stream waits for. */
static void waits_of_streams_that_are_not_followed_tell(void **state)
{
    (void)state;
    for EACH(call, waits) {
        for (int i = 0; i < 3; i++) {
            SEE_ANEW(0);
            seen.devices = i == 1;
            seen.unfollowed = i == 2;
            call->function((uintptr_t)&thing, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            if (CALLS(sg_streams_host_observed_all) != (i > 0) || touches() != (i < 2))
                fail_msg("%s: who is shown of what a stream waits for", call->name);
        }
    }
}

static void batch_without_a_write_shows_the_host_nothing(void **state)
{
    const CUstreamBatchMemOpParams list[2] = {{.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32},
        {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64}};
    (void)state;
    for (unsigned count = 0; count <= 2; count++) {
        SEE_ANEW(0);
        (void)cuStreamBatchMemOp_v2((CUstream)&thing, count, (CUstreamBatchMemOpParams *)list, 0);
        assert_int_equal(CALLS(sg_streams_host_may_observe_all), count == 2 ? 2 : 0);
    }
}

/* One launch for each device, in a stream of its own. */
static void each_stream_of_a_launch_on_several_devices_is_noted(void **state)
{
    const CUDA_LAUNCH_PARAMS launches[2] = {{.hStream = (CUstream)&launches[0]}, {.hStream = (CUstream)&launches[1]}};
    (void)state;
    assert_int_equal(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0), CUDA_SUCCESS);
    assert_int_equal(touches(), 2);
    bool own;
    assert_ptr_equal(touched(&own), &launches[1]);
}

/* What is captured for a graphics interface runs when that submits it. */
static void a_capture_for_graphics_ends_order(void **state)
{
    (void)state;
    assert_int_equal(cuStreamBeginCaptureToCig(NULL, NULL), CUDA_SUCCESS);
    assert_string_equal(POINTER(sg_streams_untrack, 0), "cuStreamBeginCaptureToCig");
    FORGET(sg_streams_untrack);
    assert_int_equal(cuStreamBeginCaptureToCig_ptsz(NULL, NULL), CUDA_SUCCESS);
    assert_string_equal(POINTER(sg_streams_untrack, 0), "cuStreamBeginCaptureToCig");
}

/* Both ends are memory of the first device, and the stream is the second's. */
static void copies_by_another_device_count(void **state)
{
    static const struct call copies[] = {{CALL(cuMemcpyPeer)}, {CALL(cuMemcpyPeer_ptds)}, {CALL(cuMemcpyPeerAsync)},
        {CALL(cuMemcpyPeerAsync_ptsz)}};
    static const struct call deep[] = {{CALL(cuMemcpy3DPeer)}, {CALL(cuMemcpy3DPeer_ptds)}, {CALL(cuMemcpy3DPeerAsync)},
        {CALL(cuMemcpy3DPeerAsync_ptsz)}};
    (void)state;
    seen.devices = true;
    for EACH(call, copies) {
        make(call);
        if (CALLS(sg_core_used_cross_device) != 2)
            fail_msg("%s: %d of two ends count as used by another device", call->name, CALLS(sg_core_used_cross_device));
    }
    thing.copy.dstMemoryType = thing.copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    thing.copy.dstDevice = thing.copy.srcDevice = (uintptr_t)&thing;
    for EACH(call, deep) {
        make(call);
        if (CALLS(sg_core_used_cross_device) != 2)
            fail_msg("%s: %d of two ends count as used by another device", call->name, CALLS(sg_core_used_cross_device));
    }
}

/* A copy from or to the host, or a set: one end is memory of the first device. */
static void copies_with_the_host_by_another_device_count(void **state)
{
    static const struct call calls[] = {{CALL(cuMemcpyDtoHAsync_v2)}, {CALL(cuMemcpyDtoHAsync_v2_ptsz)},
        {CALL(cuMemcpyHtoDAsync_v2)}, {CALL(cuMemcpyHtoD_v2)}, {CALL(cuMemsetD8Async)}, {CALL(cuMemsetD2D32_v2_ptds)}};
    (void)state;
    seen.devices = true;
    for EACH(call, calls) {
        make(call);
        if (CALLS(sg_core_used_cross_device) != 1)
            fail_msg("%s: %d of one end count as used by another device", call->name, CALLS(sg_core_used_cross_device));
    }
}

static void expect_tainted(const struct call *call, const void *event)
{
    make(call);
    if (CALLS(sg_events_distrust) != 1 || POINTER(sg_events_distrust, 0) != (CUevent)event)
        fail_msg("%s: its event is not tainted", call->name);
    if (seen.late)
        fail_msg("%s: its event is tainted only after the call", call->name);
}

static void events_recorded_out_of_sight_are_tainted(void **state)
{
    static const CUlaunchAttributeID ids[] = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
        CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    static const struct call launches[] = {{CALL(cuLaunchKernelEx)}, {CALL(cuLaunchKernelEx_ptsz)}};
    (void)state;
    for EACH(call, records)
        expect_tainted(call, &thing);
    thing.params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    thing.params.eventRecord.event = (CUevent)&seen;
    for EACH(call, any_node)
        expect_tainted(call, &seen);
    for (int i = 0; i < 2; i++) {
        const void *event = &seen;
        memset(&thing, 0, sizeof thing);
        launch_attribute.id = ids[i];
        memcpy(&launch_attribute.value, &event, sizeof event);
        thing.config.attrs = &launch_attribute;
        thing.config.numAttrs = 1;
        for EACH(call, launches)
            expect_tainted(call, event);
    }
}

/* The steps of ours that the launch of a kernel is given before it, of memory that has got a second address. */
static int steps_before(any_call *launch, bool early)
{
    SEE_ANEW(0);
    launch_attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = early}};
    seen.aliased = true;
    launch((uintptr_t)&thing, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.steps_late, 0);
    return seen.steps;
}
#define STEPS_BEFORE(symbol, early) steps_before((any_call *)(void (*)(void))symbol, early)

/* A kernel that may begin before the one before it has ended does not where they may reach a page by two addresses. */
static void early_kernels_keep_apart_from_aliases(void **state)
{
    (void)state;
    thing.config.hStream = (CUstream)&thing;
    thing.config.attrs = &launch_attribute;
    thing.config.numAttrs = 1;
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, true), 1);
    assert_ptr_equal(seen.stepped, &thing);
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, false), 0);
    assert_int_equal(CALLS(sg_core_take_aliased), 0);
    thing.config.hStream = NULL;
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, true), 1);
    assert_ptr_equal(seen.stepped, CU_STREAM_LEGACY);
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx_ptsz, true), 1);
    assert_ptr_equal(seen.stepped, CU_STREAM_PER_THREAD);
    seen.calls = 0;
    cuLaunchKernelEx(&thing.config, NULL, NULL, NULL); /* once is enough */
    assert_int_equal(seen.steps, 1);
    given.no_core = true;
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, true), 0);
    given.no_core = false;
    sg_following_order = false;
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, true), 0);
    sg_following_order = true;
    thing.config.attrs = NULL;
    assert_int_equal(STEPS_BEFORE(cuLaunchKernelEx, true), 0);
}

/* Where there is no event, the step between the kernels is another one. */
static void early_kernels_keep_apart_without_events(void **state)
{
    static const struct {
        CUresult create, record;
    } list[] = {{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS}, {CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE}};
    (void)state;
    launch_attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    thing.config.attrs = &launch_attribute;
    thing.config.numAttrs = 1;
    for (int i = 0; i < 2; i++) {
        SEE_ANEW(0);
        ANSWER(fake_driver.event_create, list[i].create);
        ANSWER(fake_driver.event_record, list[i].record);
        seen.aliased = true;
        assert_int_equal(cuLaunchKernelEx_ptsz(&thing.config, NULL, NULL, NULL), CUDA_SUCCESS);
        assert_true(seen.steps == 0 && seen.host_steps == 1 && seen.stepped == CU_STREAM_PER_THREAD);
        assert_string_equal(seen.called, "cuLaunchKernelEx_ptsz"); /* the last */
        assert_int_equal(seen.calls, 1);
    }
}

/* What is captured is given to the graph. */
static void captured_kernels_have_no_step_before_them(void **state)
{
    (void)state;
    launch_attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    thing.config.attrs = &launch_attribute;
    thing.config.numAttrs = 1;
    seen.capturing = seen.aliased = true;
    cuLaunchKernelEx(&thing.config, NULL, NULL, NULL);
    assert_int_equal(seen.steps, 0);
    assert_true(seen.aliased);
}

static bool launch_is_opaque(void)
{
    static const struct call launch = {CALL(cuGraphLaunch)};
    make(&launch);
    return CALLS(sg_streams_untracked_order) == 1 && POINTER(sg_streams_track, 1) == (CUstream)&thing &&
           CALLS(sg_streams_host_may_observe) == 0 && CALLS(sg_streams_host_may_observe_all) == 2;
}

/* What is noted of graphs is noted for good, so each call has a process of its own. */
static void expect_graphs_wait(const struct call *call)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        make(call);
        _exit(!launch_is_opaque());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        fail_msg("%s: graphs do not count as waiting for what can't be followed", call->name);
}

static void graphs_that_wait_make_their_streams_opaque(void **state)
{
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    (void)state;
    assert_false(launch_is_opaque());
    for EACH(call, wait_nodes)
        expect_graphs_wait(call);
    for (int i = 0; i < 3; i++) {
        thing.params.type = types[i];
        for EACH(call, any_node)
            expect_graphs_wait(call);
    }
    assert_false(launch_is_opaque());
    memset(&thing, 0, sizeof thing);
    thing.operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    seen.capturing = true;
    for EACH(call, waits)
        expect_graphs_wait(call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(work_is_noted_after_it_was_given, start_afresh),
        cmocka_unit_test_setup(copies_show_the_host_by_their_destination, start_afresh),
        cmocka_unit_test_setup(waits_of_streams_that_are_not_followed_tell, start_afresh),
        cmocka_unit_test_setup(batch_without_a_write_shows_the_host_nothing, start_afresh),
        cmocka_unit_test_setup(each_stream_of_a_launch_on_several_devices_is_noted, start_afresh),
        cmocka_unit_test_setup(a_capture_for_graphics_ends_order, start_afresh),
        cmocka_unit_test_setup(copies_by_another_device_count, start_afresh),
        cmocka_unit_test_setup(copies_with_the_host_by_another_device_count, start_afresh),
        cmocka_unit_test_setup(events_recorded_out_of_sight_are_tainted, start_afresh),
        cmocka_unit_test_setup(early_kernels_keep_apart_from_aliases, start_afresh),
        cmocka_unit_test_setup(early_kernels_keep_apart_without_events, start_afresh),
        cmocka_unit_test_setup(captured_kernels_have_no_step_before_them, start_afresh),
        cmocka_unit_test_setup(graphs_that_wait_make_their_streams_opaque, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
