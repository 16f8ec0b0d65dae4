/* The public functions of tags and pauses. They answer a CUresult as int. */
#include "process/process.h"
#include "segalloc/segalloc.h"
#include "serve/pause.h"
#include "track/memory_tags.h"

int segalloc_tag_push(const char *tag, unsigned flags)
{
    if (flags & ~(unsigned)SEGALLOC_TAG_DISCARD)
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_process_is_passthrough())
        return CUDA_ERROR_NOT_SUPPORTED;
    return (int)sg_memory_tags_push(tag, flags & SEGALLOC_TAG_DISCARD);
}

int segalloc_tag_pop(void)
{
    return sg_process_is_passthrough() ? CUDA_ERROR_NOT_SUPPORTED : (int)sg_memory_tags_pop();
}

/* Carries an order out for the calling thread, which may have no context current: each device's own is made current.
   Without a core nothing was allocated, so there is nothing to pause. */
static int api_order(const char *tag, CUresult (*order)(struct sg_core *core, const char *name, uint64_t *ret_bytes))
{
    uint64_t bytes;
    if (sg_process_is_passthrough())
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sg_core *core = sg_enter();
    if (!core)
        return tag ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
    CUresult result = order(core, tag, &bytes);
    sg_leave();
    return (int)result;
}

int segalloc_pause(const char *tag)
{
    return api_order(tag, sg_pause_tags);
}

int segalloc_resume(const char *tag)
{
    return api_order(tag, sg_resume_tags);
}

const void *segalloc_backup(const void *address, size_t bytes)
{
    return sg_process_is_passthrough() ? NULL : sg_pause_backup((CUdeviceptr)(uintptr_t)address, bytes);
}
