/* Flags that only ever become true. The first store is made atomically; later calls find it set and write nothing, so
   the cache line stays shared. */
#include "track/free_policy.h"

#include <stdatomic.h>

#include "track/torch_mode.h"

/* Calls that PyTorch was seen to make: to record streams, to allocate through its pluggable interface. */
static struct {
    atomic_bool records, plugged, hooked;
} torch;

void sg_memory_torch_records(void)
{
    if (!atomic_load_explicit(&torch.records, memory_order_relaxed))
        atomic_store(&torch.records, true);
}

bool sg_memory_torch_recorded(void)
{
    return atomic_load_explicit(&torch.records, memory_order_relaxed);
}

void sg_memory_torch_plugged(void)
{
    if (!atomic_load_explicit(&torch.plugged, memory_order_relaxed))
        atomic_store(&torch.plugged, true);
}

void sg_memory_record_stream_hooked(void)
{
    if (!atomic_load_explicit(&torch.hooked, memory_order_relaxed))
        atomic_store(&torch.hooked, true);
}

bool sg_memory_hooks_record_stream(void)
{
    return atomic_load_explicit(&torch.hooked, memory_order_relaxed);
}

bool sg_memory_guesses(void)
{
    return sg_torch_direct() || (atomic_load_explicit(&torch.plugged, memory_order_relaxed) &&
                                    !atomic_load_explicit(&torch.records, memory_order_relaxed));
}
