/* A driver for tests that keeps books like the card. It holds its caller to the rules of the virtual memory management
   interface. Sizes and addresses are on the granule, maps go into reserved and unmapped addresses only, and unmaps take
   whole mappings. A handle is released once, and nothing is left behind. A call that breaks a rule is counted and described.

   Any call can be made to fail by its number. One driver a process, several devices, safe for threads. */
#ifndef TEST_STRICT_DRIVER_H
#define TEST_STRICT_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

enum { STRICT_DEVICES = 21, STRICT_HOST = 20 /* stands for the host's memory, in place of a device */ };

extern const struct sg_driver strict_driver;

/* Forgets everything and starts anew with `devices` devices of `total` bytes each. */
void strict_reset(int devices, uint64_t total, uint64_t granularity);

/* The host has so many bytes for pages from here on. 0, as after strict_reset(): the driver makes none there. */
void strict_host(uint64_t bytes);

/* The device whose memory cuMemGetInfo and cuMemAlloc mean on this thread; 0 until told otherwise. */
void strict_use(int device);

/* The call with this number (from 1, counted from here on) fails with `result`, and with `for_ever` all that follow it.
   CUDA_SUCCESS in `result`: each call with the error that suits it. 0: none fails. */
void strict_fail_at(uint64_t number, bool for_ever, CUresult result);

/* Whether a call has failed since strict_fail_at(), and the name of the first one. */
bool strict_failed(const char **ret_call);

/* Rules broken so far; `ret` is the first one in words. */
unsigned strict_broken(const char **ret);

/* Bytes of a device in use: of handles that are not released or are mapped. */
uint64_t strict_used(int device);
/* The same, of those mappings only that an unmap was asked for and made to fail, and of handles whose release was. */
uint64_t strict_stuck(int device);

/* Whether all of [address, address + bytes) is mapped and may be accessed by `device`; *ret says by which handles, in
   one number that changes with any of them. */
bool strict_backing(CUdeviceptr address, size_t bytes, int device, uint64_t *ret);

/* Whether some byte is behind both ranges, at one address or at two. */
bool strict_share(CUdeviceptr one, size_t one_bytes, CUdeviceptr other, size_t other_bytes);

/* The handle mapped at `address` over exactly `bytes`, 0 if there is none. */
CUmemGenericAllocationHandle strict_mapped(CUdeviceptr address, size_t bytes);

/* Lets the oldest `count` recordings of events complete. */
void strict_complete(uint64_t count);

/* Handles, mappings, reservations and events that nobody gave back, those left by failed calls aside. */
unsigned strict_leaks(void);

#endif
