/* The trace file on disk.

   A trace is a file header, then blocks of SEGALLOC_TRACE_BLOCK bytes (the last may be shorter): a block header and
   records of 32 bytes. All numbers are little-endian. Records stand in the order of the allocator's critical sections.
   A block's `count` is raised after each record is whole, so what a killed process wrote is readable up to its last
   record; a block that was closed also has a checksum. Reading stops at the first block whose magic, sequence or
   checksum is wrong; a block of zeros was taken ahead and not used. */
#ifndef SEGALLOC_TRACE_FORMAT_H
#define SEGALLOC_TRACE_FORMAT_H

#include <stdint.h>

#define SEGALLOC_TRACE_MAGIC UINT64_C(0x3152544c41474553) /* "SEGALTR1" */
#define SEGALLOC_TRACE_VERSION 1u
#define SEGALLOC_TRACE_BLOCK (UINT64_C(1) << 20)
#define SEGALLOC_BLOCK_MAGIC 0x4b4c4253u /* "SBLK" */

/* What a trace may hold: a reader refuses what is beyond, so that no number in a file makes it take memory or time that
   the file's size does not account for. */
#define SEGALLOC_TRACE_HEADER_MOST (UINT64_C(1) << 24)      /* bytes up to the first block */
#define SEGALLOC_TRACE_STREAMS (UINT32_C(1) << 20)          /* indices of streams are below */
#define SEGALLOC_TRACE_NAMES (UINT32_C(1) << 20)            /* numbers of texts, sites and phases are below */
#define SEGALLOC_TRACE_TEXT 4096u                           /* bytes of a text at most */
#define SEGALLOC_TRACE_FRAMES 32u                           /* frames of a site at most */
#define SEGALLOC_TRACE_DEVICES 64u                          /* ordinals of devices are below */
#define SEGALLOC_TRACE_SLOTS 64u                            /* slots are below */
#define SEGALLOC_TRACE_DEVICE_MOST (UINT64_C(1) << 46)      /* bytes of a device */
#define SEGALLOC_TRACE_GRANULARITY_LEAST (UINT64_C(1) << 16) /* it is a power of two */
#define SEGALLOC_TRACE_GRANULARITY_MOST (UINT64_C(1) << 30)

/* Kinds of records. Numbers are never used again; 0 is what a crash leaves. The columns say what the fields hold.
   `id` names a block from its allocation to its free; recorded traces use the device address. */
