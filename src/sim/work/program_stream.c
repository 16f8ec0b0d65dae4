#include "work/program_stream.h"

#include <stdlib.h>

#include "graphs/captured_work.h"

/* The per-thread default streams that this thread has used, one a context. Each holds a reference. */
struct thread_stream {
    CUstream stream;
    struct thread_stream *next;
};

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void thread_streams_end(void *list)
{
    if (sim_state_now() != SIM_READY)
        return;
    sim_lock();
    for (struct thread_stream *at = list, *next; at; at = next) {
        next = at->next;
        if (at->stream->alive)
            sim_stream_end(at->stream, false);
        sim_stream_unref(at->stream);
        free(at);
    }
    sim_unlock();
}

static void thread_streams_make_key(void)
{
    pthread_key_create(&thread_key, thread_streams_end);
}

static CUresult thread_stream_get(CUcontext context, CUstream *ret)
{
    pthread_once(&thread_once, thread_streams_make_key);
    struct thread_stream *list = pthread_getspecific(thread_key), **link = &list, *found = NULL;
    while (*link && !found) {
        struct thread_stream *at = *link;
        if (at->stream->alive) {
            found = at->stream->context == context ? at : NULL;
            link = &at->next;
            continue;
        }
        *link = at->next; /* its context was reset or destroyed */
        sim_stream_unref(at->stream);
        free(at);
    }
    CUresult result = CUDA_SUCCESS;
    if (!found) {
        found = calloc(1, sizeof *found);
        result = found ? sim_stream_new(context, SIM_STREAM_PER_THREAD, CU_STREAM_DEFAULT, 0, &found->stream)
                       : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            sim_stream_ref(found->stream);
            found->next = list;
            list = found;
        } else {
            free(found);
        }
    }
    pthread_setspecific(thread_key, list);
    if (result == CUDA_SUCCESS)
        *ret = found->stream;
    return result;
}

CUresult sim_stream_get(CUstream handle, CUstream *ret)
{
    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        if (!sim_handle_valid(handle, SIM_KIND_STREAM) || handle->kind == SIM_STREAM_MARKER)
            return CUDA_ERROR_INVALID_HANDLE;
        *ret = handle;
        return handle->context->error;
    }
    CUcontext context;
    CUresult result = sim_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream_get(context, ret);
    *ret = context->legacy;
    return CUDA_SUCCESS;
}
