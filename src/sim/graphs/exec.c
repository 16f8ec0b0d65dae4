/* Executables: instantiated from graphs, launched into streams, updated. */
#include <stdlib.h>

#include "graphs/graph.h"
#include "hazard/hazard.h"

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

static void image_unref(struct sim_image *image)
{
    if (--image->refs)
        return;
    for (unsigned i = 0; i < image->count; i++)
        sim_step_drop(&image->at[i].step);
    sim_object_refs_drop(&image->object_refs);
    free(image->at);
    free(image);
}

static CUresult append(struct sim_image *image, CUgraph graph)
{
    struct sim_nodes sorted = {0};
    if (!sim_graph_sort(graph, &sorted))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_object_refs_copy(graph->object_refs, &image->object_refs);
    struct sim_image_step *grown = realloc(image->at, (image->count + sorted.count + 1) * sizeof *grown);
    if (grown)
        image->at = grown;
    else
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < sorted.count && result == CUDA_SUCCESS; i++) {
        CUgraphNode node = sorted.at[i];
        if (node->step.child) { /* its room was counted here, its steps make their own */
            result = append(image, node->step.child);
            struct sim_image_step *more =
                result == CUDA_SUCCESS ? realloc(image->at, (image->count + sorted.count - i) * sizeof *more) : NULL;
            if (more)
                image->at = more;
            else if (result == CUDA_SUCCESS)
                result = CUDA_ERROR_OUT_OF_MEMORY;
            continue;
        }
        struct sim_image_step *step = &image->at[image->count];
        if (node->step.choice && !sim_choice_is_runnable(node->step.choice))
            result = CUDA_ERROR_NOT_SUPPORTED;
        else
            result = sim_step_copy(&node->step, &step->step);
        if (result == CUDA_SUCCESS) {
            step->node = node;
            image->count++;
        }
    }
    sim_nodes_clear(&sorted);
    return result;
}

