#include "slow.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

struct under_way {
    struct under_way *next;
    struct sg_slow *slow;
    struct sg_core *core;
    size_t bytes;
    struct sg_tag tag;
    int device;
    uint16_t trace_thread;
    bool started, finished;
    bool ended;             /* the trace has said how it ended: nothing to stop for */
    bool failed;            /* so it ended */
    bool planned;           /* pages are being had */
    bool waits;             /* for a pending free */
    uint64_t told, emitted; /* SLOW records: in the trace so far, and by the core */
    uint64_t created, allowed;
    CUresult refusal;       /* the driver's once `allowed` pages were created; CUDA_SUCCESS: none */
    CUdeviceptr address;
    pthread_t thread;
    sem_t go, back;
};

struct sg_slow {
    struct sg_card *card;
    bool classic;
    struct sg_driver driver;
    struct under_way *first; /* oldest last */
};

static _Thread_local struct under_way *self;   /* of a thread of ours */
static _Thread_local struct sg_slow *directed; /* of the thread that plays the trace */

static void stand_still(void)
{
    sem_post(&self->back);
    sem_wait(&self->go);
}

/* Stops a thread of ours that is as far as the trace has come. */
static void keep_pace(void)
{
    while (self && !self->ended && self->emitted >= self->told)
        stand_still();
}

static CUresult refusal(void)
{
    if (!self || self->refusal == CUDA_SUCCESS || self->created < self->allowed)
        return CUDA_SUCCESS;
    return self->refusal;
}

/* What others use is told by the trace (sg_core_outside). */
static CUresult mem_info(size_t *free_bytes, size_t *total_bytes)
{
    (void)free_bytes;
    (void)total_bytes;
    if (!self && directed)
        sg_slow_finish(directed); /* about to grow, which only one at a time can */
    keep_pace();
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags)
{
    keep_pace();
    return sg_card_driver.address_reserve(ret, bytes, alignment, hint, flags);
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    keep_pace();
    CUresult result = refusal();
    if (result == CUDA_SUCCESS)
        result = sg_card_driver.create(ret, bytes, prop, flags);
    if (result == CUDA_SUCCESS && self)
        self->created++;
    return result;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    keep_pace();
    return sg_card_driver.release(handle);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    keep_pace();
    CUresult result = refusal();
    return result == CUDA_SUCCESS ? sg_card_driver.map(address, bytes, offset, handle, flags) : result;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    keep_pace();
    return sg_card_driver.unmap(address, bytes);
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    keep_pace();
    CUresult result = refusal();
    return result == CUDA_SUCCESS ? sg_card_driver.mem_alloc(ret, bytes) : result;
}

static CUresult mem_free(CUdeviceptr address)
{
    keep_pace();
    return sg_card_driver.mem_free(address);
}

bool sg_slow_ask(int device, bool wait)
{
    (void)device;
    if (!wait || !self || self->ended || self->failed)
        return false; /* the trace has nothing more for it */
    self->waits = true;
    stand_still();
    self->waits = false;
    return !self->ended && !self->failed;
}

struct sg_slow *sg_slow_new(struct sg_card *card, bool classic)
{
    struct sg_slow *slow = malloc(sizeof *slow);
    if (!slow)
        return NULL;
    *slow = (struct sg_slow){.card = card, .classic = classic, .driver = sg_card_driver};
    slow->driver.mem_info = mem_info;
    slow->driver.address_reserve = address_reserve;
    slow->driver.create = create;
    slow->driver.release = release;
    slow->driver.map = map;
    slow->driver.unmap = unmap;
    slow->driver.mem_alloc = mem_alloc;
    slow->driver.mem_free = mem_free;
    directed = slow;
    return slow;
}

const struct sg_driver *sg_slow_driver(const struct sg_slow *slow)
{
    return &slow->driver;
}

/* Under the core's lock: only counts. */
static void observe(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (!self || (record->kind != SEGALLOC_RECORD_SLOW_BEGIN && record->kind != SEGALLOC_RECORD_SLOW_STEP))
        return;
    self->emitted++;
    self->refusal = CUDA_SUCCESS;
    if (record->kind == SEGALLOC_RECORD_SLOW_STEP && record->size == CUDA_SUCCESS) {
        self->planned = true;
        self->created = 0;
    }
}

struct sg_event_sink sg_slow_sink(struct sg_slow *slow)
{
    return (struct sg_event_sink){observe, slow};
}

