/* Types that callers and rooms of the core share: the caller, the layer above as the core sees it, and the core's
   answers.

   Nouns. A *tag* describes the caller of an allocation or free. A *replay* gives the core its recorded answers.
   *Callbacks* are the functions that the core calls besides the driver and the observer. A *shortage* is a failed
   allocation, with the levels of the device at that moment.

   Why a tag and not arguments: the layer above knows who calls, and on which stream. The core only obeys, so that a
   replay can hand it the same tag. No field is asked of the environment here.

   For example, PyTorch frees 20 MiB by cudaFree on the stream with slot 3: `torch`, `slot` 3 and `sync`
   SG_FREE_SYNC_STREAM. The block is free for slot 3 at once, and for others once they are ordered after. */
#ifndef SG_CORE_CORE_TYPES_H
#define SG_CORE_CORE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/conf.h"
#include "driver/cuda_abi.h"
#include "driver/driver.h"
#include "base/event.h"
#include "base/outside.h"
#include "order/stream_clock.h"
#include "base/stats.h"

enum { SG_DEVICES_MAX = 64 };

/* Tags of memory have numbers below SG_TAGS; 0 is memory without one. A name has SG_TAG_NAME bytes with its NUL. */
enum { SG_TAGS = 32, SG_TAG_NAME = 64 };

/* Where the contents of a tag are kept while it is paused: on the host, nowhere, or in files. The core tells tags apart by it, and
   knows no more of it. */
enum sg_tag_keep { SG_TAG_SAVED, SG_TAG_DISCARDED, SG_TAG_FILED };

struct sg_core;

/* The caller of an allocation or a free, and when a free takes effect. A tag of zeros is an allocation for nobody in
   particular. */
struct sg_tag {
    CUcontext context; /* the one that was current; NULL: unknown */
    CUstream stream;   /* meaningful when `has_stream` */
    bool has_stream;
    bool torch;     /* the caller was PyTorch */
    bool tentative; /* free: a failure is not counted, because the caller asks again in another way */
    bool modest;    /* allocation: likewise for less, so it waits for nothing, and no failure is noted */
    bool overflow;  /* allocation: nothing else is left, so it may lie in the host's memory as the option allows */
    /* Free: it is a step of stream `slot`, and all use of the block comes before it. A block of no known stream
       belongs to `slot` from then on. */
    bool in_order;
    /* Free by SG_FREE_SYNC_STREAM: streams may have been given work, or have waited, in ways that are not followed. */
    bool missed_calls;
    uint8_t memory_tag; /* allocation: the tag on whose pages the block stands (sg_core_tag()); 0: on those of none */
    /* Allocation: the stream that the block is for; 0: unknown. A free of such a block by SG_FREE_SYNC_STREAM acts as
       EVENT, unless `in_order` is set. */
    sg_slot slot;
    /* Allocation: numbers of the place in the program that asks, and of what that is doing; 0: unknown. They are kept
       for reports, and nothing is decided by them. */
    uint32_t site, phase;
    enum sg_free_sync sync;      /* free: the mode, never AUTO */
    enum sg_user_rule user_rule; /* free by SG_FREE_SYNC_STREAM: the other streams that it waits for */
};

/* A replay of records that a core emitted to its observer. Records of the trace say which work is complete and how
   streams are ordered. The driver is asked nothing about it.

   An operation that drops `lock` consists of replay steps, one for each section under `lock`. Each section emits one
   record, most of them a SEGALLOC_RECORD_TURN. The operation calls `step` before a section, and before that section's
   driver calls. `step` returns when the trace has reached the record of that section. The record says what the driver
   answered and what else is not the core's to decide. NULL: there is none. The core decides then, and asks the
   driver. No lock but `grow` is held.

   `give_way` is called, as often as it takes, where another operation holds `grow` and waits for its own step. */
struct sg_replay {
    const struct segalloc_trace_record *(*step)(void);
    void (*give_way)(void);
};

