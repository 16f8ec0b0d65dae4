#include "work/host_call.h"

#include "kernels/declared.h"
#include "work/program_stream.h"
#include "work/submit.h"

static void host_call_run(struct sim_work *work)
{
    struct sim_host_call *call = (struct sim_host_call *)work->payload;
    if (call->function)
        call->function(call->user_data);
    else
        call->callback(call->handle, CUDA_SUCCESS, call->user_data);
}

static struct sim_work *host_call_new(struct sim_host_call call)
{
    struct sim_work *work = sim_work_new(sizeof call, host_call_run, NULL);
    if (work) {
        *(struct sim_host_call *)work->payload = call;
        work->host_function = work->host_sees = true;
        work->unknown = !sim_touches_take(work);
        work->capturable = call.function != NULL; /* callbacks cannot be captured */
        work->node = CU_GRAPH_NODE_TYPE_HOST;
    }
    return work;
}

CUresult sim_host_work(const CUDA_HOST_NODE_PARAMS *params, struct sim_work **ret)
{
    *ret = host_call_new((struct sim_host_call){.function = params->fn, .user_data = params->userData});
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_host_params(const struct sim_work *work, CUDA_HOST_NODE_PARAMS *ret)
{
    const struct sim_host_call *call = (const struct sim_host_call *)work->payload;
    *ret = (CUDA_HOST_NODE_PARAMS){call->function, call->user_data};
}

CUresult sim_host_call(CUstream handle, struct sim_host_call call)
{
    struct sim_work *work = host_call_new(call);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, work, NULL);
    else
        sim_work_free(work);
    sim_unlock();
    return result;
}
