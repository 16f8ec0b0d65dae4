#include "space/physical.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rest.h"
#include "device/card.h"

static void *vmm_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = vmm_pointer(handle);
    return sim_handle_valid(physical, SIM_KIND_PHYSICAL) && physical->handle_refs ? physical : NULL;
}

/* A thread that is cancelled in one of these calls of
   libc would keep the lock. */
void sim_physical_release_if_unused(struct sim_physical *physical)
{
    if (physical->handle_refs || physical->mappings)
        return;
    int cancel = sg_cancel_off();
    if (physical->foreign)
        close(physical->fd);
    else
        sim_device_discharge(physical->device, physical->size);
    if (!physical->foreign && !physical->exported)
        (void)!fallocate(physical->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
            (off_t)physical->size);
    sg_cancel_restore(cancel);
    sim_handle_drop(&physical->handle);
    free(physical);
}
