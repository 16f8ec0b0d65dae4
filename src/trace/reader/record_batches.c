/* Two ways to hold batches, of which a reader has one: a ring of four that a thread fills, and an array that keeps all.

   Example of the ring. The caller is at record 100 of batch 2; batches 3 and 0 are full, batch 1 is being filled:
     full 3     2, 3 and 0      turn 2     the one at hand
   At the end of batch 2 it goes back to the thread (full 2), and batch 3 is at hand (turn 3).

   Example of the array, for records of 158 batches and an empty one at the end: `count` 159, `all` true. A second reading
   begins at `next` 0 and copies batch after batch, until it meets the empty one. */
#include "reader/record_batches.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RING = 4, BATCH_RECORDS = 4096 };

/* Records with the state of the reader after them, so that a caller sees the state that belongs to what it has got. */
struct batch {
    size_t count;              /* 0: the end */
    struct sg_trace_info info; /* after these records */
    bool failed;               /* nothing comes after it, because of an error */
    struct segalloc_trace_record record[BATCH_RECORDS];
};

struct sg_batches {
    struct sg_trace_reader *reader;
    struct sg_trace_info opened; /* before any record */
    struct batch *at_hand;
    size_t at; /* records of it that are handed out */
    /* every batch from the first one on, where they are kept */
    struct batch *kept;
    size_t count, most;       /* most: 0: they are not, or did not fit */
    size_t next;              /* after the one at hand, once the end is among them */
    bool all;                 /* it is */
    /* the thread, and the batches that it fills in turn */
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct batch *ring[RING];
    unsigned full, turn; /* batches that are filled; the one at hand, or the next to be */
};

/* Parses the next records into a batch. */
static void batch_fill(struct sg_trace_reader *reader, struct batch *batch)
{
    batch->count = reader->error[0] ? 0 : reader->format->read(reader, batch->record, BATCH_RECORDS);
    batch->info = reader->info;
    batch->failed = !batch->count && reader->error[0];
}

/* The thread: fills the ring until a batch is empty, which is the end. */
static void *batches_read_ahead(void *user)
{
    struct sg_batches *batches = user;
    unsigned at = 0;
    bool more = true;
    pthread_mutex_lock(&batches->mutex);
    while (more) {
        while (batches->full >= RING && !batches->stop)
            pthread_cond_wait(&batches->changed, &batches->mutex);
        if (batches->stop)
            break;
        pthread_mutex_unlock(&batches->mutex);
        batch_fill(batches->reader, batches->ring[at]);
        more = batches->ring[at]->count > 0;
        at = (at + 1) % RING;
        pthread_mutex_lock(&batches->mutex);
        batches->full++;
        pthread_cond_signal(&batches->changed);
    }
    pthread_mutex_unlock(&batches->mutex);
    return NULL;
}

