#include "process/glibc_symver.h"

#include "torch/torch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/conf.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "process/interposers.h"
#include "process/process.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "base/size.h"
#include "torch/torch_allocator.h"
#include "torch/torch_pools.h"
#include "torch/torch_segments.h"
#include "track/captures.h"
#include "track/free_policy.h"
#include "track/streams.h"

/* std::optional<bool>: two bytes, in a register. */
typedef uint16_t check_env_fn(const char *name);
enum { NO_VALUE = 0, HAS_VALUE = 0x100, IS_TRUE = 1 };

/* c10::cuda::CUDAStream: device and stream number, 16 bytes, in two registers. */
struct torch_stream {
    uint64_t words[2];
};
typedef struct torch_stream current_stream_fn(int8_t device);
typedef CUstream stream_handle_fn(const struct torch_stream *stream);

SG_EXPORT uint16_t _ZN3c105utils9check_envEPKc(const char *name);

bool sg_torch_is_direct(const void *pointer)
{
    struct sg_block_info block;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    struct sg_core *core = sg_torch_direct() && sg_process_owns(address) ? sg_enter() : NULL;
    bool is = core && sg_core_block(core, address, &block) == CUDA_SUCCESS && block.base == address;
    if (core)
        sg_leave();
    return is && !sg_torch_is_segment(pointer);
}

static bool can_switch(void)
{
    return sg_torch_switchable() && sg_process_conf()->pytorch == SG_PYTORCH_AUTO;
}

static bool switch_for_good(void)
{
    if (!can_switch() || !sg_torch_allocator_cache(true))
        return false;
    sg_torch_caches_segments();
    sg_torch_mode_change(SG_TORCH_SWITCHABLE, SG_TORCH_SWITCHED);
    return true;
}

static void explain_direct_pool(void)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    if (sg_torch_direct() && sg_process_conf()->pytorch == SG_PYTORCH_DIRECT && !atomic_flag_test_and_set(&noted))
        sg_log_line("PyTorch allocates for a pool of its own (MemPool, or a CUDA graph), and pytorch:direct bypasses it: "
                    "SEGALLOC_CONF=pytorch:auto or pytorch:beneath has its memory in the pool");
}

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    sg_torch_mode_next_pool(first, second);
    if (can_switch() && !sg_torch_allocator_routes())
        (void)switch_for_good();
    explain_direct_pool();
}

void sg_torch_caches_segments(void)
{
    if (!atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed))
        atomic_store(&sg_torch_segments_seen, true);
}

bool sg_torch_pool_allocates(void)
{
    if (!can_switch() || !sg_torch_pools_route())
        return false;
    sg_torch_caches_segments();
    return true;
}

bool sg_torch_gives_back(void)
{
    return sg_torch_switchable() && atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed) &&
        !sg_thread_inside() && !sg_captures_active() && sg_torch_allocator_empty();
}

static atomic_bool history_wanted, spare_wanted; /* before the first allocation */

void sg_torch_history(bool on)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    static const char out[] = "`segalloc run --torch` keeps the history of what segalloc serves";
    char line[256];
    if (!sg_torch_mode_known()) {
        atomic_store(&history_wanted, on);
        return;
    }
    if (!on || !sg_torch_direct() || sg_torch_switched() || atomic_flag_test_and_set(&noted))
        return;
    bool switched = switch_for_good();
    snprintf(line, sizeof line, "PyTorch records its memory history: %s; %s",
        switched ? "its own cache is on from here on, and what was allocated before has no stacks in it"
                 : "nothing is in it without its own cache, which SEGALLOC_CONF=pytorch:beneath keeps on",
        out);
    sg_log_line(line);
}

void sg_torch_spare_pool(void)
{
    if (!sg_torch_mode_known())
        atomic_store(&spare_wanted, true);
    else if (switch_for_good())
        sg_log_line("PyTorch has a pool to be used when memory runs out (use_on_oom): its own cache is on from here on");
}

void *sg_torch_symbol(const char *library, const char *name)
{
    void *handle = sg_library_find(library);
    void *symbol = handle ? sg_dlsym()(handle, name) : NULL;
    if (handle)
        sg_library_close(handle);
    return symbol;
}

