#include "interleaver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

/* One operation of the trace. Two semaphores pass control between its thread and the player's: `go`
   lets the operation run, `back` says that it stands still or ended. */
struct operation {
    struct operation *next;
    struct sg_interleaver *slow;
    struct sg_interleaver_call call;
    uint16_t trace_thread;
    enum { NOT_STARTED, STARTED, FINISHED } state;
    bool on_own_thread;
    struct segalloc_trace_record *recorded; /* `count` records of the trace; the core has repeated `done` of them */
    uint32_t done, count, room;
    uint64_t created, mapped; /* pages, since the plan */
    bool refused;             /* the driver has refused since the core's last record */
    CUdeviceptr address;
    pthread_t thread;
    sem_t go, back;
};

/* Operations on threads of their own at a time. A trace that has more under way is not followed: what each thread costs
   the host is more than its few records are of the trace. */
enum { THREADS_MOST = 1024 };

struct sg_interleaver {
    struct sg_driver driver;
    struct sg_ledger *card;
    struct operation *first;   /* youngest first */
    struct operation *waiting; /* the one that has not started: nothing but its own has come since it began */
    struct segalloc_trace_record expected; /* by sg_interleaver_expect(), until the core writes it; else of no kind */
    uint32_t threads; /* of operations that have not been dropped */
    bool diverged;
    bool over; /* there are no more records */
    CUdeviceptr next_address;
};

/* Addresses of plain memory that is asked for after the play has diverged. No driver gives such ones, so they meet none of
   the trace. */
static const CUdeviceptr OWN_ADDRESSES = UINT64_C(1) << 60;

static _Thread_local struct operation *self;   /* that the calling thread carries out */
static _Thread_local struct sg_interleaver *directed; /* by the calling thread, which plays the trace */

/* Gives way to the thread that plays, until that lets the operation go on. */
static void operation_stand_still(void)
{
    sem_post(&self->back);
    sem_wait(&self->go);
}

/* Lets an operation run until it stands still or has ended. */
static void operation_resume(struct operation *one)
{
    sem_post(&one->go);
    sem_wait(&one->back);
}

/* True if operations run on their own, without records. */
static bool interleaver_is_free(const struct sg_interleaver *slow)
{
    return slow->diverged || slow->over;
}

/* Lets every operation that has started run to its end, on its own. They may meet at `grow`, the holder of which gets
   on. */
static void interleaver_finish_all(struct sg_interleaver *slow)
{
    for (bool any = true; any;) {
        any = false;
        for (struct operation *one = slow->first; one; one = one->next) {
            if (one->state != STARTED || !one->on_own_thread || one == self)
                continue;
            operation_resume(one);
            any = true;
        }
    }
}

/* The step function of struct sg_replay: returns the record of the next replay step, and stands still until it comes. NULL:
   the core decides by itself. */
static const struct segalloc_trace_record *interleaver_next_step(void)
{
    struct sg_interleaver *slow = self ? self->slow : directed;
    if (!self) {
        if (slow->diverged)
            interleaver_finish_all(slow);
        return NULL;
    }
    /* No record left: the operation stands still until the player has brought one, or lets it go on by itself. */
    while (self->on_own_thread && self->done == self->count && !interleaver_is_free(slow))
        operation_stand_still();
    /* An operation without a thread of its own cannot stand still: a step without a record is a divergence. */
    slow->diverged |= self->done == self->count && !slow->over;
    return interleaver_is_free(slow) ? NULL : &self->recorded[self->done];
}

/* Never in a replay that follows its trace: there whoever wants `grow` comes after the record at which its holder gave
   it back. */
static void interleaver_give_way(void)
{
    struct sg_interleaver *slow = self ? self->slow : directed;
    slow->diverged = true;
    if (self && self->on_own_thread)
        operation_stand_still();
    else
        interleaver_finish_all(slow);
}

const struct sg_replay sg_interleaver_replay = {interleaver_next_step, interleaver_give_way};

enum { MAPPED_SHIFT = 32 }; /* of a step's pages */

/* The answer of the recorded driver to the present call: an error at the page at which the recorded one came, and success
   otherwise. A SLOW_STEP with an error says how many pages were created and mapped before it. */
