/* A card that is only bookkeeping: a capacity, addresses, and a count of the driver calls that PyTorch would make.

   A *hole* is a range of addresses between segments that was given back. Addresses matter, because PyTorch takes the lowest
   of equal blocks: with other addresses the same program would use other blocks.

   Example, from an empty card of 24 GiB:
     segment_alloc 20 MiB    0x10000000000; used 20 MiB
     segment_alloc 2 MiB     0x10001400000, behind it; used 22 MiB
     segment_free of the first: a hole of 20 MiB at 0x10000000000; used 2 MiB
     segment_alloc 12 MiB    0x10000000000, the lowest hole that fits; a hole of 8 MiB is left
     map of 20 MiB in chunks of 20 MiB: one create, one map and one set_access are counted */
#ifndef SG_LEDGER_DEVICE_H
#define SG_LEDGER_DEVICE_H

#include "base/keytree.h"
#include "caching_allocator.h"

/* Names of the runtime's and driver's calls; calls that fail for want of memory count too. */
enum sg_torch_call {
    SG_TORCH_CUDA_MALLOC,
    SG_TORCH_CUDA_FREE,
    SG_TORCH_STREAM_SYNCHRONIZE,
    SG_TORCH_ADDRESS_RESERVE,
    SG_TORCH_ADDRESS_FREE,
    SG_TORCH_CREATE,
    SG_TORCH_RELEASE,
    SG_TORCH_MAP,
    SG_TORCH_UNMAP,
    SG_TORCH_SET_ACCESS,
    SG_TORCH_CALLS
};

struct sg_ledger_device {
    uint64_t capacity, used, peak; /* bytes */
    uint64_t outside; /* in use by others: may be more than the rest */
    uint64_t calls[SG_TORCH_CALLS];
    /* Addresses decide between equals, so they are modelled after the machine on which PyTorch itself was measured:
       segments take the lowest hole that fits, and reservations go downwards. */
    struct sg_keytree holes;       /* by address: struct hole */
    uint64_t segments_end, last_reservation;
};

/* The table for sg_torch_create(), whose `user` is the card. Events are complete when asked about. */
extern const struct sg_torch_ops sg_ledger_device_ops;

/* Makes a card of `capacity` bytes, all of them free. */
void sg_ledger_device_init(struct sg_ledger_device *card, uint64_t capacity);
void sg_ledger_device_clear(struct sg_ledger_device *card); /* frees its host memory; to be initialised again before
                                                               use */

#endif
