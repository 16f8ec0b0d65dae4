/* Work that is queued on a card which only keeps the books: streams, what their work comes after, and what is complete.

   Work is submitted to streams and counted on each: a stream's *position* is how many pieces it has been given. A clock
   names a position on every stream. Work of one stream runs in its order; a wait makes what is submitted from there on
   come after a clock. Work is complete once `ahead` more allocations have been made, or sooner where the host waits
   for it. All that it comes after is complete with it. Work falls due in the order of submission, and what it comes after was
   submitted before it. So one due time a piece is exact.

   Why allocations as the clock: a trace has no times of the GPU. A training loop queues work and allocates at a steady
   rate. So "K allocations behind" says how far a device lags, and K is one number to vary.

   Example, ahead 2. Stream 0 gets a piece, an event E is recorded on it, stream 1 waits for E and gets a piece.
     submit 0      submitted {1, 0}    due: position 1 of stream 0 after allocation 2
     record 0      E = {1}             position 1 of stream 0
     wait 1, E     after[1] = {1}
     submit 1      submitted {1, 1}    due: position 1 of stream 1 after allocation 2
     made          complete  {0, 0}    one allocation: neither is complete, and a query of E says so
     made          complete  {1, 1}    two: both are
   Had the host waited for an event on stream 1 in between, its clock {1, 1} would have completed both at once.

   Memory is bounded by streams times run-ahead, whatever is submitted. Streams are named by numbers; those from
   SG_CARD_STREAMS - 1 on share one, which can only make their work complete later. Single-threaded. */
#ifndef SG_LAG_QUEUE_H
#define SG_LAG_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum { SG_CARD_STREAMS = 128 };

struct sg_ledger_clock {
    uint32_t streams; /* entries in use; the rest are 0 */
    uint64_t at[SG_CARD_STREAMS];
};

struct sg_lag_queue {
    uint64_t ahead;       /* K */
    uint64_t allocations; /* made so far */
    uint32_t streams;     /* numbers in use */
    uint64_t submitted[SG_CARD_STREAMS], complete[SG_CARD_STREAMS];
    uint8_t device[SG_CARD_STREAMS];
    struct sg_ledger_clock after[SG_CARD_STREAMS]; /* what work submitted from now on comes after, on other streams */
    struct sg_ledger_due {
        uint64_t when; /* allocations made */
        uint64_t position;
        uint32_t stream;
    } *due; /* a ring, in the order of `when` */
    uint64_t due_first, due_end, due_room;    /* numbers of entries ever made; room is a power of two */
    uint64_t last_due[SG_CARD_STREAMS];       /* number of the stream's latest entry, plus one */
    bool failed;                              /* out of host memory: what fell out counts as complete at once */
};

/* An empty queue; NULL: no host memory. `ahead`: K, allocations until work is complete. */
struct sg_lag_queue *sg_lag_queue_new(uint64_t ahead);
void sg_lag_queue_delete(struct sg_lag_queue *queue);

/* The number under which a stream stands here; names it on `device` at its first use. */
uint32_t sg_lag_queue_stream(struct sg_lag_queue *queue, uint64_t stream, int device);

/* Gives a stream one more piece of work. With `ahead` 0 it is complete at once. */
void sg_lag_queue_submit(struct sg_lag_queue *queue, uint32_t stream);

/* Counts one more allocation: work that falls due by it is complete. */
void sg_lag_queue_made(struct sg_lag_queue *queue);

/* Sets *ret to the clock of an event that is recorded now: on a stream, or on every stream of a device. */
void sg_lag_queue_record(const struct sg_lag_queue *queue, uint32_t stream, struct sg_ledger_clock *ret);
void sg_lag_queue_record_all(const struct sg_lag_queue *queue, int device, struct sg_ledger_clock *ret);

/* Work submitted to the stream from now on comes after `clock`. */
void sg_lag_queue_wait(struct sg_lag_queue *queue, uint32_t stream, const struct sg_ledger_clock *clock);

/* True if all work that a clock names is complete. */
bool sg_lag_queue_is_complete(const struct sg_lag_queue *queue, const struct sg_ledger_clock *clock);

/* The host waits for a clock: all work that it names is complete. */
void sg_lag_queue_finish(struct sg_lag_queue *queue, const struct sg_ledger_clock *clock);

/* Raises a clock to the later of both on every stream. */
void sg_ledger_clock_join(struct sg_ledger_clock *clock, const struct sg_ledger_clock *other);

#endif
