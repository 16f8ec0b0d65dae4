/* Untracked order: events that are recorded inside launches, by graphs or by other processes; and streams that wait for
   something else than events.

   Each hook marks what it makes uncertain, and nothing more. An event that a graph records is untrusted from then on. A
   graph that waits for an event or a word makes every launch count as a wait for anything. A stream that waits for a
   word of memory has untracked order.

   For example, cuStreamWaitValue32 on stream A: the core can't know whose write A waits for. A block of A's that
   another stream used is free only after all work; blocks of other streams are as before. */
#include <stddef.h>

#include "serve/deferred_frees.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "report/refusals.h"
#include "track/graph_blocks.h"
#include "track/graph_order.h"
#include "track/pool_streams.h"
#include "hooks/work_note.h"
#include "track/streams.h"

/* From here on a stream that is not followed may pass its order on without notice. So may a blocking one to others
   of its own device, whose slots know nothing of other devices'. */
static void untracked_order(CUstream stream, bool per_thread)
{
    struct sg_tracked_stream tracked;
    struct sg_core *core = sg_following() ? sg_enter() : NULL;
    if (!sg_following())
        sg_streams_waited_early();
    if (!core)
        return;
    bool followed = sg_streams_track(core, stream, per_thread, &tracked);
    if (followed) {
        sg_streams_untracked_order(core, &tracked);
        sg_core_slot_upkeep(core, tracked.device, tracked.slot); /* nothing that others could come after */
    }
    if (!followed || sg_contexts_devices())
        sg_streams_host_observed_all(core);
    sg_leave();
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    sg_events_distrust(event);
    return sg_real()->cuIpcGetEventHandle(handle, event);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count,
    CUevent event)
{
    sg_events_distrust(event);
    sg_streams_graphs_show(); /* others may come after the event */
    return sg_real()->cuGraphAddEventRecordNode(ret, graph, nodes, count, event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    sg_events_distrust(event);
    sg_streams_graphs_show();
    return sg_real()->cuGraphEventRecordNodeSetEvent(node, event);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    sg_events_distrust(event);
    sg_streams_graphs_show();
    return sg_real()->cuGraphExecEventRecordNodeSetEvent(exec, node, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count, CUevent event)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphAddEventWaitNode(ret, graph, nodes, count, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphEventWaitNodeSetEvent(node, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphExecEventWaitNodeSetEvent(exec, node, event);
}

/* Nodes that wait for memory or semaphores are ones of that kind too. */
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count,
    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphAddBatchMemOpNode(ret, graph, nodes, count, params);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphBatchMemOpNodeSetParams(node, params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphExecBatchMemOpNodeSetParams(exec, node, params);
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count,
    const void *params)
{
    sg_graph_order_waits();
    return sg_real()->cuGraphAddExternalSemaphoresWaitNode(ret, graph, nodes, count, params);
}

/* A node of any kind, by its parameters: what it makes uncertain is marked. */
static void graph_look_at(const CUgraphNodeParams *params)
{
    if (!params)
        return;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        sg_events_distrust(params->eventRecord.event);
        sg_streams_graphs_show();
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        sg_streams_graphs_show();
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        sg_outside_use_pools(sg_outside_bit(params->alloc.poolProps.location.id));
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        sg_graph_order_waits();
        break;
    default:
        break;
    }
}

CUresult cuGraphAddNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, size_t count,
    CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphAddNode(ret, graph, nodes, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
    size_t count, CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphAddNode_v2(ret, graph, nodes, edges, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *ret, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
    size_t count, CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphAddNode_v3(ret, graph, nodes, edges, count, params);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphNodeSetParams_v2(node, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphNodeSetParams(node, params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    graph_look_at(params);
    return sg_real()->cuGraphExecNodeSetParams(exec, node, params);
}

/* A graph may have functions of the host, or copies to it, also behind what it waits for. */
static void observe_graph(CUstream stream, bool per_thread)
{
    if (sg_graph_order_has_waits())
        sg_streams_host_may_observe_all();
    else if (sg_following())
        sg_streams_graph_launched(stream, per_thread);
}

/* A launch of a graph. Before it, the host may already observe what it will do; after it, streams are ordered after
   whatever it waited for. Its allocation nodes may take memory, which is noted for the trace. */
static CUresult graph_launch(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, bool per_thread)
{
    observe_graph(stream, per_thread);
    bool noted = atomic_load_explicit(&sg_outside_any, memory_order_relaxed) && sg_outside_traced();
    if (noted)
        sg_outside_launch_begins();
    int held = sg_graph_order_has_waits() ? sg_work_holds(stream, per_thread) : -1;
    CUresult result = real(exec, stream);
    SG_MAKE_ROOM_FOR(result, real(exec, stream)) /* memory of its own allocation nodes */
    if (result == CUDA_SUCCESS)
        sg_refusals_note_elsewhere(0);
    else
        sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_GRAPHS, 0);
    if (result == CUDA_SUCCESS && sg_outside_uses_pools())
        sg_pool_streams_note(stream, per_thread);
    if (noted) {
        sg_outside_launch_ended();
        sg_outside_changed(0, /* starts */ true);
    }
    if (sg_graph_order_has_waits())
        untracked_order(stream, per_thread);
    else
        sg_work_note(stream, per_thread);
    sg_work_is_given(held);
    observe_graph(stream, per_thread);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return graph_launch(sg_real()->cuGraphLaunch, exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return graph_launch(sg_real()->cuGraphLaunch_ptsz, exec, stream, true);
}

/* A graph may be gone. Its memory that the program has freed comes back now: natively it was free before. Later calls would have
   it sooner in one run than in the next, because the driver's thread tells of the end at some time. */
static CUresult graph_ended(CUresult result)
{
    struct sg_core *core = result == CUDA_SUCCESS && sg_graphs_retain_freed() ? sg_enter() : NULL;
    if (core) {
        sg_memory_settle(core);
        sg_leave();
    }
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    return graph_ended(sg_real()->cuGraphDestroy(graph));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    return graph_ended(sg_real()->cuGraphExecDestroy(exec));
}

/* Launches may record events themselves. Layouts: cuda.h, CUlaunchAttributeValue_st. */
static void taint_launch_events(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++) {
        CUlaunchAttributeID id = config->attrs[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            sg_events_distrust(*(const CUevent *)(const void *)&config->attrs[i].value);
    }
}

/* A kernel that may begin before the one before it in its stream has ended (CUDA C++ Programming Guide, "Programmatic
   Dependent Launch"). */
static bool begins_early(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    return false;
}

static void graph_do_nothing(void *unused)
{
    (void)unused;
}

/* A step that is no kernel: an event, or a function of the host where none can be had. */
static void put_step(CUstream stream)
{
    const struct sg_driver *driver = sg_process_driver();
    CUevent event;
    CUresult result = driver->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = driver->event_record(event, stream);
        (void)driver->event_destroy(event);
    }
    if (result != CUDA_SUCCESS)
        (void)sg_real()->cuLaunchHostFunc(stream, graph_do_nothing, NULL);
}

/* Memory that the kernel is given may have a second address, and the kernel before it may still use the first. Second
   addresses are right only for kernels that do not overlap. So a step that is no kernel stands between the two, once
   for all such memory that there is. Memory of a capture has one address. */
static void keep_apart(const CUlaunchConfig *config, bool per_thread)
{
    struct sg_tracked_stream tracked;
    CUstream stream = config->hStream;
    if (!sg_following() || sg_captures_capturing(stream, per_thread))
        return;
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    if (sg_streams_find(core, stream, per_thread, &tracked) && sg_core_take_aliased(core, tracked.device, tracked.slot))
        put_step(sg_stream_named(stream, per_thread));
    sg_leave();
}

/* A launch with attributes: it may record events, and it may begin before the kernel before it has ended. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    taint_launch_events(config);
    if (begins_early(config))
        keep_apart(config, /* per_thread */ false);
    CUresult result = sg_real()->cuLaunchKernelEx(config, function, params, extra);
    SG_MAKE_ROOM_FOR(result, sg_real()->cuLaunchKernelEx(config, function, params, extra))
    sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MODULES, 0);
    sg_work_note(config ? config->hStream : NULL, false);
    return result;
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    taint_launch_events(config);
    if (begins_early(config))
        keep_apart(config, /* per_thread */ true);
    CUresult result = sg_real()->cuLaunchKernelEx_ptsz(config, function, params, extra);
    SG_MAKE_ROOM_FOR(result, sg_real()->cuLaunchKernelEx_ptsz(config, function, params, extra))
    sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MODULES, 0);
    sg_work_note(config ? config->hStream : NULL, true);
    return result;
}

