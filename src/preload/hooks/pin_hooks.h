/* Pages that others remember behind our back keep their addresses for the life of the process.

   Why. Idle pages move to where they are needed. A network card, a multicast object or an exported handle knows the
   physical page, and would read another block's bytes.

   For example, a network library registers 32 MiB with cuMemGetHandleForAddressRange. Their 16 pages of 2 MiB are
   pinned: they are used again for blocks at the same addresses, but never moved and never given back. */
#ifndef SG_PIN_HOOKS_H
#define SG_PIN_HOOKS_H

#include <stddef.h>

#include "driver/cuda_abi.h"

/* The pages behind a range may not move any more; nothing where the address isn't ours. */
void sg_pin(CUdeviceptr address, size_t bytes);

/* The driver's call `name`, which may remember any memory, is about to be made: pins all pages. Prints a line the
   first time. */
void sg_pin_all(const char *name);

#endif
