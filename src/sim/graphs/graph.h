/* Graphs, what runs them, and stream captures, which make them.

   A node keeps its work as a template that never runs; a launch runs copies. An executable is an image of a graph: its
   nodes in one order that the dependencies allow, run one after another as a single piece of work of the stream. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "memory/copy.h"
#include "memory/mem.h"
#include "streams/work.h"

struct sim_nodes {
    CUgraphNode *at;
    unsigned count, room;
};

/* Memory of an allocation node: its address is fixed for the node's life, its bytes are taken by a launch. */
struct sim_graph_memory {
    unsigned refs; /* nodes and images that allocate it */
    bool live;     /* launched and not freed since; with refs 0 too, until it is freed */
    CUstream freed_on; /* a free is under way there, with a reference; NULL: none, or its place is not known yet */
    uint64_t freed_at;
    struct sim_memory *memory;
};

/* A value that conditional nodes go by. */
struct sim_condition {
    cuuint64_t handle;
    CUgraph graph; /* that it was made for; only to be compared. NULL: that one is gone */
    unsigned value, at_launch;
    bool assigned; /* the latter at each launch */
    unsigned refs; /* its graph, and choices */
    struct sim_condition *next;
};

/* What a conditional node does: one of these graphs, or the first one again and again. */
struct sim_choice {
    CUgraphConditionalNodeType type;
    unsigned size;
    struct sim_condition *condition;
    CUgraph body[];
};

/* What a node does, apart from its place in a graph. */
struct sim_step {
    CUgraphNodeType type;
    struct sim_work *work;  /* kernel, copy, set, host function, memory operation */
    CUevent event;          /* record, wait */
    CUgraph child;
    struct sim_choice *choice;       /* conditional */
    struct sim_graph_memory *memory; /* allocation */
    CUdeviceptr address;             /* free */
};

struct CUgraphNode_st {
    struct sim_handle handle;
    CUgraph graph;
    struct sim_step step;
    struct sim_nodes deps;
    CUgraphNode original; /* in a clone: only to be compared */
    bool mark;
};

/* References to user objects, with counts. */
struct sim_object_ref {
    CUuserObject object;
    unsigned count;
    struct sim_object_ref *next;
};

struct CUgraph_st {
    struct sim_handle handle;
    struct sim_nodes nodes; /* in the order of their making */
    struct sim_object_ref *object_refs;
    CUgraphNode owner; /* of a child graph, or of one of a conditional node's */
    bool capturing;    /* a capture adds to it */
};

/* A step of an image, with the node that it came from: only to be compared. */
struct sim_image_step {
    CUgraphNode node;
    struct sim_step step;
};

struct sim_image {
    unsigned refs; /* the executable, and each launch under way */
    unsigned count;
    struct sim_image_step *at;
    struct sim_object_ref *object_refs;
};

struct CUgraphExec_st {
    struct sim_handle handle;
    struct sim_image *image;
    cuuint64_t flags;
    CUstream last; /* where it was launched last, with a reference: launches of one executable do not overlap */
    uint64_t last_position;
    struct sim_clock clock; /* of that launch; for the hazard checker */
};

struct sim_capture {
    uint64_t id;
    CUgraph graph;
    bool made;    /* the capture made the graph, rather than add to one of the program's */
    bool over, invalid;
    CUstreamCaptureMode mode;
    const void *thread; /* that began it */
    CUstream origin;
    CUstream streams;   /* all that take part, by next_captured */
    unsigned refs;      /* itself while it lasts, and events recorded in it */
    struct sim_capture *next;
};

/* All locked, here and below. */

int sim_nodes_add(struct sim_nodes *nodes, CUgraphNode node); /* once; -ENOMEM */
void sim_nodes_clear(struct sim_nodes *nodes);
int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from);

/* An empty graph, and the end of one with all that it holds. */
CUresult sim_graph_new(CUgraph *ret);
void sim_graph_free(CUgraph graph);
/* A child graph node that takes the graph itself, which may have memory nodes then, rather than a copy. Not locked. */
CUresult sim_graph_add_moved(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph child);
/* Owns what the step holds, in any case. */
CUresult sim_graph_add(CUgraph graph, const CUgraphNode *deps, size_t count, struct sim_step step, CUgraphNode *ret);
CUresult sim_graph_get(CUgraph handle);
/* Whether each of `nodes` is among `tips` or comes before one of them. */
bool sim_graph_all_before(CUgraph graph, const struct sim_nodes *nodes, const struct sim_nodes *tips);
/* The nodes in an order that the dependencies allow; false for a cycle, or without memory. */
bool sim_graph_sort(CUgraph graph, struct sim_nodes *ret);

/* What a node does: a copy holds what the first one holds too, until both are dropped. */
CUresult sim_step_copy(const struct sim_step *from, struct sim_step *ret);
void sim_step_drop(struct sim_step *step);
/* A graph of its own, with copies of all nodes. */
CUresult sim_graph_copy(CUgraph from, CUgraph *ret);

