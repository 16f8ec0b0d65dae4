/* The true order of work: streams, events and blocks, and how far work has come. A driver whose calls answer by
   that. To be included by one file of a program. */
#ifndef ORDER_MODEL_H
#define ORDER_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "random.h"
#include "size.h"
#include "strict_kept.h"

enum { STREAMS = 40, AT_ONCE = 6, WORKS = 6000, EVENTS = 24, OURS = 4096, BLOCKS = 90, PAST = 6000 };

/* An amount of work of each stream, which something comes after, or which has touched memory. */
struct after {
    uint32_t work[STREAMS];
};

/* Kinds of streams. PLAIN: the core notes its order. */
enum nature {
    PLAIN,
    OPAQUE,   /* it waits for what nobody notes */
    UNHEARD,  /* the same, and the core was never told of an event on it: it has to see that for itself */
    OWN,      /* the same; a thread's own stream, on which no other thread can record */
    BLOCKING, /* its work comes after the legacy stream's, and that one's after its: nobody notes it */
    LEGACY
};

struct stream {
    bool alive;
    enum nature nature;
    sg_slot slot;
    uint32_t works, complete;
    struct after *of_work; /* [WORKS]: what each comes after */
    struct after after;    /* what the next one comes after */
};

struct event {
    bool recorded;
    struct after after;
    struct sg_vector_clock clock;
};

struct block {
    CUdeviceptr address;
    uint64_t bytes;
    int stream;
    struct after alloc_seq; /* what its stream had come after, and been given, when it was allocated */
    struct after touched;
};

static struct {
    struct sg_core *core;
    struct sg_driver driver;
    struct random random;
    enum sg_user_rule user_rule;
    bool missed_calls /* half of the work is not told of */;
    const enum nature *natures; /* [AT_ONCE] of the first streams; NULL: all plain */
    struct stream stream[STREAMS];
    int streams;
    struct event event[EVENTS];
    struct after ours[OURS]; /* by the driver's number of an event: what its recording comes after */
    struct block block[BLOCKS];
    struct block past[PAST]; /* freed, and perhaps still being touched */
    int pasts;
    struct after host; /* what the host knows to be complete */
    uint32_t step, given, waited, moved;
    bool exact_unmap;
    bool interrupted; /* what another thread does meanwhile is going on */
    const struct block *held; /* that the call under way is about: no business of another thread's */
    int leaving;              /* the stream that is being destroyed; -1: none */
} the;

static void join(struct after *into, const struct after *from)
{
    for (int i = 0; i < the.streams; i++)
        into->work[i] = from->work[i] > into->work[i] ? from->work[i] : into->work[i];
}

static bool is_complete(const struct after *after)
{
    for (int i = 0; i < the.streams; i++)
        if (after->work[i] > the.stream[i].complete)
            return false;
    return true;
}

/* Lets `most` pieces of a stream's work complete, as far as what they come after is. */
static void progress(int i, uint32_t most)
{
    struct stream *stream = &the.stream[i];
    while (most-- > 0 && stream->complete < stream->works && is_complete(&stream->of_work[stream->complete]))
        stream->complete++;
}

static void finish_until(const struct after *after)
{
    for (int round = 0; !is_complete(after); round++) {
        assert_true(round < 100000);
        for (int i = 0; i < the.streams; i++)
            progress(i, WORKS);
    }
}

static struct after all_work(void)
{
    struct after all = {{0}};
    for (int i = 0; i < the.streams; i++)
        all.work[i] = the.stream[i].works;
    return all;
}

/* True if the legacy stream's rules order these two. */
static bool by_legacy_rules(int a, int b)
{
    enum nature one = the.stream[a].nature, other = the.stream[b].nature;
    return (one == LEGACY && other == BLOCKING) || (one == BLOCKING && other == LEGACY);
}

/* All that a stream's next work comes after, its own included. */
static struct after up_to(int i)
{
    struct after after = the.stream[i].after;
    for (int k = 0; k < the.streams; k++) {
        if (by_legacy_rules(i, k)) {
            join(&after, &the.stream[k].after);
            after.work[k] = the.stream[k].works;
        }
    }
    after.work[i] = the.stream[i].works;
    return after;
}

/* From here on. */
static void come_after_by_rules(int i)
{
    the.stream[i].after = up_to(i);
}

/* True if it comes after others by means that nobody notes. */
static bool is_unseen(int i)
{
    return the.stream[i].nature >= OPAQUE && the.stream[i].nature <= OWN;
}

/* True if the core notes events on it. */
static bool is_told(int i)
{
    return the.stream[i].nature != UNHEARD;
}

static int number_of(CUstream handle)
{
    return (int)(uintptr_t)handle - 1;
}

static void submit(int i, struct block *block);
static void release(struct block *block);

/* Another thread uses a block right after the driver's part of a call, and may free it. */
static void meanwhile(void)
{
    struct block *block = &the.block[random_below(&the.random, BLOCKS)];
    bool idle = the.interrupted || block == the.held || !block->address || block->stream < 0;
    if (idle || !the.stream[block->stream].alive || block->stream == the.leaving || random_below(&the.random, 3))
        return;
    the.interrupted = true;
    submit(block->stream, block);
    if (block->bytes <= 2 * SG_MIB && random_below(&the.random, 2)) {
        const struct block *held = the.held;
        release(block);
        the.held = held;
    }
    the.interrupted = false;
}

static CUresult event_record(CUevent event, CUstream handle)
{
    CUresult result = strict_driver.event_record(event, handle);
    assert_true((uintptr_t)event < OURS && the.stream[number_of(handle)].alive);
    assert_int_not_equal(the.stream[number_of(handle)].nature, OWN);
    if (result == CUDA_SUCCESS)
        the.ours[(uintptr_t)event] = up_to(number_of(handle));
    meanwhile();
    return result;
}

static CUresult ctx_record_event(CUcontext context, CUevent event)
{
    CUresult result = strict_driver.ctx_record_event(context, event);
    if (result == CUDA_SUCCESS)
        the.ours[(uintptr_t)event] = all_work();
    meanwhile();
    return result;
}

static CUresult event_query(CUevent event)
{
    CUresult result = strict_driver.event_query(event);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return result;
    return is_complete(&the.ours[(uintptr_t)event]) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_synchronize(CUevent event)
{
    CUresult result = strict_driver.event_synchronize(event);
    if (result == CUDA_SUCCESS) {
        the.waited++;
        finish_until(&the.ours[(uintptr_t)event]);
        meanwhile();
    }
    return result;
}

static CUresult ctx_synchronize(void)
{
    CUresult result = strict_driver.ctx_synchronize();
    struct after all = all_work();
    if (result == CUDA_SUCCESS)
        finish_until(&all);
    meanwhile();
    return result;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    for (int i = 0; i < the.pasts && the.exact_unmap; i++) {
        const struct block *past = &the.past[i];
        if (past->address < address + bytes && address < past->address + past->bytes && !is_complete(&past->touched))
            fail_msg("a page was unmapped that queued work can touch");
    }
    the.moved++;
    return strict_driver.unmap(address, bytes);
}

#endif
