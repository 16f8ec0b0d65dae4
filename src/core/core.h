/* The allocator, as the layers above see it.

   A `struct sg_core` serves every device of a process. It has no globals, clock or environment. Driver, configuration,
   observer and a clock for measuring come with sg_core_create(). device.h has the locks of a device. The caller holds
   none of them. The core makes no driver call while it holds `lock`.

   Functions that stand for driver calls return CUresult: exactly what the driver would have returned, with outputs
   untouched on failure. */
#ifndef SG_CORE_H
#define SG_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "cuda_abi.h"
#include "driver.h"
#include "event.h"
#include "outside.h"
#include "stream_clock.h"
#include "stats.h"

enum { SG_DEVICES_MAX = 64 };

struct sg_core;

/* Who asks, and when a free takes effect. */
struct sg_tag {
    CUcontext context; /* that was current, NULL if unknown */
    CUstream stream;   /* meaningful when `has_stream` */
    bool has_stream;
    bool torch;        /* the caller was PyTorch */
    bool tentative;    /* of a free: a failure is not counted, because the caller asks again in another way */
    enum sg_free_sync sync; /* of a free: the mode, never AUTO */
    sg_slot slot;      /* of an allocation: the stream that it is for. 0: unknown. SG_FREE_SYNC_STREAM then acts as
                          EVENT, unless `in_order` is set */
    bool in_order;     /* of a free: the free is a step of stream `slot`, and all use of the block comes before it. A
                          block of no known stream belongs to `slot` from then on */
    enum sg_user_rule user_rule; /* of a free by SG_FREE_SYNC_STREAM */
    bool missed_calls; /* of one by SG_FREE_SYNC_STREAM: streams may have been given work, or have waited, in ways that
                          are not followed */
    uint32_t site, phase; /* of an allocation: numbers of the place in the program that asks, and of what it is doing;
                             0: unknown. Nothing is decided by them */
};

/* For replays of what a core emitted to its observer. Records of the trace say which work is complete and what comes
   after what. The driver is asked nothing about it.

   An operation that drops `lock` consists of replay steps, one for each section under `lock`. Each section emits one
   record, most of them a SEGALLOC_RECORD_TURN. The operation calls `step` before a section, and before that section's
   driver calls. `step` returns when the trace has reached the record of that section. The record says what the driver
   answered and what else is not the core's to decide. NULL: there is none. The core decides then, and asks the driver.
   No lock but `grow` is held.

   `give_way` is called, as often as it takes, where another operation holds `grow` and waits for its own step. */
struct sg_replay {
    const struct segalloc_trace_record *(*step)(void);
    void (*give_way)(void);
};

/* What the core calls of the layer above it, besides the driver and the observer. Set when the core is made, and
   constant. Any of them may be NULL. */
struct sg_core_callbacks {
    /* A monotonic clock, for times in statistics alone. NULL: they stay 0. */
    uint64_t (*now_ns)(void);

    /* An exact clock, for the cost of driver calls (cost.h). NULL: cost.def is assumed. */
    uint64_t (*measure_ns)(void);

    /* One line for the user, without a newline. NULL: lines are dropped. */
    void (*warn)(const char *line);

    /* An event of the core's is about to be recorded on a stream. True: no capture is live, and none begins before
       record_end(). False: one is live, and record_end() is not called. NULL, both: there are no captures. */
    bool (*record_begin)(void);
    void (*record_end)(void);

    /* Waits for the work of a context, but not for ever. CUDA_ERROR_NOT_READY: the wait was given up. A context that has
       ended has no work left. No lock is held. NULL: cuCtxSynchronize waits for the current context. */
    CUresult (*wait_for_context)(CUcontext context);

    /* Has another thread call `run`, and waits as `wait_for_context` does. CUDA_ERROR_OPERATING_SYSTEM: there can be no
       thread. NULL: the core calls `run` itself. */
    CUresult (*aside)(CUresult (*run)(void *user), void *user);

    /* Has another thread call `run`, without a wait. False: it could not begin, or an earlier one still runs. NULL: it
       never begins. */
    bool (*begin_aside)(CUresult (*run)(void *user), void *user);

