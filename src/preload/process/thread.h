/* Variables of a thread, all in one struct.

   Why one struct: a variable of a thread in a preloaded library is reached by a call of the loader's (__tls_get_addr).
   One such call then serves all of them. sg_self_found is a pointer to the struct that needs no such call. The loader
   keeps a little room for variables that are reached so (initial-exec), and a pointer fits. The fast path uses that.

   Limits. The struct is 1.4 KiB for each thread and zero at first. For all libraries that are loaded late, the loader
   keeps 1,664 bytes. It holds caches only and marks of calls that are under way: a thread that ends leaves nothing to
   give back.

   For example, a thread's second cudaMalloc reads sg_self_found once. Then `fast_path.epoch` says 7 as
   sg_fast_path_epoch does, so its finding of core, device and tag is good, and the core is called at once. A capture
   begins elsewhere, the epoch is 8, and the next call takes the slow path. */
#ifndef SG_THREAD_H
#define SG_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"
#include "sites/unwind.h"

enum {
    SG_STREAM_CACHE_BITS = 5,
    SG_STREAM_CACHE = 1 << SG_STREAM_CACHE_BITS,
    SG_PIN_CACHE_BITS = 3,
    SG_PHASES_DEEP = 16,
    SG_TAGS_DEEP = 63
};

/* The findings of fast_path.c during a call by the slow path. They hold while `epoch` is sg_fast_path_epoch and the
   context is current. */
struct sg_fast_path {
    unsigned epoch;
    int device;
    struct sg_core *core; /* NULL: nothing */
    const struct sg_driver *driver;
    struct sg_tag tag;
};

/* Where in the program a thread is, as `sites` follows it. */
struct sg_thread_place {
    uint32_t site, shown, phase; /* of its next allocation: for the trace, and for the core (sites.h) */
    uint32_t phases;             /* of phases.h: how many it is in, and their numbers as far as they are kept */
    struct sg_stack stack;       /* of unwind.h */
    uint64_t sequence;           /* of backward.h */
    uint32_t phase_stack[SG_PHASES_DEEP];
};

/* Variables that few programs need. */
struct sg_thread_rare {
    struct {
        void *lane; /* NULL: none */
        uint32_t life, number;
        uint16_t stream;
    } mark; /* behind the work that it gave last: check/marks.h */
    struct {
        uint8_t depth, stack[SG_TAGS_DEEP]; /* places of names in the table of memory_tags.c; 0: none */
    } tags;                                 /* under which it allocates */
};

/* All that this layer keeps for a thread, in one piece: reaching it is a call of the loader's. Zero at first. */
struct sg_thread {
    /* First what the fast path reads, in as few cache lines as that takes. */
    bool inside;            /* one of our calls is under way: what it calls is handed on */
    bool aside;             /* it is one of ours: see worker_thread.h */
    bool loads;             /* it has begun to load a library since it allocated: see ipc.h */
    CUresult pending_error; /* the error of the cudaMalloc below, which the driver's hook then returns to the runtime */
    const void *runtime;    /* the one that was used last */
    struct sg_fast_path fast_path;        /* of that */
    struct sg_fast_path stream_fast_path; /* of callers that name their streams; the tag names none */
    struct {                              /* the context seen last */
        CUcontext context;
        int device;
        unsigned changes; /* of contexts.c then */
    } last;
    struct sg_stream_entry { /* streams met lately, by streams.c */
        CUstream stream;
        CUcontext context; /* of a stream that is one in each */
        unsigned changes;
        int16_t entry;
        int8_t device;
        uint8_t slot;
    } streams[SG_STREAM_CACHE];
    struct {
        bool live, locked; /* there is a core, and its locks were taken: not by a driver that forks within a call of the
                              core's. Kept, because an exit meanwhile changes the state */
        bool guarded;      /* the locks of this layer were taken */
        uint64_t devices;  /* whose locks were taken: another thread may begin to use one meanwhile */
    } fork;                /* of the fork under way */
    unsigned exclusions;   /* times that it keeps captures from beginning */
    unsigned guards; /* bit of each enum sg_process_lock that it holds, or is about to take or has just given back */
    struct sg_hazard_record *hazard; /* of context_pins.c; NULL: none yet */
    struct sg_pin_entry {            /* contexts that it named before, and sg_context_pins_epoch then */
        CUcontext context;
        unsigned changes;
    } pin_cache[1 << SG_PIN_CACHE_BITS];
    struct sg_thread_place place; /* where in the program it is */
    int caller;                   /* enum sg_caller of the cudaMalloc or cudaFree that the thread is in */
    unsigned refusal;             /* of refusals.c: one more than the place of its last refusal; 0: none yet */
    bool reached;                 /* the driver's hook was called within that cudaMalloc */
    bool torch_cached; /* what PyTorch allocates or frees in it now is a segment of PyTorch's cache, and no tensor */
    struct sg_thread_rare rare;
};
extern __thread struct sg_thread sg_self __attribute__((visibility("hidden")));

/* A pointer to that, for the fast path: it fits into the room that the loader keeps for variables that are reached
   without a call. */
extern __thread struct sg_thread *sg_self_found __attribute__((visibility("hidden"), tls_model("initial-exec")));
struct sg_thread *sg_thread_find(void); /* its slow half */
static inline struct sg_thread *sg_this_thread(void)
{
    struct sg_thread *self = sg_self_found;
    return __builtin_expect(self != NULL, 1) ? self : sg_thread_find();
}

/* Counts what can make an earlier finding of fast_path.c wrong: the state changes, a capture begins or ends, a context
   goes. */
extern _Atomic unsigned sg_fast_path_epoch __attribute__((visibility("hidden")));

/* True if the calls of this thread are our own, or the driver's inside one of ours: those are handed on. */
bool sg_thread_inside(void);
bool sg_thread_enter(void); /* returns what it was before, for sg_thread_leave() */
void sg_thread_leave(bool outer);

#endif
