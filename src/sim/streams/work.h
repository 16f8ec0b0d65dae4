/* Pieces of work: what is done in a stream, what it waits for, and what it touches. A piece runs once everything submitted to
   its stream before it is complete, and the points of other streams that it depends on are reached. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include "streams/stream.h"

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

/* Locked, here and below. NULL when out of host memory. `finish` is called exactly once for work that was submitted. */
struct sim_work *sim_work_new(size_t payload, sim_work_fn run, sim_work_fn finish);
/* Another piece of work that does the same; for work that owns nothing. NULL when out of host memory. */
struct sim_work *sim_work_copy(const struct sim_work *work);
/* Frees work that was never submitted; does not call finish. */
void sim_work_free(struct sim_work *work);
/* Notes that it touches these bytes. */
void sim_work_touch(struct sim_work *work, uint64_t address, uint64_t bytes, bool write);
/* Notes that it touches rows of `width` bytes that begin `pitch` bytes apart. Many rows are noted as one range, with what lies between
   them. */
void sim_work_touch_rows(struct sim_work *work, uint64_t address, uint64_t width, uint64_t pitch, uint64_t rows,
    bool write);
/* The same where nobody but the work itself asks: a kernel looks for its memory when it runs. */
void sim_work_touch_kept(struct sim_work *work, uint64_t address, uint64_t bytes, bool write);
/* It waits for that point too, 0; -ENOMEM when out of host memory. */
int sim_work_depend(struct sim_work *work, CUstream stream, uint64_t position);
int sim_deps_add(struct sim_deps **deps, CUstream stream, uint64_t position);
void sim_deps_free(struct sim_deps *deps);

#endif
