/* The copies, and PyTorch's two steps: the handle is asked for, then the storage's new data. `moving` carries the copy
   from the first to the second.

   For example, t is sent: share() makes the copy and gives PyTorch its address, so the handle is the copy's. Then
   PyTorch makes the storage's new data for t's address, and gets the copy's instead. */
#include "torch/torch_sent.h"

#include <stdint.h>
#include <string.h>

#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/rehearsal.h"
#include "process/stand_ins.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "torch/torch_allocator.h"
#include "track/torch_mode.h"

enum { COPIES_MAX = 4096 };

static struct {
    struct {
        const void *block;
        void *copy;
    } list[COPIES_MAX]; /* untouched until something is sent */
} sent;                 /* guarded by SG_LOCK_TORCH */

atomic_int sg_torch_sent_copies;

/* Between two steps of PyTorch's in one thread. */
static _Thread_local struct {
    void *block, *copy;
    size_t lacked; /* bytes that the last copy found no room for; 0: it had room, or was not tried */
} moving;

/* Notes which copy stands for a block. False: there are as many as fit. */
static bool torch_sent_remember(const void *block, void *copy)
{
    sg_process_lock(SG_LOCK_TORCH);
    int count = atomic_load(&sg_torch_sent_copies);
    bool room = count < COPIES_MAX;
    if (room) {
        sent.list[count].block = block;
        sent.list[count].copy = copy;
        atomic_store(&sg_torch_sent_copies, count + 1);
    }
    sg_process_unlock(SG_LOCK_TORCH);
    return room;
}

/* The copy is given back to PyTorch's cache after the lock: that may call the driver. */
void sg_torch_sent_freed(const void *pointer)
{
    void *copy = NULL;
    sg_process_lock(SG_LOCK_TORCH);
    int count = atomic_load(&sg_torch_sent_copies);
    for (int i = 0; i < count && !copy; i++) {
        if (sent.list[i].block != pointer)
            continue;
        copy = sent.list[i].copy;
        sent.list[i] = sent.list[count - 1];
        atomic_store(&sg_torch_sent_copies, count - 1);
    }
    sg_process_unlock(SG_LOCK_TORCH);
    if (copy)
        sg_torch_allocator_put(copy);
}

/* True if the driver has that much, and a segment's rounding more, if need be with what we hold idle. */
static bool torch_sent_has_room(size_t bytes)
{
    enum { MORE = 64 << 20 };
    CUdeviceptr probe;
    CUresult result = sg_real()->cuMemAlloc_v2(&probe, bytes + MORE);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        segalloc_torch_reset();
        result = sg_real()->cuMemAlloc_v2(&probe, bytes + MORE);
    }
    moving.lacked = result == CUDA_ERROR_OUT_OF_MEMORY ? bytes : 0;
    return result == CUDA_SUCCESS && sg_real()->cuMemFree_v2(probe) == CUDA_SUCCESS;
}

/* With the block's device current. */
static void *copy_of(void *pointer, size_t bytes)
{
    if (sg_captures_wait(NULL) != CUDA_SUCCESS || !torch_sent_has_room(bytes))
        return NULL;
    void *copy = sg_torch_allocator_get(bytes);
    if (!copy || !torch_sent_remember(pointer, copy)) {
        if (copy)
            sg_torch_allocator_put(copy);
        return NULL;
    }
    sg_torch_allocator_copy(copy, pointer, bytes);
    (void)sg_captures_wait(NULL);
    return copy;
}

/* A block of ours that begins there, with no capture so far in the process, since a graph may know the address. */
void *sg_torch_sent_copy(void *pointer)
{
    struct sg_block_info block;
    struct sg_core *core = sg_enter();
    moving.lacked = 0;
    CUresult result = core ? sg_core_block(core, sg_inner((CUdeviceptr)(uintptr_t)pointer), &block)
                           : CUDA_ERROR_NOT_FOUND;
    if (core)
        sg_leave();
    if (result != CUDA_SUCCESS || sg_shown(block.base) != (CUdeviceptr)(uintptr_t)pointer || sg_captures_any() ||
        !sg_torch_switchable())
        return NULL;
    bool pushed = sg_torch_push_device(sg_process_driver(), block.device);
    moving.copy = copy_of(pointer, block.bytes);
    moving.block = moving.copy ? pointer : NULL;
    if (moving.copy)
        sg_rehearsal_note_sent(block.bytes);
    sg_torch_pop_device(sg_process_driver(), pushed);
    return moving.copy;
}

size_t sg_torch_sent_lacked(void)
{
    return moving.lacked;
}

/* at::DataPtr: address, context and deleter, device; and c10::Device, two bytes. */
struct data_ptr {
    uintptr_t words[4];
};
typedef struct data_ptr sent_data_fn(void *data, uint16_t device);

/* torch::GetNewRefCountedSentData(void *, c10::Device) */
#define SENT_DATA _ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE
#define SENT_DATA_NAME "_ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE"

SG_EXPORT sent_data_fn SENT_DATA;

/* The memory that a storage holds once it was sent: PyTorch asks for it right after the handle. */
struct data_ptr SENT_DATA(void *data, uint16_t device)
{
    void *handle = sg_library_find("libtorch_cuda.so");
    void *symbol = handle ? sg_dlsym()(handle, SENT_DATA_NAME) : NULL;
    sent_data_fn *theirs;
    memcpy(&theirs, &symbol, sizeof theirs);
    if (handle)
        (void)sg_library_close(handle);
    if (moving.block && moving.block == data)
        data = moving.copy;
    moving.block = NULL;
    return theirs(data, device);
}
