/* What is believed of the order of streams, against a driver, contexts and a core made up here: which clock goes where,
   and that everything that isn't known makes a stream opaque instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "beside.h"
#include "captures.h"
#include "contexts.h"
#include "events.h"
#include "hooks.h"
#include "life.h"
#include "memory.h"
#include "streams.h"
#include "torch.h"

__thread struct sg_thread sg_self;
_Atomic unsigned sg_life_gate;

/* What a graph waits for that is noted for good: words of memory, else an event. */
static bool by_words;

static struct {
    CUresult answer;     /* of the driver's next calls */
    void (*meanwhile)(void);
    bool capturing, live;
    unsigned long long ids[64]; /* of stream handles 16, 32 … */
    unsigned long long next_id;
    sg_slot slots[1024]; /* by number of the stream */
    sg_slot next_slot;
    bool no_slots;
    uint64_t time;       /* of clocks: each is later than the one before */
    /* what the core was told last, and how often */
    sg_slot waited_slot, opaque_slot, gone_slot, touched_slot, recorded_slot;
    uint64_t waited_time, completed_time;
    int waits, completions, opaques, goings, touches;
} fake;

static struct sg_core *core(void)
{
    return (struct sg_core *)&fake;
}

static CUstream stream_of(uintptr_t number)
{
    return (CUstream)(number * 16);
}

static CUevent event_of(uintptr_t number)
{
    return (CUevent)(number * 64);
}

static CUresult answer(void)
{
    if (fake.meanwhile) {
        void (*meanwhile)(void) = fake.meanwhile;
        fake.meanwhile = NULL;
        meanwhile();
    }
    return fake.answer;
}

bool sg_torch_direct(void)
{
    return false;
}

/* The driver. */
static CUresult one_stream(CUstream stream)
{
    (void)stream;
    return answer();
}

static CUresult one_event(CUevent event)
{
    (void)event;
    return answer();
}

static CUresult record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return answer();
}

static CUresult record_flags(CUevent event, CUstream stream, unsigned flags)
{
    (void)flags;
    return record(event, stream);
}

static CUresult wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return answer();
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
    (void)ret, (void)flags;
    return answer();
}

static CUresult context_event(CUcontext context, CUevent event)
{
    (void)context, (void)event;
    return answer();
}

static CUresult synchronize(void)
{
    return answer();
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    return answer();
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)config, (void)function, (void)params, (void)extra;
    return answer();
}

static CUresult launch_kernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream,
        (void)params;
    (void)extra;
    return answer();
}

static CUresult add_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count, CUevent event)
{
    (void)ret, (void)graph, (void)nodes, (void)count, (void)event;
    return answer();
}

static CUresult add_words(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count,
    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    (void)ret, (void)graph, (void)nodes, (void)count, (void)params;
    return answer();
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    return answer();
}

static CUresult ipc_handle(CUipcEventHandle *handle, CUevent event)
{
    (void)handle, (void)event;
    return answer();
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
        .cuStreamQuery = one_stream, .cuStreamSynchronize = one_stream, .cuStreamDestroy_v2 = one_stream,
        .cuEventQuery = one_event, .cuEventSynchronize = one_event, .cuEventDestroy_v2 = one_event,
        .cuEventCreate = create_event, .cuEventRecord = record, .cuEventRecord_ptsz = record,
        .cuEventRecordWithFlags = record_flags, .cuStreamWaitEvent = wait, .cuStreamWaitEvent_ptsz = wait,
        .cuCtxRecordEvent = context_event, .cuCtxWaitEvent = context_event, .cuCtxSynchronize = synchronize,
        .cuGraphLaunch = launch_graph, .cuLaunchKernelEx = launch, .cuLaunchKernel = launch_kernel,
        .cuGraphAddEventRecordNode = add_node, .cuGraphAddEventWaitNode = add_node, .cuGraphAddBatchMemOpNode = add_words,
        .cuStreamWaitValue32 = wait_value, .cuIpcGetEventHandle = ipc_handle,
    };
    return &real;
}

static CUresult get_id(CUstream stream, unsigned long long *ret)
{
    *ret = (uintptr_t)stream < 16 ? 900 + (uintptr_t)stream : fake.ids[(uintptr_t)stream / 16];
    return CUDA_SUCCESS;
}

