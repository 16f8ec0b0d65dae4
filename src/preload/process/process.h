/* What this library is doing in the process that it was loaded into.

   EARLY ──first allocation──▶ STARTING ──▶ LIVE ──fork──▶ CHILD (in the child)
                                  │           │
                                  ▼           └──exit──▶ EXITING
                               PASSTHROUGH

   EARLY    Nothing has happened: no thread, no file, no output, nothing asked of the driver. A child forked now is
            EARLY again. Every call is handed on to the driver.
   STARTING One thread makes the core; others that allocate wait for it, 0.2 s at most.
   LIVE     There is a core and it answers.
   PASSTHROUGH  Everything is handed on, for good: a tool watches the driver, the configuration says so, the driver
            lacks what we need, or there was no host memory.
   CHILD    Forked from a LIVE process, where CUDA doesn't work: frees of memory of ours succeed and do nothing.
   EXITING  The process ends: frees as in CHILD, and no call to the driver that the program doesn't make itself. */
#ifndef SG_PROCESS_H
#define SG_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "conf.h"
#include "core.h"
#include "lock.h"
#include "sites/unwind.h"

enum { SG_STREAM_CACHE_BITS = 5, SG_STREAM_CACHE = 1 << SG_STREAM_CACHE_BITS, SG_PIN_CACHE_BITS = 3,
    SG_PHASES_DEEP = 16 };

/* The findings of fast_path.c during a call by the slow path. They hold while `epoch` is sg_fast_path_epoch and the
   context is current. */
struct sg_fast_path {
    unsigned epoch;
    int device;
    struct sg_core *core; /* NULL: nothing */
    const struct sg_driver *driver;
    struct sg_tag tag;
};

