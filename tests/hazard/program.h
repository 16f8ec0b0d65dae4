/* A random program that is legal by CUDA's documented semantics, and, where it names streams to the allocator, by the
   rules of the library's header: so whatever goes wrong in it is the allocator's doing. It keeps a model of the order
   that it makes itself, which knows less than is true (it has no legacy stream), and adds waits where that says that
   there is none. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"

enum {
    THREADS = 4, /* with the one that begins */
    CREATED_MAX = 8,
    LEGACY = CREATED_MAX,       /* the streams' indices: created ones, NULL, and each thread's 0x2 */
    PER_THREAD = LEGACY + 1,
    STREAMS = PER_THREAD + THREADS,
    EVENTS = 8,
    BLOCKS = 40,
    GRAPHS = 3,
    GRAPH_BLOCKS = 6,
    CONTEXTS = 3, /* the primary one of device 0, a created one there, the primary one of device 1 */
};

enum kind {
    KIND_CUDA,  /* cudaMalloc, cudaFree: any memory on any stream, freed while work is queued */
    KIND_AWARE, /* names its streams: segalloc_malloc_on and the like, or PyTorch's pluggable interface */
    KIND_TORCH, /* PyTorch in mode direct: its current stream is the block's, nobody hears of record_stream */
    KIND_RANKS, /* two ranks that send to each other, on cards that are full */
    KIND_THREADS, /* programs of the first two kinds at once, a thread each, that share the device and nothing else */
    KINDS
};

/* How far each stream's work is known to come before something, by the stream's own count. */
struct clock {
    uint32_t at[STREAMS];
};

struct stream {
    CUstream handle;
    int context; /* index; -1: there is no such stream now */
    bool blocking; /* takes part in the legacy stream's order */
    bool captured; /* now */
    uint32_t position, given; /* of its latest work */
    struct clock knows; /* what it is given from now on comes after */
    struct clock work;  /* what comes before the end of its latest work, that included */
};

struct event {
    CUevent handle;
    int context;
    struct clock clock;
};

struct block {
    CUdeviceptr address; /* 0: none */
    size_t bytes;
    uint64_t owner;
    int context;
    int home;               /* the stream that it was allocated for; -1: none, or one that is gone */
    uint32_t born;          /* position of home */
    struct clock first;     /* who has come after this may use it, whether that was before the allocation or since */
    uint32_t used[STREAMS]; /* positions of uses that are not settled yet; 0: none */
    uint32_t recorded;      /* bit a stream that record_stream was called for */
    unsigned graphs;        /* that use it */
    bool of_pool, of_graph; /* from cuMemAllocAsync; allocated in a capture and freed in it */
    bool plain;             /* not to be freed in the order of a stream */
    bool drivers;           /* served by the driver, having run out */
    bool fixed;             /* in memory as the driver gives it, whosever: its plain free waits as the driver's does */
    bool abroad;            /* used by work of another context than its own */
};

struct graph {
    CUgraphExec exec; /* NULL: none */
    CUgraph graph;
    int context;
    struct block *block[GRAPH_BLOCKS];
    unsigned blocks;
};

struct program {
    uint64_t seed, random;
    enum kind kind;
    bool illegal; /* leaves out what makes it legal: for the proof that this is seen */
    bool pluggable; /* of those that name streams: by PyTorch's interface */
    bool strict;  /* earlier work is complete when a free returns */
    bool alone;   /* its one thread runs beside others' programs */
    bool peers;   /* each device may reach the other's memory */
    bool registered; /* `pinned` is the program's own */
    uint64_t operations, errors, lost; /* bytes that a device did not get back */
    int thread;   /* that has the turn */
    CUcontext context[CONTEXTS]; /* NULL: not in use */
    struct stream stream[STREAMS];
    struct event event[EVENTS];
    struct block block[BLOCKS];
    struct graph graph[GRAPHS];
    struct clock host;
    const struct graph *inside; /* that is being captured and allocates */
    unsigned capturing; /* captures during which another thread has the turn */
    size_t again; /* bytes that the next allocation takes; 0: any */
    void *pinned;
};