static CUresult get_context(CUstream stream, CUcontext *ret)
{
    (void)stream;
    *ret = (CUcontext)1;
    return CUDA_SUCCESS;
}

static CUresult get_flags(CUstream stream, unsigned *ret)
{
    (void)stream;
    *ret = CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = (CUcontext)1;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_life_driver(void)
{
    static const struct sg_driver driver = {.stream_get_id = get_id, .stream_get_ctx = get_context,
        .stream_get_flags = get_flags, .ctx_get_current = get_current};
    return &driver;
}

struct sg_core *sg_life_core(void)
{
    return fake.live ? core() : NULL;
}

void sg_memory_mark(void)
{
}

bool sg_beside_made_room(void)
{
    return false;
}

struct sg_core *sg_begin(void)
{
    return sg_self.inside ? NULL : core();
}

void sg_end(void)
{
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

void sg_guard(enum sg_guard guard)
{
    (void)guard;
}

void sg_unguard(enum sg_guard guard)
{
    (void)guard;
}

/* The contexts and captures. */
CUcontext sg_contexts_only(void)
{
    return (CUcontext)1;
}

bool sg_contexts_devices(void)
{
    return false;
}

bool sg_contexts_device(CUcontext context, int *ret)
{
    *ret = context == (CUcontext)2; /* the second context is the second device's */
    return true;
}

bool sg_contexts_stands_for_all(CUcontext context)
{
    return context == (CUcontext)1;
}

bool sg_contexts_green(CUcontext context)
{
    (void)context;
    return false;
}

CUcontext sg_contexts_primary_of(int device)
{
    (void)device;
    return NULL;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    (void)ret, (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUcontext sg_contexts_of_green(CUgreenCtx green)
{
    (void)green;
    return NULL;
}

bool sg_captures_live(void)
{
    return fake.capturing;
}

bool sg_captures_capturing(CUstream stream, bool per_thread)
{
    (void)stream, (void)per_thread;
    return fake.capturing;
}

void sg_captures_joining(void)
{
}

void sg_captures_joined(void)
{
}

CUresult sg_captures_destroyed(CUresult result, CUstream stream)
{
    (void)stream;
    return result;
}

/* The core. */
void sg_core_told(struct sg_core *core, int device, const struct sg_clock *clock)
{
    (void)core, (void)device, (void)clock;
}

sg_slot sg_core_slot(struct sg_core *unused, int device, const struct sg_stream_id *id)
{
    (void)unused, (void)device;
    if (!fake.no_slots && !fake.slots[id->key])
        fake.slots[id->key] = ++fake.next_slot;
    return fake.slots[id->key];
}

void sg_core_slot_gone(struct sg_core *unused, int device, sg_slot slot)
{
    (void)unused, (void)device;
    fake.gone_slot = slot;
    fake.goings++;
}

void sg_core_slot_opaque(struct sg_core *unused, int device, sg_slot slot)
{
    (void)unused, (void)device;
    fake.opaque_slot = slot;
    fake.opaques++;
}

void sg_core_slot_touched(struct sg_core *unused, int device, sg_slot slot)
{
    (void)unused, (void)device;
    fake.touched_slot = slot;
    fake.touches++;
}

void sg_core_clock(struct sg_core *unused, int device, sg_slot slot, struct sg_clock *ret)
{
    (void)unused, (void)device;
    *ret = (struct sg_clock){{0}};
    ret->at[slot] = ++fake.time;
}

void sg_core_context_clock(struct sg_core *unused, int device, CUcontext context, struct sg_clock *ret)
{
    (void)unused, (void)device, (void)context;
    *ret = (struct sg_clock){{++fake.time}};
}

static uint64_t latest(const struct sg_clock *clock)
{
    uint64_t time = 0;
    for (int i = 0; i < SG_SLOTS; i++)
        time = clock->at[i] > time ? clock->at[i] : time;
    return time;
}

void sg_core_waited(struct sg_core *unused, int device, sg_slot slot, const struct sg_clock *clock)
{
    (void)unused, (void)device;
    fake.waited_slot = slot;
    fake.waited_time = latest(clock);
    fake.waits++;
}

void sg_core_completed(struct sg_core *unused, int device, const struct sg_clock *clock)
{
    (void)unused, (void)device;
    fake.completed_time = latest(clock);
    fake.completions++;
}

static int start_afresh(void **state)
{
    (void)state;
    unsigned long long ids;
    for (uintptr_t i = 1; i < 64; i++) { /* the streams and events of the test before are gone */
        if (fake.next_slot)
            sg_streams_context_gone((CUcontext)1);
        cuEventDestroy_v2(event_of(i));
    }
    ids = fake.next_id;
    memset(&fake, 0, sizeof fake);
    fake.next_id = ids;
    for (int i = 1; i < 64; i++)
        fake.ids[i] = ++fake.next_id % 800 + 1;
    sg_follow();
    fake.live = true;
    sg_streams_serve(0);
    CUevent event;
    for (uintptr_t i = 1; i < 64; i++) {
        event = event_of(i);
        cuEventCreate(&event, 0);
    }
    return 0;
}

static sg_slot slot_of(uintptr_t number)
{
    return fake.slots[fake.ids[number]];
}

static void a_wait_gives_what_was_known_at_the_record(void **state)
{
    (void)state;
    assert_int_equal(cuEventRecord(event_of(1), stream_of(1)), CUDA_SUCCESS);
    uint64_t time = fake.time;
    assert_int_equal(cuEventRecord(event_of(2), stream_of(1)), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(stream_of(2), event_of(1), 0), CUDA_SUCCESS);
    assert_int_equal(fake.waits, 1);
    assert_int_equal(fake.waited_slot, slot_of(2));
    assert_int_equal(fake.waited_time, time);
    assert_int_equal(fake.opaques, 0);
    assert_int_equal(cuEventQuery(event_of(1)), CUDA_SUCCESS);
    assert_int_equal(fake.completions, 1);
    assert_int_equal(fake.completed_time, time);
    fake.answer = CUDA_ERROR_NOT_READY;
    assert_int_equal(cuEventQuery(event_of(2)), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.completions, 1);
}

static void failures_teach_nothing(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.answer = CUDA_ERROR_INVALID_HANDLE;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    cuStreamSynchronize(stream_of(1));
    cuCtxSynchronize();
    assert_int_equal(fake.waits + fake.completions + fake.opaques, 0);
    cuEventRecord(event_of(1), stream_of(1)); /* perhaps recorded all the same */
    fake.answer = CUDA_SUCCESS;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(fake.waits, 0);
    assert_int_equal(fake.opaque_slot, slot_of(2));
}

static void record_again(void)
{
    cuEventRecord(event_of(1), stream_of(3));
}

static void destroy_and_create(void)
{
    CUevent event = event_of(1);
    cuEventDestroy_v2(event);
    cuEventCreate(&event, 0);
}

static void a_record_meanwhile_voids_what_was_read(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.meanwhile = record_again;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(fake.waits, 0);
    assert_int_equal(fake.opaques, 1);
    fake.meanwhile = record_again;
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.completions, 0);
    fake.meanwhile = destroy_and_create;
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.completions, 0);
}

/* Nobody knows which of two records that overlap the driver took last. */
static void records_that_overlap_are_not_believed(void **state)
{
    (void)state;
    fake.meanwhile = record_again;
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.waits + fake.completions, 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.completions, 1);
}

static void an_event_never_recorded_changes_nothing(void **state)
{
    (void)state;
    cuStreamWaitEvent(stream_of(2), event_of(9), 0);
    cuEventSynchronize(event_of(9));
    assert_int_equal(fake.waits + fake.completions + fake.opaques, 0);
    cuEventRecord(event_of(1), stream_of(1));
    destroy_and_create();
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.waits + fake.completions + fake.opaques, 0);
}