enum segalloc_record_kind {
    SEGALLOC_RECORD_NONE = 0,
    /* What the program did. These are also the actions of RMM's CSV and of its extensions. */
    SEGALLOC_RECORD_ALLOCATE = 1,         /* id, size asked for */
    SEGALLOC_RECORD_FREE = 2,             /* id, size asked for */
    SEGALLOC_RECORD_ALLOCATE_FAILURE = 3, /* size asked for; with SHORT id: bytes that it lacked; with TORCH: PyTorch
                                              has raised its error */
    SEGALLOC_RECORD_RECORD_STREAM = 4,    /* id */
    SEGALLOC_RECORD_LAUNCH = 5,           /* size: how many pieces of work */
    SEGALLOC_RECORD_EVENT_RECORD = 6,     /* id: number of this recording of an event */
    SEGALLOC_RECORD_STREAM_WAIT = 7,      /* id: the recording waited for */
    SEGALLOC_RECORD_EVENT_SYNC = 8,       /* id */
    SEGALLOC_RECORD_EVENT_QUERY = 9,      /* id */
    SEGALLOC_RECORD_STREAM_SYNC = 10,     /* stream */
    SEGALLOC_RECORD_DEVICE_SYNC = 11,     /* - */
    SEGALLOC_RECORD_EMPTY_CACHE = 12,     /* size: bytes to keep */
    SEGALLOC_RECORD_PAUSE = 13,           /* stream: of the device; id: tag of memory whose pages leave */
    SEGALLOC_RECORD_RESUME = 14,          /* stream: of the device; id: tag whose pages come back */
    /* What came to the allocator from outside, so that a replay decides the same. */
    SEGALLOC_RECORD_DONE = 32,     /* id: the pending free of this block is complete */
    SEGALLOC_RECORD_PRESSURE = 33, /* size: bytes of the device in use by others, quantised */
    /* An allocation that nothing free serves, from there to the ALLOCATE or ALLOCATE_FAILURE of the same thread: */
    SEGALLOC_RECORD_SLOW_BEGIN = 34, /* size asked for: goes to the driver, other threads may go on */
    SEGALLOC_RECORD_SLOW_STEP = 35,  /* decided what to do next; size: CUresult so far, id: pages created before
                                              it, and << 32 those that were mapped */
    SEGALLOC_RECORD_PASSED_ON = 36,  /* size: an allocation that the driver served, flags say why */
    SEGALLOC_RECORD_STATISTIC = 37,  /* stream: device; id: FNV-1a (64 bits) of its name; size: its value */
    SEGALLOC_RECORD_MERGE = 39,      /* stream: of the device; what was cached was merged with what is free around
                                              it */
    /* The order of streams as the allocator learnt it. A slot is a number under which a stream is followed; its
       DEFINE_STREAM comes with it. Time counts what happens on the device; allocations advance it. */
    SEGALLOC_RECORD_SLOT = 40,         /* stream: index; id: slot; size: flags of the stream: is followed from here
                                              on */
    SEGALLOC_RECORD_SLOT_GONE = 41,    /* stream, id: slot: the stream was destroyed */
    SEGALLOC_RECORD_TICK = 42,         /* stream: of the device; id: slots, a bit each, that were given work; size:
                                              the time is this now */
    SEGALLOC_RECORD_ORDER = 43,        /* stream: what it is given from here on comes after; id: slot; size: time */
    SEGALLOC_RECORD_COMPLETE = 44,     /* stream: of the device; id: slot, size: time: known to be complete up to
                                              there */
    SEGALLOC_RECORD_MARK = 45,         /* stream: of the device; id: slots, a bit each; size: time up to which an
                                              event was recorded on them */
    SEGALLOC_RECORD_LIMIT = 47,        /* stream: of the device; size: what may be held of it from here on */
    SEGALLOC_RECORD_TURN = 48,         /* stream: of the device; id: enum segalloc_turn; size: its outcome. A step
                                              of a slow allocation, of a trim, or of the free of a huge block */
    SEGALLOC_RECORD_PIN = 49,          /* stream: of the device; id: region << 32 | page; size: pages that may not
                                              move from here on */
    SEGALLOC_RECORD_CONTEXT_GONE = 50, /* stream: of the context; its blocks are freed, and its fixed segments have
                                              gone with it */
    SEGALLOC_RECORD_FIXED = 51,        /* stream: of the device; what is allocated from here on stands in fixed
                                              segments; size: 1: each block in one of its own, else 0 */
    SEGALLOC_RECORD_COST = 52,         /* stream: of the device; id: call, 0: create, 1: map, 2: set access, 3: unmap,
                                              4: release; size: what one over n handles costs, measured: ns a call << 32
                                              | ns a handle */
    SEGALLOC_RECORD_PEERS = 53,        /* stream: of the device; size: devices that have access to its memory from
                                              here on, a bit each */
    SEGALLOC_RECORD_TAG = 56,          /* stream: of the device; id: tag of memory, which this thread's next ALLOCATE or
                                              SLOW_BEGIN is of */
    SEGALLOC_RECORD_TAG_PAGES = 57, /* stream: of the device; id: tag of memory; size: bytes of its pages from here on */
    SEGALLOC_RECORD_FAR = 61, /* stream: of the device; size: bytes of this thread's next ALLOCATE that lie elsewhere, by
                                              the option overflow; id: those of them that are on another device */
    SEGALLOC_RECORD_RETURN_FAR = 62, /* stream: of the device, whose idle pages on another one go back; id: that one's
                                              ordinal */
    SEGALLOC_RECORD_SETTLED = 60,    /* id: enum segalloc_settled: what became of this thread's refused allocation,
                                              where no allocation in the trace says it; size: bytes that it got */
    SEGALLOC_RECORD_OUTSIDE = 54,    /* stream: of the device; id: enum segalloc_outside; size: bytes of the device
                                              that are held that way from here on. LAST: of those that changed at once */
    SEGALLOC_RECORD_REFUSED_OUTSIDE =
        55,                   /* stream: of the device; id: enum segalloc_outside: the call that the driver has
                                              refused, and no allocator could serve; size asked for, 0: not known */
    SEGALLOC_RECORD_END = 38, /* id: records before it, size: records lost; the trace was closed */
    /* Dictionaries: a definition comes before its first use. */
    SEGALLOC_RECORD_DEFINE_STREAM = 64, /* stream: index; id: the handle; size: context index << 32 | device */
    SEGALLOC_RECORD_DEFINE_THREAD = 65, /* thread: index; id: thread id as the system or the CSV gives it */
    SEGALLOC_RECORD_DEFINE_DEVICE = 66, /* stream: ordinal; id: granularity; size: total memory */
    /* The order of streams has been lost, for good, by a call that nothing here knows. Its name: id and size are 16
       characters of it, zeros at its end; more records follow unless LAST is set. */
    SEGALLOC_RECORD_UNTRACKED = 67,
    /* Where the program asked for memory. Numbers are from 1 and below SEGALLOC_TRACE_NAMES; 0 is unknown. A definition
       is a run of records of one number, the first with FIRST and the last with LAST; one that is begun anew replaces
       what came before. */
    SEGALLOC_RECORD_DEFINE_TEXT = 68,  /* stream: text; id and size: 16 bytes of it (UTF-8), zeros at its end */
    SEGALLOC_RECORD_DEFINE_SITE = 69,  /* stream: site; one frame of it, the innermost first. id: text of its file
                                              << 32 | of its function; size: line. With NATIVE: text of the module << 32
                                              | of the exported function or 0; size: offset of the return address
                                              in the module, as its symbols count */
    SEGALLOC_RECORD_DEFINE_PHASE = 70, /* stream: phase; id: the phase around it; size: text of its name */
    SEGALLOC_RECORD_DEFINE_MODEL = 72, /* stream: ordinal of a device; id and size: 16 characters of the name that the
                                              driver gives its model, zeros at its end */
    SEGALLOC_RECORD_DEFINE_UUID = 74,  /* stream: ordinal of a device; id and size: its UUID's 16 bytes. Processes may
                                              have different ordinals for one device */
    SEGALLOC_RECORD_DEFINE_CARD = 73,  /* a card that a rehearsal was asked about; size: its bytes; id: bytes of it that
                                              are left for the context and for libraries */
    SEGALLOC_RECORD_LEFT_OUT = 75, /* the first of a trace that has a bound; id: events before the next one that are left
                                              out, size: failures among them. What lived then follows, as it was
                                              allocated, and the last value of each figure */
    SEGALLOC_RECORD_DEFINE_TAG = 77, /* stream: number of a tag of memory, from 1; id and size: 16 characters of its name,
                                              zeros at its end; NATIVE: a pause saves no contents */
    SEGALLOC_RECORD_SITE = 71,       /* id: site, size: phase: what this thread asks for from here on is of these */
    /* What a run that checks itself found. A finding is a run of records, the first with FIRST and the last with LAST; one
       that is begun anew replaces what came before, and one without LAST is none. stream: enum segalloc_finding_field, which
       says what id and size are. Fields come in any order; one that is left out is 0, and one that is not known is skipped. */
    SEGALLOC_RECORD_FINDING = 76,
};