/* Runs the program of a seed from begin to end, on the threads of turns.h. */
void program_run(struct program *program);

/* What its parts share. */

/* Below `count`. */
unsigned program_random(struct program *program, unsigned count);
/* Whether a call did what it should; else says so and counts an error. */
bool program_check(struct program *program, CUresult result, const char *call);
#define MUST(program, call) program_check((program), (call), #call)

int program_device(int context);
CUfunction program_kernel(void); /* it writes: pointer, bytes */
void program_enter(struct program *program, int context); /* makes it current */

/* Streams and events. */
bool stream_exists(const struct program *program, int stream);
/* A stream of the thread that has the turn; of `context`, or of any with -1. -1: there is none. */
int stream_pick(struct program *program, int context);
void stream_submitted(struct program *program, int stream);
void stream_synchronize(struct program *program, int stream);
/* `to` comes after all work of `from`. */
void stream_order(struct program *program, int from, int to);
/* The same, or what comes to that: by the legacy stream's rules, the host, or a wait of the whole context. */
void stream_show(struct program *program, int from, int to);
struct event *event_pick(struct program *program, int context);
void event_record(struct program *program, struct event *event, int stream);
void event_wait(struct program *program, struct event *event, int stream);
void move_events(struct program *program);
void move_streams(struct program *program);

/* Contexts, and what else happens to a process. */
void context_begin(struct program *program); /* takes up the second device */
void context_make_created(struct program *program);
void move_contexts(struct program *program);
void move_life(struct program *program);

/* Memory. */
void move_allocate(struct program *program);
void move_free(struct program *program);
void move_use(struct program *program);
void move_pool(struct program *program);
struct block *block_allocate(struct program *program, int home);
void block_give_back(struct program *program, struct block *block);
void block_free(struct program *program, struct block *block);
/* Whether it may be freed, as cudaFree does it, with work on it still queued. */
bool block_may_go(const struct block *block);
struct block *block_pick(struct program *program, int device);
/* The stream may use the block from here on. */
void block_show(struct program *program, struct block *block, int stream);
/* Work on the block, in stream order; captured where the stream captures. */
void block_touch(struct program *program, struct block *block, int stream);
void block_used(struct program *program, struct block *block, int stream);

/* Gives back what nobody uses, while the device's last context is still there: what is left after that is lost. What a
   graph held comes back once a thread of the driver has said that it is gone: soon. And what the library asks of the
   driver only now is complete once somebody waits: the laziest schedules do nothing before. */
void program_trim(struct program *program, int device);

/* What another thread does while a stream is captured. */
void block_churn(struct program *program);

/* Graphs. */
void move_graphs(struct program *program);
void graph_destroy(struct program *program, struct graph *graph);
bool graph_has(const struct graph *graph, const struct block *block);

void ranks_run(struct program *program);
void threads_run(struct program *program);

/* What is found by dlsym, in the simulator and in the library. */
struct extras {
    void (*owner)(uint64_t address, uint64_t bytes, uint64_t owner);
    void (*touches)(uint64_t address, uint64_t bytes, int write);
    uint64_t check_bytes; /* that `check` may hold of a device; 0: it is off */
    int (*kernel)(const char *name, const char *arguments, void (*run)(void **arguments));
    void (*schedule)(uint64_t seed, int64_t run_ahead);
    uint64_t (*hazards)(void);
    uint64_t (*used)(int device);
    void *(*malloc_on)(size_t bytes, void *stream);
    int (*free)(void *address);
    int (*record_stream)(void *address, void *stream);
    void *(*torch_malloc)(size_t bytes, int device, void *stream);
    void (*torch_free)(void *address, size_t bytes, int device, void *stream);
    void (*torch_record_stream)(void *address, void *stream);
    size_t (*trim)(int device, size_t keep);
    int (*stats)(int device, struct segalloc_stat *ret, int count);
    void (*set_current_stream)(void *stream); /* of the stand-in for PyTorch */
    void *(*tensor)(size_t bytes);
    void (*release)(void *address);
};
extern struct extras extras;
uint64_t new_owner(void);

#endif
