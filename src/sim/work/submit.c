#include "work/submit.h"

#include "graphs/captured_work.h"
#include "streams/capture.h"
#include "streams/executor.h"
#include "streams/queue.h"

static CUresult submit_work(CUstream stream, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (!sim_capturing(stream))
        return sim_enqueue(stream, work, waits, ret_position);
    if (waits)
        work->capturable = false;
    if (ret_position)
        *ret_position = stream->submitted;
    return sim_capture_work(stream, work);
}

CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *ret_position)
{
    return submit_work(stream, work, false, ret_position);
}

CUresult sim_submit_and_wait(CUstream stream, struct sim_work *work)
{
    uint64_t position;
    work->host_sees = true;
    sim_stream_ref(stream);
    CUresult result = submit_work(stream, work, true, &position);
    if (result == CUDA_SUCCESS)
        result = sim_executor_wait(stream, position);
    sim_stream_unref(stream);
    return result;
}