/* The kinds of findings. Numbers are never used again; src/base/findings.def has their words. */
enum segalloc_finding {
    SEGALLOC_FINDING_WRITE_AFTER_FREE = 0, /* a freed block was filled, and then written by somebody */
    SEGALLOC_FINDING_EARLY = 1,          /* memory served again before the stream that freed it had come to the free */
    SEGALLOC_FINDING_OVERRUN = 2,        /* bytes behind a block changed while it was the program's */
    SEGALLOC_FINDING_DOUBLE_FREE = 3,    /* a free of a block that was freed before */
    SEGALLOC_FINDING_WRONG_FREE = 4,     /* a free of an address that no block begins at */
    SEGALLOC_FINDING_GONE_FREE = 5,      /* a free of a block whose context has ended */
    SEGALLOC_FINDING_USE_AFTER_FREE = 6, /* a copy or a set was given an address in a block that is freed */
    SEGALLOC_FINDING_GPU_FAULT =
        7, /* a context was lost; the block is the guarded one that is nearest, as far as known */
};

/* What a record of a finding says. The *block* is the owner before, and *now* the block that has the memory next, or the
   free that was refused. An *event* is an allocation or a free, counted by `check`. A *place* is site << 32 | phase, 0:
   not known. */
enum segalloc_finding_field {
    SEGALLOC_FINDING_KIND = 0,         /* id: enum segalloc_finding; size: ordinal of the device */
    SEGALLOC_FINDING_BLOCK = 1,        /* id: address; size: bytes that were asked for */
    SEGALLOC_FINDING_NOW = 2,          /* id: address; size: bytes that were asked for, 0: it was a free, or of
                                              a block that was used after it, or of an error, the call that showed it */
    SEGALLOC_FINDING_WHERE = 3,        /* id: address of the first byte that differs; size: its offset in the block */
    SEGALLOC_FINDING_BYTES = 4,        /* id: bytes that differ; size: bytes that were compared */
    SEGALLOC_FINDING_LAST = 5,         /* id: offset of the last byte that differs; size: 1: the page has moved since */
    SEGALLOC_FINDING_WORDS = 6,        /* id: what was written << 32 | what was found; size: slots whose stamps were
                                              missing, a bit each */
    SEGALLOC_FINDING_ALLOCATED = 7,    /* the block. id: event; size: place */
    SEGALLOC_FINDING_ALLOCATED_BY = 8, /* id: handle of its stream; size: number of the thread, and 1 << 32: it has one */
    SEGALLOC_FINDING_FREED = 9,        /* the same of its free */
    SEGALLOC_FINDING_FREED_BY = 10,
    SEGALLOC_FINDING_NOW_AT = 11, /* the same of what has the memory now */
    SEGALLOC_FINDING_NOW_BY = 12,
    SEGALLOC_FINDING_BETWEEN = 13, /* id: nanoseconds from the free to that */
    SEGALLOC_FINDING_ORDER = 14,   /* id and size: 16 characters of the order in which the free took effect, zeros at
                                              its end; further records of this field go on */
};

