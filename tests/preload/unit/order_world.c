/* See order_world.h. */
#include "order_world.h"

#include <string.h>

#include "balance.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "hooks/capture_end.h"
#include "hooks/copy_hooks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "track/streams.h"

__thread struct sg_thread sg_self;
_Atomic unsigned sg_fast_path_epoch;

struct fake fake;

static struct sg_core *core(void)
{
    return (struct sg_core *)&fake;
}

CUstream stream_of(uintptr_t number)
{
    return (CUstream)(number * 16);
}

CUevent event_of(uintptr_t number)
{
    return (CUevent)(number * 64);
}

static CUresult answer(void)
{
    if (fake.meanwhile) {
        void (*meanwhile)(void) = fake.meanwhile;
        fake.meanwhile = NULL;
        balance_elsewhere(meanwhile);
    }
    return fake.answer;
}

bool sg_process_owns(CUdeviceptr address)
{
    (void)address;
    return true;
}

void sg_copies_used_on_devices(CUdeviceptr address, CUstream stream, bool per_thread)
{
    (void)address, (void)stream, (void)per_thread;
}

bool sg_memory_guesses(void)
{
    return !fake.telling;
}

/* The driver. */
static CUresult one_stream(CUstream stream)
{
    (void)stream;
    return answer();
}

static CUresult destroy_stream(CUstream stream)
{
    (void)stream;
    fake.destroyed_first |= fake.goings == 0;
    return answer();
}

static CUresult create_stream(CUstream *ret, unsigned flags)
{
    (void)ret, (void)flags;
    return answer();
}

static CUresult one_event(CUevent event)
{
    (void)event;
    return answer();
}

static CUresult elapsed(float *ms, CUevent first, CUevent second)
{
    (void)ms, (void)first, (void)second;
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

static CUresult create_shared_event(CUevent *ret, void *sync, unsigned flags)
{
    (void)ret, (void)sync, (void)flags;
    return answer();
}

static CUresult open_event(CUevent *ret, CUipcEventHandle handle)
{
    (void)ret, (void)handle;
    return answer();
}

static CUresult green_event(CUgreenCtx green, CUevent event)
{
    (void)green, (void)event;
    return answer();
}

static CUresult synchronize_of(CUcontext context)
{
    (void)context;
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
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)params, (void)extra;
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
        .cuStreamQuery = one_stream,
        .cuStreamQuery_ptsz = one_stream,
        .cuStreamSynchronize = one_stream,
        .cuStreamSynchronize_ptsz = one_stream,
        .cuStreamDestroy = destroy_stream,
        .cuStreamDestroy_v2 = destroy_stream,
        .cuStreamCreate = create_stream,
        .cuEventDestroy = one_event,
        .cuEventCreateFromEGLSync = create_shared_event,
        .cuIpcOpenEventHandle = open_event,
        .cuGreenCtxRecordEvent = green_event,
        .cuGreenCtxWaitEvent = green_event,
        .cuEventRecordWithFlags_ptsz = record_flags,
        .cuCtxSynchronize_v2 = synchronize_of,
        .cuGraphLaunch_ptsz = launch_graph,
        .cuEventElapsedTime = elapsed,
        .cuEventElapsedTime_v2 = elapsed,
        .cuEventQuery = one_event,
        .cuEventSynchronize = one_event,
        .cuEventDestroy_v2 = one_event,
        .cuEventCreate = create_event,
        .cuEventRecord = record,
        .cuEventRecord_ptsz = record,
        .cuEventRecordWithFlags = record_flags,
        .cuStreamWaitEvent = wait,
        .cuStreamWaitEvent_ptsz = wait,
        .cuCtxRecordEvent = context_event,
        .cuCtxWaitEvent = context_event,
        .cuCtxSynchronize = synchronize,
        .cuGraphLaunch = launch_graph,
        .cuLaunchKernelEx = launch,
        .cuLaunchKernel = launch_kernel,
        .cuGraphAddEventRecordNode = add_node,
        .cuGraphAddEventWaitNode = add_node,
        .cuGraphAddBatchMemOpNode = add_words,
        .cuStreamWaitValue32 = wait_value,
        .cuIpcGetEventHandle = ipc_handle,
    };
    return &real;
}

static CUresult get_id(CUstream stream, unsigned long long *ret)
{
    uintptr_t others = fake.current ? fake.current - 1 : 0;
    *ret = (uintptr_t)stream < 16 ? 900 + (uintptr_t)stream + 10 * others : fake.ids[(uintptr_t)stream / 16];
    return fake.id_answer;
}

static CUresult get_context(CUstream stream, CUcontext *ret)
{
    uintptr_t number = (uintptr_t)stream / 16;
    *ret = number < THIRD ? (CUcontext)1 : number < SECOND ? (CUcontext)3 : (CUcontext)2;
    return fake.context_answer;
}

static CUresult get_flags(CUstream stream, unsigned *ret)
{
    void (*meanwhile)(void) = fake.when_asked;
    (void)stream;
    fake.when_asked = NULL;
    if (meanwhile) {
        sg_leave();
        balance_elsewhere(meanwhile);
        (void)sg_enter();
    }
    *ret = fake.flags;
    return fake.flags_answer;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = (CUcontext)(fake.current ? fake.current : 1);
    return fake.current_answer;
}

bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot)
{
    (void)core, (void)device, (void)slot;
    return false;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver old = {.ctx_get_current = get_current},
        driver = {.stream_get_id = get_id, .stream_get_ctx = get_context, .stream_get_flags = get_flags,
            .ctx_get_current = get_current};
    return fake.old ? &old : &driver;
}

struct sg_core *sg_process_core(void)
{
    return fake.live ? core() : NULL;
}

void sg_memory_fence(void)
{
}

bool sg_made_room(enum sg_room whose)
{
    (void)whose;
    return false;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(sg_self.inside ? NULL : core());
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

/* The contexts and captures. */
CUcontext sg_contexts_only(void)
{
    return fake.current ? NULL : (CUcontext)1;
}

bool sg_contexts_devices(void)
{
    return fake.devices;
}

bool sg_contexts_device(CUcontext context, int *ret)
{
    *ret = context == (CUcontext)2; /* the second context is the second device's */
    return !fake.strange;
}

bool sg_contexts_stands_for_all(CUcontext context)
{
    return context == (CUcontext)1;
}

bool sg_contexts_green(CUcontext context)
{
    (void)context;
    return fake.green;
}

CUcontext sg_contexts_primary_of(int device)
{
    (void)device;
    return (CUcontext)1;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    (void)ret, (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUcontext sg_contexts_of_green(CUgreenCtx green)
{
    (void)green;
    return (CUcontext)1;
}

bool sg_captures_active(void)
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
    fake.joining++;
}

void sg_captures_joined(void)
{
    fake.joining--;
    fake.joins++;
}

bool sg_captures_is_listed(CUstream stream)
{
    (void)stream;
    return false;
}

void sg_capture_ended(CUstream stream, bool per_thread)
{
    (void)stream, (void)per_thread;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    conf.free_sync = fake.free_sync;
    return &conf;
}

/* The core. */
void sg_core_host_observed(struct sg_core *core, int device, const struct sg_vector_clock *clock)
{
    (void)core;
    fake.tolds += clock == NULL; /* of all */
    fake.told_some += clock != NULL;
    fake.told_devices |= clock ? 0 : 1u << device;
}

sg_slot sg_core_slot(struct sg_core *unused, int device, const struct sg_stream_id *id)
{
    (void)unused, (void)device;
    fake.id = *id;
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

void sg_core_slot_untracked_order(struct sg_core *unused, int device, sg_slot slot)
{
    (void)unused, (void)device;
    fake.opaque_slot = slot;
    fake.opaques++;
}

void sg_core_slot_submitted(struct sg_core *unused, int device, sg_slot slot)
{
    (void)unused, (void)device;
    fake.touched_slot = slot;
    fake.touches++;
}

void sg_core_clock(struct sg_core *unused, int device, sg_slot slot, struct sg_vector_clock *ret)
{
    (void)unused, (void)device;
    *ret = (struct sg_vector_clock){{0}};
    ret->at[slot] = ++fake.time;
}

void sg_core_idle_clock(struct sg_core *unused, int device, sg_slot slot, struct sg_vector_clock *ret_told,
    uint64_t *ret_done)
{
    sg_core_clock(unused, device, slot, ret_told);
    *ret_done = ret_told->at[slot];
}

void sg_core_context_clock(struct sg_core *unused, int device, CUcontext context, struct sg_vector_clock *ret)
{
    (void)unused, (void)device;
    fake.clock_context = context;
    *ret = (struct sg_vector_clock){{++fake.time}};
}

static sg_slot latest(const struct sg_vector_clock *clock)
{
    sg_slot slot = 0;
    for (sg_slot i = 1; i < SG_SLOTS; i++)
        slot = clock->at[i] > clock->at[slot] ? i : slot;
    return slot;
}

void sg_core_ordered_after(struct sg_core *unused, int device, sg_slot slot, const struct sg_vector_clock *clock)
{
    (void)unused, (void)device;
    fake.waited_slot = slot;
    fake.waited_time = clock->at[latest(clock)];
    fake.waits++;
}

void sg_core_completed(struct sg_core *unused, int device, const struct sg_vector_clock *clock)
{
    (void)unused, (void)device;
    fake.completed_slot = latest(clock);
    fake.completed_all = clock->at[0] != 0;
    fake.completed_time = clock->at[fake.completed_slot];
    fake.completions++;
}

static int start(bool late)
{
    unsigned long long ids;
    for (uintptr_t i = 1; i < 64; i++) { /* the streams and events of the test before are gone */
        for (uintptr_t context = 1; fake.next_slot && context <= 3; context++)
            sg_streams_context_gone((CUcontext)context);
        cuEventDestroy_v2(event_of(i));
    }
    ids = fake.next_id;
    memset(&fake, 0, sizeof fake);
    fake.next_id = ids;
    fake.flags = CU_STREAM_NON_BLOCKING;
    fake.live = late;
    for (int i = 1; i < 64; i++)
        fake.ids[i] = ++fake.next_id % 800 + 1;
    sg_follow();
    fake.live = true;
    sg_streams_serve(0);
    sg_streams_serve(1);
    CUevent event;
    for (uintptr_t i = 1; i < 64; i++) {
        event = event_of(i);
        cuEventCreate(&event, 0);
    }
    return 0;
}

int start_afresh(void **state)
{
    (void)state;
    return start(/* late */ false);
}

int start_late(void **state)
{
    (void)state;
    return start(/* late */ true);
}

sg_slot slot_of(uintptr_t number)
{
    return fake.slots[fake.ids[number]];
}
