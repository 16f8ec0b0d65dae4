#include "process/glibc_symver.h"

#include "serve/fast_path.h"

#include <stdint.h>
#include <string.h>

#include "track/captures.h"
#include "track/contexts.h"
#include "core.h"
#include "services/hazard_annotations.h"
#include "track/graph_blocks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "serve/requests.h"
#include "services/recorder.h"
#include "sites/sites.h"
#include "track/streams.h"

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

/* `gate` was read before anything that it stands for. */
static void learn(struct sg_quick *quick, unsigned gate, struct sg_core *core, const struct sg_origin *origin)
{
    const struct sg_thread *self = &sg_self;
    *quick = (struct sg_quick){
        .gate = gate,
        .device = self->last.device,
        .core = core,
        .driver = sg_life_driver(),
        .tag = sg_memory_tag(core, origin, self->last.context, self->last.device),
    };
    quick->tag.tentative = true;
}

void sg_quick_learn(const struct sg_module *module)
{
    struct sg_thread *self = sg_this_thread();
    unsigned gate = atomic_load_explicit(&sg_life_gate, memory_order_acquire);
    struct sg_core *core = sg_life_core();
    if (!core || sg_captures_live() || sg_ipc_unsettled() ||
        (self->runtime == runtime_of(module) && self->quick.gate == gate &&
            self->quick.tag.context == self->last.context))
        return;
    bool fine = module->quick && self->last.context && !sg_declare_on && sg_contexts_primary(self->last.context);
    const struct sg_origin origin = {0};
    learn(&self->quick, gate, core, &origin);
    self->runtime = runtime_of(module);
    if (!fine)
        self->quick.core = NULL;
}

void sg_quick_learn_named(void)
{
    struct sg_thread *self = sg_this_thread();
    unsigned gate = atomic_load_explicit(&sg_life_gate, memory_order_acquire);
    struct sg_core *core = sg_life_core();
    if (!core || sg_captures_live() || sg_declare_on || sg_ipc_unsettled() || !self->last.context ||
        (self->named.gate == gate && self->named.tag.context == self->last.context))
        return;
    const struct sg_origin origin = {.named = true};
    learn(&self->named, gate, core, &origin);
}

/* The core, with this thread inside it, if the earlier finding still holds. */
static inline struct sg_core *begin(struct sg_thread *self, const struct sg_quick *quick)
{
    CUcontext context;
    if (quick->gate != atomic_load_explicit(&sg_life_gate, memory_order_acquire) || !quick->core || self->inside ||
        quick->driver->ctx_get_current(&context) != CUDA_SUCCESS || context != quick->tag.context)
        return NULL;
    self->inside = true;
    return quick->core;
}

static inline void end(struct sg_thread *self, const struct sg_quick *quick)
{
    if (sg_recorder_on)
        sg_recorder_tick(quick->core, quick->device);
    self->inside = false;
}

static __attribute__((noinline)) const struct sg_tag *noted(struct sg_thread *self, const struct sg_tag *tag,
    struct sg_tag *ret)
{
    sg_sites_note(self);
    *ret = *tag;
    ret->site = self->shown;
    ret->phase = self->phase;
    return ret;
}

static inline CUresult take(struct sg_thread *self, const struct sg_quick *quick, size_t bytes,
    const struct sg_tag *tag, CUdeviceptr *ret)
{
    struct sg_tag with_site;
    if (__builtin_expect(sg_sites_on, false))
        tag = noted(self, tag, &with_site);
    unsigned ends = sg_captures_ends();
    CUresult result = sg_core_malloc(quick->core, quick->device, bytes, tag, ret);
    if (result != CUDA_SUCCESS)
        result = sg_memory_not_served(quick->core, quick->device, bytes, tag, ends, result, ret);
    end(self, quick);
    return result;
}

static inline bool give(struct sg_thread *self, const struct sg_quick *quick, CUdeviceptr address,
    const struct sg_tag *tag)
{
    CUresult result = sg_core_free(quick->core, address, tag);
    end(self, quick);
    return result == CUDA_SUCCESS;
}

static __attribute__((noinline)) const struct sg_tag *torch_tag(const struct sg_quick *quick, struct sg_tag *ret)
{
    const struct sg_origin origin = sg_memory_origin(SG_CALLER_TORCH);
    *ret = sg_memory_tag(quick->core, &origin, quick->tag.context, quick->device);
    ret->tentative = true;
    return ret;
}

/* What to tell the core of a call through a runtime; `spare` may hold it. */
static inline const struct sg_tag *tag_of(const struct sg_quick *quick, const struct sg_module *module,
    struct sg_tag *spare)
{
    return module->kind == SG_CALLER_TORCH ? torch_tag(quick, spare) : &quick->tag;
}

bool sg_quick_malloc(const struct sg_module *module, void **ret, size_t bytes)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_quick *quick = &self->quick;
    if (!ret || !bytes || self->runtime != runtime_of(module) || sg_memory_unsettled() || !begin(self, quick))
        return false;
    struct sg_tag spare;
    CUdeviceptr address;
    self->refused = take(self, quick, bytes, tag_of(quick, module, &spare), &address);
    if (self->refused != CUDA_SUCCESS)
        return false;
    *ret = (void *)(uintptr_t)address;
    return true;
}

bool sg_quick_free(const struct sg_module *module, void *address)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_quick *quick = &self->quick;
    if (!address || self->runtime != runtime_of(module) || sg_graphs_holding() || !begin(self, quick))
        return false;
    struct sg_tag spare;
    return give(self, quick, (CUdeviceptr)(uintptr_t)address, tag_of(quick, module, &spare));
}

CUresult sg_quick_refused(void)
{
    struct sg_thread *self = sg_this_thread();
    CUresult result = self->refused;
    self->refused = CUDA_SUCCESS;
    return result;
}

bool sg_quick_malloc_on(size_t bytes, CUstream stream, CUdeviceptr *ret)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_quick *quick = &self->named;
    sg_slot slot;
    if (sg_memory_unsettled() || !sg_streams_remembered(self, stream, quick->tag.context, quick->device, &slot) ||
        !begin(self, quick))
        return false;
    struct sg_tag tag = quick->tag;
    tag.stream = stream;
    tag.has_stream = true;
    tag.slot = slot;
    CUdeviceptr address;
    *ret = take(self, quick, bytes, &tag, &address) == CUDA_SUCCESS ? address : 0;
    return true;
}

bool sg_quick_free_named(CUdeviceptr address)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_quick *quick = &self->named;
    return !sg_graphs_holding() && begin(self, quick) && give(self, quick, address, &quick->tag);
}
