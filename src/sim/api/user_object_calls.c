/* Entry points of user objects. */
#include <stdlib.h>

#include "calls.h"
#include "graphs/graph.h"
#include "graphs/user_object.h"

CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int count,
    unsigned int flags)
{
    SIM_ENTER(cuUserObjectCreate);
    if (!object || !destroy || !count || count > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->count = count;
    made->destroy = destroy;
    made->pointer = pointer;
    sim_lock();
    CUresult result = sim_user_objects_start();
    if (result == CUDA_SUCCESS) {
        sim_handle_add(&made->handle, SIM_KIND_USER_OBJECT);
        *object = made;
    } else {
        free(made);
    }
    sim_unlock();
    return result;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SIM_ENTER_WITH(cuUserObjectRetain, object, count);
    sim_lock();
    bool valid = count && count <= INT32_MAX && sim_handle_valid(object, SIM_KIND_USER_OBJECT);
    if (valid)
        object->count += count;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTER_WITH(cuUserObjectRelease, object, count);
    sim_lock();
    bool valid = count && sim_handle_valid(object, SIM_KIND_USER_OBJECT) && object->count >= count;
    if (valid)
        sim_user_object_release(object, count);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct sim_object_ref **object_ref_find(CUgraph graph, CUuserObject object)
{
    struct sim_object_ref **link = &graph->object_refs;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    SIM_ENTER_WITH(cuGraphRetainUserObject, graph, object, count, flags);
    if (!count || count > INT32_MAX || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    if (!sim_handle_valid(object, SIM_KIND_USER_OBJECT))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && flags & CU_GRAPH_USER_OBJECT_MOVE && object->count < count)
        result = CUDA_ERROR_INVALID_VALUE; /* more than the caller has to give away */
    if (result == CUDA_SUCCESS) {
        struct sim_object_ref **link = object_ref_find(graph, object);
        if (!*link && !(*link = calloc(1, sizeof **link)))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            (*link)->object = object;
            (*link)->count += count;
            object->count += flags & CU_GRAPH_USER_OBJECT_MOVE ? 0 : count;
        }
    }
    sim_unlock();
    return result;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_ENTER_WITH(cuGraphReleaseUserObject, graph, object, count);
    sim_lock();
    CUresult result = sim_graph_get(graph);
    struct sim_object_ref **link = result == CUDA_SUCCESS ? object_ref_find(graph, object) : NULL;
    if (result == CUDA_SUCCESS && (!count || !*link || (*link)->count < count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_object_ref *ref = *link;
        ref->count -= count;
        if (!ref->count) {
            *link = ref->next;
            free(ref);
        }
        sim_user_object_release(object, count);
    }
    sim_unlock();
    return result;
}