static CUresult operation_refusal(void)
{
    if (!self || self->refused || self->done == self->count || interleaver_is_free(self->slow))
        return CUDA_SUCCESS;
    const struct segalloc_trace_record *next = &self->recorded[self->done];
    if (next->kind != SEGALLOC_RECORD_SLOW_STEP || next->size == CUDA_SUCCESS ||
        self->created < (uint32_t)next->id || self->mapped < next->id >> MAPPED_SHIFT)
        return CUDA_SUCCESS;
    self->refused = true;
    return (CUresult)next->size;
}

/* The driver of a play that is exact: the ledger's, but for the refusals that were recorded. Pages that were created and
   mapped are counted, because a recorded refusal says after how many it came. */
static CUresult replayed_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CUresult result = operation_refusal();
    if (result == CUDA_SUCCESS)
        result = sg_ledger_driver.create(ret, bytes, prop, flags);
    if (result == CUDA_SUCCESS && self)
        self->created++;
    return result;
}

static CUresult replayed_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    CUresult result = operation_refusal();
    if (result == CUDA_SUCCESS)
        result = sg_ledger_driver.map(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && self)
        self->mapped++;
    return result;
}

static CUresult replayed_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = operation_refusal();
    return result == CUDA_SUCCESS ? sg_ledger_driver.set_access(address, bytes, access, count) : result;
}

/* The trace says what other processes use (sg_core_outside). */
static CUresult replayed_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    (void)free_bytes;
    (void)total_bytes;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Fixed segments are where the trace says, as long as it is followed, and the core asks for no more than there may
   be. */
static CUresult replayed_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    struct sg_interleaver *slow = self ? self->slow : directed;
    uint64_t granularity = slow->card->granularity;
    *ret = slow->next_address;
    slow->next_address += (bytes + granularity - 1) / granularity * granularity;
    return CUDA_SUCCESS;
}

static CUresult replayed_mem_free(CUdeviceptr address)
{
    (void)address;
    return CUDA_SUCCESS;
}

struct sg_interleaver *sg_interleaver_new(struct sg_ledger *card)
{
    struct sg_interleaver *slow = malloc(sizeof *slow);
    if (!slow)
        return NULL;
    *slow = (struct sg_interleaver){.driver = sg_ledger_driver, .card = card, .next_address = OWN_ADDRESSES};
    card->refuses_nothing = true;
    slow->driver.mem_info = replayed_mem_info;
    slow->driver.create = replayed_create;
    slow->driver.map = replayed_map;
    slow->driver.set_access = replayed_set_access;
    slow->driver.mem_alloc = replayed_mem_alloc;
    slow->driver.mem_free = replayed_mem_free;
    directed = slow; /* the core's replay table has no user pointer: the calling thread has this one */
    return slow;
}

const struct sg_driver *sg_interleaver_driver(const struct sg_interleaver *slow)
{
    return &slow->driver;
}

/* True if a record belongs to a section that decides. Observations of work come from the trace in any case. */
static bool record_is_compared(uint8_t kind)
{
    switch (kind) {
    case SEGALLOC_RECORD_ALLOCATE:
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_FREE:
    case SEGALLOC_RECORD_EMPTY_CACHE:
    case SEGALLOC_RECORD_RETURN_FAR:
    case SEGALLOC_RECORD_PAUSE:
    case SEGALLOC_RECORD_RESUME:
    case SEGALLOC_RECORD_CONTEXT_GONE:
    case SEGALLOC_RECORD_SLOW_BEGIN:
    case SEGALLOC_RECORD_SLOW_STEP:
    case SEGALLOC_RECORD_TURN:
        return true;
    default:
        return false;
    }
}

/* Addresses are not those of the recorded run, and what a failure lacked decides nothing. */
static bool record_id_is_compared(uint8_t kind)
{
    return kind != SEGALLOC_RECORD_ALLOCATE && kind != SEGALLOC_RECORD_FREE && kind != SEGALLOC_RECORD_ALLOCATE_FAILURE;
}