/* What was done, or found out, at a turn. */
enum segalloc_turn {
    SEGALLOC_TURN_ALIASES = 1, /* 1: pages may get a second address for this allocation; 0: they may not */
    SEGALLOC_TURN_LATE_UNMAP,  /* an old address of pages was picked to be unmapped: pages */
    SEGALLOC_TURN_UNMAPPED,    /* 1: it was; 0: the driver refused */
    SEGALLOC_TURN_REUSE,       /* a huge block got the addresses of one that is gone */
    SEGALLOC_TURN_REGION,      /* bytes of addresses that were reserved; 0: none were to be had; 1: there was no host
                                   memory for them */
    SEGALLOC_TURN_GARBAGE,     /* bytes beyond garbage_collection_threshold, or beyond a lowered limit */
    SEGALLOC_TURN_CUT,         /* idle pages were picked to be given back: how many */
    SEGALLOC_TURN_GIVEN,       /* 1: they are; 0: the driver refused */
    SEGALLOC_TURN_RETIRE,      /* 1: a huge block's region is empty, and its page goes; 0: it is not */
    SEGALLOC_TURN_UNDONE = 11, /* 0: what the driver had failed half-way is undone. Before that, for each step of it that
                                   failed too, its number << 2 and, 1: its pages went back to the driver, or 2: its
                                   addresses are lost */
    SEGALLOC_TURN_LEFT,        /* the end of an allocation, which is left to the driver, or to its caller, who asks
                                   again for less: bytes */
    SEGALLOC_TURN_PAUSE,       /* 0: a tag's pages are about to leave, or to come back; else why not */
    SEGALLOC_TURN_CONTENTS,    /* contents were saved, or put back: CUresult */
    SEGALLOC_TURN_PAUSE_RUN, /* a run of pages left, or came: CUresult, and << 32 pages that stay mapped after an error */
    SEGALLOC_TURN_PAUSE_BACK, /* a step before that was undone: 0; else 1 more than the pages of it that stay mapped */
    SEGALLOC_TURN_PAUSE_END,  /* the end of a pause or resume. 0: nothing has changed; 1: done; 2: half done, which a
                                   resume mends */
    SEGALLOC_TURN_OVERFLOW, /* less than 512: why a block may not lie in the host's memory in part. Else it may: 512 more than the
                                   bytes that may be made there, and in the bits below 512 the logarithm of the granule */
    SEGALLOC_TURN_ELSEWHERE, /* how many pages of the host's memory were created for it, and << 32 of another device's */
    SEGALLOC_TURN_RETURN,    /* 1: idle far pages go back; 0: they stay */
    SEGALLOC_TURN_NEIGHBOUR, /* less than 512: why none of it may lie on another device. Else 512 more than the bytes that may be made
                                   there, and in the bits below 512 that device's ordinal */
};

/* What became of an allocation that was refused. */
enum segalloc_settled {
    SEGALLOC_SETTLED_ELSEWHERE = 1, /* its thread got memory by a call that is not served here */
    SEGALLOC_SETTLED_FAILED,        /* its caller has raised an error */
    SEGALLOC_SETTLED_SERVED, /* the caller had the error, asked again, and was served. Without it the very call was served in the
                                       end, once the library had made room */
};

