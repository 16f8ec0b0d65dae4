/* PyTorch's native CUDA caching allocator (2.11) for one device, as a function of its events.

   A *segment* is memory from the driver, by one cudaMalloc; an *expandable* one is a range of addresses that memory is put
   behind in *chunks*. A *block* is a piece of a segment. A *pool* has the free blocks of one stream and one kind, small or
   large. A block is *split* when a request takes its beginning and leaves the rest free.

   Why it is here: replays compare segalloc with PyTorch's own allocator on the same events. And fixed segments in the
   library keep PyTorch's rules, which programs were tuned to.

   Example, a card of 24 GiB, one stream, default settings:
     alloc 3 MiB      between 1 and 10 MiB: a segment of 20 MiB, of which 17 MiB stay free      reserved 20 MiB
     alloc 300 KiB    307200 bytes; up to 1 MiB: a segment of 2 MiB in the small pool           reserved 22 MiB
     alloc 12 MiB     the 17 MiB are the best fit: split, 5 MiB stay free                       reserved 22 MiB
     alloc 12 MiB     5 MiB are too small: a segment of 12 MiB                                  reserved 34 MiB
     free 3 MiB       free, beside a block in use
     empty_cache      gives back nothing, since no segment is free as a whole                   reserved 34 MiB
   With expandable_segments:True the second 12 MiB grow the first range by a chunk of 20 MiB: reserved 42 MiB. empty_cache
   gives back chunks that are free as a whole; there is none here.

   It decides as c10/cuda/CUDACachingAllocator.cpp does. It has pools by stream and by small or large, best fit by (size,
   address), and the rules for splits and oversize blocks. It has expandable segments, garbage collection, and the order of
   recourse when memory runs out. It has PyTorch's faults too (both oversize rules on ranges inside expandable segments,
   pytorch#123548).
   Not modelled: private pools (CUDA graphs, MemPool) and captures. Memory comes through a table of functions, so the
   same rules run over bookkeeping (ledger_device.h) and over a driver. No globals, no clock, no environment, and no
   locks: one caller at a time. */
#ifndef SG_CACHING_ALLOCATOR_H
#define SG_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator_config.h"

/* Where the memory comes from. Functions that return int give 0, -ENOMEM when there is no memory (which starts the
   search for some), or another negative errno, which ends the allocation at once. A mode that is off needs none of
   its functions. The three for events may be NULL together: then every event is complete when it is asked about. */
struct sg_torch_ops {
    /* One segment of fixed size: cudaMalloc and cudaFree. segment_alloc() may give the caller's lock up while it
       waits for the driver and take it again (PyTorch's release_lock_on_cudamalloc); no other function may. */
    int (*segment_alloc)(void *user, uint64_t bytes, uint64_t *ret_address);
    void (*segment_free)(void *user, uint64_t address, uint64_t bytes);
    /* Address space of an expandable segment. */
    int (*reserve)(void *user, uint64_t bytes, uint64_t *ret_address);
    void (*unreserve)(void *user, uint64_t address, uint64_t bytes);
    /* Puts memory behind [address, address + bytes), a whole number of chunks, all or nothing; and takes it away
       again, once the work of `stream` is complete. */
    int (*map)(void *user, uint64_t address, uint64_t bytes, uint64_t chunk);
    void (*unmap)(void *user, uint64_t address, uint64_t bytes, uint64_t chunk, uint64_t stream);
    /* Marks the end of what `stream` has been given; asks about it; waits for it. Each event is asked about until it
       is complete, or waited for, and not mentioned again after that. */
    uint64_t (*event_record)(void *user, uint64_t stream);
    bool (*event_done)(void *user, uint64_t event);
    void (*event_wait)(void *user, uint64_t event);
};

/* A number of bytes with its highest value. */
struct sg_torch_level {
    uint64_t current, peak; /* bytes */
};

struct sg_torch_stats {
    struct sg_torch_level reserved;  /* held from the driver */
    struct sg_torch_level allocated; /* after rounding, until freed */
    struct sg_torch_level requested; /* as asked for, until freed (PyTorch counts until the memory is usable again) */
    struct sg_torch_level active;    /* allocated, or freed and waiting for other streams */
    uint64_t allocs, frees;          /* by the program */
    uint64_t segment_allocs, segment_frees, maps, unmaps, reserves, unreserves; /* successful calls of the table */
    uint64_t cache_syncs;            /* PyTorch's num_sync_all_streams: times the whole cache was given back */
    uint64_t retries, ooms;          /* PyTorch's num_alloc_retries and num_ooms */
};

struct sg_torch;
struct sg_torch_block;

/* `total_bytes` is the device's memory: it bounds the address space of an expandable segment (9/8 of it) and is what
   a memory fraction is a fraction of. `conf` is copied, `ops` kept. NULL when there is no host memory. */
struct sg_torch *sg_torch_create(const struct sg_torch_conf *conf, uint64_t total_bytes, const struct sg_torch_ops *ops,
                                 void *user);

/* Frees the host memory only; segments that are left are not given back (call sg_torch_empty_cache() first). */
void sg_torch_destroy(struct sg_torch *torch);

/* Allocates for `stream`. Zero bytes give a NULL block, which every call below accepts. -ENOMEM: out of memory
   after everything was tried, or no host memory; other errors are those of the table. */
int sg_torch_alloc(struct sg_torch *torch, uint64_t bytes, uint64_t stream, struct sg_torch_block **ret);

/* Frees a block. Its memory is free at once, or once the streams that it was recorded on are done. The block is not to be
   used again in either case. */
void sg_torch_free(struct sg_torch *torch, struct sg_torch_block *block);

/* From here to its free the block is also in use on `stream`. -ENOMEM: no host memory, nothing was noted. */
int sg_torch_record_stream(struct sg_torch *torch, struct sg_torch_block *block, uint64_t stream);

/* Waits for all events, and gives every free segment, or free chunk, back: torch.cuda.empty_cache(). */
void sg_torch_empty_cache(struct sg_torch *torch);

/* From here on a block is a segment of its own (allocator_config.h, whole_segments). False: so it was already. */
bool sg_torch_keep_whole(struct sg_torch *torch);

/* Gives back what is free of one stream's, in segments of fixed size of which nothing is pending. */
void sg_torch_empty_stream(struct sg_torch *torch, uint64_t stream);

struct sg_torch *sg_torch_owner(const struct sg_torch_block *block); /* whose allocation it is */
uint64_t sg_torch_address(const struct sg_torch_block *block);
uint64_t sg_torch_takes(const struct sg_torch *torch, uint64_t bytes); /* of the driver, where nothing free serves */
uint64_t sg_torch_bytes(const struct sg_torch_block *block);  /* after rounding, with what was not split off */
const struct sg_torch_stats *sg_torch_stats(const struct sg_torch *torch);

#endif