    /* Makes a context current. Another thread that ends the context waits for leave_context(), which takes what this
       returns. Below 0: the context is gone. No lock is held. NULL, both: nobody ends a context. */
    int (*enter_context)(CUcontext context);
    void (*leave_context)(int use);

    /* Writes to `ret`, which is all zeros, what this process is known to hold of a device by calls that the core does
       not serve. *ret_passed: bytes of graphs that a launch held besides, and that are free again. It asks the driver;
       `grow` may be held. NULL: nothing is known. */
    void (*outside)(int device, struct sg_outside *ret, uint64_t *ret_passed);

    /* Whether a device's pages may get a second address. `wanted`: one may be of use, so a device that was not tried yet
       is. The device's context is current, and no lock is held. NULL: they may. */
    bool (*aliases)(int device, bool wanted);
};

struct sg_core_params {
    const struct sg_conf *conf;      /* copied */
    const struct sg_driver *driver;  /* kept: must outlive the core */
    struct sg_event_sink observer;
    const struct sg_replay *replay;  /* kept; NULL: this is none */
    struct sg_core_callbacks callbacks; /* copied */
    bool plain_pages; /* nothing but memory is asked of pages: not that they can be exported, nor used by
                                        network cards */
};

/* Creates the allocator; nothing is asked of the driver yet. NULL when there is no host memory. */
struct sg_core *sg_core_create(const struct sg_core_params *params);

/* Gives everything back to the driver and frees the host memory. For tools and tests: a process under LD_PRELOAD
   never calls it. Nobody may be using the core. */
void sg_core_destroy(struct sg_core *core);

/* cuMemAlloc on `device` for the caller described by `tag`. The current context must belong to the device. Zero
   bytes: CUDA_ERROR_INVALID_VALUE. CUDA_ERROR_NOT_SUPPORTED: the caller should pass the request on to the driver
   (the device can't be served by us) and then call sg_core_passthrough(). */
CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* cuMemFree for memory of ours. CUDA_ERROR_INVALID_VALUE for addresses inside our ranges that are not the start of a
   live block. CUDA_ERROR_NOT_FOUND: the address is not ours, the driver should be asked. `tag->sync` selects the
   mode. STRICT waits for the context that the block was allocated in; while other contexts may be using the block,
   it is pending. EVENT returns at once. An error of the wait is returned, and the block stays allocated. AUTO, which
   is no mode, is refused with CUDA_ERROR_NOT_SUPPORTED and ends a build with assertions. */
CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag);

/* Waits as a strict free of the block at `address` does. `current` is the calling thread's context. *ret_all:
   whether nobody else can be using the block either. */
CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all);

/* Waits for every context that there is. Returns the first error. */
CUresult sg_core_wait_for_all(struct sg_core *core);

/* A copy between devices touches the block that holds `address`, if there is one. A later free of it takes that into
   account, unless the block was allocated for a stream, whose caller records others (sg_core_record_stream()). For a
   block in a fixed segment, this call records the use by a stream of another context. */
void sg_core_used_cross_device(struct sg_core *core, CUdeviceptr address);

/* Whether an address lies inside a range of ours. Lock-free, callable at any time, also in a forked child. */
bool sg_core_owns(const struct sg_core *core, CUdeviceptr address);

struct sg_block_info {
    CUdeviceptr base;
    size_t bytes;       /* as asked for */
    int device;
    CUcontext context;
    uint64_t buffer_id; /* differs for each allocation */
    bool cross_device;  /* in a fixed segment: work of other contexts on it was recorded */
    bool plain;         /* of pages that can't be given to other processes */
};
/* The live block that holds `address`; CUDA_ERROR_INVALID_VALUE if none does, CUDA_ERROR_NOT_FOUND if not ours. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret);
/* Gives idle pages back to the driver until at most `keep` bytes are reserved beyond what is allocated. Returns the
   bytes given back. */
size_t sg_core_trim(struct sg_core *core, int device, size_t keep);

/* The page size that page_size_mb:auto takes for `bytes` that may be held. It is the power of two of granules by
   which those are at most 5/6 of `mappings` pages. */
uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings);

/* Asks about pending frees and makes those free whose work is complete. No wait. */
void sg_core_poll(struct sg_core *core, int device);

