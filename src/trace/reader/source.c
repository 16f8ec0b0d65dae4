/* Six chunks in a ring, which a thread fills and the reader empties.

   Example, a compressed file. The reader has been given chunks 0 and 1, and looks at both:
     chunk    0       1       2      3      4      5
              given   given   full   full   full   being filled
   `full` is 3; with chunk 5 it is 4, and the thread waits: chunk 0 may still be looked at. The next call of
   sg_source_next() hands out chunk 2 and wakes the thread. Chunk 0 is filled again from then on.

   Without a thread, for a plain file or a pipe, each call fills the chunk that it hands out. */
#include "reader/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef SG_HAVE_ZSTD
#include <zstd.h>
#endif

/* Six chunks: two that the reader may still look at, and four that are filled ahead. */
enum { CHUNKS = 6, INPUT = 128 << 10 };

/* One piece of the file's bytes, or how they end. */
struct chunk {
    unsigned char *base; /* headroom, data, padding */
    size_t size;
    int status; /* 1: data; 0: end; negative errno */
};

struct sg_source {
    int fd;
    bool owned, regular, compressed, threaded;
    uint64_t file_size;
    _Atomic uint64_t position;
    unsigned char *input;
    size_t input_at, input_size;
    bool input_end;
    int failed; /* what comes after the bytes decompressed so far */
    uint64_t damaged_at;
#ifdef SG_HAVE_ZSTD
    ZSTD_DStream *stream;
    bool frame_open; /* the end of the file would be inside a frame */
#endif
    struct chunk chunk[CHUNKS];
    unsigned next; /* chunk that sg_source_next() hands out next */

    /* With a thread: it fills chunks from `filled` on while less than CHUNKS - 2 are full, so that the two that
       the reader was given last stay as they are. */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned full;
    bool stop, running, last; /* last: a status other than 1 was handed out */
};

/* Reads the next bytes of the file as they are. 0 or a negative errno. */
static int source_read_input(struct sg_source *source)
{
    ssize_t got;
    do
        got = read(source->fd, source->input, INPUT);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    source->input_at = 0;
    source->input_size = (size_t)got;
    source->input_end = got == 0;
    atomic_fetch_add_explicit(&source->position, (uint64_t)got, memory_order_relaxed);
    return 0;
}

/* Fills a chunk from a file that is not compressed: first with what was read to recognise it. */
static void chunk_fill_plain(struct sg_source *source, struct chunk *chunk)
{
    unsigned char *data = chunk->base + SG_SOURCE_HEADROOM;
    chunk->size = 0;
    chunk->status = 0;
    while (chunk->size < SG_SOURCE_CHUNK) {
        size_t left = source->input_size - source->input_at, room = SG_SOURCE_CHUNK - chunk->size;
        if (left) {
            size_t take = left < room ? left : room;
            memcpy(data + chunk->size, source->input + source->input_at, take);
            source->input_at += take;
            chunk->size += take;
            continue;
        }
        /* Straight into the chunk: only the bytes that were read to recognise the file had to be copied. */
        ssize_t got = read(source->fd, data + chunk->size, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            chunk->status = -errno;
            return;
        }
        atomic_fetch_add_explicit(&source->position, (uint64_t)got, memory_order_relaxed);
        chunk->size += (size_t)got;
        if (!got || !source->regular) /* a pipe's bytes are handed on as they come */
            break;
    }
    if (chunk->size)
        chunk->status = 1;
}

#ifdef SG_HAVE_ZSTD
/* Fills a chunk with decompressed bytes. Bytes before an error are handed out; the error comes with the next chunk. A file
   may have several frames one behind the other, as zstd itself writes them. */
static void chunk_fill_zstd(struct sg_source *source, struct chunk *chunk)
{
    ZSTD_outBuffer out = {chunk->base + SG_SOURCE_HEADROOM, SG_SOURCE_CHUNK, 0};
    chunk->status = source->failed;
    while (!chunk->status && out.pos < out.size) {
        if (source->input_at == source->input_size && !source->input_end) {
            chunk->status = source_read_input(source);
            if (chunk->status < 0)
                break;
        }
        ZSTD_inBuffer in = {source->input, source->input_size, source->input_at};
        size_t before = out.pos;
        size_t left = ZSTD_decompressStream(source->stream, &out, &in);
        if (ZSTD_isError(left)) {
            chunk->status = -EBADMSG;
            source->damaged_at = sg_source_position(source) - source->input_size + in.pos;
            break;
        }
        /* Neither input nor output moved at the end of the file: inside a frame that is a cut, else the end. */
        bool moved = in.pos != source->input_at || out.pos != before;
        source->input_at = in.pos;
        if (moved)
            source->frame_open = left != 0;
        if (source->input_end && !moved) {
            chunk->status = source->frame_open ? -ENODATA : 0;
            source->damaged_at = sg_source_position(source);
            break;
        }
    }
    chunk->size = out.pos;
    source->failed = chunk->status;
    if (chunk->size)
        chunk->status = 1;
}
#endif

/* Fills a chunk from the source, whichever kind it is. */
static void chunk_fill(struct sg_source *source, struct chunk *chunk)
{
#ifdef SG_HAVE_ZSTD
    if (source->compressed) {
        chunk_fill_zstd(source, chunk);
        return;
    }
#endif
    chunk_fill_plain(source, chunk);
}