/* A wait in a capture becomes a node of its graph. */
static void waits_in_captures(void)
{
    if (sg_captures_active())
        sg_graph_order_waits();
}

#define WAITS(symbol, per_thread, parameters, arguments)   \
    CUresult symbol parameters                             \
    {                                                      \
        waits_in_captures();                               \
        const int held = sg_work_holds(stream, false);     \
        CUresult result = sg_real()->symbol arguments;     \
        untracked_order(stream, false);                    \
        sg_work_is_given(held);                            \
        return result;                                     \
    }                                                      \
    CUresult per_thread parameters                         \
    {                                                      \
        waits_in_captures();                               \
        const int held = sg_work_holds(stream, true);      \
        CUresult result = sg_real()->per_thread arguments; \
        untracked_order(stream, true);                     \
        sg_work_is_given(held);                            \
        return result;                                     \
    }
WAITS(cuStreamWaitValue32, cuStreamWaitValue32_ptsz,
      (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), (stream, address, value, flags))
WAITS(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz,
      (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), (stream, address, value, flags))
WAITS(cuStreamWaitValue64, cuStreamWaitValue64_ptsz,
      (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), (stream, address, value, flags))
WAITS(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz,
      (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), (stream, address, value, flags))
WAITS(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz,
      (const void *semaphores, const void *params, unsigned count, CUstream stream),
      (semaphores, params, count, stream))

