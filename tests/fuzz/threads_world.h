/* What the threads of one plan share while it is played, and what a thread has of its own. */
#ifndef FUZZ_THREADS_WORLD_H
#define FUZZ_THREADS_WORLD_H

#include <pthread.h>

#include "extra.h"
#include "threads.h"

struct ft_stream {
    CUstream handle;
    bool blocking;      /* takes part in the legacy stream's order */
    bool own_of_thread; /* the handle means another stream in each thread */
    bool shared;        /* blocks of other threads know it: it stays */
};

struct ft_block {
    CUdeviceptr address; /* 0: none */
    uint64_t bytes, owner, held_bytes;
    uint32_t value;          /* that all of it has, where `written` */
    bool written;
    enum ft_kind kind;
    struct ft_stream *home;  /* it was allocated for; NULL: none, or one that is gone */
    CUevent last;            /* all work on it comes before this; NULL: there was none */
    bool unknown;            /* the library was not told of some of its work, which comes before `last` */
    unsigned tag;            /* 0: none */
    unsigned discards, maybe; /* of its tag, when it was looked at last */
    CUgraphExec exec;         /* writes `exec_value` to it; NULL: none */
    uint32_t exec_value;
};

/* The state of a tag, as far as it is known. A pause or resume changes it under `pausing`. */
enum ft_tag_state { FT_AWAKE, FT_PAUSED, FT_UNKNOWN };

struct ft_tag {
    enum ft_tag_state state;
    unsigned discards; /* times that its contents became zeros */
    unsigned maybe;    /* times that they may have */
};

/* A device with what is its own. Blocks stay on their device. */
struct ft_card {
    int device;
    CUcontext context;
    struct ft_stream common[FT_COMMON_STREAMS], legacy, per_thread;
    struct ft_block shelf[FT_SHELF];
    unsigned on_shelf;
    atomic_uint_fast64_t live_bytes; /* of all threads' blocks */
    atomic_uint_fast64_t held_bytes; /* at most what they need of pages that nothing else is on */
    atomic_uint_fast64_t others_bytes, limit_bytes;
};

struct ft_world {
    const struct ft_plan *plan;
    struct ft_result *result;
    CUfunction write, check;
    struct ft_card card[FT_DEVICES];
    pthread_mutex_t mutex; /* of the shelves and of the turns */
    pthread_cond_t changed;
    unsigned turn;         /* the thread that may go on */
    uint64_t turns;        /* that there were */
    bool ended[FT_THREADS_MAX];
    pthread_rwlock_t pausing; /* work on memory of tags is given by readers */
    struct ft_tag tag[FT_TAGS + 1];
    atomic_uint_fast64_t owners;
};

struct ft_thread {
    struct ft_world *world;
    struct ft_card *card;
    const struct ft_part *part;
    unsigned index;
    struct ft_stream own[FT_OWN_STREAMS];
    struct ft_block *block; /* part->blocks_max and some that were taken over */
    unsigned blocks, room;
    CUmemGenericAllocationHandle physical; /* of the program's own; 0: none */
    uint64_t physical_bytes;
    CUdeviceptr pool_address;
    uint64_t pool_bytes;
};

#define FT_MUST(world, call) ft_must((world), (call), #call)
/* Whether a call did what it should; else says so. */
bool ft_must(struct ft_world *world, CUresult result, const char *call);

/* All work of all devices ends: what was freed on one may be used from another's context. The device's context is current then. */
void ft_wait_all(struct ft_world *world, int device);

/* threads_block.c */
void ft_allocate(struct ft_thread *t, const struct ft_operation *operation);
void ft_free(struct ft_thread *t, const struct ft_operation *operation);
void ft_use(struct ft_thread *t, const struct ft_operation *operation);
void ft_hand_over(struct ft_thread *t, const struct ft_operation *operation);
void ft_take_over(struct ft_thread *t, const struct ft_operation *operation);
void ft_capture(struct ft_thread *t, const struct ft_operation *operation);
/* The second looks at its contents before, now and then. */
void ft_block_end(struct ft_thread *t, struct ft_block *block, uint32_t how);
void ft_block_check_and_end(struct ft_thread *t, struct ft_block *block, uint32_t how);
/* The world's kernels: each touches all of a block, and reads or writes some of its words. */
void ft_kernels_make(struct ft_world *world);
/* A block of `bytes`, which must be there; is written, read and freed. */
bool ft_probe(struct ft_thread *t, uint64_t bytes);

/* threads_pause.c: tags of memory. */
void ft_tag_push(struct ft_thread *t, unsigned tag);
void ft_tag_pop(struct ft_thread *t);
/* True if work may be given that touches the block, until ft_touch_end(); its contents are what the block says. */
bool ft_touch_begin(struct ft_thread *t, struct ft_block *block);
void ft_touch_end(struct ft_thread *t, const struct ft_block *block);
void ft_pause(struct ft_thread *t, const struct ft_operation *operation);
void ft_resume(struct ft_thread *t, const struct ft_operation *operation);
/* All tags come back. */
void ft_resume_end(struct ft_thread *t);

/* threads_beside.c: what is beside blocks. */
void ft_wait(struct ft_thread *t, const struct ft_operation *operation);
void ft_trim(struct ft_thread *t, const struct ft_operation *operation);
void ft_limit(struct ft_thread *t, const struct ft_operation *operation);
void ft_others(struct ft_thread *t, const struct ft_operation *operation);
void ft_others_end(struct ft_thread *t);
void ft_stream_anew(struct ft_thread *t, const struct ft_operation *operation);
void ft_look(struct ft_thread *t);
/* True if the library has served the block there, and not the driver. */
bool ft_is_served(struct ft_thread *t, CUdeviceptr address);
uint64_t ft_statistic(int device, const char *name);
/* Of those that the thread may use, by a random number. */
struct ft_stream *ft_stream_pick(struct ft_thread *t, uint32_t which);

/* What is found by dlsym: in the simulator, in the library, in the stand-in for PyTorch. */
struct ft_found {
    void (*owner)(uint64_t address, uint64_t bytes, uint64_t owner);
    int (*kernel)(const char *name, const char *arguments, void (*run)(void **arguments));
    uint64_t (*hazards)(void);
    segalloc_sim_calls_fn calls;
    uint64_t (*used)(int device);
    void *(*malloc_on)(size_t bytes, void *stream);
    int (*free)(void *address);
    int (*record_stream)(void *address, void *stream);
    size_t (*trim)(int device, size_t keep);
    int (*tag_push)(const char *tag, unsigned flags);
    int (*tag_pop)(void);
    int (*pause)(const char *tag);
    int (*resume)(const char *tag);
    size_t (*set_limit)(int device, size_t bytes);
    int (*stats)(int device, struct segalloc_stat *ret, int count);
    size_t (*pieces)(int device, struct segalloc_piece *ret, size_t room);
    void (*set_current_stream)(void *stream);
    void *(*tensor)(size_t bytes);
    void (*release)(void *address);
};
extern struct ft_found ft_found;

#endif
