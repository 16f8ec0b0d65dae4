/* This machine's driver and devices, and the glibc that a file needs, found out without the library. */
#ifndef SG_LAUNCH_MACHINE_H
#define SG_LAUNCH_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SG_PROBE_DEVICES = 16 };

struct sg_probe_device {
    char name[128];
    uint64_t bytes;
    bool vmm; /* has virtual memory management: without it memory is served from fixed segments */
};

struct sg_probe {
    bool driver;          /* libcuda.so.1 could be loaded */
    int result;           /* cuInit's, as a CUresult */
    int version;          /* as cuDriverGetVersion says it: 13000 is 13.0 */
    int devices;          /* in all */
    struct sg_probe_device device[SG_PROBE_DEVICES];
};

/* Asks the driver, in a process of its own, so that a driver that crashes or prints is no matter. `folders` as in
   LD_LIBRARY_PATH are searched for libcuda.so.1 before the loader is asked; NULL for none. False when that process
   failed. */
bool sg_probe_driver(const char *folders, struct sg_probe *ret);

/* The newest glibc that the ELF file at `path` asks for, as "2.17"; "" when it asks for none. False when it can't be
   read as an ELF file of this machine's kind. */
bool sg_probe_glibc(const char *path, char *ret, size_t size);

#endif
