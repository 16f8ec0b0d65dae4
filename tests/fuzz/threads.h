/* Random programs of two to four threads on a simulated card that is nearly full, with blocks from one byte to the
   whole card. A seed is a plan: the card, the options, the driver's refusals, and what each thread does. In half of the
   plans the threads take turns, in an order that the seed has. So the same happens every time; in the others they
   run truly at once. The programs are legal by CUDA's documented semantics and by the rules of the library's header.
   All work on a block comes one after the other, by an event that goes with it. In some, memory has tags, and leaves the
   card meanwhile.

   For example, seed 7 of the manner FT_PAUSES is two threads in turns on a device each, of 38 MiB. */
#ifndef FUZZ_THREADS_H
#define FUZZ_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"

enum {
    FT_THREADS_MAX = 4,
    FT_TEXT_BYTES = 512,
    FT_OWN_STREAMS = 3,    /* created ones of a thread */
    FT_COMMON_STREAMS = 2, /* created ones that all threads use */
    FT_SHELF = 64,         /* blocks on their way from one thread to another */
    FT_TAGS = 3,           /* of memory; contents of the last are discarded by a pause */
    FT_DEVICES = 2,
    FT_CALLS = 16, /* of the driver's, that may be made to fail one by one */
};

/* What a thread does next, with three random numbers. */
enum ft_action {
    FT_ALLOCATE,
    FT_FREE,
    FT_USE,
    FT_HAND_OVER, /* puts a block on the shelf */
    FT_TAKE_OVER, /* takes one from there */
    FT_WAIT,      /* for a stream, an event, or all */
    FT_TRIM,
    FT_LIMIT,
    FT_OTHERS, /* memory of the same card that the driver has: pools, physical allocations of the program's own */
    FT_STREAM, /* one is destroyed and another created */
    FT_LOOK,   /* at statistics and pieces, which add up */
    FT_GRAPH,  /* work is captured and launched, and perhaps kept */
    FT_PAUSE,  /* memory of one tag leaves the card, or of all */
    FT_RESUME,
    FT_ACTIONS
};

struct ft_operation {
    enum ft_action action;
    uint32_t which, how;
    uint64_t bytes;
};

/* Whose interface a thread allocates by. */
enum ft_kind { FT_CUDA, FT_AWARE, FT_TORCH, FT_KINDS };

/* Which plans seeds stand for. A seed draws another plan under each. */
enum ft_manner {
    FT_ANY,   /* cards of up to 4 GiB, a third of the plans with tags */
    FT_PAUSES /* all with tags and small cards, some with two devices, contents in files, or overflow */
};

struct ft_part {
    enum ft_kind kind;
    unsigned streams, blocks_max, count;
    struct ft_operation *operations;
    bool *left_out; /* operations that do not happen */
};

struct ft_plan {
    uint64_t seed;
    enum ft_manner manner;
    unsigned threads, common_streams, devices; /* thread i uses device i % devices */
    bool turns;
    bool tags;          /* memory of tags is among what is allocated */
    bool files;         /* contents of the second tag go to files */
    bool peers;         /* devices reach each other's memory */
    bool by_stream;     /* whoever frees gives the block to its stream */
    bool one_stream;    /* all work is on one: what is freed is free for all threads, and behind what is under way */
    bool judged;        /* a refusal says something of the library: no wait is cut short, no segment is fixed */
    unsigned refusals;  /* calls of the driver's that fail */
    bool refuses_on;    /* and go on failing */
    bool refuses_back;  /* what fails gives memory back, which then stays where it is */
    uint64_t card_bytes, limit_bytes, live_max_bytes, page_bytes;
    uint64_t probe_bytes; /* can be had at once where all is free */
    char sim[FT_TEXT_BYTES], conf[FT_TEXT_BYTES];
    const char *refused; /* "cuMemMap:12", a call that fails besides those drawn; or NULL */
    struct ft_part part[FT_THREADS_MAX];
};

/* One seed and manner always draw the same plan. Owned by the caller, who gives it to ft_plan_release(). Ends the process where memory
   runs out. */
struct ft_plan *ft_plan_draw(uint64_t seed, enum ft_manner manner);
void ft_plan_release(struct ft_plan *plan);
/* Has a call fail besides: "cuMemMap:12" is the 12th of that name. The text stays the caller's, who keeps it. False: one of
   that name fails already, or the text is none. */
bool ft_plan_refuse(struct ft_plan *plan, const char *text);
const char *ft_action_name(enum ft_action action);
const char *ft_kind_name(enum ft_kind kind);

/* What came of a plan, as far as it was played: in memory that the playing process shares with the one that watches. */
struct ft_result {
    atomic_uint_fast64_t operations, allocations, refused, hazards, wrong_bytes, unjust, faults;
    atomic_uint at[FT_THREADS_MAX]; /* the operation that each thread is at */
    atomic_bool complete;
    char fault[FT_TEXT_BYTES]; /* the first that was found */
    atomic_bool has_fault;
    uint64_t calls[FT_CALLS];
};

/* Calls of the driver's that the library makes and the programs do not, by their names in a setting `fail`. */
const char *ft_call_name(unsigned i);

/* Plays it in this process, which has made no call of CUDA yet and ends after it. */
void ft_play(const struct ft_plan *plan, struct ft_result *result);

/* Says what is wrong; the first is kept. */
__attribute__((format(printf, 2, 3))) void ft_fault(struct ft_result *result, const char *format, ...);

/* splitmix64: the `n`-th number of a sequence. */
uint64_t ft_random_at(uint64_t seed, uint64_t n);

#endif
