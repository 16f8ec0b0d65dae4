/* The conditions of the short way, asked with few loads: the epoch, the thread's mark `inside`, the context that is
   current now, and the runtime.

   A free by the fast path is *tentative*: its failure is not counted, because the slow path asks again. An allocation
   is asked for once only, with the ladder of sg_memory_not_served() behind it. */
#include "process/glibc_symver.h"

#include "serve/fast_path.h"

#include <stdint.h>
#include <string.h>

#include "check/state.h"
#include "serve/callers.h"
#include "serve/contents.h"
#include "serve/deferred_frees.h"
#include "serve/free_mode.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "core/core.h"
#include "services/hazard_annotations.h"
#include "track/graph_blocks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "serve/alloc.h"
#include "services/recorder.h"
#include "report/refusals.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "track/streams.h"

enum { LEAST_RUNTIME = 12000 };

bool sg_fast_path_allows(void *symbol)
{
    int (*get_version)(int *ret), version = 0;
    memcpy(&get_version, &symbol, sizeof symbol);
    return symbol && get_version(&version) == 0 && version >= LEAST_RUNTIME;
}

/* A function's address identifies its runtime. */
static const void *runtime_of(const struct sg_module *module)
{
    const void *runtime;
    memcpy(&runtime, &module->malloc, sizeof runtime);
    return runtime;
}

/* `epoch` was read before anything that it stands for. Takes locks, which may be held by what a handler has interrupted:
   `guards` says so. */
static void fast_path_fill(struct sg_fast_path *fast_path, unsigned epoch, struct sg_core *core,
    const struct sg_request *request)
{
    const struct sg_thread *self = &sg_self;
    *fast_path = (struct sg_fast_path){
        .epoch = epoch,
        .device = self->last.device,
        .core = core,
        .driver = sg_process_driver(),
        .tag = sg_memory_tag(core, request, self->last.context, self->last.device),
    };
    fast_path->tag.tentative = true;
}

/* Notes what the call just made has shown. A context that is not primary, or a runtime that is too old, is noted as one
   without a fast path. So it isn't looked at again. */
void sg_fast_path_prepare(const struct sg_module *module)
{
    struct sg_thread *self = sg_this_thread();
    unsigned epoch = atomic_load_explicit(&sg_fast_path_epoch, memory_order_acquire);
    struct sg_core *core = sg_process_core();
    if (!core || self->inside || self->guards || sg_captures_active() || sg_ipc_undecided() ||
        (self->runtime == runtime_of(module) && self->fast_path.epoch == epoch &&
            self->fast_path.tag.context == self->last.context))
        return;
    self->inside = true; /* calls by handlers meanwhile are handed on */
    bool fine = module->fast_path && self->last.context && !sg_annotate_on && !sg_check_on() &&
                !atomic_load(&sg_contents_any) && sg_contexts_primary(self->last.context);
    const struct sg_request request = {0};
    fast_path_fill(&self->fast_path, epoch, core, &request);
    self->runtime = runtime_of(module);
    if (!fine)
        self->fast_path.core = NULL;
    self->inside = false;
}

void sg_fast_path_prepare_streams(void)
{
    struct sg_thread *self = sg_this_thread();
    unsigned epoch = atomic_load_explicit(&sg_fast_path_epoch, memory_order_acquire);
    struct sg_core *core = sg_process_core();
    if (!core || self->guards || sg_captures_active() || sg_annotate_on || sg_check_on() || sg_ipc_undecided() ||
        atomic_load(&sg_contents_any) || !self->last.context ||
        (self->stream_fast_path.epoch == epoch && self->stream_fast_path.tag.context == self->last.context))
        return;
    const struct sg_request request = {.named = true};
    fast_path_fill(&self->stream_fast_path, epoch, core, &request);
}

/* True if the earlier finding still holds: then this thread is inside the core. */
static inline bool fast_path_begin(struct sg_thread *self, const struct sg_fast_path *fast_path)
{
    CUcontext context;
    if (fast_path->epoch != atomic_load_explicit(&sg_fast_path_epoch, memory_order_acquire) || !fast_path->core ||
        self->inside ||
        fast_path->driver->ctx_get_current(&context) != CUDA_SUCCESS || context != fast_path->tag.context)
        return false;
    self->inside = true;
    return true;
}

static inline void fast_path_end(struct sg_thread *self, const struct sg_fast_path *fast_path)
{
    if (sg_recorder_on)
        sg_recorder_tick(fast_path->core, fast_path->device);
    self->inside = false;
}

