#include "glibc.h"

#include "quick.h"

#include <stdint.h>
#include <string.h>

#include "captures.h"
#include "contexts.h"
#include "core.h"
#include "life.h"
#include "memory.h"
#include "recorder.h"

enum { LEAST_RUNTIME = 12000 };

bool sg_quick_runtime(void *symbol)
{
    int (*get_version)(int *ret), version = 0;
    memcpy(&get_version, &symbol, sizeof symbol);
    return symbol && get_version(&version) == 0 && version >= LEAST_RUNTIME;
}

/* Functions and objects are told apart by their addresses all the same. */
static const void *runtime_of(const struct sg_module *module)
{
    const void *runtime;
    memcpy(&runtime, &module->malloc, sizeof runtime);
    return runtime;
}

void sg_quick_learn(const struct sg_module *module)
{
    struct sg_thread *self = &sg_self;
    if (!self->last.context || self->runtime == runtime_of(module))
        return;
    self->runtime = runtime_of(module);
    self->primary = sg_contexts_primary(self->last.context);
}

/* The core, with this thread inside it and its context in sg_self.last, if the conditions hold. */
static struct sg_core *begin(const struct sg_module *module, struct sg_thread *self)
{
    struct sg_core *core = sg_life_core();
    if (!core || !module->quick || !self->primary || self->runtime != runtime_of(module) || self->inside || sg_captures_live() ||
        !sg_contexts_unchanged(self->last.changes))
        return NULL;
    CUcontext context;
    if (sg_life_driver()->ctx_get_current(&context) != CUDA_SUCCESS || context != self->last.context)
        return NULL;
    self->inside = true;
    return core;
}

bool sg_quick_malloc(const struct sg_module *module, void **ret, size_t bytes)
{
    struct sg_thread *self = &sg_self;
    struct sg_core *core = ret && bytes ? begin(module, self) : NULL;
    if (!core)
        return false;
    const struct sg_origin origin = sg_memory_origin((int)module->kind);
    struct sg_tag tag = sg_memory_tag(&origin, self->last.context);
    CUdeviceptr address;
    tag.tentative = true;
    CUresult result = sg_core_malloc(core, self->last.device, bytes, &tag, &address);
    if (result == CUDA_SUCCESS) {
        *ret = (void *)(uintptr_t)address;
        sg_recorder_tick(core, self->last.device);
    }
    self->inside = false;
    return result == CUDA_SUCCESS;
}

bool sg_quick_free(const struct sg_module *module, void *address)
{
    struct sg_thread *self = &sg_self;
    struct sg_core *core = address ? begin(module, self) : NULL;
    if (!core)
        return false;
    const struct sg_origin origin = sg_memory_origin((int)module->kind);
    struct sg_tag tag = sg_memory_tag(&origin, self->last.context);
    tag.tentative = true;
    CUresult result = sg_core_free(core, (CUdeviceptr)(uintptr_t)address, &tag);
    if (result == CUDA_SUCCESS)
        sg_recorder_tick(core, self->last.device);
    self->inside = false;
    return result == CUDA_SUCCESS;
}
