/* Streams and the work in them. A piece of work runs on one of the simulator's threads once everything submitted to its
   stream before it is complete, and what else it depends on: points of other streams. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include "device/context.h"
#include "hazard/order.h"
#include "sim.h"

/* Around what moves the program's own bytes. That two pieces of work race for them is the program's affair, as on a
   GPU, and the hazard checker's: ThreadSanitizer, in a build with it, need not look. */
#if defined __has_feature
#if __has_feature(thread_sanitizer)
#define SIM_THREAD_SANITIZER
#endif
#elif defined __SANITIZE_THREAD__
#define SIM_THREAD_SANITIZER
#endif
#ifdef SIM_THREAD_SANITIZER
void AnnotateIgnoreReadsBegin(const char *file, int line); /* these four are in the runtimes of both compilers */
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define SIM_BYTES_BEGIN() (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define SIM_BYTES_END() (AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__))
#else
#define SIM_BYTES_BEGIN() ((void)0)
#define SIM_BYTES_END() ((void)0)
#endif

/* A point of a stream: complete once `stream->completed` >= `position`. Owns a reference to the stream. */
struct sim_dep {
    CUstream stream;
    uint64_t position;
};

struct sim_deps {
    unsigned count, room;
    struct sim_dep at[];
};

/* Bytes that a piece of work touches; of interest to the hazard checker, and to managed memory. */
struct sim_owner;
struct sim_touch {
    uint64_t address, bytes;
    bool write;
    bool settled; /* in a graph: `owner` holds, whoever has the address later */
    struct sim_owner *owner;
};

struct sim_work;
typedef void (*sim_work_fn)(struct sim_work *work);

struct sim_work {
    struct sim_work *next;
    uint64_t position;
    struct sim_deps *deps;
    CUcontext context;
    CUstream stream;    /* set when submitted; the queue's reference keeps it */
    sim_work_fn run;    /* without the lock; may be NULL */
    sim_work_fn finish; /* locked, once `run` is done, or when the work is dropped; may be NULL */
    bool dropped;       /* finish is called without run having been */
    bool host_function; /* `run` is the program's own code */
    bool may_wait;      /* `run` may take as long as it likes: only for the simulator's own threads */
    bool (*blocked)(const struct sim_work *work); /* whether `run` would wait now; NULL: never */
    struct sim_touch *touches; /* what it is known to touch */
    unsigned touch_count;
    void (*parts)(CUstream stream, const struct sim_work *work); /* reports more to the hazard checker */
    bool unknown;       /* it may touch more than it says */
    bool keeps_clock;   /* `after` becomes all that it comes after */
    bool host_sees;     /* that too; and the program can notice that it ran, and knows then that what came before is
                           complete */
    struct sim_clock after; /* what it comes after besides its stream's work */
    const char *name;   /* of a kernel; the function's, or NULL */
    uint64_t allocated; /* allocations made before it was submitted */
    bool capturable;    /* can be a node of a graph, of this type */
    CUgraphNodeType node;
    uint64_t busy_ns;
    size_t bytes; /* of the payload */
    _Alignas(16) char payload[];
};

enum sim_stream_kind { SIM_STREAM_CREATED, SIM_STREAM_LEGACY, SIM_STREAM_PER_THREAD, SIM_STREAM_MARKER };

struct CUstream_st {
    struct sim_handle handle;
    CUcontext context;
    CUstream next; /* in context->streams */
    enum sim_stream_kind kind;
    unsigned flags, refs;
    int priority;
    uint64_t id;
    bool alive;               /* not destroyed; until its work is done it stays in context->streams all the same */
    bool linked;
    uint64_t submitted, completed;
    uint64_t host_wants;      /* the smallest position that a thread waits for */
    struct sim_work *head, *tail;
    bool running, ready;      /* on a thread now; in the list of streams that can run */
    CUstream next_ready;
    bool waiting;             /* in the waiters of another stream */
    CUstream waiters, next_waiter; /* streams whose head depends on this one */
    struct sim_capture *capture;   /* that it takes part in */
    struct sim_nodes *tips;        /* what the next captured node depends on */
    CUstream next_captured;        /* in capture->streams */
    bool has_slot;                 /* the rest is order.h's */
    unsigned slot;
    uint64_t slot_base;
    struct sim_clock clock;
};

/* All locked. */

/* The stream a program's handle means: 0 and CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or one of its own. */
CUresult sim_stream_get(CUstream handle, CUstream *ret);
CUresult sim_stream_new(CUcontext context, enum sim_stream_kind kind, unsigned flags, int priority, CUstream *ret);
/* The stream leaves its context; queued work is still done, or with `drop` forgotten. */
void sim_stream_close(CUstream stream, bool drop);
void sim_stream_ref(CUstream stream);
void sim_stream_unref(CUstream stream);
bool sim_stream_idle(const struct CUstream_st *stream);

/* NULL when out of host memory. `finish` is called exactly once for work that was submitted. */
struct sim_work *sim_work_new(size_t payload, sim_work_fn run, sim_work_fn finish);
/* Another piece of work that does the same; for work that owns nothing. NULL when out of host memory. */
struct sim_work *sim_work_copy(const struct sim_work *work);
/* Frees work that was never submitted; does not call finish. */
void sim_work_free(struct sim_work *work);
/* Notes that it touches these bytes. */
void sim_work_touch(struct sim_work *work, uint64_t address, uint64_t bytes, bool write);
int sim_work_depend(struct sim_work *work, CUstream stream, uint64_t position);

/* Queues `work`, adding what the legacy stream's rules and cuCtxWaitEvent demand. Where the stream's queue is full it
   waits, giving up the lock meanwhile. Owns `work` in any case. */
CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *ret_position);
CUresult sim_submit_and_wait(CUstream stream, struct sim_work *work);
/* Waits without the lock, takes it again. Returns the context's sticky error, if any. */
CUresult sim_wait(CUstream stream, uint64_t position);
CUresult sim_wait_stream(CUstream stream);
CUresult sim_wait_context(CUcontext context);
CUresult sim_wait_device(struct sim_device *device);
/* Gives the point at which all work submitted to the context so far is complete: a position of its marker stream. */
CUresult sim_context_point(CUcontext context, struct sim_work *work, uint64_t *ret_position);
int sim_deps_add(struct sim_deps **deps, CUstream stream, uint64_t position);
void sim_deps_free(struct sim_deps *deps);

/* The time of a clock that never goes back. */
uint64_t sim_now_ns(void);

#endif