/* The functions of the layer above that the core calls, besides the driver and the observer. They are set when the
   core is made, and constant. Any of them may be NULL. */
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

    /* Waits for the work of a context, but not for ever. CUDA_ERROR_NOT_READY: the wait was given up. A context that
       has ended has no work left. No lock is held. NULL: cuCtxSynchronize waits for the current context. */
    CUresult (*wait_for_context)(CUcontext context);

    /* Has another thread call `run`, and waits as `wait_for_context` does. CUDA_ERROR_OPERATING_SYSTEM: there can be no
       thread. NULL: the core calls `run` itself. */
    CUresult (*aside)(CUresult (*run)(void *user), void *user);

    /* Has another thread call `run`, without a wait. False: it could not begin, or an earlier one still runs. NULL: it
       never begins. */
    bool (*begin_aside)(CUresult (*run)(void *user), void *user);

    /* Waits, as `wait_for_context` does, until what begin_aside() has begun returns. False: nothing was begun, or it still
       runs. No lock is held. NULL: nobody waits for it. */
    bool (*await_begun)(void);

    /* Makes a context current. Another thread that ends the context waits for leave_context(), which takes what this
       returns. Below 0: the context is gone. No lock is held. NULL, both: nobody ends a context. */
    int (*enter_context)(CUcontext context);
    void (*leave_context)(int use);

    /* Writes to `ret`, which is all zeros, what this process is known to hold of a device by calls that the core does
       not serve. *ret_most: the same at the moment since the last call when it was most; all zeros: it is most now. It asks
       the driver; `grow` or `setup` may be held. NULL: nothing is known. */
    void (*outside)(int device, struct sg_outside *ret, struct sg_outside *ret_most);

    /* Bytes of the host's memory that may be taken for pages now. `grow` is held. NULL: as many as the option allows. */
    uint64_t (*host_room)(void);

    /* Finds another device on which `device` may have pages: one of `among` that it reaches, and that all of
       `peers` reach, bits by ordinal. It is the one with the most to spare. *ret_room: bytes that may be taken
       there now. `grow` is held. False: there is none. NULL: likewise. */
    bool (*neighbour)(int device, uint64_t peers, uint64_t among, int *ret_device, uint64_t *ret_room);

    /* True if a device's pages may leave an alias (remap/page_alias.h). `wanted`: one may be of use, so a device that
       was not tried yet is tried. The device's context is current, and no lock is held. NULL: they may. */
    bool (*aliases)(int device, bool wanted);
};

/* All that a core is made of. */
struct sg_core_params {
    const struct sg_conf *conf;     /* copied */
    const struct sg_driver *driver; /* kept: must outlive the core */
    struct sg_event_sink observer;
    const struct sg_replay *replay;     /* kept; NULL: this is none */
    struct sg_core_callbacks callbacks; /* copied */
    bool plain_pages; /* pages need not be exportable, nor fit for network cards: for tests and replays */
};

/* A live block. */
struct sg_block_info {
    CUdeviceptr base;
    size_t bytes; /* as asked for */
    int device;
    CUcontext context;
    uint64_t buffer_id; /* differs for each allocation */
    bool cross_device;  /* in a fixed segment: work of other contexts on it was recorded */
    bool plain;         /* of pages that can't be given to other processes */
};

/* The reason why a block was not put elsewhere in part. Traces have the numbers. */
enum sg_overflow_lack {
    SG_OVERFLOW_NOT_ASKED,   /* the option is off, or other memory was left to try */
    SG_OVERFLOW_SMALL,       /* the block is too small */
    SG_OVERFLOW_TAGGED,      /* its tag may be paused */
    SG_OVERFLOW_NO_PAGES,    /* the driver makes no pages there */
    SG_OVERFLOW_OPTION,      /* the option allows less than is lacking */
    SG_OVERFLOW_ROOM,        /* that place has less to spare */
    SG_OVERFLOW_REGIONS,     /* there are as many such blocks as there may be */
    SG_OVERFLOW_DRIVER,      /* the driver has refused a call */
    SG_OVERFLOW_NO_NEIGHBOUR /* the device reaches the memory of no other one */
};

/* Such reasons: why a block may lie nowhere else, and what each place lacked. */
struct sg_overflow_lacks {
    enum sg_overflow_lack any, peer, host;
};

/* A failed allocation as its device was then, bytes. */
struct sg_shortage {
    uint64_t asked, live;           /* live: requested by the program and not freed */
    uint64_t takes;                 /* of one piece: what was asked for, or the fixed segment for it */
    uint64_t allocated;             /* the same after rounding */
    uint64_t pending;               /* freed and still in use by queued work */
    uint64_t used;                  /* both */
    uint64_t reserved;              /* held: used or idle */
    uint64_t idle;                  /* in whole pages, or segments, that nothing lives in */
    uint64_t room;                  /* neither held nor in use by others, as far as the limit goes */
    uint64_t short_by;              /* asked for beyond these two; a granule where it failed although they would do */
    uint64_t total, limit, outside; /* of the device; of that may be held; in use by others */
    bool given_up;                  /* a wait for queued work has taken longer than wait_limit */
    struct sg_overflow_lacks overflow_lacks; /* why memory elsewhere has not served instead */
    enum segalloc_outside by;       /* the call that was refused; OTHER: one that the core serves */
};

#endif