/* With its graphs. */
CUresult sim_choice_copy(const struct sim_choice *from, struct sim_choice **ret);
void sim_choice_drop(struct sim_choice *choice);
void sim_conditions_of_graph_gone(CUgraph graph);
/* Whether its graphs have only nodes that may stand there. */
bool sim_choice_is_runnable(const struct sim_choice *choice);
/* A launch begins. */
void sim_choice_begin(const struct sim_choice *choice);
/* The graph to be run, `first` or once more; NULL: none, or no more. */
CUgraph sim_choice_next(const struct sim_choice *choice, bool first);
/* A conditional node. Not locked. */
CUresult sim_graph_add_choice(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUDA_CONDITIONAL_NODE_PARAMS *params);

/* The user objects that a graph holds: each copy holds them once more. */
CUresult sim_object_refs_copy(const struct sim_object_ref *from, struct sim_object_ref **ret);
void sim_object_refs_drop(struct sim_object_ref **ref);
/* A launch is over that held them: who sees their destructors called knows. */
void sim_object_refs_launched(const struct sim_object_ref *ref, const struct sim_clock *clock);

/* Memory of a graph's memory nodes: addresses with the graph and its executables, which each have a reference, and
   bytes from the device while it is taken. */
CUresult sim_graph_memory_new(struct sim_device *device, uint64_t bytes, struct sim_graph_memory **ret);
void sim_graph_memory_unref(struct sim_graph_memory *memory);
CUresult sim_graph_memory_take(struct sim_graph_memory *memory);
void sim_graph_memory_give(struct sim_graph_memory *memory);
/* A free was submitted as the work at that position, unless it has taken effect by now: who launches the memory's graph
   again comes after it. Nothing for other memory. */
void sim_graph_memory_freed(uint64_t address, CUstream stream, uint64_t position);

/* The executable does `step`, which it takes in any case, where it did what `node` does. */
CUresult sim_image_replace(CUgraphExec exec, CUgraphNode node, struct sim_step step);

/* Of a launch, whose payload is its image: what it does, not locked; what its nodes touch, whichever way conditions
   turn out; and whether the host learns of it by what it does. */
void sim_image_run(struct sim_work *launch);
void sim_image_parts(CUstream stream, const struct sim_work *launch);
bool sim_image_host_sees(const struct sim_image *image);
/* Whether a launch may take as long as it likes: by host functions, waits, kernels that keep their stream busy, conditions. */
bool sim_image_may_wait(const struct sim_image *image);

/* Makers of work for nodes, and what was said to them. */
CUresult sim_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work **ret);
void sim_kernel_params(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS *ret);
CUresult sim_copy_work(const CUDA_MEMCPY3D *params, struct sim_work **ret);
void sim_copy_params(const struct sim_work *work, CUDA_MEMCPY3D *ret);
CUresult sim_set_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret);
void sim_set_params(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret);
CUresult sim_host_work(const CUDA_HOST_NODE_PARAMS *params, struct sim_work **ret);
void sim_host_params(const struct sim_work *work, CUDA_HOST_NODE_PARAMS *ret);
CUresult sim_words_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret);
void sim_words_params(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret);

/* Events, for nodes. */
void sim_event_ref(CUevent event);
void sim_event_unref(CUevent event);
CUresult sim_event_get(CUevent event);
/* The stream's work from here on comes after what the event was recorded behind. */
CUresult sim_event_wait(CUevent event, CUstream stream);
/* The event stands for the work at that position, which has been submitted and records it. */
CUresult sim_event_recorded(CUevent event, CUstream stream, uint64_t position);

/* Captures. */
bool sim_capturing(const struct CUstream_st *stream);
/* Makes `work`, which it owns, a node of the stream's capture; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture
   invalid, for work that cannot be one. */
CUresult sim_capture_work(CUstream stream, struct sim_work *work);
CUresult sim_capture_step(CUstream stream, struct sim_step step, CUgraphNode *ret);
/* The stream comes after what `capture` had at `tips`, and takes part in it from now on. */
CUresult sim_capture_join(CUstream stream, struct sim_capture *capture, const struct sim_nodes *tips);
void sim_capture_ruin(struct sim_capture *capture);
CUresult sim_capture_unsupported(CUstream stream); /* ruins it too */
/* The legacy stream may not be used, in any way, while a blocking stream of its context captures. */
CUresult sim_capture_legacy(CUstream stream);
/* Whether the thread may not now do what is unsafe during a capture; the captures concerned are ruined. */
CUresult sim_capture_forbids(void);
/* The whole context may not be waited for while a stream of it captures. */
CUresult sim_capture_context(CUcontext context);
void sim_capture_stream_gone(CUstream stream);
void sim_capture_unref(struct sim_capture *capture);

#endif
