#include "work/graph_launch.h"

#include "graphs/captured_work.h"
#include "graphs/run.h"
#include "streams/queue.h"
#include "work/submit.h"

static void launch_finish(struct sim_work *launch)
{
    struct sim_image *image = *(struct sim_image **)launch->payload;
    sim_object_refs_launched(image->object_refs, &launch->after);
    sim_image_unref(image);
}

/* Takes the memory of the allocation nodes, all of it or none. */
static CUresult launch_take_memory(CUgraphExec exec)
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

static bool image_frees_what_it_allocates(const struct sim_image *image, const struct sim_graph_memory *memory)
{
    bool frees = false;
    for (unsigned i = 0; i < image->count; i++)
        frees |= image->at[i].step.address == memory->memory->range.base;
    return frees;
}

/* A launch whose memory the one before has yet to free waits for that, as the node itself would on a GPU. */
static CUresult launch_wait_for_memory(CUgraphExec exec)
{
    for (unsigned i = 0; i < exec->image->count; i++) {
        struct sim_graph_memory *memory = exec->image->at[i].step.memory;
        if (memory && memory->live && exec->last &&
            (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH ||
                image_frees_what_it_allocates(exec->image, memory)))
            return sim_wait(exec->last, exec->last_position);
    }
    return CUDA_SUCCESS;
}

/* A launch whose memory somebody else has yet to free waits for that too. */
static CUresult launch_wait_for_frees(CUgraphExec exec)
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

/* The stream waits before the launch for all events that a node of it waits for. */
static CUresult launch_wait_for_events(struct sim_image *image, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    image->refs++;
    for (unsigned i = 0; i < image->count && result == CUDA_SUCCESS; i++) {
        if (image->at[i].step.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
            result = sim_event_wait(image->at[i].step.event, stream);
    }
    sim_image_unref(image);
    return result;
}

static CUresult launch_record_events(const struct sim_image *image, CUstream stream, uint64_t position)
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
static void image_set_leaving(const struct sim_image *image, bool leaving)
{
    for (unsigned i = 0; i < image->count; i++) {
        struct sim_memory *memory = image->at[i].step.address ? sim_memory_find(image->at[i].step.address) : NULL;
        if (memory && memory->graph && memory->graph->live)
            memory->leaving = leaving;
    }
}

static void image_note_frees(const struct sim_image *image, CUstream stream, uint64_t position)
{
    for (unsigned i = 0; i < image->count; i++) {
        if (image->at[i].step.address)
            sim_graph_memory_freed(image->at[i].step.address, stream, position);
    }
}

static CUresult launch_submit(CUgraphExec exec, CUstream stream)
{
    struct sim_work *work = sim_work_new(sizeof exec->image, sim_image_run, launch_finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    if (exec->last && sim_work_depend(work, exec->last, exec->last_position) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = launch_take_memory(exec);
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
    image_set_leaving(image, true);
    result = sim_submit(stream, work, &position);
    if (result == CUDA_SUCCESS)
        image_note_frees(image, stream, position);
    else
        image_set_leaving(image, false);
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
        result = launch_record_events(image, stream, position);
    sim_image_unref(image);
    return result;
}

/* The lock is given up where something is waited for, so that the executable may go meanwhile. */
static CUresult launch_queued(CUgraphExec exec, CUstream stream)
{
    CUresult result = launch_wait_for_memory(exec);
    if (result == CUDA_SUCCESS)
        result = launch_wait_for_frees(exec);
    if (result == CUDA_SUCCESS)
        result = sim_handle_valid(exec, SIM_KIND_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    sim_stream_ref(stream);
    if (result == CUDA_SUCCESS)
        result = launch_wait_for_events(exec->image, stream);
    if (result == CUDA_SUCCESS)
        result = sim_handle_valid(exec, SIM_KIND_EXEC) ? launch_submit(exec, stream) : CUDA_ERROR_INVALID_VALUE;
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

CUresult sim_graph_launch(CUgraphExec exec, CUstream stream)
{
    return sim_capturing(stream) ? launch_captured(exec, stream) : launch_queued(exec, stream);
}
