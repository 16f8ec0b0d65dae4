#include "track/free_policy.h"

#include <stdatomic.h>

#include "process/process.h"
#include "torch/torch_mode.h"
#include "track/streams.h"

static atomic_bool torch_records, torch_plugged;

void sg_memory_torch_records(void)
{
    if (!atomic_load_explicit(&torch_records, memory_order_relaxed))
        atomic_store(&torch_records, true);
}

bool sg_memory_torch_recorded(void)
{
    return atomic_load_explicit(&torch_records, memory_order_relaxed);
}

void sg_memory_torch_plugged(void)
{
    if (!atomic_load_explicit(&torch_plugged, memory_order_relaxed))
        atomic_store(&torch_plugged, true);
}

bool sg_memory_guesses(void)
{
    return sg_torch_direct() || (atomic_load_explicit(&torch_plugged, memory_order_relaxed) &&
                                    !atomic_load_explicit(&torch_records, memory_order_relaxed));
}

void sg_memory_follow(void)
{
    if (sg_following())
        return;
    enum sg_free_sync wanted = sg_process_conf()->free_sync;
    if (wanted == SG_FREE_SYNC_AUTO || wanted == SG_FREE_SYNC_STREAM)
        sg_follow();
}
