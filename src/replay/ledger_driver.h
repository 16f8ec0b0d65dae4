/* A card without a GPU: a driver table that only keeps the books. Replays and the tuner run the core on it.

   The *ledger* is the set of books: bytes in use on each device, events, plain allocations. Nothing is mapped and nothing
   is remembered of addresses, since the core never looks at memory. So a call costs some nanoseconds, and a replay plays
   millions of them.

   Example, a card of 24 GiB:
     cuMemAddressReserve 48 GiB      0x100000000000000; the next reservation begins behind it
     cuMemCreate 2 MiB, device 3     handle 0x200003: the size, with the device in its low bits. device[3].used 2 MiB
     cuMemMap of that handle         success; a size that is not the handle's is CUDA_ERROR_INVALID_VALUE
     cuMemCreate beyond 24 GiB       CUDA_ERROR_OUT_OF_MEMORY, unless the card refuses nothing
     cuMemRelease 0x200003           device[3].used 0

   The table's functions have no user pointer, so the card they mean is the calling thread's (sg_ledger_use). A call that
   names no device means the one that sg_ledger_use_device() named last. Every device has the same memory unless its own
   is said.
   Contexts do not exist. Work is one of two things:
     - with a queue (lag_queue.h), what was submitted to it: an event is complete when what came before it is, and a
       wait of the host completes it. A stream's handle is its number there;
     - without one, recordings of events are numbered on each device, the first `recordings_complete` of them are
       complete, and waits return at once.
   Not for the preload library. */
#ifndef SG_LEDGER_DRIVER_H
#define SG_LEDGER_DRIVER_H

#include <stdint.h>

#include "lag_queue.h"
#include "driver/driver.h"

enum { SG_CARD_DEVICES = 64 };

/* Where the addresses that the ledger gives out begin. A replay sees recorded addresses of fixed segments beside them,
   which are those of a process: below 2^47 on x86-64, 2^56 with five levels of page tables, 2^52 on arm64. */
#define SG_LEDGER_BASE (UINT64_C(1) << 56)

struct sg_ledger {
    uint64_t total_bytes, granularity; /* of each device that has no size of its own */
    uint64_t next_address;
    uint64_t host_used_bytes, host_peak_bytes; /* pages in the host's memory, of all devices */
    bool refuses_nothing; /* set after sg_ledger_init(): what does not fit is for somebody else to say */
    struct sg_ledger_gpu {
        uint64_t total_bytes; /* 0: as the card's; set before the device is first used */
        uint64_t used_bytes, peak_bytes;
        uint64_t outside_bytes; /* in use by others */
        uint64_t recordings, recordings_complete;
    } device[SG_CARD_DEVICES];
    struct sg_ledger_event {
        uint64_t recording; /* number of its latest recording */
        uint32_t device;
        uint32_t next_unused;        /* number of another event that was destroyed; 0: none */
        struct sg_ledger_clock *clock; /* with a queue: what came before its latest recording */
    } *event;
    uint64_t events, events_room;
    uint32_t unused_event; /* number of the event destroyed last, 0: none */
    struct sg_lag_queue *queue; /* borrowed; NULL: none */
    uint64_t host_waits;        /* calls that waited for work that was not complete; only with a queue */
    struct sg_ledger_plain {
        CUdeviceptr address;
        uint64_t bytes;
        uint32_t device;
    } *plain; /* by cuMemAlloc */
    uint64_t plain_count, plain_room;
};

/* Makes a card whose devices have `total_bytes` each, in pages of multiples of `granularity` bytes. Nothing can fail. */
void sg_ledger_init(struct sg_ledger *card, uint64_t total_bytes, uint64_t granularity);

/* Gives the books back. */
void sg_ledger_fini(struct sg_ledger *card);

/* The calling thread's card from here on. */
void sg_ledger_use(struct sg_ledger *card);

/* The device that the calling thread's calls mean from here on, where they don't say; 0 at first. */
void sg_ledger_use_device(int ordinal);

extern const struct sg_driver sg_ledger_driver;

#endif