static void *run(void *argument)
{
    self = argument;
    sem_wait(&self->go);
    sg_card_use(self->slow->card);
    sg_card_use_device(self->device);
    if (sg_core_malloc(self->core, self->device, self->bytes, &self->tag, &self->address) != CUDA_SUCCESS)
        self->address = 0;
    self->finished = true;
    sem_post(&self->back);
    return NULL;
}

static void resume(struct under_way *one)
{
    if (one->finished)
        return;
    sem_post(&one->go);
    sem_wait(&one->back);
}

static bool start(struct under_way *one)
{
    one->started = true;
    if (pthread_create(&one->thread, NULL, run, one) != 0) {
        one->started = false;
        return false;
    }
    resume(one);
    return true;
}

static struct under_way **find(struct sg_slow *slow, uint16_t thread)
{
    struct under_way **link = &slow->first;
    while (*link && (*link)->trace_thread != thread)
        link = &(*link)->next;
    return link;
}

/* Takes one off the list and lets it run to its end. Returns the address. */
static CUdeviceptr finish(struct under_way **link)
{
    struct under_way *one = *link;
    *link = one->next;
    one->ended = true;
    if (one->started) {
        resume(one);
        pthread_join(one->thread, NULL);
    }
    CUdeviceptr address = one->address;
    sem_destroy(&one->go);
    sem_destroy(&one->back);
    free(one);
    return address;
}

bool sg_slow_begin(struct sg_slow *slow, struct sg_core *core, int device, const struct sg_tag *tag,
                   const struct segalloc_trace_record *record)
{
    struct under_way *one = *find(slow, record->thread);
    sg_slow_catch_up(slow);
    if (one) { /* the driver is asked once more */
        one->told++;
        resume(one);
        return true;
    }
    one = malloc(sizeof *one);
    if (!one)
        return false;
    *one = (struct under_way){
        .next = slow->first,
        .slow = slow,
        .core = core,
        .bytes = record->size,
        .tag = *tag,
        .device = device,
        .trace_thread = record->thread,
        .told = 1,
    };
    sem_init(&one->go, 0, 0);
    sem_init(&one->back, 0, 0);
    slow->first = one;
    return true;
}

void sg_slow_step(struct sg_slow *slow, const struct segalloc_trace_record *record)
{
    struct under_way *one = *find(slow, record->thread);
    if (!one)
        return;
    if (one->started || one->next || slow->first != one || record->size != CUDA_SUCCESS)
        sg_slow_catch_up(slow);
    if (record->size == CUDA_ERROR_OUT_OF_MEMORY && !one->planned && !slow->classic) {
        /* A plan that could not be made has merged what was cached, no more. What it waited for the trace tells. */
        sg_core_merge(one->core, one->device);
        one->told++;
        one->emitted++;
        return;
    }
    if (record->size != CUDA_SUCCESS) {
        one->refusal = (CUresult)record->size;
        one->allowed = record->id;
    }
    one->told++;
    if (one->started)
        resume(one);
}

bool sg_slow_end(struct sg_slow *slow, uint16_t thread, bool failed, CUdeviceptr *ret)
{
    struct under_way **link = find(slow, thread), *one = *link;
    if (!one) {
        sg_slow_catch_up(slow);
        return false;
    }
    if (failed || slow->first != one || one->next)
        sg_slow_catch_up(slow);
    one->failed = failed;
    if (!one->started) {
        finish(link);
        return false;
    }
    *ret = finish(link);
    return true;
}

static void catch_up(struct under_way *one)
{
    if (!one)
        return;
    catch_up(one->next); /* the oldest first */
    if (!one->started && !start(one))
        one->told = 0; /* without a thread: as if nothing had interrupted it */
}

void sg_slow_catch_up(struct sg_slow *slow)
{
    catch_up(slow->first);
}

void sg_slow_learnt(struct sg_slow *slow, int device)
{
    for (struct under_way *one = slow->first; one; one = one->next)
        if (one->waits && one->device == device)
            resume(one);
}

void sg_slow_finish(struct sg_slow *slow)
{
    for (struct under_way *one = slow->first; one; one = one->next) {
        one->ended = true; /* it stays known until the trace tells its end */
        if (one->started)
            resume(one);
    }
}

void sg_slow_delete(struct sg_slow *slow)
{
    if (!slow)
        return;
    while (slow->first)
        finish(&slow->first);
    directed = NULL;
    free(slow);
}