/* The thread: fills chunks ahead, in their order, until one is the end. */
static void *source_work(void *user)
{
    struct sg_source *source = user;
    unsigned at = 0;
    bool more = true;
    pthread_mutex_lock(&source->mutex);
    while (more) {
        /* Two chunks fewer than there are: the reader still looks at the last two that it was given. */
        while (source->full >= CHUNKS - 2 && !source->stop)
            pthread_cond_wait(&source->changed, &source->mutex);
        if (source->stop)
            break;
        pthread_mutex_unlock(&source->mutex);
        chunk_fill(source, &source->chunk[at]);
        more = source->chunk[at].status == 1;
        at = (at + 1) % CHUNKS;
        pthread_mutex_lock(&source->mutex);
        source->full++;
        pthread_cond_signal(&source->changed);
    }
    pthread_mutex_unlock(&source->mutex);
    return NULL;
}

/* Ends the thread, wherever it is. */
static void source_stop_thread(struct sg_source *source)
{
    if (!source->running)
        return;
    pthread_mutex_lock(&source->mutex);
    source->stop = true;
    pthread_cond_signal(&source->changed);
    pthread_mutex_unlock(&source->mutex);
    pthread_join(source->thread, NULL);
    source->running = false;
}

/* Begins at the first byte, with a thread where one pays. */
static int source_start(struct sg_source *source)
{
    source->next = source->full = 0;
    source->last = source->stop = false;
    source->failed = 0;
#ifdef SG_HAVE_ZSTD
    if (source->compressed) {
        if (!source->stream && !(source->stream = ZSTD_createDStream()))
            return -ENOMEM;
        ZSTD_initDStream(source->stream);
        source->frame_open = false;
    }
#endif
    /* Without the thread the same functions are called in turn: slower, nothing else. */
    if (source->threaded)
        source->running = pthread_create(&source->thread, NULL, source_work, source) == 0;
    return 0;
}

int sg_source_open(const char *path, struct sg_source **ret)
{
    struct sg_source *source = calloc(1, sizeof(*source));
    if (!source)
        return -ENOMEM;
    pthread_mutex_init(&source->mutex, NULL);
    pthread_cond_init(&source->changed, NULL);
    /* Standard input is the caller's, and is not closed. */
    source->owned = strcmp(path, "-") != 0;
    source->fd = source->owned ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    int error = source->fd < 0 ? -errno : 0;
    struct stat status;
    if (!error && fstat(source->fd, &status) < 0)
        error = -errno;
    if (!error && S_ISDIR(status.st_mode))
        error = -EISDIR;
    if (!error && !(source->input = malloc(INPUT)))
        error = -ENOMEM;
    for (unsigned i = 0; i < CHUNKS && !error; i++) {
        source->chunk[i].base = calloc(1, SG_SOURCE_HEADROOM + SG_SOURCE_CHUNK + SG_SOURCE_PADDING);
        if (!source->chunk[i].base)
            error = -ENOMEM;
    }
    if (error)
        goto fail;
    source->regular = S_ISREG(status.st_mode);
    source->file_size = source->regular ? (uint64_t)status.st_size : 0;
    error = source_read_input(source);
    if (error)
        goto fail;
    /* RFC 8878: a frame begins with 0xfd2fb528, a skippable one with 0x184d2a50 to 5f, both little-endian. */
    static const unsigned char magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    bool skippable = source->input_size >= 4 && (source->input[0] & 0xf0) == 0x50 &&
                     !memcmp(source->input + 1, "\x2a\x4d\x18", 3);
    source->compressed = source->input_size >= 4 && (!memcmp(source->input, magic, 4) || skippable);
#ifndef SG_HAVE_ZSTD
    error = source->compressed ? -ENOTSUP : 0;
#endif
    /* A thread that waits on a pipe could not be stopped. */
    source->threaded = source->compressed && source->regular;
    if (!error)
        error = source_start(source);
    if (error)
        goto fail;
    *ret = source;
    return 0;
fail:
    sg_source_close(source);
    return error;
}

void sg_source_close(struct sg_source *source)
{
    if (!source)
        return;
    source_stop_thread(source);
#ifdef SG_HAVE_ZSTD
    ZSTD_freeDStream(source->stream);
#endif
    for (unsigned i = 0; i < CHUNKS; i++)
        free(source->chunk[i].base);
    free(source->input);
    if (source->owned && source->fd >= 0)
        close(source->fd);
    pthread_cond_destroy(&source->changed);
    pthread_mutex_destroy(&source->mutex);
    free(source);
}

int sg_source_next(struct sg_source *source, unsigned char **ret_data, size_t *ret_size)
{
    struct chunk *chunk = &source->chunk[source->next];
    if (source->last)
        return 0;
    if (source->running) {
        pthread_mutex_lock(&source->mutex);
        while (!source->full)
            pthread_cond_wait(&source->changed, &source->mutex);
        source->full--;
        pthread_cond_signal(&source->changed);
        pthread_mutex_unlock(&source->mutex);
    } else {
        chunk_fill(source, chunk);
    }
    source->next = (source->next + 1) % CHUNKS;
    if (chunk->status != 1) {
        source->last = true;
        return chunk->status;
    }
    *ret_data = chunk->base + SG_SOURCE_HEADROOM;
    *ret_size = chunk->size;
    return 1;
}

int sg_source_rewind(struct sg_source *source)
{
    if (!source->regular)
        return -ESPIPE;
    source_stop_thread(source);
    if (lseek(source->fd, 0, SEEK_SET) < 0)
        return -errno;
    atomic_store(&source->position, 0);
    source->input_at = source->input_size = 0;
    source->input_end = false;
    return source_start(source);
}

uint64_t sg_source_damaged_at(const struct sg_source *source)
{
    return source->damaged_at;
}

bool sg_source_compressed(const struct sg_source *source)
{
    return source->compressed;
}

uint64_t sg_source_position(const struct sg_source *source)
{
    return atomic_load_explicit(&source->position, memory_order_relaxed);
}

uint64_t sg_source_size(const struct sg_source *source)
{
    return source->file_size;
}