static CUresult new_image(CUgraph graph, struct sim_image **ret)
{
    struct sim_image *image = calloc(1, sizeof *image);
    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    image->refs = 1;
    CUresult result = append(image, graph);
    if (result == CUDA_SUCCESS)
        *ret = image;
    else
        image_unref(image);
    return result;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph graph, cuuint64_t flags)
{
    const cuuint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                             CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!ret || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    CUgraphExec exec = NULL;
    CUresult result = sim_graph_get(graph);
    if (result == CUDA_SUCCESS && !(exec = calloc(1, sizeof *exec)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = new_image(graph, &exec->image);
    if (result == CUDA_SUCCESS) {
        exec->flags = flags;
        sim_handle_add(&exec->handle, SIM_KIND_EXEC);
        *ret = exec;
    } else {
        free(exec);
    }
    sim_unlock();
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SIM_ENTER_WITH(cuGraphInstantiateWithFlags, exec, graph, flags);
    return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    SIM_ENTER(cuGraphInstantiate_v2);
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SIM_ENTER_WITH(cuGraphInstantiateWithParams, exec, graph, params);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return cuGraphInstantiateWithParams(exec, graph, params);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    sim_lock();
    bool valid = flags && sim_handle_valid(exec, SIM_KIND_EXEC);
    if (valid)
        *flags = exec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTER(cuGraphExecDestroy);
    sim_lock();
    bool valid = sim_handle_valid(exec, SIM_KIND_EXEC);
    if (valid) {
        sim_handle_drop(&exec->handle);
        image_unref(exec->image); /* a launch under way has its own reference */
        if (exec->last)
            sim_stream_unref(exec->last);
        sim_clock_clear(&exec->clock);
        free(exec);
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void finish(struct sim_work *launch)
{
    struct sim_image *image = *(struct sim_image **)launch->payload;
    sim_object_refs_launched(image->object_refs, &launch->after);
    image_unref(image);
}

/* Takes the memory of the allocation nodes, all of it or none. */
static CUresult take_memory(CUgraphExec exec)
{
    struct sim_image *image = exec->image;
    for (unsigned i = 0; i < image->count; i++) {
        struct sim_graph_memory *memory = image->at[i].step.memory;
        if (!memory)
            continue;
        if (memory->live && exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
            sim_graph_memory_give(memory);
        CUresult result = sim_graph_memory_take(memory);
        if (result == CUDA_SUCCESS)
            continue;
        for (; i > 0; i--) {
            if (image->at[i - 1].step.memory)
                sim_graph_memory_give(image->at[i - 1].step.memory);
        }
        return result;
    }
    return CUDA_SUCCESS;
}

static bool frees_what_it_allocates(const struct sim_image *image, const struct sim_graph_memory *memory)
{
    bool frees = false;
    for (unsigned i = 0; i < image->count; i++)
        frees |= image->at[i].step.address == memory->memory->range.base;
    return frees;
}

/* A launch whose memory the one before has yet to free waits for that, as the node itself would on a GPU. */
static CUresult wait_for_memory(CUgraphExec exec)
{
    for (unsigned i = 0; i < exec->image->count; i++) {
        struct sim_graph_memory *memory = exec->image->at[i].step.memory;
        if (memory && memory->live && exec->last &&
            (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH ||
                frees_what_it_allocates(exec->image, memory)))
            return sim_wait(exec->last, exec->last_position);
    }
    return CUDA_SUCCESS;
}

/* A launch whose memory somebody else has yet to free waits for that too. */
static CUresult wait_for_frees(CUgraphExec exec)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; result == CUDA_SUCCESS && sim_handle_valid(exec, SIM_KIND_EXEC) && i < exec->image->count;
         i++) {
        const struct sim_graph_memory *memory = exec->image->at[i].step.memory;
        if (memory && memory->live && memory->freed_on)
            result = sim_wait(memory->freed_on, memory->freed_at);
    }
    return result;
}

/* What the nodes that wait for events wait for, the stream waits for before the launch. */
static CUresult wait_for_events(struct sim_image *image, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    image->refs++;
    for (unsigned i = 0; i < image->count && result == CUDA_SUCCESS; i++) {
        if (image->at[i].step.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
            result = sim_event_wait(image->at[i].step.event, stream);
    }
    image_unref(image);
    return result;
}

static CUresult record_events(const struct sim_image *image, CUstream stream, uint64_t position)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < image->count && result == CUDA_SUCCESS; i++) {
        if (image->at[i].step.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
            result = sim_event_recorded(image->at[i].step.event, stream, position);
    }
    return result;
}

/* Memory of other graphs that nodes of this one free: nobody else may free it, and whoever launches its graph comes
   after. */
static void leave(const struct sim_image *image, bool leaving)
{
    for (unsigned i = 0; i < image->count; i++) {
        struct sim_memory *memory = image->at[i].step.address ? sim_memory_find(image->at[i].step.address) : NULL;
        if (memory && memory->graph && memory->graph->live)
            memory->leaving = leaving;
    }
}

static void note_frees(const struct sim_image *image, CUstream stream, uint64_t position)
{
    for (unsigned i = 0; i < image->count; i++) {
        if (image->at[i].step.address)
            sim_graph_memory_freed(image->at[i].step.address, stream, position);
    }
}

static CUresult submit(CUgraphExec exec, CUstream stream)
{
    struct sim_work *work = sim_work_new(sizeof exec->image, sim_image_run, finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    if (exec->last && sim_work_depend(work, exec->last, exec->last_position) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = take_memory(exec);
    if (result != CUDA_SUCCESS) {
        sim_work_free(work);
        return result;
    }
    *(struct sim_image **)work->payload = exec->image;
    struct sim_image *image = exec->image;
    image->refs += 2; /* the launch's, and one while this looks at it */
    work->may_wait = sim_image_may_wait(image);
    work->node = CU_GRAPH_NODE_TYPE_GRAPH;
    work->keeps_clock = image->object_refs != NULL;
    work->host_sees = sim_image_host_sees(image);
    work->parts = sim_image_parts;
    sim_clock_join(&work->after, &exec->clock);
    uint64_t position;
    leave(image, true);
    result = sim_submit(stream, work, &position);
    if (result == CUDA_SUCCESS)
        note_frees(image, stream, position);
    else
        leave(image, false);
    if (result == CUDA_SUCCESS && sim_handle_valid(exec, SIM_KIND_EXEC)) {
        sim_stream_ref(stream);
        if (exec->last)
            sim_stream_unref(exec->last);
        exec->last = stream;
        exec->last_position = position;
        sim_clock_clear(&exec->clock);
        sim_clock_join(&exec->clock, &stream->clock);
    }
    if (result == CUDA_SUCCESS)
        result = record_events(image, stream, position);
    image_unref(image);
    return result;
}

/* The lock is given up where something is waited for, so that the executable may go meanwhile. */
static CUresult launch(CUgraphExec exec, CUstream stream)
{
    CUresult result = wait_for_memory(exec);
    if (result == CUDA_SUCCESS)
        result = wait_for_frees(exec);
    if (result == CUDA_SUCCESS)
        result = sim_handle_valid(exec, SIM_KIND_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    sim_stream_ref(stream);
    if (result == CUDA_SUCCESS)
        result = wait_for_events(exec->image, stream);
    if (result == CUDA_SUCCESS)
        result = sim_handle_valid(exec, SIM_KIND_EXEC) ? submit(exec, stream) : CUDA_ERROR_INVALID_VALUE;
    sim_stream_unref(stream);
    return result;
}

/* In a capture, a launch becomes a child graph of what was instantiated. */
static CUresult launch_captured(CUgraphExec exec, CUstream stream)
{
    CUgraph child;
    CUresult result = sim_graph_new(&child);
    CUgraphNode before = NULL;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < exec->image->count; i++) {
        struct sim_step step;
        result = exec->image->at[i].step.memory ? CUDA_ERROR_NOT_SUPPORTED
                                                : sim_step_copy(&exec->image->at[i].step, &step);
        if (result == CUDA_SUCCESS)
            result = sim_graph_add(child, &before, before != NULL, step, &before);
        if (result != CUDA_SUCCESS)
            sim_graph_free(child);
    }
    CUgraphNode node;
    return result == CUDA_SUCCESS
               ? sim_capture_step(stream, (struct sim_step){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child}, &node)
               : result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER_WITH(cuGraphLaunch, exec, handle);
    sim_lock();
    CUstream stream;
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_stream_get(handle, &stream)
                                                            : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capturing(stream) ? launch_captured(exec, stream) : launch(exec, stream);
    sim_unlock();
    return result;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return cuGraphLaunch(exec, PER_THREAD(stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER_WITH(cuGraphUpload, exec, handle);
    sim_lock();
    CUstream stream;
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_stream_get(handle, &stream)
                                                            : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return cuGraphUpload(exec, PER_THREAD(stream));
}

/* A launch under way keeps the image that it began with, so a change goes into a copy. */
CUresult sim_image_replace(CUgraphExec exec, CUgraphNode node, struct sim_step step)
{
    struct sim_image *image = sim_handle_valid(exec, SIM_KIND_EXEC) ? exec->image : NULL;
    unsigned at = 0;
    while (image && at < image->count && image->at[at].node != node)
        at++;
    struct sim_image *copy = NULL;
    CUresult result = image && at < image->count && image->at[at].step.type == step.type ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !(copy = calloc(1, sizeof *copy)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !(copy->at = calloc(image->count, sizeof *copy->at)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (copy)
        copy->refs = 1;
    if (result == CUDA_SUCCESS)
        result = sim_object_refs_copy(image->object_refs, &copy->object_refs);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < image->count; i++) {
        if (i == at) {
            copy->at[i] = (struct sim_image_step){node, step};
            if (step.work)
                sim_hazard_settle(step.work);
            step = (struct sim_step){.type = step.type};
        } else {
            copy->at[i].node = image->at[i].node;
            result = sim_step_copy(&image->at[i].step, &copy->at[i].step);
        }
        copy->count = result == CUDA_SUCCESS ? i + 1 : i;
    }
    sim_step_drop(&step);
    if (result == CUDA_SUCCESS) {
        exec->image = copy;
        image_unref(image);
    } else if (copy) {
        image_unref(copy);
    }
    return result;
}

/* The nodes of a child become those of another graph of the same shape. */
static CUresult replace_child(CUgraphExec exec, const struct sim_nodes *now, const struct sim_nodes *then)
{
    CUresult result = now->count == then->count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < now->count && result == CUDA_SUCCESS; i++) {
        const struct sim_step *step = &then->at[i]->step;
        if (now->at[i]->step.type != step->type || now->at[i]->deps.count != then->at[i]->deps.count)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (step->child || step->memory)
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    for (unsigned i = 0; i < now->count && result == CUDA_SUCCESS; i++) {
        struct sim_step step;
        result = sim_step_copy(&then->at[i]->step, &step);
        if (result == CUDA_SUCCESS)
            result = sim_image_replace(exec, now->at[i], step);
    }
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
    sim_lock();
    struct sim_nodes now = {0}, then = {0};
    CUresult result = sim_graph_get(child);
    if (result == CUDA_SUCCESS && (!sim_handle_valid(exec, SIM_KIND_EXEC) || !sim_handle_valid(node, SIM_KIND_NODE) ||
                                      !node->step.child))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (!sim_graph_sort(node->step.child, &now) || !sim_graph_sort(child, &then)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = replace_child(exec, &now, &then);
    sim_nodes_clear(&now);
    sim_nodes_clear(&then);
    sim_unlock();
    return result;
}

static CUgraphExecUpdateResult compare(const struct sim_image *now, const struct sim_image *then, CUgraphNode *ret)
{
    if (now->count != then->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < now->count; i++) {
        *ret = then->at[i].node;
        if (now->at[i].step.type != then->at[i].step.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (then->at[i].step.memory)
            return CU_GRAPH_EXEC_UPDATE_ERROR; /* memory nodes cannot be updated */
    }
    *ret = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *ret_result, CUgraphNode *ret_node)
{
    struct sim_image *image;
    sim_lock();
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_graph_get(graph) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = new_image(graph, &image);
    if (result == CUDA_SUCCESS) {
        *ret_result = compare(exec->image, image, ret_node);
        if (*ret_result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
            /* The handles of the nodes stay those that it was instantiated with. */
            for (unsigned i = 0; i < image->count; i++)
                image->at[i].node = exec->image->at[i].node;
            struct sim_image *before = exec->image;
            exec->image = image;
            image = before;
        } else {
            result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        image_unref(image);
    }
    sim_unlock();
    return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SIM_ENTER(cuGraphExecUpdate_v2);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    return update(exec, graph, &info->result, &info->errorNode);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result)
{
    SIM_ENTER(cuGraphExecUpdate);
    if (!error_node || !result)
        return CUDA_ERROR_INVALID_VALUE;
    *error_node = NULL;
    *result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return update(exec, graph, result, error_node);
}
