#include "reader/read_ahead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 4, BATCH_RECORDS = 4096 };

struct batch {
    size_t count;              /* 0: the end */
    struct sg_trace_info info; /* after these records */
    bool failed;               /* nothing comes after it, because of an error */
    struct segalloc_trace_record record[BATCH_RECORDS];
};

/* Every batch from the first one on, while there is room. */
struct kept {
    struct batch **batch;
    size_t count, room, most;
    bool all; /* the end is among them: they are read from now on */
};

struct sg_read_ahead {
    struct sg_trace_reader *reader;
    struct sg_trace_info opened; /* before any record */
    struct batch *at_hand;
    size_t at; /* records of it that are handed out */
    struct kept kept;
    size_t kept_next; /* the batch after the one at hand, where the kept ones are read */
    /* the thread, and the batches that it fills in turn */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct batch *batch[BATCHES];
    unsigned full, next; /* batches that are read; the one at hand, or the next to be */
    bool stop;
};

static void *fill(void *user)
{
    struct sg_read_ahead *ahead = user;
    struct sg_trace_reader *reader = ahead->reader;
    unsigned at = 0;
    bool more = true;
    pthread_mutex_lock(&ahead->mutex);
    while (more) {
        while (ahead->full >= BATCHES && !ahead->stop)
            pthread_cond_wait(&ahead->changed, &ahead->mutex);
        if (ahead->stop)
            break;
        struct batch *batch = ahead->batch[at];
        pthread_mutex_unlock(&ahead->mutex);
        batch->count = reader->error[0] ? 0 : reader->format->read(reader, batch->record, BATCH_RECORDS);
        batch->info = reader->info;
        batch->failed = !batch->count && reader->error[0];
        more = batch->count > 0;
        at = (at + 1) % BATCHES;
        pthread_mutex_lock(&ahead->mutex);
        ahead->full++;
        pthread_cond_signal(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

static void forget_kept(struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        free(kept->batch[i]);
    free(kept->batch);
    *kept = (struct kept){0};
}

static void free_all(struct sg_read_ahead *ahead)
{
    forget_kept(&ahead->kept);
    for (unsigned i = 0; i < BATCHES; i++)
        free(ahead->batch[i]);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}

struct sg_read_ahead *sg_read_ahead_start(struct sg_trace_reader *reader, uint64_t keep_bytes)
{
    struct sg_read_ahead *ahead = calloc(1, sizeof(*ahead));
    if (!ahead)
        return NULL;
    ahead->reader = reader;
    ahead->opened = reader->shown;
    ahead->kept.most = keep_bytes / sizeof(struct batch);
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    bool fine = true;
    for (unsigned i = 0; i < BATCHES; i++)
        fine &= (ahead->batch[i] = malloc(sizeof(struct batch))) != NULL;
    if (fine && pthread_create(&ahead->thread, NULL, fill, ahead) == 0)
        return ahead;
    free_all(ahead);
    return NULL;
}

void sg_read_ahead_stop(struct sg_read_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->mutex);
    ahead->stop = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    pthread_join(ahead->thread, NULL);
    free_all(ahead);
}

/* Keeps the batch that the thread has filled, and gives the thread another. What does not fit ends the keeping. */
static void keep(struct sg_read_ahead *ahead)
{
    struct kept *kept = &ahead->kept;
    struct batch **filled = &ahead->batch[ahead->next], *other = NULL;
    if (!kept->most)
        return;
    if (kept->count == kept->room) {
        size_t room = kept->room ? 2 * kept->room : 64;
        struct batch **larger = realloc(kept->batch, room * sizeof(*larger));
        kept->room = larger ? room : kept->room;
        kept->batch = larger ? larger : kept->batch;
    }
    if (kept->count < kept->room && kept->count < kept->most)
        other = malloc(sizeof(*other));
    if (!other) {
        forget_kept(kept);
        return;
    }
    kept->batch[kept->count++] = *filled;
    kept->all = !(*filled)->count;
    *filled = other;
}

/* The batch that the thread fills after the one at hand. */
static struct batch *wait_for_batch(struct sg_read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    if (ahead->at_hand) {
        ahead->next = (ahead->next + 1) % BATCHES;
        ahead->full--;
        pthread_cond_signal(&ahead->changed);
    }
    while (!ahead->full)
        pthread_cond_wait(&ahead->changed, &ahead->mutex);
    struct batch *batch = ahead->batch[ahead->next];
    keep(ahead);
    pthread_mutex_unlock(&ahead->mutex);
    return batch;
}

static void advance(struct sg_read_ahead *ahead)
{
    ahead->at_hand = ahead->kept.all ? ahead->kept.batch[ahead->kept_next++] : wait_for_batch(ahead);
    ahead->at = 0;
    ahead->reader->shown = ahead->at_hand->info;
}

size_t sg_read_ahead_take(struct sg_read_ahead *ahead, struct segalloc_trace_record *out, size_t n)
{
    struct sg_trace_info *shown = &ahead->reader->shown;
    size_t done = 0;
    while (done < n) {
        if (!ahead->at_hand || (ahead->at_hand->count && ahead->at == ahead->at_hand->count))
            advance(ahead);
        const struct batch *batch = ahead->at_hand;
        if (!batch->count)
            break; /* the end, and it stays at hand */
        size_t part = batch->count - ahead->at < n - done ? batch->count - ahead->at : n - done;
        memcpy(out + done, batch->record + ahead->at, part * sizeof(*out));
        ahead->at += part;
        done += part;
        if (batch->info.next) /* of CSV it is not known */
            shown->next = batch->info.next - (batch->count - ahead->at) * sizeof(*out);
        if (ahead->at == batch->count)
            break; /* the next one may be of another block */
    }
    return done;
}

bool sg_read_ahead_has_failed(const struct sg_read_ahead *ahead)
{
    return ahead->at_hand && ahead->at_hand->failed;
}

bool sg_read_ahead_restart(struct sg_read_ahead *ahead)
{
    if (!ahead->kept.all)
        return false;
    ahead->at_hand = NULL;
    ahead->kept_next = 0;
    ahead->reader->shown = ahead->opened;
    return true;
}

double sg_read_ahead_progress(const struct sg_read_ahead *ahead)
{
    return ahead->kept.all ? (double)ahead->kept_next / (double)ahead->kept.count : -1;
}