static uint16_t ask_torch(const char *name)
{
    void *symbol = sg_torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc");
    check_env_fn *theirs, *ours = _ZN3c105utils9check_envEPKc;
    memcpy(&theirs, &symbol, sizeof theirs);
    return symbol && theirs != ours ? theirs(name) : NO_VALUE;
}

static int is_server(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    return info->dlpi_name && (strstr(info->dlpi_name, "/vllm/") || strstr(info->dlpi_name, "/sgl_kernel/"));
}

/* Servers that reckon with what PyTorch's cache says of itself, capture dozens of graphs, and send memory to each other
   by legacy handles. They have extensions of their own, which are loaded before the first tensor. */
static bool serves(void)
{
    return dl_iterate_phdr(is_server, NULL) != 0;
}

static enum sg_pytorch wanted_mode(void)
{
    return sg_process_is_passthrough() ? SG_PYTORCH_BENEATH : sg_process_conf()->pytorch;
}

/* Decides whether PyTorch, which has asked whether to keep its cache, gets no for an answer. A library that interposes
   cudaMalloc expects PyTorch's cache: it gets segments then, not tensors, and running out is PyTorch's own error. So
   `auto` leaves the cache on beside one (interposers.h). */
static bool choose(void)
{
    enum sg_pytorch wanted = wanted_mode();
    bool history = wanted == SG_PYTORCH_AUTO && atomic_load(&history_wanted);
    bool spare = atomic_load(&spare_wanted);
    bool off = wanted == SG_PYTORCH_DIRECT || (wanted == SG_PYTORCH_AUTO && !history && !spare && !serves() && !sg_interposer_of_runtime());
    if (history)
        sg_log_line("PyTorch records its memory history: its own cache stays on for that, as with pytorch:beneath; "
                    "`segalloc run --torch` keeps the history of what segalloc serves");
    if (off && sg_torch_allocator_take() && sg_torch_allocator_cache(false))
        sg_torch_mode_set(SG_TORCH_SWITCHABLE);
    else
        sg_torch_mode_set(wanted == SG_PYTORCH_DIRECT ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    if (sg_torch_pools_seen())
        explain_direct_pool();
    return wanted == SG_PYTORCH_DIRECT && sg_torch_mode() == SG_TORCH_DIRECT;
}

/* c10::utils::check_env(const char *). PyTorch asks it, once, whether to keep its own cache; the answer reaches this
   process alone, where a variable of the environment would be inherited. What the user says stands. */
uint16_t _ZN3c105utils9check_envEPKc(const char *name)
{
    uint16_t answer = ask_torch(name);
    if (!name || strcmp(name, "PYTORCH_NO_CUDA_MEMORY_CACHING") != 0) {
        if (!sg_torch_mode_known() && wanted_mode() != SG_PYTORCH_BENEATH)
            sg_torch_allocator_watch();
        return answer;
    }
    if (answer & HAS_VALUE) {
        bool off = answer & IS_TRUE;
        (void)(off && sg_torch_allocator_take());
        sg_torch_mode_set(off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    } else if (choose()) {
        answer = HAS_VALUE | IS_TRUE;
    }
    if (sg_torch_direct()) {
        sg_follow_as_configured();
        sg_torch_allocator_limit();
    }
    return answer;
}

/* True if this PyTorch asks by `check_env`. 2.6 has that too, but asks the environment; until then its allocator's
   settings are parsed from what getenv() gives (c10/cuda/CUDAAllocatorConfig.h). */
static bool asks(void)
{
    return sg_torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc") &&
           !sg_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig9parseArgsEPKc");
}

/* Before 2.7 the question is part of PyTorch's own code, and the environment alone has the answer. */
void sg_torch_begins(void)
{
    void *handle = sg_torch_mode() == SG_TORCH_UNKNOWN ? sg_library_find("libc10_cuda.so") : NULL;
    if (!handle)
        return;
    (void)sg_library_close(handle);
    if (asks())
        return; /* and hasn't yet */
    const char *variable = sg_environment("PYTORCH_NO_CUDA_MEMORY_CACHING");
    bool off = variable && strcmp(variable, "1") == 0;
    (void)(off && sg_torch_allocator_take());
    sg_torch_mode_set(off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    if (off)
        sg_follow_as_configured();
    else if (sg_process_conf()->pytorch == SG_PYTORCH_DIRECT)
        sg_log_line(
            "pytorch:direct: this PyTorch, older than 2.7, keeps its cache unless PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                    "is in the environment, where `segalloc run` puts it");
}

/* PyTorch keeps a thread's current streams in a variable with a destructor, and asked after that it reads freed memory
   and throws. What destroys its tensors later (static ones, at the end of the process) must not ask. */
enum asking { ASKING_NEVER_YET, ASKING, ASKING_OVER };
static _Thread_local enum asking asking;

static void stop_asking(void *unused)
{
    (void)unused;
    asking = ASKING_OVER;
}

/* After the thread's first question: destructors run in the reverse order of their registration, so ours comes before
   PyTorch's. glibc has the function from 2.18 on. */
static void ask_until_thread_ends(void)
{
    typedef int register_fn(void (*destructor)(void *), void *object, void *module);
    register_fn *function;
    void *symbol = sg_dlsym()(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
    memcpy(&function, &symbol, sizeof function);
    asking = ASKING;
    if (function)
        (void)function(stop_asking, NULL, (void *)&history_wanted);
}

/* PyTorch's functions, looked up once. False: it has not both. */
static bool find_stream_functions(current_stream_fn **ret_current, stream_handle_fn **ret_handle)
{
    static struct {
        _Atomic(uintptr_t) current, handle;
        atomic_bool probed;
    } functions;
    if (!atomic_load_explicit(&functions.probed, memory_order_acquire)) {
        atomic_store(&functions.current,
            (uintptr_t)sg_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20getCurrentCUDAStreamEa"));
        atomic_store(&functions.handle,
            (uintptr_t)sg_torch_symbol("libc10_cuda.so", "_ZNK3c104cuda10CUDAStream6streamEv"));
        atomic_store_explicit(&functions.probed, true, memory_order_release);
    }
    uintptr_t addresses[2] = {atomic_load_explicit(&functions.current, memory_order_relaxed),
        atomic_load_explicit(&functions.handle, memory_order_relaxed)};
    memcpy(ret_current, &addresses[0], sizeof *ret_current);
    memcpy(ret_handle, &addresses[1], sizeof *ret_handle);
    return addresses[0] && addresses[1];
}

bool sg_torch_stream(CUstream *ret)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    if (asking == ASKING_OVER || !find_stream_functions(&current, &handle))
        return false;
    const struct torch_stream stream = current(-1);
    if (asking == ASKING_NEVER_YET)
        ask_until_thread_ends();
    *ret = handle(&stream);
    return true;
}

bool sg_torch_has_streams(void)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    return find_stream_functions(&current, &handle);
}

bool sg_torch_stream_handle(uint64_t first, uint64_t second, CUstream *ret)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    const struct torch_stream stream = {{first, second}};
    bool known = find_stream_functions(&current, &handle);
    *ret = known ? handle(&stream) : NULL;
    return known;
}

bool sg_torch_push_device(const struct sg_driver *driver, int device)
{
    static _Atomic(CUcontext) primaries[SG_DEVICES_MAX];
    CUcontext context = NULL;
    CUdevice current;
    if (device < 0 || device >= SG_DEVICES_MAX)
        return false;
    if (driver->ctx_get_current(&context) == CUDA_SUCCESS && context &&
        driver->ctx_get_device(&current) == CUDA_SUCCESS && current == device)
        return false;
    context = atomic_load(&primaries[device]);
    if (!context) {
        if (driver->primary_retain(&context, device) != CUDA_SUCCESS)
            return false;
        CUcontext expected = NULL;
        if (!atomic_compare_exchange_strong(&primaries[device], &expected, context))
            driver->primary_release(device);
    }
    return driver->ctx_push(context) == CUDA_SUCCESS;
}

void sg_torch_pop_device(const struct sg_driver *driver, bool pushed)
{
    CUcontext ignored;
    if (pushed)
        driver->ctx_pop(&ignored);
}