/* All that this layer keeps for a thread, in one piece: reaching it is a call of the loader's. Zero at first. */
struct sg_thread {
    bool inside;     /* one of our calls is under way: what it calls is handed on */
    bool aside;      /* it is one of ours: see worker_thread.h */
    bool loads;      /* it has begun to load a library since it allocated: see ipc.h */
    struct {
        bool live, locked; /* there is a core, and its locks were taken: not by a driver that forks within a call of the
                              core's. Kept, because an exit meanwhile changes the state */
        bool guarded;      /* the locks of this layer were taken */
        uint64_t devices;  /* whose locks were taken: another thread may begin to use one meanwhile */
    } fork;                /* of the fork under way */
    unsigned exclusions; /* times that it keeps captures from beginning */
    unsigned guards; /* bit of each enum sg_process_lock that it holds, or is about to take or has just given back */
    struct sg_hazard_record *hazard; /* of context_pins.c; NULL: none yet */
    struct sg_pin_entry { /* contexts that it named before, and sg_context_pins_epoch then */
        CUcontext context;
        unsigned changes;
    } pin_cache[1 << SG_PIN_CACHE_BITS];
    uint32_t site, shown, phase; /* where it asks from: for the trace, and for the core (sites.h) */
    struct sg_stack stack;       /* of unwind.h */
    uint64_t sequence;   /* of backward.h */
    uint32_t phases;     /* of phases.h: how many it is in, and their numbers as far as they are kept */
    uint32_t phase_stack[SG_PHASES_DEEP];
    int caller;      /* enum sg_caller of the cudaMalloc or cudaFree that the thread is in */
    unsigned refusal; /* of refusals.c: one more than the place of its open refusal; 0: none yet */
    bool reached;    /* the driver's hook was called within that cudaMalloc */
    bool torch_cached; /* what PyTorch allocates or frees in it now is a segment of PyTorch's cache, and no tensor */
    CUresult pending_error; /* the error of that cudaMalloc, which the driver's hook then returns to the runtime */
    struct sg_fast_path fast_path; /* of the runtime that was used last */
    const void *runtime;
    struct sg_fast_path stream_fast_path; /* of callers that name their streams; the tag names none */
    struct {         /* the context seen last */
        CUcontext context;
        int device;
        unsigned changes; /* of contexts.c then */
    } last;
    struct sg_stream_entry { /* streams met lately, by streams.c */
        CUstream stream;
        CUcontext context; /* of a stream that is one in each */
        unsigned changes;
        int device;
        uint32_t slot;
        int entry;
    } streams[SG_STREAM_CACHE];
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

/* The core where it is LIVE, else NULL. sg_process_core_made(): as soon as it exists, for calls about contexts. No
   lock. */
struct sg_core *sg_process_core(void);
struct sg_core *sg_process_core_made(void);

/* Whether the calls of this thread are our own, or the driver's inside one of ours: those are handed on. */
bool sg_thread_inside(void);
bool sg_thread_enter(void); /* returns what it was before, for sg_thread_leave() */
void sg_thread_leave(bool outer);

/* The core, if it is to answer this call: then sg_leave() must follow. NULL: hand the call on. That is also for a signal
   handler whose thread holds one of the locks below: the core's come before those. An allocation starts the core; other
   calls find it started or have nothing to do with it. The first one takes locks of ours and of the loader. */
struct sg_core *sg_enter_allocation(void);
struct sg_core *sg_enter(void);
void sg_leave(void);

/* Whether the state is PASSTHROUGH, or will be once the program allocates. Reads the configuration. */
bool sg_process_is_passthrough(void);

/* Whether a tool watches the driver: the part of sg_process_is_passthrough() that does not depend on the configuration.
   Then nothing is answered with functions of ours at all. */
bool sg_process_watched(void);

/* A context has ended, and with it any error that it had for good: memory is served again. */
void sg_process_recover(void);

/* CHILD or EXITING: the core is disabled, and the driver isn't to be asked anything. Memory of ours is still known
   by sg_process_owns(). */
bool sg_process_over(void);
bool sg_process_owns(CUdeviceptr address);

/* The configuration in force, read on first use. Never NULL. It stays as it is but for `ipc`, which changes under
   SG_LOCK_PROCESS, with the first allocation or by sg_process_share(): who reads that holds it. */
const struct sg_conf *sg_process_conf(void);

/* From here on memory is such as legacy handles can give away. */
enum sg_share {
    SG_SHARE_FORBIDDEN, /* by ipc:never; or nothing was allocated yet */
    SG_SHARE_BEGINS,
    SG_SHARE_GOES_ON    /* it is so already; not what was allocated before */
};
enum sg_share sg_process_share(void);

/* The driver's functions as the core calls them. NULL where no libcuda is loaded, or one that lacks some that are
   required; never NULL between sg_enter() and sg_leave(). The first call takes the loader's lock. */
const struct sg_driver *sg_process_driver(void);

/* One line to stderr, "segalloc: LINE", written at once. errno stays as it was. */
void sg_log_line(const char *line);

/* Locks of this layer. None is held across a call that can take the loader's lock, call the driver or wait. fork()
   takes them all, so that the child finds them free, unless a handler forks within one. sg_process_lock() takes one. */
enum sg_process_lock {
#define CORE_LOCK(name, guards)
#define PROCESS_LOCK(name, guards) SG_LOCK_##name,
#include "locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
    SG_LOCK_COUNT
};
_Static_assert((int)SG_RANK_COUNT - (int)SG_RANK_PROCESS == (int)SG_LOCK_COUNT, "they are the last of locks.def");
void sg_process_lock(enum sg_process_lock guard);
bool sg_process_lock_try(enum sg_process_lock guard); /* false: another thread, or what a signal has interrupted, holds
                                                         it */
void sg_process_unlock(enum sg_process_lock guard);
void sg_process_assert_locked(enum sg_process_lock guard);

/* The calling thread holds the lock, in builds that check it (lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_PROCESS_LOCK(guard) sg_process_assert_locked(guard)
#else
#define SG_ASSERT_PROCESS_LOCK(guard) ((void)0)
#endif

#endif
