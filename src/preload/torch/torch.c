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

#include "conf.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/requests.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "size.h"
#include "torch/torch_allocator.h"
#include "torch/torch_oom.h"

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

/* Who keeps a cache of PyTorch's tensors. It is settled by PyTorch's first allocation; `SWITCHABLE` alone may become
   `SWITCHED` later, and stays that. */
static _Atomic(enum sg_torch_mode) mode;

static const char *const mode_words[] = {
    [SG_TORCH_UNKNOWN] = NULL,
    [SG_TORCH_BENEATH] = "beneath",
    [SG_TORCH_DIRECT] = "direct",
    [SG_TORCH_SWITCHABLE] = "direct",
    [SG_TORCH_SWITCHED] = "direct, then beneath",
    [SG_TORCH_PLUGGED] = "pluggable",
};

static enum sg_torch_mode current_mode(void)
{
    return atomic_load_explicit(&mode, memory_order_acquire);
}

bool sg_torch_settled(void)
{
    return current_mode() != SG_TORCH_UNKNOWN;
}

bool sg_torch_direct(void)
{
    enum sg_torch_mode now = current_mode();
    return now == SG_TORCH_DIRECT || now == SG_TORCH_SWITCHABLE || now == SG_TORCH_SWITCHED;
}

bool sg_torch_switched(void)
{
    return current_mode() == SG_TORCH_SWITCHED;
}

bool sg_torch_switchable(void)
{
    return current_mode() == SG_TORCH_SWITCHABLE;
}

bool sg_torch_counts(void)
{
    return sg_torch_direct() || current_mode() == SG_TORCH_PLUGGED;
}

const char *sg_torch_mode_text(void)
{
    return mode_words[current_mode()];
}

/* Of each device, the number of its latest block when the cache was switched on again. */
static uint64_t latest_direct[SG_DEVICES_MAX];

bool sg_torch_is_direct(const void *pointer)
{
    struct sg_block_info block;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    struct sg_core *core = sg_torch_direct() && sg_process_owns(address) ? sg_enter() : NULL;
    bool is = core && sg_core_block(core, address, &block) == CUDA_SUCCESS && block.base == address;
    if (core)
        sg_leave();
    return is && (!sg_torch_switched() || block.buffer_id <= latest_direct[block.device]);
}

/* The pool that this thread's next capture is for; 0, 0: none. */
struct pool {
    uint64_t first, second;
};
static _Thread_local struct pool next_pool;

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    next_pool = (struct pool){first, second};
    enum sg_torch_mode before = SG_TORCH_SWITCHABLE;
    if (current_mode() != before || sg_process_conf()->pytorch != SG_PYTORCH_AUTO || !sg_torch_allocator_cache(true))
        return;
    struct sg_core *core = sg_enter();
    for (int device = 0; core && device < SG_DEVICES_MAX; device++)
        latest_direct[device] = sg_core_latest_buffer(core, device);
    if (core)
        sg_leave();
    (void)atomic_compare_exchange_strong(&mode, &before, SG_TORCH_SWITCHED);
}

/* Who captures several graphs for one pool counts on their sharing its memory. */
static void explain_pool(void)
{
    static struct pool latest; /* guarded by SG_LOCK_TORCH */
    static bool noted;         /* likewise */
    struct pool its = next_pool;
    next_pool = (struct pool){0, 0};
    if (!(its.first | its.second) || !sg_torch_counts() || sg_torch_switched())
        return;
    sg_process_lock(SG_LOCK_TORCH);
    bool again = !noted && latest.first == its.first && latest.second == its.second;
    noted |= again;
    latest = its;
    sg_process_unlock(SG_LOCK_TORCH);
    if (again)
        sg_log_line(
            "a second CUDA graph is captured for one pool of PyTorch's: in this mode each keeps the memory freed "
            "in its capture; SEGALLOC_CONF=pytorch:auto or pytorch:beneath, without a pluggable allocator, has "
            "graphs share it");
}

