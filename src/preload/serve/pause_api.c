/* The public functions of tags and pauses. They answer a CUresult as int. */
#include "process/process.h"
#include "segalloc/segalloc.h"
#include "serve/pause.h"
#include "track/memory_tags.h"

int segalloc_tag_push(const char *tag, unsigned flags)
{
    static const enum sg_tag_keep keeps[] =
        {[SEGALLOC_TAG_DISCARD] = SG_TAG_DISCARDED, [SEGALLOC_TAG_FILE] = SG_TAG_FILED};
    if (flags > SEGALLOC_TAG_FILE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sg_process_is_passthrough())
        return CUDA_ERROR_NOT_SUPPORTED;
    return (int)sg_memory_tags_push(tag, keeps[flags]);
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

int segalloc_discard(const char *tag)
{
    return api_order(tag, sg_discard_tags);
}

int segalloc_resume(const char *tag)
{
    return api_order(tag, sg_resume_tags);
}

size_t segalloc_tag_bytes(const char *tag)
{
    struct sg_core *core = sg_process_is_passthrough() ? NULL : sg_enter();
    uint64_t bytes = core ? sg_pause_bytes(core, tag) : 0;
    if (core)
        sg_leave();
    return (size_t)bytes;
}

const void *segalloc_backup(const void *address, size_t bytes)
{
    return sg_process_is_passthrough() ? NULL : sg_pause_backup((CUdeviceptr)(uintptr_t)address, bytes);
}

/* A process whose allocations the driver serves has no contents to keep. It says so by 801, so that a program which needs files
   can tell. The folder itself is looked at by the first pause, whose error names it.

   For example, "/nvme/paused" is made by the first pause if /nvme is there. */
int segalloc_backup_folder(const char *folder, size_t staging)
{
    return sg_process_is_passthrough() ? CUDA_ERROR_NOT_SUPPORTED : (int)sg_pause_folder(folder, staging);
}

int segalloc_backup_retain(int retain)
{
    if (sg_process_is_passthrough())
        return CUDA_ERROR_NOT_SUPPORTED;
    sg_pause_retain(retain);
    return CUDA_SUCCESS;
}
