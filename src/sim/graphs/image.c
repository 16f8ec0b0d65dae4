#include "graphs/image.h"

#include <stdlib.h>

#include "graphs/choice.h"
#include "hazard/hazard.h"

void sim_image_unref(struct sim_image *image)
{
    if (--image->refs)
        return;
    for (unsigned i = 0; i < image->count; i++)
        sim_step_drop(&image->at[i].step);
    sim_object_refs_drop(&image->object_refs);
    free(image->at);
    free(image);
}

static CUresult image_append(struct sim_image *image, CUgraph graph)
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
            result = image_append(image, node->step.child);
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

CUresult sim_image_new(CUgraph graph, struct sim_image **ret)
{
    struct sim_image *image = calloc(1, sizeof *image);
    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    image->refs = 1;
    CUresult result = image_append(image, graph);
    if (result == CUDA_SUCCESS)
        *ret = image;
    else
        sim_image_unref(image);
    return result;
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
        sim_image_unref(image);
    } else if (copy) {
        sim_image_unref(copy);
    }
    return result;
}