static __attribute__((noinline)) const struct sg_tag *fast_path_noted(struct sg_thread *self, const struct sg_tag *tag,
    struct sg_tag *ret)
{
    sg_sites_note(self);
    *ret = *tag;
    ret->site = self->place.shown;
    ret->phase = self->place.phase;
    return ret;
}

/* One allocation by the core, with the ladder behind it. The counts of captures are read before, since one may end
   meanwhile. */
static inline CUresult fast_path_take(struct sg_thread *self, const struct sg_fast_path *fast_path, size_t bytes,
    const struct sg_tag *tag, CUdeviceptr *ret)
{
    struct sg_tag with_site;
    if (__builtin_expect(sg_sites_on, false))
        tag = fast_path_noted(self, tag, &with_site);
    unsigned ends = sg_captures_ends();
    CUresult result = sg_core_malloc(fast_path->core, fast_path->device, bytes, tag, ret);
    if (result != CUDA_SUCCESS)
        result = sg_memory_not_served(fast_path->core, fast_path->device, bytes, tag, ends, result, ret);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_served(bytes);
    fast_path_end(self, fast_path);
    return result;
}

static inline bool fast_path_give(struct sg_thread *self, const struct sg_fast_path *fast_path, CUdeviceptr address,
    const struct sg_tag *tag)
{
    CUresult result = sg_core_free(fast_path->core, address, tag);
    fast_path_end(self, fast_path);
    return result == CUDA_SUCCESS;
}

static __attribute__((noinline)) const struct sg_tag *torch_tag(const struct sg_fast_path *fast_path,
    struct sg_tag *ret)
{
    const struct sg_request request = sg_memory_origin(SG_CALLER_TORCH);
    *ret = sg_memory_tag(fast_path->core, &request, fast_path->tag.context, fast_path->device);
    ret->tentative = true;
    return ret;
}

/* The tag for a call through a runtime; `spare` may hold it. */
static inline const struct sg_tag *tag_of(const struct sg_fast_path *fast_path, const struct sg_module *module,
    struct sg_tag *spare)
{
    return module->kind == SG_CALLER_TORCH ? torch_tag(fast_path, spare) : &fast_path->tag;
}

/* False: nothing has happened yet, or the error is kept for the driver's hook. The runtime then makes its own call,
   gets that error there, and sets its slot. */
bool sg_fast_malloc(const struct sg_module *module, void **ret, size_t bytes)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_fast_path *fast_path = &self->fast_path;
    if (!ret || !bytes || self->runtime != runtime_of(module) || sg_memory_has_deferred() ||
        !fast_path_begin(self, fast_path))
        return false;
    struct sg_tag spare;
    CUdeviceptr address;
    CUresult result = fast_path_take(self, fast_path, bytes, tag_of(fast_path, module, &spare), &address);
    if (result != CUDA_SUCCESS) {
        self->pending_error = result;
        return false;
    }
    *ret = (void *)(uintptr_t)address;
    return true;
}

bool sg_fast_free(const struct sg_module *module, void *address)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_fast_path *fast_path = &self->fast_path;
    if (!address || self->runtime != runtime_of(module) || sg_graphs_retain_any() || !fast_path_begin(self, fast_path))
        return false;
    struct sg_tag spare;
    return fast_path_give(self, fast_path, (CUdeviceptr)(uintptr_t)address, tag_of(fast_path, module, &spare));
}

CUresult sg_fast_path_take_error(void)
{
    struct sg_thread *self = sg_this_thread();
    CUresult result = self->pending_error;
    self->pending_error = CUDA_SUCCESS;
    return result;
}

/* Like sg_fast_malloc(), with the slot of the named stream from this thread's cache. */
bool sg_fast_malloc_on(size_t bytes, CUstream stream, CUdeviceptr *ret)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_fast_path *fast_path = &self->stream_fast_path;
    sg_slot slot;
    if (sg_memory_has_deferred() ||
        !sg_streams_remembered(self, stream, fast_path->tag.context, fast_path->device, &slot) ||
        !fast_path_begin(self, fast_path))
        return false;
    struct sg_tag tag = fast_path->tag;
    tag.stream = stream;
    tag.has_stream = true;
    tag.slot = slot;
    CUdeviceptr address;
    *ret = fast_path_take(self, fast_path, bytes, &tag, &address) == CUDA_SUCCESS ? address : 0;
    return true;
}

bool sg_fast_free_on(CUdeviceptr address)
{
    struct sg_thread *self = sg_this_thread();
    const struct sg_fast_path *fast_path = &self->stream_fast_path;
    return !sg_graphs_retain_any() && fast_path_begin(self, fast_path) &&
        fast_path_give(self, fast_path, address, &fast_path->tag);
}
