#include "glibc.h"

#include "quick.h"

#include <stdint.h>
#include <string.h>

#include "captures.h"
#include "contexts.h"
#include "core.h"
#include "declare.h"
#include "graphs.h"
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
    unsigned gate = atomic_load_explicit(&sg_life_gate, memory_order_acquire); /* before what depends on it */
    struct sg_core *core = sg_life_core();
    if (!core || (self->quick.runtime == runtime_of(module) && self->quick.gate == gate && self->quick.tag.context == self->last.context))
        return;
    bool fine = module->quick && self->last.context && !sg_captures_live() && !sg_declare_on && sg_contexts_primary(self->last.context);
    const struct sg_origin origin = {0};
    self->quick.gate = gate;
    self->quick.runtime = runtime_of(module);
    self->quick.core = fine ? core : NULL;
    self->quick.driver = sg_life_driver();
    self->quick.device = self->last.device;
    self->quick.tag = sg_memory_tag(core, &origin, self->last.context, self->last.device);
    self->quick.tag.tentative = true;
}

/* The thread's own variables. Reaching them is a call of the loader's, which gcc would make again after each other call rather than
   keep the address; it cannot see that this one is the same. */
static inline struct sg_thread *this_thread(void)
{
    struct sg_thread *self = &sg_self;
    __asm__("" : "+r"(self));
    return self;
}

/* The core, with this thread inside it, if what was learnt is still true. *ret_tag: what to tell it, which `spare` may hold. */
static inline struct sg_core *begin(const struct sg_module *module, struct sg_thread *self, struct sg_tag *spare, const struct sg_tag **ret_tag)
{
    if (self->quick.gate != atomic_load_explicit(&sg_life_gate, memory_order_acquire) || self->quick.runtime != runtime_of(module) ||
        !self->quick.core || self->inside)
        return NULL;
    CUcontext context;
    if (self->quick.driver->ctx_get_current(&context) != CUDA_SUCCESS || context != self->quick.tag.context)
        return NULL;
    *ret_tag = &self->quick.tag;
    if (module->kind == SG_CALLER_TORCH) {
        const struct sg_origin origin = sg_memory_origin((int)module->kind);
        *spare = sg_memory_tag(self->quick.core, &origin, context, self->quick.device);
        spare->tentative = true;
        *ret_tag = spare;
    }
    self->inside = true;
    return self->quick.core;
}

bool sg_quick_malloc(const struct sg_module *module, void **ret, size_t bytes)
{
    struct sg_thread *self = this_thread();
    struct sg_tag spare;
    const struct sg_tag *tag;
    struct sg_core *core = ret && bytes ? begin(module, self, &spare, &tag) : NULL;
    if (!core)
        return false;
    CUdeviceptr address;
    CUresult result = sg_core_malloc(core, self->quick.device, bytes, tag, &address);
    if (result == CUDA_SUCCESS) {
        *ret = (void *)(uintptr_t)address;
        if (sg_recorder_on)
            sg_recorder_tick(core, self->quick.device);
    }
    self->inside = false;
    return result == CUDA_SUCCESS;
}

bool sg_quick_free(const struct sg_module *module, void *address)
{
    struct sg_thread *self = this_thread();
    struct sg_tag spare;
    const struct sg_tag *tag;
    struct sg_core *core = address && !sg_graphs_holding() ? begin(module, self, &spare, &tag) : NULL;
    if (!core)
        return false;
    CUresult result = sg_core_free(core, (CUdeviceptr)(uintptr_t)address, tag);
    if (result == CUDA_SUCCESS && sg_recorder_on)
        sg_recorder_tick(core, self->quick.device);
    self->inside = false;
    return result == CUDA_SUCCESS;
}