/* The core's observer, called under its lock: compares the record with the recorded one. */
static void interleaver_observe(void *sink, const struct segalloc_trace_record *record)
{
    struct sg_interleaver *slow = sink;
    if (interleaver_is_free(slow) || !record_is_compared(record->kind))
        return;
    struct segalloc_trace_record expected = slow->expected;
    /* Outside of any operation the player has said what to expect, once for each call. */
    if (!self) {
        slow->expected.kind = SEGALLOC_RECORD_NONE;
    } else if (self->done == self->count) {
        expected.kind = SEGALLOC_RECORD_NONE;
    } else {
        expected = self->recorded[self->done++];
        self->refused = self->refused && record->kind == SEGALLOC_RECORD_TURN; /* while that is undone */
        if (record->kind == SEGALLOC_RECORD_SLOW_STEP && record->size == CUDA_SUCCESS)
            self->created = self->mapped = 0;
    }
    slow->diverged = record->kind != expected.kind || record->size != expected.size ||
                     (record->id != expected.id && record_id_is_compared(record->kind));
}

struct sg_event_sink sg_interleaver_sink(struct sg_interleaver *slow)
{
    return (struct sg_event_sink){interleaver_observe, slow};
}

/* Asks the core for an operation, on the thread that calls. */
static void operation_carry_out(struct operation *one)
{
    struct sg_interleaver_call *call = &one->call;
    struct operation *before = self;
    struct sg_pause_result paused;
    self = one;
    sg_ledger_use_device(call->device);
    switch (call->kind) {
    case SG_SLOW_ALLOCATION:
        if (sg_core_malloc(call->core, call->device, call->bytes, &call->tag, &one->address) != CUDA_SUCCESS)
            one->address = 0;
        break;
    case SG_SLOW_FREE:
        (void)sg_core_free(call->core, call->address, &call->tag);
        break;
    case SG_SLOW_TRIM:
        (void)sg_core_trim(call->core, call->device, call->bytes);
        break;
    case SG_SLOW_RETURN:
        (void)sg_core_return_far(call->core, call->device, (int)call->bytes);
        break;
    case SG_SLOW_PAUSE:
        (void)sg_core_pause(call->core, call->device, (uint32_t)call->bytes, /* everything */ false, call->backup,
            &paused);
        break;
    case SG_SLOW_RESUME:
        (void)sg_core_resume(call->core, call->device, (uint32_t)call->bytes, call->backup, &paused);
        break;
    }
    one->state = FINISHED;
    self = before;
}

/* The thread of an operation. The ledger's card is a thread-local, so it is set here too. */
static void *operation_run(void *argument)
{
    struct operation *one = argument;
    sem_wait(&one->go);
    sg_ledger_use(one->slow->card);
    operation_carry_out(one);
    sem_post(&one->back);
    return NULL;
}

/* Starts an operation on a thread of its own, and returns once it stands still or has ended. */
static void operation_start(struct operation *one)
{
    struct sg_interleaver *slow = one->slow;
    if (slow->waiting == one)
        slow->waiting = NULL;
    one->state = STARTED;
    one->on_own_thread = slow->threads < THREADS_MOST && pthread_create(&one->thread, NULL, operation_run, one) == 0;
    if (one->on_own_thread) {
        slow->threads++;
        operation_resume(one);
        return;
    }
    slow->diverged = true; /* without a thread it can't stand still */
    operation_carry_out(one);
}

/* The link to the operation of a thread of the trace; a link to NULL where there is none. */
static struct operation **interleaver_find(struct sg_interleaver *slow, uint16_t thread)
{
    struct operation **link = &slow->first;
    while (*link && (*link)->trace_thread != thread)
        link = &(*link)->next;
    return link;
}

/* Takes one that has not started, or is finished, off the list. */
static void operation_drop(struct operation **link)
{
    struct operation *one = *link;
    *link = one->next;
    if (one->slow->waiting == one)
        one->slow->waiting = NULL;
    if (one->on_own_thread) {
        pthread_join(one->thread, NULL);
        one->slow->threads--;
    }
    sem_destroy(&one->go);
    sem_destroy(&one->back);
    free(one->recorded);
    free(one);
}

/* Adds a record of the trace. False: no memory. */
static bool operation_note(struct operation *one, const struct segalloc_trace_record *record)
{
    if (one->done == one->count)
        one->done = one->count = 0;
    if (one->count == one->room) {
        uint32_t room = one->room ? 2 * one->room : 8;
        struct segalloc_trace_record *recorded = realloc(one->recorded, room * sizeof *recorded);
        if (!recorded)
            return false;
        one->recorded = recorded;
        one->room = room;
    }
    one->recorded[one->count++] = *record;
    return true;
}

