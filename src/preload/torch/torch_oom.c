/* PyTorch's errors: what a failed check of its says, whether a kernel has failed, and out of memory.

   c10::OutOfMemoryError, thrown from C: the class is derived from c10::Error and adds nothing to it, so that it is made
   by that class's exported constructor and then given the vtable of its own. Source of the layouts: the Itanium C++ ABI
   and libstdc++'s std::string. PyTorch's wheels before 2.7 have an older string, and nothing is thrown there. Source of the
   names: PyTorch 2.7 to 2.15, whose libraries export them. Each is looked up when it is first needed. Where one is
   missing, nothing is thrown. Compiled with unwind tables. */
#include "inspect/core_state.h"
#include "process/glibc_symver.h"

#include "torch/torch_oom.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "track/captures.h"
#include "track/contexts.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/rehearsal.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "base/size.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_current.h"
#include "torch/torch_cxx.h"
#include "torch/torch_layout.h"
#include "torch/torch_observers.h"
#include "torch/torch_pools.h"
#include "torch/torch_sent.h"
#include "track/torch_mode.h"

/* c10::detail::torchCheckFail(const char *, const char *, uint32_t, const std::string &) */
#define CHECK_FAIL _ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
#define CHECK_FAIL_NAME "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
typedef void check_fail_fn(const char *function, const char *file, uint32_t line, const struct sg_cxx_string *message);

SG_EXPORT check_fail_fn CHECK_FAIL;

/* c10::cuda::CUDAKernelLaunchRegistry::has_failed() const */
#define HAS_FAILED _ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv
#define HAS_FAILED_NAME "_ZNK3c104cuda24CUDAKernelLaunchRegistry10has_failedEv"
typedef bool has_failed_fn(const void *registry);

SG_EXPORT has_failed_fn HAS_FAILED;

enum {
    OBJECT_BYTES = 1024,  /* c10::Error has 128 in PyTorch 2.11 */
    VTABLE_FUNCTIONS = 2, /* after the offset to top and the type */
    TEXT_BYTES = 1024,
};

/* Where the process stands, for the text; what is not known stays 0. */
struct standing {
    int device;
    size_t total, free;
    uint64_t allocated, reserved, limit;
};

/* Figures for the text, with the device current meanwhile. Without a core they stay 0. */
static void oom_take_stock(int device, struct standing *ret)
{
    const struct sg_driver *driver = sg_process_driver();
    bool pushed = driver && sg_torch_push_device(driver, device);
    struct sg_core *core = sg_enter();
    CUcontext context;
    struct sg_stats stats;
    memset(ret, 0, sizeof *ret);
    ret->device = device;
    if (core && sg_contexts_current(core, &context, &ret->device) == CUDA_SUCCESS) {
        /* Free is what nobody holds, as PyTorch says it: idle memory of ours is among what is reserved. */
        if (driver->mem_info(&ret->free, &ret->total) == CUDA_SUCCESS)
            ret->limit = sg_core_limit(core, ret->device);
        if (sg_core_stats(core, ret->device, &stats)) {
            ret->allocated = stats.value[SG_STAT_allocated_bytes];
            ret->reserved = stats.value[SG_STAT_reserved_bytes];
        }
    }
    if (core)
        sg_leave();
    if (driver)
        sg_torch_pop_device(driver, pushed);
}

/* PyTorch's wording (c10/cuda/CUDACachingAllocator.cpp), for programs that look into it; the advice is ours. */
static size_t oom_compose(int device, size_t bytes, char *text, size_t size)
{
    struct standing now;
    char request[SG_SIZE_TEXT], total[SG_SIZE_TEXT], rest[SG_SIZE_TEXT], limit[SG_SIZE_TEXT], allocated[SG_SIZE_TEXT],
        idle[SG_SIZE_TEXT], allowed[SG_SIZE_TEXT + 16] = "";
    oom_take_stock(device, &now);
    if (now.limit && now.limit < now.total)
        snprintf(allowed, sizeof allowed, "%s allowed; ", sg_size_format(now.limit, limit));
    uint64_t unallocated = now.reserved > now.allocated ? now.reserved - now.allocated : 0;
    int length = snprintf(text, size,
        "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %sOf the "
        "allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated. segalloc serves "
        "this memory%s.",
        sg_size_format(bytes, request), now.device, sg_size_format(now.total, total), sg_size_format(now.free, rest),
        allowed, sg_size_format(now.allocated, allocated), sg_size_format(unallocated, idle),
        sg_process_conf()->oom_report == SG_OOM_NEVER
            ? ": `segalloc rehearse` says what held it and which card would do"
            : "; its report on standard error says what held it and what to run next");
    return length < (int)size ? (size_t)length : size - 1;
}

/* The string's text is freed here unless the constructor has taken it over, which leaves the short text in its place.
   */
static void oom_construct(const struct sg_torch_cxx *cxx, void *object, struct sg_cxx_location where, const char *text,
    size_t length)
{
    struct sg_cxx_string message = {.text = cxx->new (length + 1), .length = length, .room.capacity = length};
    memcpy(message.text, text, length + 1);
    cxx->construct(object, where, &message);
    if (message.text != message.room.local)
        cxx->delete (message.text);
}

/* The object is made in the runtime's own storage for exceptions, which is never too small for one: 1,024 bytes for
   128. Then the vtable makes it an OutOfMemoryError. */