/* Notes an allocation that the driver served, for the report's served share. */
void sg_core_passthrough(struct sg_core *core, int device, CUdeviceptr address, size_t bytes);

/* Counts an allocation on `device` that was refused and will not be made good: the core counts refusals only, since
   what a program does about one is not known then. */
void sg_core_failed(struct sg_core *core, int device);

/* Counts questions of the program how much of `device` is free. */
void sg_core_asked(struct sg_core *core, int device, unsigned times);

/* Notes in the trace what became of the calling thread's refused allocation, where no allocation shows it. */
void sg_core_settled(struct sg_core *core, int device, enum segalloc_settled how, size_t bytes);

/* Counts an allocation by a call that the core does not serve. */
void sg_core_count_outside(struct sg_core *core, int device);

/* Notes what is held of `device`, whose context is current, by calls that the core does not serve: for the observer
   alone. Asks the driver, and takes `grow`. */
void sg_core_note_outside(struct sg_core *core, int device);

/* A context was destroyed or its primary reset: its blocks and pending frees are gone; no driver call is made for
   `context`. NULL: everything on the device is gone. */
void sg_core_context_gone(struct sg_core *core, int device, CUcontext context);

/* A call that may end `context` is about to be made (`ending`), or has left it alive. After the return no new call
   names the context or its events. A call that is under way may still wait for it. What is pending on it stays so.
   Takes `asking`. sg_core_context_gone() says that the context has ended. */
void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending);

/* A context of `device` exists (created, or primary retained); strict and event frees must cover it. Of one that is
   known it costs no lock. */
void sg_core_context_seen(struct sg_core *core, int device, CUcontext context);

/* The context has ended. Removes an entry that sg_core_context_seen() made too late, after sg_core_context_gone(). */
void sg_core_context_forget(struct sg_core *core, CUcontext context);

/* cuCtxEnablePeerAccess: memory of `device` must be accessible from `peer`, now and later. */
CUresult sg_core_peer_access(struct sg_core *core, int device, int peer, bool enable);

/* The page or pages behind [address, address + bytes) may not move any more. */
void sg_core_pin(struct sg_core *core, CUdeviceptr address, size_t bytes);

/* Pins every page that there is. Returns whether there is any. */
bool sg_core_pin_all(struct sg_core *core);

/* From here on nothing is asked of the driver: frees succeed and do nothing, allocations answer
   CUDA_ERROR_NOT_SUPPORTED. For forked children, after the driver has gone or returned a sticky error. Takes no
   lock. */
void sg_core_disable(struct sg_core *core);

/* The sticky error has gone with its context. What was freed meanwhile, of other contexts, stays allocated. No lock. */
void sg_core_enable(struct sg_core *core);

/* Takes, or gives back, around fork() the locks that are held for a moment only; in the child all are made anew. `setup`
   is none of these: the driver may hold a lock of its own around a fork, for which the holder of `setup` waits. Returns
   a bit for each device whose lock was taken, for the parent to give back. */
uint64_t sg_core_fork_prepare(struct sg_core *core);
void sg_core_fork_parent(struct sg_core *core, uint64_t devices);
void sg_core_fork_child(struct sg_core *core);

/* Whether `setup` and the locks of sg_core_fork_prepare() are to be had within a second each. A thread that left a call of the
   core by a long jump out of a signal handler never releases the lock that it held. */
bool sg_core_is_free(struct sg_core *core);

/* The order of streams, all per device and under its lock, none across a driver call (sg_core_slot_gone() aside).
   Callers keep these rules, so that no wrong knowledge enters:

      - an event's clock is what sg_core_clock() said *before* the driver was asked to record it, kept after it
        succeeded;
      - sg_core_ordered_after() and sg_core_completed() come *after* the driver's success, with the clock that the event
      had
        before the call, and not at all where the event was recorded anew meanwhile, or may have been by means that
        are not seen;
      - sg_core_slot_submitted() comes after a call that gave the stream work, before that call returns to the
      program. */

/* The slot of a stream, found or made. 0: there is none left, or the device does not serve memory by ranges. */
sg_slot sg_core_slot(struct sg_core *core, int device, const struct sg_stream_id *id);