bool sg_interleaver_begin(struct sg_interleaver *slow, const struct sg_interleaver_call *call,
    const struct segalloc_trace_record *record)
{
    sg_interleaver_catch_up(slow);
    struct operation **left = interleaver_find(slow, record->thread), *one = malloc(sizeof *one);
    if (!one)
        return false;
    if (*left) { /* an operation whose end is not in the trace */
        slow->diverged = true;
        interleaver_finish_all(slow);
        operation_drop(left);
    }
    *one = (struct operation){.next = slow->first, .slow = slow, .call = *call, .trace_thread = record->thread};
    sem_init(&one->go, 0, 0);
    sem_init(&one->back, 0, 0);
    slow->first = one;
    if (!operation_note(one, record))
        return false;
    slow->waiting = one;
    if (call->kind == SG_SLOW_ALLOCATION) /* its end has a record, and may be the next: then no thread is needed */
        return true;
    operation_start(one); /* nothing in the trace says where it ends */
    if (one->state == FINISHED)
        operation_drop(&slow->first);
    return true;
}

/* True if an operation ends with this record. */
static bool record_is_end(const struct segalloc_trace_record *record)
{
    return record->kind == SEGALLOC_RECORD_ALLOCATE || record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE ||
           (record->kind == SEGALLOC_RECORD_TURN && record->id == SEGALLOC_TURN_LEFT);
}

/* Lets an operation go on to this record. The play diverges if the operation wants to go on after its
   last record, or ends before it. It also does if the core emits another record (interleaver_observe). */
static void operation_advance(struct operation *one, const struct segalloc_trace_record *record)
{
    struct sg_interleaver *slow = one->slow;
    if (one->state == STARTED)
        operation_resume(one);
    else if (one->state == NOT_STARTED && record_is_end(record)) {
        slow->waiting = NULL;
        one->state = STARTED;
        operation_carry_out(one);
    }
    if (record_is_end(record) && one->state == STARTED)
        slow->diverged = true; /* it wants to go on */
    if (one->state == FINISHED && one->done < one->count)
        slow->diverged = true; /* it did not get so far */
    if (slow->diverged)
        interleaver_finish_all(slow);
}

enum sg_interleaver_state sg_interleaver_next(struct sg_interleaver *slow, const struct segalloc_trace_record *record,
    CUdeviceptr *ret)
{
    struct operation **link = interleaver_find(slow, record->thread), *one = *link;
    if (slow->waiting && slow->waiting != one)
        sg_interleaver_catch_up(slow);
    if (!one)
        return SG_SLOW_NONE;
    if (one->state != FINISHED) { /* which it may be, if the trace could not be followed */
        slow->diverged |= !operation_note(one, record);
        operation_advance(one, record);
    }
    link = interleaver_find(slow, record->thread);
    *ret = one->address;
    /* Other errors than running out have no record. */
    bool ended = record_is_end(record) ||
                 (one->state == FINISHED && (one->call.kind != SG_SLOW_ALLOCATION || !slow->diverged));
    if (ended)
        operation_drop(link);
    return ended ? SG_SLOW_ENDED : SG_SLOW_GOES_ON;
}

void sg_interleaver_expect(struct sg_interleaver *slow, const struct segalloc_trace_record *record)
{
    slow->diverged |= slow->expected.kind != SEGALLOC_RECORD_NONE;
    slow->expected = *record;
}

void sg_interleaver_catch_up(struct sg_interleaver *slow)
{
    if (slow->waiting)
        operation_start(slow->waiting);
    if (slow->diverged)
        interleaver_finish_all(slow);
}

bool sg_interleaver_has_diverged(const struct sg_interleaver *slow)
{
    return slow->diverged;
}

void sg_interleaver_end(struct sg_interleaver *slow)
{
    slow->over = true;
    interleaver_finish_all(slow);
    while (slow->first)
        operation_drop(&slow->first);
}

void sg_interleaver_delete(struct sg_interleaver *slow)
{
    directed = NULL;
    free(slow);
}