/* One mapping, filled from its beginning, of which only what is filled is memory. */
static void batches_map_kept(struct sg_batches *batches, uint64_t bytes)
{
    size_t most = bytes / sizeof(struct batch);
    void *memory = mmap(NULL, most * sizeof(struct batch), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return;
    batches->kept = memory;
    batches->most = most;
}

/* Gives the kept batches back, and keeps none from here on. */
static void batches_forget_kept(struct sg_batches *batches)
{
    if (batches->kept)
        munmap(batches->kept, batches->most * sizeof(struct batch));
    batches->kept = NULL;
    batches->count = batches->most = 0;
}

/* Gives everything back. The thread has ended, or never began. */
static void batches_free(struct sg_batches *batches)
{
    batches_forget_kept(batches);
    for (unsigned i = 0; i < RING; i++)
        free(batches->ring[i]);
    pthread_cond_destroy(&batches->changed);
    pthread_mutex_destroy(&batches->mutex);
    free(batches);
}

struct sg_batches *sg_batches_start(struct sg_trace_reader *reader, uint64_t keep_bytes)
{
    struct sg_batches *batches = calloc(1, sizeof(*batches));
    if (!batches)
        return NULL;
    batches->reader = reader;
    batches->opened = reader->shown;
    if (keep_bytes)
        batches_map_kept(batches, keep_bytes);
    pthread_mutex_init(&batches->mutex, NULL);
    pthread_cond_init(&batches->changed, NULL);
    /* A kept reading needs one batch besides, for what is read after the room has run out. */
    unsigned needed = keep_bytes ? 1 : RING;
    bool fine = true;
    for (unsigned i = 0; i < needed; i++)
        fine &= (batches->ring[i] = malloc(sizeof(struct batch))) != NULL;
    batches->threaded = fine && !keep_bytes && pthread_create(&batches->thread, NULL, batches_read_ahead, batches) == 0;
    if (fine && (keep_bytes || batches->threaded))
        return batches;
    batches_free(batches);
    return NULL;
}

void sg_batches_stop(struct sg_batches *batches)
{
    if (!batches)
        return;
    if (batches->threaded) {
        pthread_mutex_lock(&batches->mutex);
        batches->stop = true;
        pthread_cond_signal(&batches->changed);
        pthread_mutex_unlock(&batches->mutex);
        pthread_join(batches->thread, NULL);
    }
    batches_free(batches);
}

/* The batch that the thread fills after the one at hand. */
static struct batch *batches_wait(struct sg_batches *batches)
{
    pthread_mutex_lock(&batches->mutex);
    if (batches->at_hand) {
        batches->turn = (batches->turn + 1) % RING;
        batches->full--;
        pthread_cond_signal(&batches->changed);
    }
    while (!batches->full)
        pthread_cond_wait(&batches->changed, &batches->mutex);
    pthread_mutex_unlock(&batches->mutex);
    return batches->ring[batches->turn];
}

/* A batch to fill, which is kept; what does not fit ends the keeping. */
static struct batch *batches_new_kept(struct sg_batches *batches)
{
    if (batches->count < batches->most)
        return &batches->kept[batches->count++];
    batches_forget_kept(batches);
    return NULL;
}

/* Gets the next batch to hand: a kept one, one of the thread's, or a new one. */
static void batches_advance(struct sg_batches *batches)
{
    if (batches->all) {
        batches->at_hand = &batches->kept[batches->next++];
    } else if (batches->threaded) {
        batches->at_hand = batches_wait(batches);
    } else {
        /* Parsed into the kept batches themselves. The empty batch at the end is kept too: then all of them are there. */
        struct batch *kept = batches_new_kept(batches);
        batches->at_hand = kept ? kept : batches->ring[0];
        batch_fill(batches->reader, batches->at_hand);
        batches->all = kept && !kept->count;
        batches->next = batches->count;
    }
    batches->at = 0;
    batches->reader->shown = batches->at_hand->info;
}

size_t sg_batches_take(struct sg_batches *batches, struct segalloc_trace_record *out, size_t n)
{
    struct sg_trace_info *shown = &batches->reader->shown;
    size_t done = 0;
    while (done < n) {
        if (!batches->at_hand || (batches->at_hand->count && batches->at == batches->at_hand->count))
            batches_advance(batches);
        const struct batch *batch = batches->at_hand;
        if (!batch->count)
            break; /* the end, and it stays at hand */
        size_t part = batch->count - batches->at < n - done ? batch->count - batches->at : n - done;
        memcpy(out + done, batch->record + batches->at, part * sizeof(*out));
        batches->at += part;
        done += part;
        if (batch->info.next) /* of CSV it is not known */
            shown->next = batch->info.next - (batch->count - batches->at) * sizeof(*out);
        if (batches->at == batch->count)
            break; /* the next one may be of another block */
    }
    return done;
}

bool sg_batches_have_failed(const struct sg_batches *batches)
{
    return batches->at_hand && batches->at_hand->failed;
}

bool sg_batches_restart(struct sg_batches *batches)
{
    if (!batches->all)
        return false;
    batches->at_hand = NULL;
    batches->next = 0;
    batches->reader->shown = batches->opened;
    return true;
}

double sg_batches_progress(const struct sg_batches *batches)
{
    return batches->all ? (double)batches->next / (double)batches->count : -1;
}