void sg_torch_throw_out_of_memory(int device, size_t bytes)
{
    const struct sg_torch_cxx *cxx = sg_torch_cxx();
    if (!cxx)
        return;
    char text[TEXT_BYTES];
    size_t length = oom_compose(device, bytes, text, sizeof text);
    const struct sg_cxx_location where = {.function = "cudaMalloc", .file = "libsegalloc.so"};
    void **object = cxx->allocate(OBJECT_BYTES);
    oom_construct(cxx, object, where, text, length);
    object[0] = cxx->vtable + VTABLE_FUNCTIONS;
    void (*destroy)(void *);
    memcpy(&destroy, &cxx->vtable[VTABLE_FUNCTIONS], sizeof destroy);
    cxx->throw(object, cxx->type, destroy);
}

int segalloc_torch_raises(void)
{
    void *handle = sg_library_find("libc10_cuda.so");
    if (handle)
        (void)sg_library_close(handle);
    return !handle || sg_torch_cxx();
}

/* True if a tensor of this thread is ours. PyTorch's cache, where that is on, goes on by itself. */
static bool oom_is_ours(void)
{
    return sg_torch_direct() && !sg_torch_switched() && !sg_self.torch_cached && !sg_thread_inside();
}

/* PyTorch's cache gives all back and asks again. Up to 2.12 it does not while a pool is allocated for, whoever asks; later not
   in a capture. Source: DeviceCachingAllocator::malloc() in c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11. */
static bool oom_gives_all_back(int device)
{
    const struct sg_torch_layout *layout = sg_torch_allocator.layout;
    return layout && layout->retries_in_pools ? !sg_captures_active() : !sg_torch_pools_under_way(device);
}

/* Counted by alloc_block() of that file. */
void sg_torch_retries(void)
{
    if (!oom_is_ours())
        return;
    struct standing now;
    oom_take_stock(-1, &now);
    if (oom_gives_all_back(now.device))
        sg_torch_counts_retry(now.device);
}

/* Counts, clears the runtime's error, calls the observers, throws: the order in which PyTorch's own cache does it. */
void sg_torch_ran_out(int (*get_last_error)(void), size_t bytes)
{
    if (!oom_is_ours() || !get_last_error)
        return;
    struct standing now;
    oom_take_stock(-1, &now);
    sg_torch_counts_oom(now.device);
    (void)get_last_error();
    sg_torch_observers_call(now.device, bytes, now.limit && now.limit < now.total ? now.limit : now.total, now.free);
    sg_torch_throw_out_of_memory(-1, bytes);
}

/* Where each failed check of PyTorch's ends, by an exception. A tensor that is to be sent to another process is looked
   for in PyTorch's own cache. Where that is not in use, the check only says that it isn't there, and the way out is added here. A
   queue of torch.multiprocessing catches the exception in a thread of its own, which prints it. So the receiver never gets one. */
void CHECK_FAIL(const char *function, const char *file, uint32_t line, const struct sg_cxx_string *message)
{
    static const char unknown[] = "invalid device pointer: ";
    void *handle = sg_library_find("libc10.so");
    void *symbol = handle ? sg_dlsym()(handle, CHECK_FAIL_NAME) : NULL;
    check_fail_fn *theirs, *ours = CHECK_FAIL;
    memcpy(&theirs, &symbol, sizeof theirs);
    if (!symbol || theirs == ours)
        abort(); /* nobody else calls it; and it may not return */
    char text[TEXT_BYTES];
    struct sg_cxx_string longer = {.text = text};
    if (sg_torch_direct() && message->length >= strlen(unknown) && message->length < TEXT_BYTES / 2 &&
        memcmp(message->text, unknown, strlen(unknown)) == 0) {
        char lacked[SG_SIZE_TEXT + 128] = "", size[SG_SIZE_TEXT];
        if (sg_torch_sent_lacked())
            snprintf(lacked, sizeof lacked, "; it is sent as a copy, and CUDA is out of memory for the %s of that. Without a copy",
                sg_size_format(sg_torch_sent_lacked(), size));
        longer.length = (size_t)snprintf(text, sizeof text,
            "%.*s. This tensor is segalloc's, and not in PyTorch's own cache%s tensors can be sent to other processes "
            "with SEGALLOC_CONF=pytorch:beneath,ipc:always. A queue of torch.multiprocessing only prints this: nothing "
            "is "
            "sent, and its receiver goes on waiting",
            (int)message->length, message->text, *lacked ? lacked : ";");
        message = &longer;
        sg_rehearsal_ask_for("pytorch:beneath,ipc:always");
    }
    theirs(function, file, line, message);
}

static atomic_bool registry_ends;

static void end_registry(void)
{
    atomic_store_explicit(&registry_ends, true, memory_order_relaxed);
}

/* Each check of a call to the runtime asks the registry, the check of a tensor's cudaFree too. The registry is a static
   object. Asked after its end, it reads freed memory, and the check throws from the destructor of another static object.
   PyTorch's own cache checks nothing there. The registry exists when this is first called, so the handler runs before its
   destructor. Source: c10/cuda/CUDADeviceAssertionHost.cpp. */
bool HAS_FAILED(const void *registry)
{
    static has_failed_fn *_Atomic known;
    has_failed_fn *theirs = atomic_load_explicit(&known, memory_order_acquire), *none = NULL, *ours = HAS_FAILED;
    if (!theirs) {
        void *handle = sg_library_find("libc10_cuda.so");
        void *symbol = handle ? sg_dlsym()(handle, HAS_FAILED_NAME) : NULL;
        memcpy(&theirs, &symbol, sizeof theirs);
        if (handle)
            (void)sg_library_close(handle);
        if (!theirs || theirs == ours)
            return false;
        if (atomic_compare_exchange_strong(&known, &none, theirs))
            (void)atexit(end_registry);
    }
    return !atomic_load_explicit(&registry_ends, memory_order_relaxed) && theirs(registry);
}
