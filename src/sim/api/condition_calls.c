/* The entry point of conditions. */
#include "calls.h"
#include "graphs/condition.h"
#include "graphs/graph.h"

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
    unsigned int at_launch, unsigned int flags)
{
    SIM_ENTER_WITH(cuGraphConditionalHandleCreate, handle, graph, context, at_launch, flags);
    if (!handle || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    (void)context;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    struct sim_condition *made = result == CUDA_SUCCESS ? sim_condition_new(graph, at_launch, flags != 0) : NULL;
    if (made) {
        *handle = made->handle;
    } else if (result == CUDA_SUCCESS) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}
