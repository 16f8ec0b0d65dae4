/* The host's memory as the kernel accounts for it, and quotas of device memory that a control group sets.

   Nouns. *Available* memory is MemAvailable of /proc/meminfo: what the kernel could give without swapping, file caches
   included. A *group* is a control group of this process or one above it, whose limit holds for all below. A *reserve* is
   the part of a total that nobody here takes. A *quota* is a limit of device memory, in the files dmem.* of a group.

   Why. A GPU with integrated memory takes what the host has. Its driver answers with the machine's end in place of an
   error, so somebody has to look before. Sources: open-gpu-kernel-modules #1358, docs.kernel.org/admin-guide/cgroup-v2,
   docs.nvidia.com/deploy/mps (dmem).

   How. Files are read afresh at each call, below a root, which is "" but for tests. Version 2 of control groups has
   memory.max, memory.current and memory.stat, version 1 memory.limit_in_bytes and its likes. Caches of files that the
   group has not used lately (inactive_file) count as free, because the kernel drops them before it kills.

   Limits. A process knows of no group above the root of its namespace.

   For example, a machine of 120 GiB has 30 available. The group may have 40, and has 32, of which 2 are such caches. With a reserve
   of a twentieth, 30 - 6 are left of the machine and 40 - 2 - 30 of the group: the room is 8 GiB. */
#ifndef SG_HOST_MEMORY_H
#define SG_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* All in bytes. */
struct sg_host_memory {
    uint64_t total, available;
    /* The group that leaves least beyond its reserve. A limit of UINT64_MAX: none has one. */
    uint64_t group_limit, group_used;
};

/* Reads them. `reserve` is a share of each group's limit. False: there is no /proc/meminfo with both figures. No heap, no lock; for
   any thread. */
bool sg_host_memory_read(const char *root, double reserve, struct sg_host_memory *ret);

/* The bytes that are kept back, the larger of the machine's and the group's. `reserve` is a share of each total. */
uint64_t sg_host_memory_kept(const struct sg_host_memory *memory, double reserve);

/* The bytes that may be taken: the least that the machine or the group has beyond its reserve. */
uint64_t sg_host_memory_room(const struct sg_host_memory *memory, double reserve);

/* Quotas of one device, in bytes. */
struct sg_device_quota {
    uint64_t hard, used;  /* of the group that leaves least; `hard` UINT64_MAX: none has one */
    uint64_t soft_excess; /* bytes above the soft quota (dmem.min) of a group, the most of all groups */
};

/* True if the machine has such quotas at all: the root of its groups has dmem.capacity. */
bool sg_device_quotas_exist(const char *root);

/* Reads them for the device at a PCI address such as "0000:65:00.0". False: no group names it. */
bool sg_device_quota_read(const char *root, const char *pci, struct sg_device_quota *ret);

#endif
