#include "space/physical.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rest.h"
#include "device/card.h"
#include "space/host_pages.h"

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = sim_pointer(handle);
    return sim_handle_valid(physical, SIM_KIND_PHYSICAL) && physical->handle_refs ? physical : NULL;
}

/* Exported memory that no handle and no mapping of this process refers to: only descriptors do. */
static struct exported {
    struct exported *next;
    struct sim_device *device;
    uint64_t size, offset;
    int fd;
} *exports;

/* Each exported descriptor is a file opened anew, with a lock on the allocation's record. The kernel gives that back once
   the last copy of the descriptor is closed, in whichever process (fcntl(2), "Open file description locks"). */
static bool physical_lock(int fd, uint64_t offset, int command, short type)
{
    struct flock what = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)sim_physical_record(offset), .l_len = 1};
    return fcntl(fd, command, &what) == 0 && (command != F_OFD_GETLK || what.l_type == F_UNLCK);
}

bool sim_physical_note_export(struct sim_physical *physical, int fd)
{
    physical->exported = physical_lock(fd, physical->offset, F_OFD_SETLK, F_RDLCK);
    return physical->exported;
}

static bool is_held_by_descriptors(int fd, uint64_t offset)
{
    return !physical_lock(fd, offset, F_OFD_GETLK, F_WRLCK);
}

static void physical_give_back(struct sim_device *device, int fd, uint64_t offset, uint64_t size)
{
    if (device)
        sim_device_discharge(device, size);
    else
        sim_host_pages_discharge(size);
    (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
}

/* Only descriptors hold it from here on. False: none does, or there is no host memory to note it. */
static bool physical_leave_to_descriptors(const struct sim_physical *physical)
{
    bool held = physical->exported && is_held_by_descriptors(physical->fd, physical->offset);
    struct exported *exported = held ? malloc(sizeof *exported) : NULL;
    if (!exported)
        return false;
    *exported = (struct exported){exports, physical->device, physical->size, physical->offset, physical->fd};
    exports = exported;
    return true;
}

void sim_physical_sweep(void)
{
    if (!exports)
        return;
    int cancel = sg_cancel_off();
    for (struct exported **at = &exports, *found; (found = *at);) {
        if (is_held_by_descriptors(found->fd, found->offset)) {
            at = &found->next;
            continue;
        }
        physical_give_back(found->device, found->fd, found->offset, found->size);
        *at = found->next;
        free(found);
    }
    sg_cancel_restore(cancel);
}

/* A thread that is cancelled in one of these calls of
   libc would keep the lock. */
void sim_physical_release_if_unused(struct sim_physical *physical)
{
    if (physical->handle_refs || physical->mappings)
        return;
    int cancel = sg_cancel_off();
    if (physical->foreign) {
        close(physical->fd);
        sim_physical_sweep(); /* it may have been imported from this process: others are to see what that has given back */
    } else if (!physical_leave_to_descriptors(physical)) {
        physical_give_back(physical->device, physical->fd, physical->offset, physical->size);
    }
    sg_cancel_restore(cancel);
    sim_handle_drop(&physical->handle);
    free(physical);
}
