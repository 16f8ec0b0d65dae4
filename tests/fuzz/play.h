/* What playing a program and looking at it share. */
#ifndef FUZZ_PLAY_H
#define FUZZ_PLAY_H

#include "books.h"
#include "check.h"
#include "rooms.h"
#include "program.h"

struct play_block {
    CUdeviceptr address; /* 0: not alive */
    uint64_t bytes, id;  /* as asked for; the core's number of it */
    int8_t stream;       /* -1: nobody's */
    int8_t device, context;
    struct work_after alloc_seq; /* what its stream had come after, and been given, when it was allocated */
    struct work_after touched;
    struct books_span *span, few[2]; /* of memory that it stands in */
    uint32_t spans;
    uint64_t lowest, highest; /* of them */
};

struct play_event {
    bool recorded;
    int8_t device;
    struct work_after after;
    struct sg_vector_clock clock;
};

struct play {
    const struct fuzz_setup *setup;
    struct sg_core *core;
    struct sg_conf conf;
    struct play_block *block; /* by number */
    uint32_t blocks;
    const struct play_block *freed; /* by the call that is under way */
    uint32_t *live;           /* numbers of those that are */
    uint32_t lives;
    struct play_block *past;  /* freed, and perhaps still being touched */
    uint32_t pasts, past_room;
    struct play_event event[FUZZ_EVENTS];
    sg_slot slot[FUZZ_STREAMS];
    struct {
        bool alive;
        int8_t device;
    } context[FUZZ_CONTEXTS];
    struct work_after host;   /* what the host knows to be complete */
    bool capturing;
    bool peers[FUZZ_DEVICES];
    uint64_t most_reserved[FUZZ_DEVICES]; /* what is held may not be more than the limit or this */
    CUresult (*aside)(void *user);
    void *aside_user;
    uint64_t asked; /* bytes of the allocation that is under way, 0: none is */
    uint64_t requested[FUZZ_DEVICES], digest, moved, allocated, refused, done, host_faults;
    uint32_t step, works[FUZZ_LAG_MOST][FUZZ_STREAMS]; /* what each stream had been given some operations ago */
    bool unsure;              /* FUZZ_UNHEARD or the like is there, or faults were: refusals are not judged */
};
extern struct play play;

/* Notes what came of a call. */
static inline void play_digest(uint64_t value)
{
    play.digest = (play.digest ^ value) * UINT64_C(0x100000001b3);
}

/* The handle of a context; NULL where none is ever told of. */
static inline CUcontext play_context_handle(int context)
{
    return play.setup->contexts ? (CUcontext)(uintptr_t)(context + 1) : NULL;
}

static inline CUstream play_stream_handle(int stream)
{
    return (CUstream)(uintptr_t)(stream + 1);
}

static inline bool play_is_alive(unsigned stream)
{
    return stream < FUZZ_STREAMS && work.stream[stream].alive;
}

static inline int play_device_of(unsigned stream)
{
    return play.context[work.stream[stream].context].device;
}

/* Whether it comes after others by means that nobody is told of. */
static inline bool play_is_unseen(unsigned stream)
{
    enum fuzz_nature nature = work.stream[stream].nature;
    return nature >= FUZZ_OPAQUE && nature <= FUZZ_OWN;
}

/* Whether the core is told of events on it. */
static inline bool play_is_told(unsigned stream)
{
    return work.stream[stream].nature != FUZZ_UNHEARD;
}

static inline void play_make_current(int context)
{
    books_use(context, play.context[context].device);
}

static inline CUcontext play_current_handle(void)
{
    return play_context_handle(books_current());
}

/* A context of the device; below 0: there is none. */
int play_some_context(int device);

/* Contexts and streams begin, at the beginning of a program or by an operation. */
void play_meet_context(int i, int device);
void play_meet_stream(int i, enum fuzz_nature nature, int context);

/* Gives a stream work on a block, or on nothing. */
void play_submit(unsigned stream, struct play_block *block, bool told);

/* An event is recorded on a stream, or a stream waits for it; the core is told. */
void play_record(struct play_event *event, unsigned stream);
void play_follow(const struct play_event *event, unsigned stream);

/* The block of an operation, NULL if it is not alive. */
struct play_block *play_live_block(const struct fuzz_op *op);
/* A block is no more; its memory may still be touched. */
void play_bury(struct play_block *block);
/* Those that could be touched are forgotten, at the end. */
void play_forget_all(void);

/* What operations do: blocks.c, streams.c, memory.c. */
void play_allocate(const struct fuzz_op *op);
void play_free(const struct fuzz_op *op);
void play_use(const struct fuzz_op *op);
void play_work(const struct fuzz_op *op);
void play_progress(const struct fuzz_op *op);
void play_event_op(const struct fuzz_op *op);
void play_stream_idle(const struct fuzz_op *op);
void play_new_stream(const struct fuzz_op *op);
void play_end_stream(const struct fuzz_op *op);
void play_new_context(const struct fuzz_op *op);
void play_end_context(const struct fuzz_op *op);
void play_use_context(const struct fuzz_op *op);
void play_sync_context(const struct fuzz_op *op);
void play_limit(const struct fuzz_op *op);
void play_trim(const struct fuzz_op *op);
void play_look(const struct fuzz_op *op);
void play_free_badly(const struct fuzz_op *op);
void play_pin(const struct fuzz_op *op);
void play_mem_info(const struct fuzz_op *op);
void play_peer(const struct fuzz_op *op);
void play_abroad(const struct fuzz_op *op);

/* What was begun for a thread of the core's own is done. */
void play_aside(void);

/* After an operation. */
void verify(enum sg_check_depth depth);
/* A block was given to a stream, or nobody. */
void verify_given(const struct play_block *block);
/* How many pages of each region have a second address; after an allocation, whether those that were given one since
   could be spared. */
struct verify_aliases {
    uint32_t regions, stale[SG_REGIONS_MAX];
};
struct verify_aliases verify_aliases_now(int device);
void verify_aliased(int device, const struct verify_aliases *before, CUdeviceptr block);
/* A page of `bytes` has been made. */
void verify_made(int device, uint64_t bytes);
/* An allocation was refused. */
void verify_refused(int device, uint64_t bytes, const struct sg_tag *tag);
/* Idle memory was given back until at most `keep` bytes were left. */
void verify_trimmed(int device, uint64_t keep);
/* All is freed and trimmed; then the core is gone. */
void verify_empty(void);
void verify_gone(void);

/* Of the core's requests for host memory (meta.c) that one which comes after the next `after` fails. */
void host_fail(uint64_t after);
/* None does from here on. Returns how many have. */
uint64_t host_heal(void);
/* Bytes that the core has and has not given back. */
uint64_t host_bytes(void);

#endif