static void opacity_travels_with_events(void **state)
{
    (void)state;
    cuStreamWaitValue32(stream_of(1), 0, 0, 0);
    assert_int_equal(fake.opaque_slot, slot_of(1));
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(fake.waits, 1);
    assert_int_equal(fake.opaque_slot, slot_of(2));
    assert_int_equal(fake.opaques, 2);
}

static void tainted_events_give_no_knowledge(void **state)
{
    (void)state;
    CUevent shared = event_of(2), events[4] = {event_of(1), shared, event_of(3), event_of(4)};
    cuGraphAddEventRecordNode(NULL, NULL, NULL, 0, event_of(1));
    cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    cuIpcGetEventHandle(NULL, event_of(3));
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    memcpy(&attribute.value, &events[3], sizeof events[3]);
    const CUlaunchConfig config = {.hStream = stream_of(1), .attrs = &attribute, .numAttrs = 1};
    cuLaunchKernelEx(&config, NULL, NULL, NULL);
    assert_int_equal(fake.touched_slot, slot_of(1));
    for (int i = 0; i < 4; i++) {
        int opaques = fake.opaques;
        cuEventRecord(events[i], stream_of(1));
        cuEventSynchronize(events[i]);
        cuStreamWaitEvent(stream_of(10 + (uintptr_t)i), events[i], 0);
        assert_int_equal(fake.opaques, opaques + 1);
    }
    assert_int_equal(fake.waits + fake.completions, 0);
    destroy_and_create(); /* the first one's end */
    cuEventRecord(event_of(1), stream_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.completions, 1);
}

