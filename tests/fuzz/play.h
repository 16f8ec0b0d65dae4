/* What playing a program and looking at it share. */
#ifndef FUZZ_PLAY_H
#define FUZZ_PLAY_H

#include "books.h"
#include "check.h"
#include "core.h"
#include "program.h"

struct play_block {
    CUdeviceptr address; /* 0: not alive */
    uint64_t bytes, id;  /* as asked for; the core's number of it */
    int8_t stream;       /* -1: nobody's */
    int8_t device, context;
    struct work_after born; /* what its stream had come after, and been given, when it was allocated */
    struct work_after touched;
    struct books_span *span, few[2]; /* of memory that it stands in */
    uint32_t spans;
    uint64_t lowest, highest; /* of them */
};

struct play_event {
    bool recorded;
    int8_t device;
    struct work_after after;
    struct sg_clock clock;
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
    uint64_t requested[FUZZ_DEVICES], digest, moved, allocated, refused, done, host_faults;
    uint32_t step;
    bool unsure;              /* FUZZ_UNHEARD or the like is there, or faults were: refusals are not judged */
};
extern struct play play;

/* Notes what came of a call. */
static inline void play_digest(uint64_t value)
{
    play.digest = (play.digest ^ value) * UINT64_C(0x100000001b3);
}

/* After an operation. */
void verify(enum sg_check_depth depth);
/* A block was given to a stream, or nobody. */
void verify_given(const struct play_block *block);
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
