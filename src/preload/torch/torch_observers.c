/* A list that only grows: an entry is constant once `count` covers it, so observers are called without the lock and may
   attach more. */
#include "torch/torch_observers.h"

#include <stdatomic.h>
#include <string.h>

#include "process/process.h"

enum { OBSERVERS_MAX = 64 }; /* later ones are not called */

static struct {
    struct sg_cxx_function list[OBSERVERS_MAX]; /* an entry is constant once `count` covers it */
    atomic_int count;
} observers; /* guarded by SG_LOCK_TORCH */

void sg_torch_observers_add(struct sg_cxx_function observer)
{
    sg_process_lock(SG_LOCK_TORCH);
    int count = atomic_load_explicit(&observers.count, memory_order_relaxed);
    if (count < OBSERVERS_MAX) {
        observers.list[count] = observer;
        atomic_store_explicit(&observers.count, count + 1, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_TORCH);
}

/* The bytes that the cache would ask the driver for. Source: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
   kLargeBuffer and kRoundLarge in c10/core/AllocatorConfig.h of PyTorch 2.11 and 2.15, without settings that round. 3
   MiB: 20 MiB. */
static size_t segment_bytes(size_t bytes)
{
    enum { SMALL = 1 << 20, SMALL_SEGMENT = 2 << 20, LARGE = 10 << 20, LARGE_SEGMENT = 20 << 20, ROUND = 2 << 20 };
    if (bytes <= SMALL)
        return SMALL_SEGMENT;
    if (bytes < LARGE)
        return LARGE_SEGMENT;
    return bytes > SIZE_MAX - ROUND ? bytes : (bytes + ROUND - 1) / ROUND * ROUND;
}

typedef void observer_fn(const void *storage, int64_t *device, size_t *bytes, size_t *total, size_t *free);

/* Each is given the figures in variables of its own, since it takes them by address and may change them. */
void sg_torch_observers_call(int device, size_t bytes, size_t total_bytes, size_t free_bytes)
{
    int count = atomic_load_explicit(&observers.count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        int64_t number = device;
        size_t wanted = segment_bytes(bytes), total = total_bytes, rest = free_bytes;
        observer_fn *call;
        memcpy(&call, &observers.list[i].call, sizeof call);
        if (observers.list[i].manager)
            call(&observers.list[i], &number, &wanted, &total, &rest);
    }
}
