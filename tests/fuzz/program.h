/* A random program: how the core and its card are set up, and what is done with them. Drawn from a seed (draw.c), played
   (play.c), shrunk (shrink.c), and written as C (emit.c). An operation that means something no longer there is left
   out, so that any part of a program is one too. */
#ifndef FUZZ_PROGRAM_H
#define FUZZ_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/* What a stream is like, besides one whose order the core is told of. */
enum fuzz_nature {
    FUZZ_PLAIN,
    FUZZ_OPAQUE,   /* it waits for what nobody is told of */
    FUZZ_UNHEARD,  /* the same, and the core is never told of an event on it: it has to see that for itself */
    FUZZ_OWN,      /* the same; a thread's own stream, on which no other thread can record */
    FUZZ_BLOCKING, /* its work comes after the legacy stream's, and that one's after its: nobody is told */
    FUZZ_LEGACY,
    FUZZ_NATURES
};

enum {
    FUZZ_STREAMS = 24, /* of a program, those that have gone included */
    FUZZ_STREAMS_AT_ONCE = 16,
    FUZZ_CONTEXTS = 6, /* as of streams */
    FUZZ_EVENTS = 32,
    FUZZ_DEVICES = 2,
    FUZZ_CONF_BYTES = 512, /* all options at once have room */
    FUZZ_LAG_MOST = 64
};

struct fuzz_setup {
    const char *conf;            /* as of SEGALLOC_CONF; "" */
    uint64_t total, granularity; /* bytes of each card, and of its pages */
    uint8_t devices, contexts, streams; /* at the beginning; 0 contexts: none is ever told of */
    uint8_t nature[FUZZ_STREAMS_AT_ONCE];         /* enum fuzz_nature of those streams */
    uint8_t context_of[FUZZ_STREAMS_AT_ONCE];     /* which context they are of, from 0 */
    bool sees_possible;          /* the program does not say which streams use a block */
    bool missed_calls;           /* half of the work is not told of */
    bool older;                  /* the driver can't record an event over a context */
    bool bounded;                /* waits for a context are given up where there is much to wait for */
    uint8_t lag;                 /* work is complete so many operations later; 0: when it is let */
    bool slots;                  /* every slot of every table is looked at in the end */
    uint8_t check_every;         /* operations; 0: only at the end */
};

/* What an operation does. Fields that a row does not name mean nothing for it. */
enum fuzz_kind {
#define OP(name, text) FUZZ_##name,
#include "ops.def"
    FUZZ_KINDS
};

struct fuzz_op {
    uint8_t kind;    /* enum fuzz_kind */
    uint8_t stream;  /* number of a stream; FUZZ_STREAMS: none */
    uint8_t other;   /* of an event, a context, a kind of driver call, or how */
    uint8_t flags;   /* enum fuzz_flags */
    uint32_t block;  /* the number of the allocation */
    uint64_t bytes;  /* or a count */
};

enum fuzz_flags {
    FUZZ_WORKS = 1,      /* ALLOCATE: its stream is given work on it. USE: in an event's stead nobody is told */
    FUZZ_WAITS = 2,      /* USE: the user waits for the block's stream first, and the core is told */
    FUZZ_WAITED_FOR = 4, /* USE: the block's stream waits for the user, who need not be named */
    FUZZ_UNNAMED = 8,    /* USE: the user is named as one that is not followed. WORK: the core is not told */
    FUZZ_UNKNOWN = 16,   /* ALLOCATE: it is not known for which stream */
    FUZZ_INDIRECT = 32,  /* what the host learns is told as something that may be known */
    FUZZ_FOR_EVER = 64   /* FAULT: all that follow fail too */
};

/* How a block is freed. */
enum fuzz_free { FUZZ_FREE_STREAM, FUZZ_FREE_EVENT, FUZZ_FREE_STRICT, FUZZ_FREE_AUTO, FUZZ_FREE_STEP, FUZZ_FREES };

struct fuzz_program {
    struct fuzz_setup setup;
    const struct fuzz_op *op;
    uint32_t ops;
};

/* What became of it. */
struct fuzz_outcome {
    char broken[400]; /* "": nothing is */
    uint32_t at;      /* the operation after which that was seen */
    uint64_t digest;  /* of all that the core answered */
    uint64_t done;    /* operations that were not left out */
    uint64_t allocated, refused, moved, faults; /* blocks; allocations; pages; driver calls that failed */
};

/* Plays a program from the beginning. One at a time. Ends early when something is broken. */
void fuzz_play(const struct fuzz_program *program, struct fuzz_outcome *ret);

/* The program of a seed. What it is made of belongs to the drawer and lives until the next is drawn. */
struct fuzz_program fuzz_draw(uint64_t seed);

/* Prints a program as a C test of that name. */
void fuzz_emit(const struct fuzz_program *program, const char *name, const struct fuzz_outcome *outcome);

const char *fuzz_kind_name(enum fuzz_kind kind);

/* Leaves operations out, and simplifies the setup, as long as `fails` says the same of what is left. *program points
   into memory of this file afterwards. */
void fuzz_shrink(struct fuzz_program *program, bool (*fails)(const struct fuzz_program *program));

#endif