/* By which calls memory of a device is held that the allocator has not served. Numbers are never used again. */
enum segalloc_outside {
    SEGALLOC_OUTSIDE_OTHER,       /* contexts, code, other processes: all that no other number names */
    SEGALLOC_OUTSIDE_POOLS,       /* in use from pools, by cudaMallocAsync */
    SEGALLOC_OUTSIDE_POOLS_IDLE,  /* freed, and kept by a pool, up to its release threshold */
    SEGALLOC_OUTSIDE_GRAPHS,      /* in use by allocation nodes of graphs */
    SEGALLOC_OUTSIDE_GRAPHS_IDLE, /* kept for the next launch of a graph */
    SEGALLOC_OUTSIDE_PHYSICAL,    /* by cuMemCreate */
    SEGALLOC_OUTSIDE_ARRAYS,      /* arrays and mipmapped arrays */
    SEGALLOC_OUTSIDE_MANAGED,  /* pages of managed memory, which the driver moves to the host where memory is short */
    SEGALLOC_OUTSIDE_MODULES,  /* code and data of modules */
    SEGALLOC_OUTSIDE_IMPORTED, /* external memory */
    SEGALLOC_OUTSIDE_DRIVER,   /* by cudaMalloc, where the driver has served it */
    SEGALLOC_OUTSIDE_POOLS_LEAVING, /* freed, and given back by the pool when the host next waits */
    SEGALLOC_OUTSIDE_GUARDS,        /* pages of the library's own for guarded blocks */
    SEGALLOC_OUTSIDE_COUNT,
};

enum segalloc_record_flags {
    SEGALLOC_FLAG_STRICT = 1,  /* free: the host waited for the device before it took effect */
    SEGALLOC_FLAG_PENDING = 2, /* free: not usable again before its SEGALLOC_RECORD_DONE */
    SEGALLOC_FLAG_ASYNC = 4,   /* free: by the stream-ordered interface, ordered after `stream` */
    SEGALLOC_FLAG_TORCH = 8,   /* the caller was PyTorch */
    SEGALLOC_FLAG_WORKED = 16, /* free by ASYNC: `stream` had been given work, so that the time went on */
    SEGALLOC_FLAG_SHORT = 1,   /* allocate failure: the id says how many bytes it lacked */
    /* How a CSV spelt things, so that it can be written out the same. A second definition of an index with other
       flags changes the spelling from there on, nothing else. */
    SEGALLOC_FLAG_HEX_STREAM = 16,  /* define stream: as a pointer, 0x… */
    SEGALLOC_FLAG_NIL = 32,         /* define stream, rows: the zero handle or address as (nil) */
    SEGALLOC_FLAG_BARE_HEX = 64,    /* define stream, define thread (for the addresses of its rows): without 0x */
    SEGALLOC_FLAG_POINT_TIME = 128, /* define thread (for its rows): a point before the microseconds */
    /* A snapshot is a run of STATISTIC records: those that differ from the snapshot before. */
    SEGALLOC_FLAG_PEAK = 64,     /* statistic: the peak of a level instead of its value */
    SEGALLOC_FLAG_LAST = 128,    /* statistic: the last of a snapshot; what comes before it is not complete without.
                                      Untracked: the last piece of the name. Text, site, model, tag, finding: the last
                                      piece. Outside: the last that changed at once */
    SEGALLOC_FLAG_FIRST = 64,    /* text, site, model, tag, finding: the first piece */
    SEGALLOC_FLAG_NATIVE = 32,   /* site: a return address */
    SEGALLOC_FLAG_BACKWARD = 16, /* site: a backward pass through what these frames ran forward */
};

struct segalloc_trace_record {
    uint8_t kind;
    uint8_t flags;
    uint16_t thread; /* index of a DEFINE_THREAD, 0 before any */
    uint32_t stream; /* index of a DEFINE_STREAM, 0 before any: the stream of the block or of the work */
    uint64_t id;
    uint64_t size;
    uint64_t time_ns; /* since the start of the trace, coarse; from a CSV: since the midnight before its first row */
};

struct segalloc_trace_block {
    uint32_t magic;
    uint32_t count;    /* whole records in this block */
    uint64_t sequence; /* 0, 1, 2 … */
    uint64_t checksum; /* of the records, FNV-1a over 64-bit words; 0 while the block is open */
    uint64_t dropped;  /* records lost before this block, in all */
};

/* Followed by `conf_bytes` of the configuration in force ("key:value,…") and `command_bytes` of the command line,
   both without a final NUL, padded together with zeros to the start of the first block at `data_offset`. */
struct segalloc_trace_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* sizeof this struct: later versions only append */
    uint64_t data_offset;  /* multiple of 4096 */
    uint64_t start_realtime_ns;
    uint64_t pid;
    uint32_t conf_bytes;
    uint32_t command_bytes;
    uint32_t imported; /* 1: made from another format; nothing in it says what the devices were */
    uint32_t devices;
    uint64_t granularity;  /* of device 0, or of the first used where that was not, bytes; 0 when unknown */
    uint64_t device_bytes; /* total memory of that device; 0 when unknown */
    uint64_t limit_bytes;  /* limit in force on device 0; 0 for none */
};

#endif
