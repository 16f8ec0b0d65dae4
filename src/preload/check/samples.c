/* A batch is EMPTY, then TAKEN by the thread that fills it, then OUT, then ASKED by one thread that queries its event,
   and EMPTY again once it is compared. Only the changes of state take the lock.

      EMPTY ──begin──▶ TAKEN ──send──▶ OUT ──poll──▶ ASKED ──arrived──▶ EMPTY
                         │              ▲              │
                         │              └──not yet─────┘
                         └──keep, settle: compared by its thread──────▶ EMPTY

   A thread that takes a batch is alone with it, so its samples need no lock. The thread that asks is alone with it too.
   Without that, two threads could ask about one event, and both compare.

   Ends of contexts. The pinned memory and the events go with their context, so a batch is asked about only while the
   context is pinned (track/context_pins.h). Whoever ends it waits for that, and then empties the lane.

   For example, 130 samples are taken within one call of the program's. The first 128 batches are OUT, and the others
   find none EMPTY. They are left out, and the next allocation asks about batches 0 and 1. */
#include "check/samples.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/rest.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/context_pins.h"

enum {
    LANES = SG_LANES,
    BATCHES = 128,
    WORDS_BYTES = SG_MARK_STREAMS * 4,
    ASKED_AT_ONCE = 2,
    REST_NS = 50000,
    PATIENCE_NS = 2000000000
};

enum batch_state { BATCH_EMPTY, BATCH_TAKEN, BATCH_OUT, BATCH_ASKED };

/* `context` and `refused` are set under SG_LOCK_CHECK. Nobody but its maker looks at the rest of a lane that is refused. */
struct sg_lane {
    CUcontext context;
    bool refused; /* it is being made, or the driver gave no memory or no stream */
    CUstream fills, reads;
    CUevent behind; /* the latest wait of `fills` */
    unsigned next;  /* batch to try first */
    struct sg_batch batch[BATCHES];
    struct sg_words words;
};

struct sg_shadow sg_check_shadow;
static struct sg_lane lanes[LANES];
static atomic_uint next_asked; /* whose turn it is to be asked about */
static atomic_bool stuck;
static atomic_uint voids; /* batches that are out, and were waited for in vain */

struct sg_words *sg_lane_words(struct sg_lane *lane)
{
    return &lane->words;
}

struct sg_lane *sg_lane_at(unsigned index)
{
    return &lanes[index];
}

CUstream sg_lane_fills(const struct sg_lane *lane)
{
    return lane->fills;
}

CUstream sg_lane_reads(const struct sg_lane *lane)
{
    return lane->reads;
}

/* The lane of a context; of NULL, one that is not in use. Under SG_LOCK_CHECK. */
static struct sg_lane *lane_find(CUcontext context)
{
    for (int i = 0; i < LANES; i++)
        if (lanes[i].context == context)
            return &lanes[i];
    return NULL;
}