/* Work that is recorded for a graphics context runs when that submits it. */
CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params)
{
    sg_streams_untrack("cuStreamBeginCaptureToCig");
    return sg_real()->cuStreamBeginCaptureToCig(stream, params);
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *params)
{
    sg_streams_untrack("cuStreamBeginCaptureToCig");
    return sg_real()->cuStreamBeginCaptureToCig_ptsz(stream, params);
}

enum { BATCH_MOST = 256 }; /* a larger one is refused unread (CUDA Driver API, cuStreamBatchMemOp) */

/* True too for a batch that is too large to be read: the driver refuses it. */
static bool has_write(unsigned count, const CUstreamBatchMemOpParams *params)
{
    if (count > BATCH_MOST)
        return true;
    for (unsigned i = 0; params && i < count; i++) {
        CUstreamBatchMemOpType type = params[i].operation;
        if (type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            return true;
    }
    return false;
}

/* The words that a batch writes, perhaps for the host to see, come after those that it waits for. */
#define BATCH(symbol, own)                                                                             \
    CUresult symbol(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params, unsigned flags) \
    {                                                                                                  \
        const bool visible = sg_following() && has_write(count, params);                               \
        waits_in_captures();                                                                           \
        if (visible)                                                                                   \
            sg_streams_host_may_observe_all();                                                         \
        const int held = sg_work_holds(stream, own);                                                   \
        CUresult result = sg_real()->symbol(stream, count, params, flags);                             \
        untracked_order(stream, own);                                                                  \
        sg_work_is_given(held);                                                                        \
        if (visible)                                                                                   \
            sg_streams_host_may_observe_all();                                                         \
        return result;                                                                                 \
    }
BATCH(cuStreamBatchMemOp, false)
BATCH(cuStreamBatchMemOp_ptsz, true)
BATCH(cuStreamBatchMemOp_v2, false)
BATCH(cuStreamBatchMemOp_v2_ptsz, true)
