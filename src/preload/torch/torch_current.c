/* PyTorch's two functions, found once: the current stream of a device, and a stream's handle.

   A thread's first question registers a destructor, which glibc runs before PyTorch's own. From then on nothing is
   asked in that thread. */
#include "process/glibc_symver.h"

#include "torch/torch_current.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "core/core.h"
#include "process/symbols.h"
#include "torch/torch_symbols.h"

/* c10::cuda::CUDAStream: device and stream number, 16 bytes, in two registers. */
struct torch_stream {
    uint64_t words[2];
};
typedef struct torch_stream current_stream_fn(int8_t device);
typedef CUstream stream_handle_fn(const struct torch_stream *stream);

/* PyTorch keeps a thread's current streams in a variable with a destructor, and asked after that it reads freed memory
   and throws. Destructors of static tensors, which run at the end of the process, must not ask. */
enum asking { ASKING_NEVER_YET, ASKING, ASKING_OVER };
static _Thread_local enum asking asking;

/* An address of this library, by which the loader knows whose destructor it is. */
static const char in_this_library;

static void stream_stop_asking(void *unused)
{
    (void)unused;
    asking = ASKING_OVER;
}

/* After the thread's first question: destructors run in the reverse order of their registration, so ours comes before
   PyTorch's. glibc has the function from 2.18 on. */
static void stream_ask_until_thread_ends(void)
{
    typedef int register_fn(void (*destructor)(void *), void *object, void *module);
    register_fn *function;
    void *symbol = sg_dlsym()(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
    memcpy(&function, &symbol, sizeof function);
    asking = ASKING;
    if (function)
        (void)function(stream_stop_asking, NULL, (void *)(uintptr_t)&in_this_library);
}

/* PyTorch's functions, looked up once. False: it has not both. */
static bool stream_find_functions(current_stream_fn **ret_current, stream_handle_fn **ret_handle)
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

/* After the thread's end nothing is asked: PyTorch's variable is destroyed by then. */
bool sg_torch_stream(CUstream *ret)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    if (asking == ASKING_OVER || !stream_find_functions(&current, &handle))
        return false;
    const struct torch_stream stream = current(-1);
    if (asking == ASKING_NEVER_YET)
        stream_ask_until_thread_ends();
    *ret = handle(&stream);
    return true;
}

bool sg_torch_has_streams(void)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    return stream_find_functions(&current, &handle);
}

/* PyTorch's own function is called, since a stream's number may mean one of its pools of streams. */
bool sg_torch_stream_handle(uint64_t first, uint64_t second, CUstream *ret)
{
    current_stream_fn *current;
    stream_handle_fn *handle;
    const struct torch_stream stream = {{first, second}};
    bool known = stream_find_functions(&current, &handle);
    *ret = known ? handle(&stream) : NULL;
    return known;
}

/* The primary context is retained once for each device and kept. Nothing is pushed where the device is current already.
   */
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