/* Pinned memory, streams and an event of the current context. */
static bool lane_make(struct sg_lane *lane)
{
    const struct sg_real *real = sg_real();
    void *memory = NULL;
    if (real->cuMemHostAlloc(&memory, (size_t)BATCHES * SG_BATCH_BYTES + WORDS_BYTES, 0) != CUDA_SUCCESS ||
        real->cuStreamCreate(&lane->fills, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        real->cuStreamCreate(&lane->reads, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        real->cuEventCreate(&lane->behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    for (unsigned i = 0; i < BATCHES; i++) {
        lane->batch[i] = (struct sg_batch){.lane = lane, .data = (unsigned char *)memory + (size_t)i * SG_BATCH_BYTES};
        if (real->cuEventCreate(&lane->batch[i].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            return false;
    }
    lane->words.word = (_Atomic uint32_t *)(void *)((char *)memory + (size_t)BATCHES * SG_BATCH_BYTES);
    memset((void *)lane->words.word, 0, WORDS_BYTES);
    return true;
}

struct sg_lane *sg_lane_of(CUcontext context, bool make)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_lane *lane = lane_find(context);
    bool claimed = !lane && make && (lane = lane_find(NULL));
    if (claimed) {
        lane->refused = true; /* until it is made, for other threads */
        lane->context = context;
    }
    sg_process_unlock(SG_LOCK_CHECK);
    bool made = claimed && lane_make(lane);
    sg_process_lock(SG_LOCK_CHECK);
    if (made)
        lane->refused = false;
    lane = lane && !lane->refused ? lane : NULL;
    sg_process_unlock(SG_LOCK_CHECK);
    return lane;
}

bool sg_lane_fills_after_all(struct sg_lane *lane, const struct sg_driver *driver)
{
    return driver->ctx_record_event && driver->ctx_record_event(lane->context, lane->behind) == CUDA_SUCCESS &&
        sg_real()->cuStreamWaitEvent(lane->fills, lane->behind, 0) == CUDA_SUCCESS;
}

struct sg_batch *sg_batch_begin(struct sg_lane *lane)
{
    struct sg_batch *found = NULL;
    sg_process_lock(SG_LOCK_CHECK);
    for (unsigned i = 0; i < BATCHES && !found; i++) {
        struct sg_batch *batch = &lane->batch[(lane->next + i) % BATCHES];
        if (batch->state == BATCH_EMPTY) {
            found = batch;
            batch->state = BATCH_TAKEN;
            lane->next = (lane->next + i + 1) % BATCHES;
        }
    }
    sg_process_unlock(SG_LOCK_CHECK);
    if (found) {
        found->used = 0;
        found->count = 0;
        found->is_void = false;
    }
    return found;
}

/* Copies the rows of a sample: by one call, or each by its own where they are too far apart for that. */
static CUresult sample_copy_rows(const struct sg_sample *sample, unsigned char *to, CUstream stream)
{
    const struct sg_real *real = sg_real();
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = sample->address,
        .srcPitch = sample->pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .dstPitch = sample->bytes,
        .WidthInBytes = sample->bytes,
        .Height = sample->rows,
    };
    if (sample->rows > 1 && sample->pitch <= SG_PITCH_MOST)
        return real->cuMemcpy2DAsync_v2(&copy, stream);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t row = 0; row < sample->rows && result == CUDA_SUCCESS; row++)
        result = real->cuMemcpyDtoHAsync_v2(to + (size_t)row * sample->bytes, sample->address + row * sample->pitch,
            sample->bytes, stream);
    return result;
}

bool sg_batch_read(struct sg_batch *batch, const struct sg_sample *sample, CUstream stream)
{
    uint64_t bytes = (uint64_t)sample->bytes * sample->rows;
    if (batch->count == SG_BATCH_SAMPLES || bytes > SG_BATCH_BYTES - batch->used)
        return false;
    struct sg_sample *own = &batch->sample[batch->count];
    *own = *sample;
    own->at = batch->used;
    if (sample_copy_rows(own, batch->data + own->at, stream) != CUDA_SUCCESS)
        return false;
    batch->used += (uint32_t)(bytes + 7) & ~7u;
    batch->count++;
    return true;
}

/* Memory of the device for words on their way; 0: another thread asks the driver for it, or the driver has refused. The driver is not
   called under the lock. So whoever finds nothing there sets `copies_asked` first, and a second thread asks for none.

   Memory for contexts without marks is never asked for. It goes with its context: a free would wait for the program's work. */
static CUdeviceptr words_copies(struct sg_words *words)
{
    CUdeviceptr made = 0;
    sg_process_lock(SG_LOCK_CHECK);
    CUdeviceptr copies = words->copies;
    bool make = !copies && !words->copies_asked;
    words->copies_asked = true;
    sg_process_unlock(SG_LOCK_CHECK);
    if (!make)
        return copies;
    CUresult result = sg_real()->cuMemAlloc_v2(&made, (size_t)BATCHES * WORDS_BYTES);
    sg_process_lock(SG_LOCK_CHECK);
    words->copies = result == CUDA_SUCCESS ? made : 0;
    words->copies_asked = words->copies != 0;
    copies = words->copies;
    sg_process_unlock(SG_LOCK_CHECK);
    return copies;
}

/* The copy goes by way of the device, since a copy from host to host is no work of a stream. Each batch has a place of its own there. */
bool sg_batch_read_words(struct sg_batch *batch, struct sg_freed *freed, unsigned count, CUstream stream)
{
    const struct sg_real *real = sg_real();
    struct sg_words *words = &batch->lane->words;
    uint32_t bytes = count * 4;
    if (batch->count == SG_BATCH_SAMPLES || bytes > SG_BATCH_BYTES - batch->used)
        return false;
    CUdeviceptr copies = bytes ? words_copies(words) : 0;
    if (bytes && !copies)
        return false;
    CUdeviceptr copy = copies + (uint64_t)(batch - batch->lane->batch) * WORDS_BYTES;
    if (bytes && (real->cuMemcpyHtoDAsync_v2(copy, (const void *)words->word, bytes, stream) != CUDA_SUCCESS ||
                     real->cuMemcpyDtoHAsync_v2(batch->data + batch->used, copy, bytes, stream) != CUDA_SUCCESS))
        return false;
    batch->sample[batch->count++] = (struct sg_sample){.freed = freed, .words = true, .at = batch->used, .bytes = bytes};
    batch->used += (bytes + 7) & ~7u;
    return true;
}

/* Gives the references back, and the batch. */
static void batch_empty(struct sg_batch *batch)
{
    sg_process_lock(SG_LOCK_CHECK);
    for (unsigned i = 0; i < batch->count; i++)
        sg_shadow_unref(&sg_check_shadow, batch->sample[i].freed);
    atomic_fetch_sub(&voids, batch->is_void);
    batch->is_void = false;
    batch->count = 0;
    batch->state = BATCH_EMPTY;
    sg_process_unlock(SG_LOCK_CHECK);
    atomic_store_explicit(&stuck, false, memory_order_relaxed);
}

bool sg_samples_are_stuck(void)
{
    return atomic_load_explicit(&stuck, memory_order_relaxed);
}

void sg_samples_stuck(void)
{
    atomic_store_explicit(&stuck, true, memory_order_relaxed);
}

static void batch_is(struct sg_batch *batch, enum batch_state state)
{
    sg_process_lock(SG_LOCK_CHECK);
    batch->state = state;
    sg_process_unlock(SG_LOCK_CHECK);
}

/* Without its event nobody knows when the copies have arrived: the batch stays taken for good then. */
bool sg_batch_keep(struct sg_batch *batch, CUstream stream)
{
    return sg_real()->cuEventRecord(batch->event, stream) == CUDA_SUCCESS;
}

bool sg_batch_send(struct sg_batch *batch, CUstream stream)
{
    if (!batch->count) {
        batch_empty(batch);
        return false;
    }
    bool sent = sg_batch_keep(batch, stream);
    if (sent)
        batch_is(batch, BATCH_OUT);
    return sent;
}

/* Streams that are independent may share a channel of the GPU (CUDA_DEVICE_MAX_CONNECTIONS), and then wait for each other's work. So
   a wait has an end. Once one was given up, nobody waits before that batch has come. */
bool sg_batch_settle(struct sg_batch *batch, const struct sg_driver *driver, sg_compare_fn *compare)
{
    uint64_t until = sg_clock_ns() + PATIENCE_NS;
    long rest = REST_NS / 8;
    CUresult result;
    while ((result = driver->event_query(batch->event)) == CUDA_ERROR_NOT_READY && sg_clock_ns() < until) {
        sg_rest(rest);
        rest = rest < REST_NS ? 2 * rest : rest;
    }
    if (result == CUDA_SUCCESS) {
        compare(batch);
        batch_empty(batch);
    } else {
        batch->is_void = true;
        atomic_fetch_add(&voids, 1);
        batch_is(batch, BATCH_OUT);
    }
    return result == CUDA_SUCCESS;
}

bool sg_samples_waits_are_vain(void)
{
    return atomic_load_explicit(&voids, memory_order_relaxed);
}

/* Takes a batch that is out, of the context or with NULL of any; NULL: there is none from `*at` on. Lanes in the making are passed by:
   their maker writes batches without the lock. */
static struct sg_batch *batch_take(CUcontext context, unsigned *at, unsigned end)
{
    struct sg_batch *found = NULL;
    sg_process_lock(SG_LOCK_CHECK);
    for (; *at < end && !found; ++*at) {
        struct sg_lane *lane = &lanes[*at / BATCHES % LANES];
        struct sg_batch *batch = &lane->batch[*at % BATCHES];
        if (!lane->context || lane->refused || (context && lane->context != context)) {
            *at |= BATCHES - 1; /* on to the next lane */
            continue;
        }
        if (batch->state == BATCH_OUT) {
            batch->state = BATCH_ASKED;
            found = batch;
        }
    }
    sg_process_unlock(SG_LOCK_CHECK);
    return found;
}

/* Asks about a batch that this thread has taken, while nobody ends its context. False: it is still out. Where the driver
   answers with an error what it has copied is not looked at. */
static bool batch_ask(struct sg_batch *batch, const struct sg_driver *driver, sg_compare_fn *compare)
{
    int use = sg_context_pin(batch->lane->context);
    CUresult result = use < 0 ? CUDA_ERROR_NOT_READY : driver->event_query(batch->event);
    if (result == CUDA_SUCCESS && !batch->is_void)
        compare(batch);
    if (result == CUDA_ERROR_NOT_READY) {
        sg_process_lock(SG_LOCK_CHECK);
        batch->state = batch->state == BATCH_ASKED ? BATCH_OUT : batch->state;
        sg_process_unlock(SG_LOCK_CHECK);
    } else {
        batch_empty(batch);
    }
    if (use >= 0)
        sg_context_unpin(use);
    return result != CUDA_ERROR_NOT_READY;
}

void sg_samples_poll(const struct sg_driver *driver, bool all, sg_compare_fn *compare)
{
    unsigned at = all ? 0 : atomic_load_explicit(&next_asked, memory_order_relaxed), end = at + LANES * BATCHES;
    for (unsigned asked = 0; all || asked < ASKED_AT_ONCE; asked++) {
        struct sg_batch *batch = batch_take(NULL, &at, end);
        if (!batch)
            break;
        (void)batch_ask(batch, driver, compare);
    }
    if (!all)
        atomic_store_explicit(&next_asked, at % (LANES * BATCHES), memory_order_relaxed);
}

unsigned sg_samples_finish(const struct sg_driver *driver, CUcontext context, uint64_t limit_ns, sg_compare_fn *compare)
{
    uint64_t until = sg_clock_ns() + limit_ns;
    for (;;) {
        unsigned at = 0, left = 0;
        for (struct sg_batch *batch; (batch = batch_take(context, &at, LANES * BATCHES));)
            left += !batch_ask(batch, driver, compare);
        if (!left || sg_clock_ns() >= until)
            return left;
        sg_rest(REST_NS);
    }
}

void sg_lane_closes(CUcontext context)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_lane *lane = lane_find(context);
    if (lane)
        lane->words.closed = true;
    sg_process_unlock(SG_LOCK_CHECK);
}

unsigned sg_lane_gone(CUcontext context)
{
    unsigned lost = 0;
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_lane *lane = lane_find(context);
    for (unsigned i = 0; lane && i < BATCHES; i++) {
        struct sg_batch *batch = &lane->batch[i];
        lost += batch->state != BATCH_EMPTY;
        atomic_fetch_sub(&voids, batch->state != BATCH_EMPTY && batch->is_void);
        for (unsigned k = 0; batch->state != BATCH_EMPTY && k < batch->count; k++)
            sg_shadow_unref(&sg_check_shadow, batch->sample[k].freed);
        *batch = (struct sg_batch){0};
    }
    if (lane) {
        lane->context = NULL;
        lane->refused = false;
        lane->words = (struct sg_words){.life = lane->words.life + 1};
    }
    sg_process_unlock(SG_LOCK_CHECK);
    return lost;
}