/* Whether a page got a second address for the stream of `slot` since the last such call. Users of the first address
   may still be running when that stream's next kernel begins, if that is launched so as to begin early. No lock. */
bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot);

/* The stream is about to be destroyed. A fence goes on it first, and the slot is given to another stream once that
   has passed. Calls the driver; no lock may be held. */
void sg_core_slot_gone(struct sg_core *core, int device, sg_slot slot);

/* From here on the stream counts as ordered by means that are not seen. */
void sg_core_slot_untracked_order(struct sg_core *core, int device, sg_slot slot);

/* The host has observed, or may observe at any time without a call, that the work of `clock` is complete. NULL: all
   that the device was given so far. The host may pass blocks from before then to any stream. */
void sg_core_host_observed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

/* The stream may have been given work. No lock. */
void sg_core_slot_submitted(struct sg_core *core, int device, sg_slot slot);

/* What everything submitted to `slot` from now on is ordered after, its own work so far included. */
void sg_core_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret);

/* Read before the driver is asked whether the stream has work left; valid if it has none. *ret_observed is for
   sg_core_host_observed(): the host has observed all of it. For sg_core_completed() the stream's own entry counts only
   up to *ret_done. A blocking stream is ordered after the legacy stream's work by its next step. If it was given
   nothing since, it is idle, and the legacy stream may be busy. */
void sg_core_idle_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret_observed,
    uint64_t *ret_done);

/* What everything submitted to any stream of a context from now on is ordered after; NULL: of the device. For calls
   that wait for all of them. */
void sg_core_context_clock(struct sg_core *core, int device, CUcontext context, struct sg_vector_clock *ret);

/* What `slot` is given from now on is ordered after `clock`. */
void sg_core_ordered_after(struct sg_core *core, int device, sg_slot slot, const struct sg_vector_clock *clock);

/* All up to `clock` is complete. */
void sg_core_completed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

/* The live block at `address` is used on the stream of `slot` too. CUDA_ERROR_INVALID_VALUE: there is no such block.
   CUDA_ERROR_NOT_FOUND: the address isn't ours. */
CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot);

/* From here on `device` serves fixed segments (fixed_segments.h); with `whole`, each block in one of its own. What is
   allocated already stays where it is, and the driver must not give that memory out. Idle pages go back by
   sg_core_trim(), which callers use when memory has run out. False: no host memory, or a device that cannot be
   served; nothing has changed. */
bool sg_core_fix(struct sg_core *core, int device, bool whole);

/* All devices, those first used later too, serve fixed segments from here on, each block in one of its own. Legacy
   IPC can give such memory away. */
void sg_core_share(struct sg_core *core);

/* Whether `device` serves fixed segments now and served regions before. If so, sg_core_trim() may give back what
   those have left when there is no memory for a segment. */
bool sg_core_left_pages(struct sg_core *core, int device);

/* From here on at most `bytes` may be held on `device`, and never more than the configuration says. What is held
   beyond that stays until it is given back. Returns what is in force; 0 where the device cannot be served. */
uint64_t sg_core_set_limit(struct sg_core *core, int device, uint64_t bytes);

/* What may be held of the device now; 0 for one never used. And whether that is less than the whole of it. */
uint64_t sg_core_limit(struct sg_core *core, int device);
bool sg_core_is_limited(struct sg_core *core, int device);

/* A failed allocation as its device was then, bytes. */
struct sg_shortage {
    uint64_t asked, live; /* live: requested by the program and not freed */
    uint64_t takes;       /* of one piece: what was asked for, or the fixed segment for it */
    uint64_t allocated;   /* the same after rounding */
    uint64_t pending;     /* freed and still in use by queued work */
    uint64_t used;        /* both */
    uint64_t reserved;    /* held: used or idle */
    uint64_t idle;        /* in whole pages, or segments, that nothing lives in */
    uint64_t room;        /* neither held nor in use by others, as far as the limit goes */
    uint64_t short_by;    /* asked for beyond these two; a granule where it failed although they would do */
    uint64_t total, limit, outside; /* of the device; of that may be held; in use by others */
    bool given_up;        /* a wait for queued work has taken longer than wait_limit */
};

#endif