static void whole_contexts_are_not_followed(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    cuCtxRecordEvent((CUcontext)1, event_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.completions, 0);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(fake.opaque_slot, slot_of(2));
    cuCtxWaitEvent((CUcontext)1, event_of(1));
    assert_int_equal(fake.opaques, 2); /* the other stream too */
    cuCtxSynchronize();
    assert_int_equal(fake.completions, 1);
}

static void captures_credit_nobody(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.capturing = true;
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    fake.capturing = false;
    cuEventSynchronize(event_of(1));
    assert_int_equal(fake.waits + fake.completions + fake.opaques, 0);
}

static void a_handle_is_not_a_stream(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    sg_slot first = slot_of(1);
    cuStreamDestroy_v2(stream_of(1));
    assert_int_equal(fake.gone_slot, first);
    fake.ids[1] = 801; /* the next one of that handle */
    fake.slots[801] = 0;
    cuStreamWaitEvent(stream_of(1), event_of(1), 0);
    assert_int_not_equal(fake.waited_slot, first);
    assert_int_equal(fake.waited_slot, fake.slots[801]);
}

static void the_default_streams_are_told_apart(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), NULL);
    cuEventRecord_ptsz(event_of(2), NULL);
    cuStreamWaitEvent(CU_STREAM_LEGACY, event_of(2), 0);
    assert_int_equal(fake.waited_slot, fake.slots[901]);
    cuStreamWaitEvent_ptsz(NULL, event_of(1), 0);
    assert_int_equal(fake.waited_slot, fake.slots[902]);
    assert_int_not_equal(fake.slots[901], fake.slots[902]);
}

static void work_is_noted_and_unfollowed_streams_too(void **state)
{
    (void)state;
    cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(5), NULL, NULL);
    assert_int_equal(fake.touched_slot, slot_of(5));
    assert_true(sg_streams_complete());
    cuGraphLaunch(NULL, stream_of(5));
    assert_int_equal(fake.touches, 2);
    assert_int_equal(fake.opaques, 0);
    if (by_words)
        cuGraphAddBatchMemOpNode(NULL, NULL, NULL, 0, NULL);
    else
        cuGraphAddEventWaitNode(NULL, NULL, NULL, 0, event_of(1));
    cuGraphLaunch(NULL, stream_of(5));
    assert_int_equal(fake.opaque_slot, slot_of(5));
    fake.no_slots = true;
    cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(6), NULL, NULL);
    assert_false(sg_streams_complete());
}

int main(int count, char **argument)
{
    (void)argument;
    by_words = count > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_wait_gives_what_was_known_at_the_record, start_afresh),
        cmocka_unit_test_setup(failures_teach_nothing, start_afresh),
        cmocka_unit_test_setup(a_record_meanwhile_voids_what_was_read, start_afresh),
        cmocka_unit_test_setup(records_that_overlap_are_not_believed, start_afresh),
        cmocka_unit_test_setup(an_event_never_recorded_changes_nothing, start_afresh),
        cmocka_unit_test_setup(opacity_travels_with_events, start_afresh),
        cmocka_unit_test_setup(tainted_events_give_no_knowledge, start_afresh),
        cmocka_unit_test_setup(whole_contexts_are_not_followed, start_afresh),
        cmocka_unit_test_setup(captures_credit_nobody, start_afresh),
        cmocka_unit_test_setup(a_handle_is_not_a_stream, start_afresh),
        cmocka_unit_test_setup(the_default_streams_are_told_apart, start_afresh),
        cmocka_unit_test_setup(work_is_noted_and_unfollowed_streams_too, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