/* torch.compile begins its captures so, and few others do. */
void sg_torch_captures(CUstreamCaptureMode capture_mode)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    explain_pool();
    if (capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && sg_torch_direct() && !sg_torch_switched() &&
        !atomic_flag_test_and_set(&noted))
        sg_log_line("a CUDA graph is captured as torch.compile does it, which fails without PyTorch's own cache: use "
                    "SEGALLOC_CONF=pytorch:auto or pytorch:beneath");
}

static void *torch_symbol(const char *library, const char *name)
{
    void *handle = sg_library_find(library);
    void *symbol = handle ? sg_dlsym()(handle, name) : NULL;
    if (handle)
        sg_library_close(handle);
    return symbol;
}

static uint16_t ask_torch(const char *name)
{
    void *symbol = torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc");
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

/* Whether this PyTorch, which has asked whether to keep its cache, is to be told not to by its answer. */
static bool choose(void)
{
    enum sg_pytorch wanted = wanted_mode();
    bool off = wanted == SG_PYTORCH_DIRECT || (wanted == SG_PYTORCH_AUTO && !serves());
    if (off && sg_torch_allocator_take() && sg_torch_allocator_cache(false))
        atomic_store(&mode, SG_TORCH_SWITCHABLE);
    else
        atomic_store(&mode, wanted == SG_PYTORCH_DIRECT ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    return wanted == SG_PYTORCH_DIRECT && current_mode() == SG_TORCH_DIRECT;
}

/* c10::utils::check_env(const char *). PyTorch asks it, once, whether to keep its own cache; the answer reaches this
   process alone, where a variable of the environment would be inherited. What the user says stands. */
uint16_t _ZN3c105utils9check_envEPKc(const char *name)
{
    uint16_t answer = ask_torch(name);
    if (!name || strcmp(name, "PYTORCH_NO_CUDA_MEMORY_CACHING") != 0) {
        if (!sg_torch_settled() && wanted_mode() != SG_PYTORCH_BENEATH)
            sg_torch_allocator_watch();
        return answer;
    }
    if (answer & HAS_VALUE) {
        bool off = answer & IS_TRUE;
        (void)(off && sg_torch_allocator_take());
        atomic_store(&mode, off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    } else if (choose()) {
        answer = HAS_VALUE | IS_TRUE;
    }
    if (sg_torch_direct()) {
        sg_memory_follow();
        sg_torch_allocator_limit();
    }
    return answer;
}

/* Whether this PyTorch asks by `check_env`. 2.6 has that too, but asks the environment; until then its allocator's
   settings are parsed from what getenv() gives (c10/cuda/CUDAAllocatorConfig.h). */
static bool asks(void)
{
    return torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc") &&
        !torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig9parseArgsEPKc");
}

/* Before 2.7 the question is part of PyTorch's own code, and the environment alone has the answer. */
void sg_torch_begins(void)
{
    void *handle = current_mode() == SG_TORCH_UNKNOWN ? sg_library_find("libc10_cuda.so") : NULL;
    if (!handle)
        return;
    (void)sg_library_close(handle);
    if (asks())
        return; /* and hasn't yet */
    const char *variable = sg_environment("PYTORCH_NO_CUDA_MEMORY_CACHING");
    bool off = variable && strcmp(variable, "1") == 0;
    (void)(off && sg_torch_allocator_take());
    atomic_store(&mode, off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    if (off)
        sg_memory_follow();
    else if (sg_process_conf()->pytorch == SG_PYTORCH_DIRECT)
        sg_log_line(
            "pytorch:direct: this PyTorch, older than 2.7, keeps its cache unless PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                    "is in the environment, where `segalloc run` puts it");
}

bool sg_torch_caches(void)
{
    return current_mode() == SG_TORCH_BENEATH && sg_process_conf()->pytorch == SG_PYTORCH_AUTO;
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
        (void)function(stop_asking, NULL, (void *)&mode);
}

bool sg_torch_stream(CUstream *ret)
{
    static _Atomic(uintptr_t) current_cached, handle_cached;
    if (asking == ASKING_OVER)
        return false;
    static atomic_bool probed;
    if (!atomic_load_explicit(&probed, memory_order_acquire)) {
        atomic_store(&current_cached,
                     (uintptr_t)torch_symbol("libc10_cuda.so", "_ZN3c104cuda20getCurrentCUDAStreamEa"));
        atomic_store(&handle_cached,
                     (uintptr_t)torch_symbol("libc10_cuda.so", "_ZNK3c104cuda10CUDAStream6streamEv"));
        atomic_store_explicit(&probed, true, memory_order_release);
    }
    uintptr_t addresses[2] = {atomic_load_explicit(&current_cached, memory_order_relaxed),
                              atomic_load_explicit(&handle_cached, memory_order_relaxed)};
    if (!addresses[0] || !addresses[1])
        return false;
    current_stream_fn *current;
    stream_handle_fn *handle;
    memcpy(&current, &addresses[0], sizeof current);
    memcpy(&handle, &addresses[1], sizeof handle);
    const struct torch_stream stream = current(-1);
    if (asking == ASKING_NEVER_YET)
        ask_until_thread_ends();
    *ret = handle(&stream);
    return true;
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

/* A MemPool's segments: PyTorch's own cache is the allocator in force, an object with static storage, and does with NULL
   what it does with an error of cudaMalloc. Else the allocator is the pluggable one. */
static bool is_for_pool(void)
{
    void *const *allocator = torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    Dl_info info;
    return allocator && *allocator && dladdr(*allocator, &info) && info.dli_fname &&
        strstr(info.dli_fname, "libc10_cuda.so");
}

/* PyTorch takes NULL for a tensor at address 0 and trains on. */
static void end_for_want_of_memory(size_t bytes, int device, CUresult result)
{
    char size[SG_SIZE_TEXT], line[192];
    snprintf(line, sizeof line, "%s: PyTorch asked for %s on device %d (CUDA error %d); its pluggable interface has no "
             "way to say that there is none", result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "no memory",
             sg_size_format(bytes, size), device, (int)result);
    sg_log_line(line);
    abort();
}

void *segalloc_torch_malloc(size_t bytes, int device, void *stream)
{
    const struct sg_driver *driver = sg_process_driver();
    CUdeviceptr address = 0;
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    if (!bytes)
        return NULL;
    enum sg_torch_mode unknown = SG_TORCH_UNKNOWN;
    (void)atomic_compare_exchange_strong(&mode, &unknown, SG_TORCH_PLUGGED);
    sg_memory_follow();
    sg_memory_torch_plugged();
    if (driver) {
        bool pushed = sg_torch_push_device(driver, device);
        struct sg_core *core = sg_enter_allocation();
        if (core) {
            const struct sg_request origin = {.stream = stream, .has_stream = true, .torch = true, .pluggable = true};
            result = sg_memory_alloc(core, bytes, &origin, &address);
            sg_leave();
        } else {
            result = driver->mem_alloc(&address, bytes);
        }
        sg_torch_pop_device(driver, pushed);
    }
    /* Once the driver has ended the process does, with a status of its own. What PyTorch would do with NULL, the driver
       refuses too. */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED && !is_for_pool()) {
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            sg_torch_throw_out_of_memory(device, bytes);
        end_for_want_of_memory(bytes, device, result);
    }
    return (void *)(uintptr_t)address;
}

void segalloc_torch_free(void *pointer, size_t bytes, int device, void *stream)
{
    (void)bytes;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    const struct sg_driver *driver = sg_process_driver();
    if (!address || !driver || sg_process_over())
        return;
    bool pushed = sg_torch_push_device(driver, device);
    struct sg_core *core = sg_process_owns(address) ? sg_enter() : NULL;
    const struct sg_request origin = {.stream = stream, .has_stream = true, .torch = true, .pluggable = true};
    if (core) {
        sg_memory_free(core, address, &origin);
        sg_leave();
    } else {
        sg_memory_free_passthrough(address, &origin);
    }
    sg_torch_pop_device(driver, pushed);
}
