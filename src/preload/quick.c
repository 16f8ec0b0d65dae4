#include "glibc.h"

#include "quick.h"

#include <stdint.h>
#include <string.h>

#include "captures.h"
#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "life.h"
#include "memory.h"
#include "recorder.h"
#include "streams.h"

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
    bool fine = module->quick && self->last.context && !sg_captures_live() && sg_contexts_primary(self->last.context);
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

void sg_quick_learn_named(CUstream stream)
{
    struct sg_thread *self = &sg_self;
    unsigned gate = atomic_load_explicit(&sg_life_gate, memory_order_acquire), changes = sg_streams_changes();
    struct sg_core *core = sg_life_core();
    if (!core || !self->last.context || sg_captures_live() || !sg_contexts_primary(self->last.context)) {
        self->named.core = NULL;
        return;
    }
    const struct sg_origin origin = {.stream = stream, .has_stream = true, .named = true}, free_origin = {.named = true};
    self->named.gate = gate;
    self->named.changes = changes;
    self->named.driver = sg_life_driver();
    self->named.device = self->last.device;
    self->named.tag = sg_memory_tag(core, &origin, self->last.context, self->last.device);
    self->named.free_tag = sg_memory_tag(core, &free_origin, self->last.context, self->last.device);
    self->named.tag.tentative = self->named.free_tag.tentative = true;
    self->named.core = core;
}

static inline struct sg_core *begin_named(struct sg_thread *self)
{
    CUcontext context;
    if (!self->named.core || self->inside || self->named.gate != atomic_load_explicit(&sg_life_gate, memory_order_acquire) ||
        self->named.changes != sg_streams_changes() || self->named.driver->ctx_get_current(&context) != CUDA_SUCCESS ||
        context != self->named.tag.context)
        return NULL;
    self->inside = true;
    return self->named.core;
}

static bool end_named(struct sg_thread *self, struct sg_core *core, CUresult result)
{
    if (result == CUDA_SUCCESS && sg_recorder_on)
        sg_recorder_tick(core, self->named.device);
    self->inside = false;
    return result == CUDA_SUCCESS;
}

bool sg_quick_malloc_on(size_t bytes, CUstream stream, CUdeviceptr *ret)
{
    struct sg_thread *self = this_thread();
    struct sg_core *core = stream == self->named.tag.stream ? begin_named(self) : NULL;
    return core && end_named(self, core, sg_core_malloc(core, self->named.device, bytes, &self->named.tag, ret));
}

bool sg_quick_free_named(CUdeviceptr address)
{
    struct sg_thread *self = this_thread();
    struct sg_core *core = sg_graphs_holding() ? NULL : begin_named(self);
    return core && end_named(self, core, sg_core_free(core, address, &self->named.free_tag));
}
