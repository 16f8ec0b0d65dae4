#include "writer/trace_writer.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace_file.h"
#include "writer/trace_helper.h"
#include "writer/trace_writer_file.h"

/* The index of the calling thread in the trace. It holds for one generation of the writer. A forked child
   begins another one, so that indices of the parent's file do not get into the child's. */
static __thread struct {
    uint32_t generation;
    uint16_t index;
    uint32_t site, phase; /* that the trace knows of */
} self;

static _Atomic uint32_t generations;

/* The writer's own lock is held, which has no rank: no other one is taken under it. */
static void writer_assert_locked(const struct sg_trace_writer *writer)
{
    assert(atomic_load_explicit(&writer->lock, memory_order_relaxed));
    (void)writer;
}

/* Begins a block. The magic is stored last: until then the file has a block of zeros there, which readers pass over. */
static void writer_open_block(struct sg_trace_writer *writer, void *mapping)
{
    writer->block = mapping;
    writer->records = (void *)(writer->block + 1);
    writer->used = 0;
    writer->limit = LAST_EVENT - SNAPSHOT_ROOM;
    writer->sum = SG_FNV_BASIS;
    writer->block->count = 0;
    writer->block->checksum = 0;
    writer->block->sequence = writer->sequence++;
    writer->block->dropped = writer->dropped;
    atomic_signal_fence(memory_order_seq_cst);
    writer->block->magic = SEGALLOC_BLOCK_MAGIC;
}

/* Ends the trace for good. */
static void writer_fail(struct sg_trace_writer *writer, int error)
{
    sg_writer_report(writer, error, writer->life == OPEN);
    atomic_store(&writer->error, error);
    writer->life = FAILED;
}

/* Opens the file at the first event: header, one block at hand and two ready, and the helper. A file that cannot be begun
   is removed again. */
static void writer_open_locked(struct sg_trace_writer *writer)
{
    writer_assert_locked(writer);
    struct stat status;
    void *block;
    int error = sg_writer_create_file(writer);
    if (error) {
        writer_fail(writer, error);
        return;
    }
    error = sg_writer_file_status(writer->fd, &status);
    if (!error) {
        writer->device = status.st_dev;
        writer->inode = status.st_ino;
        error = sg_writer_write_header(writer);
    }
    if (!error)
        error = sg_writer_make_block(writer, &block);
    if (error) {
        close(writer->fd);
        writer->fd = -1;
        unlink(writer->path);
        writer_fail(writer, error);
        return;
    }
    writer->start_ns = sg_writer_now(CLOCK_MONOTONIC_COARSE);
    writer_open_block(writer, block);
    writer->life = OPEN;
    atomic_store(&writer->stop, 0);
    atomic_store(&writer->ahead, AHEAD_AT_OPEN);
    sg_writer_refill(writer);
    atomic_store(&writer->ahead, AHEAD_MIN);
    sg_writer_start_helper(writer);
}

/* Ends a block: its checksum, and the ring from which the helper unmaps it. */
static void writer_close_block(struct sg_trace_writer *writer)
{
    writer->block->checksum = sg_checksum_end(writer->sum);
    sg_ring_put(&writer->retired, writer->block);
    writer->block = NULL;
    writer->used = writer->limit = 0;
}

/* Finds a place for a record where the block at hand has none. False: there is none now. */
static bool writer_find_place_locked(struct sg_trace_writer *writer)
{
    writer_assert_locked(writer);
    if (writer->life == UNOPENED)
        writer_open_locked(writer);
    if (writer->life != OPEN)
        return false;
    if (writer->used < writer->limit)
        return true;
    /* Without a helper the thread that needs a block makes it, and meets the disk. */
    if (!writer->helper)
        sg_writer_refill(writer);
    void *block = sg_ring_take(&writer->ready);
    if (!block && writer->helper && !writer->late && !atomic_load(&writer->error))
        block = sg_writer_wait(writer);
    if (!block)
        return false; /* the full block stays at hand: SEGALLOC_RECORD_END still goes into it */
    if (writer->block)
        writer_close_block(writer);
    writer_open_block(writer, block);
    /* Fewer than half of the wanted blocks are ready: the helper is late, so twice as many are wanted from now on. */
    if (writer->helper) {
        uint32_t ahead = atomic_load_explicit(&writer->ahead, memory_order_relaxed);
        bool behind = sg_ring_count(&writer->ready) < ahead / 2;
        writer->late &= behind;
        if (behind && ahead < AHEAD_MAX)
            atomic_store_explicit(&writer->ahead, ahead * 2, memory_order_relaxed);
        sg_writer_wake(&writer->wake);
    }
    return true;
}

/* Finds a place with cancellation off, since open() and the like are points at which the thread may be cancelled. */
static __attribute__((noinline)) bool writer_next_place(struct sg_trace_writer *writer)
{
    int cancel = sg_cancel_off();
    bool found = writer_find_place_locked(writer);
    sg_cancel_restore(cancel);
    return found;
}

/* Appends a record. The lock is held and there is a place. */
static inline void writer_put(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    uint32_t used = writer->used;
    writer->records[used] = *record;
    writer->sum = sg_checksum_add(writer->sum, record);
    writer->used = used + 1;
    /* Whoever reads the file of a killed process sees the record whole or not at all. */
    __atomic_store_n(&writer->block->count, used + 1, __ATOMIC_RELEASE);
}

/* Appends a record if there is a place for it, and counts one that was dropped. The lock is held. */
static inline bool writer_append(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    if (__builtin_expect(writer->used >= writer->limit, 0) && !writer_next_place(writer)) {
        writer->dropped += writer->life != CLOSED;
        return false;
    }
    writer_put(writer, record);
    atomic_store_explicit(&writer->total, atomic_load_explicit(&writer->total, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return true;
}

/* Gives the calling thread an index, with a definition. 0 while there is no place for one. */
static __attribute__((noinline)) uint16_t writer_index_thread_locked(struct sg_trace_writer *writer, uint64_t time)
{
    writer_assert_locked(writer);
    /* The kernel uses ids of dead threads again. Such a thread gets the index of the dead one, whose events are over. */
    uint32_t id = (uint32_t)syscall(SYS_gettid), index = 1;
    while (index <= writer->threads && writer->thread_id[index] != id)
        index++;
    if (index > writer->threads) {
        struct segalloc_trace_record define = {.kind = SEGALLOC_RECORD_DEFINE_THREAD, .thread = (uint16_t)index,
                                               .id = id, .time_ns = time};
        if (index > THREADS_MAX) {
            index = 0; /* from here on threads are not told apart */
        } else if (writer_append(writer, &define)) {
            writer->thread_id[index] = id;
            writer->threads = index;
        } else {
            return 0;
        }
    }
    self.generation = writer->generation;
    self.index = (uint16_t)index;
    self.site = self.phase = 0;
    return self.index;
}

/* Brings the header up to date with the definition of a device. Device 0 counts for sizes, or the first one that was used. */
static __attribute__((noinline)) void writer_note_device_locked(struct sg_trace_writer *writer,
    const struct segalloc_trace_record *define)
{
    writer_assert_locked(writer);
    if (writer->header.devices <= define->stream)
        writer->header.devices = define->stream + 1;
    if (define->stream == 0 || writer->header.device_bytes == 0) {
        writer->header.granularity = define->id;
        writer->header.device_bytes = define->size;
    }
    /* The header is written anew by pwrite(): it is not mapped. */
    int cancel = sg_cancel_off();
    if (writer->life == OPEN)
        sg_writer_write(writer->fd, &writer->header, sizeof(writer->header), 0);
    sg_cancel_restore(cancel);
}

void sg_trace_writer_emit(void *sink, const struct segalloc_trace_record *event)
{
    /* The clock is read before the lock is taken, so that it is held for less. Times of two threads may therefore stand a
       tick out of order in the file. */
    struct sg_trace_writer *writer = sink;
    struct segalloc_trace_record record = *event;
    uint64_t now = sg_writer_now(CLOCK_MONOTONIC_COARSE);
    sg_writer_lock(writer);
    if (record.kind == SEGALLOC_RECORD_DEFINE_DEVICE)
        writer_note_device_locked(writer, &record);
    /* The first event opens the file and with it the clock. */
    if (writer->used < writer->limit || writer_next_place(writer)) {
        record.time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
        record.thread = self.generation == writer->generation ? self.index : writer_index_thread_locked(writer, record.time_ns);
        writer_append(writer, &record);
    } else {
        writer->dropped += writer->life != CLOSED;
    }
    sg_writer_unlock(writer);
}

/* Writes the site of a thread where it differs from the last one. Threads that are not told apart share index 0, so their
   site is written before each of their records. There is a place for it. */
static void writer_say_site_locked(struct sg_trace_writer *writer, const struct segalloc_trace_record *event, uint32_t site,
    uint32_t phase)
{
    writer_assert_locked(writer);
    bool same = self.site == site && self.phase == phase;
    if (event->thread ? same : !site && !phase)
        return;
    struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_SITE, .thread = event->thread, .id = site,
                                           .size = phase, .time_ns = event->time_ns};
    if (!writer_append(writer, &record))
        return;
    self.site = site;
    self.phase = phase;
}

void sg_trace_writer_emit_from(struct sg_trace_writer *writer, const struct segalloc_trace_record *event, uint32_t site,
                               uint32_t phase)
{
    struct segalloc_trace_record record = *event;
    uint64_t now = sg_writer_now(CLOCK_MONOTONIC_COARSE);
    sg_writer_lock(writer);
    if (writer->used < writer->limit || writer_next_place(writer)) {
        record.time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
        record.thread = self.generation == writer->generation ? self.index : writer_index_thread_locked(writer, record.time_ns);
        writer_say_site_locked(writer, &record, site, phase);
        writer_append(writer, &record);
    } else {
        writer->dropped += writer->life != CLOSED;
    }
    sg_writer_unlock(writer);
}

bool sg_trace_writer_define(struct sg_trace_writer *writer, struct segalloc_trace_record *define, uint32_t count)
{
    uint64_t now = sg_writer_now(CLOCK_MONOTONIC_COARSE);
    bool whole = true;
    sg_writer_lock(writer);
    for (uint32_t i = 0; i < count && whole; i++) {
        whole = writer->used < writer->limit || writer_next_place(writer);
        define[i].time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
        whole = whole && writer_append(writer, &define[i]);
    }
    bool ended = writer->life == CLOSED || writer->life == FAILED;
    writer->dropped += !whole && !ended;
    sg_writer_unlock(writer);
    return whole || ended;
}

struct sg_event_sink sg_trace_writer_sink(struct sg_trace_writer *writer)
{
    return (struct sg_event_sink){sg_trace_writer_emit, writer};
}

/* Appends a record in one of the 160 places that every block keeps for the end. */
static bool writer_append_last(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    if (writer->used >= LAST_EVENT)
        return false;
    writer_put(writer, record);
    atomic_store_explicit(&writer->total, atomic_load_explicit(&writer->total, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return true;
}

/* Writes what differs from the last snapshot. Returns whether all of it found a place. */
static bool writer_snapshot_locked(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats,
    uint64_t now, bool (*write)(struct sg_trace_writer *, const struct segalloc_trace_record *))
{
    writer_assert_locked(writer);
    struct segalloc_trace_record pending = {.kind = SEGALLOC_RECORD_STATISTIC, .stream = device};
    const struct sg_stats *last = &writer->last[device];
    bool some = false, whole = true, known = writer->last_known[device];
    pending.time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
    /* One record behind, so that the last one can be marked. */
    for (int i = 0; i < SG_STAT_COUNT && whole; i++)
        for (int peak = 0; peak < (sg_stat_info((enum sg_stat)i)->kind == SG_STAT_LEVEL ? 2 : 1); peak++) {
            /* The first snapshot has all, later ones what has changed since. */
            const uint64_t *from = peak ? stats->peak : stats->value, *before = peak ? last->peak : last->value;
            if (known && from[i] == before[i])
                continue;
            if (some)
                whole &= write(writer, &pending);
            some = true;
            pending.id = writer->name_hash[i];
            pending.size = from[i];
            pending.flags = peak ? SEGALLOC_FLAG_PEAK : 0;
        }
    pending.flags |= SEGALLOC_FLAG_LAST;
    if (some && whole)
        whole = write(writer, &pending);
    return whole;
}

/* writer_append() as write_snapshot takes it; writer_append_last() is the other. */
static bool writer_append_now(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    return writer_append(writer, record);
}

void sg_trace_writer_statistics(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats)
{
    if (device >= SG_TRACE_DEVICES)
        return;
    uint64_t now = sg_writer_now(CLOCK_MONOTONIC_COARSE);
    sg_writer_lock(writer);
    bool room = writer->used < writer->limit || writer_next_place(writer);
    bool whole = room && writer_snapshot_locked(writer, device, stats, now, writer_append_now);
    if (whole)
        writer->last[device] = *stats;
    else
        writer->unsaved[device] = *stats;
    /* A snapshot that broke off may have been read in part, so the next one has everything. */
    writer->last_known[device] = whole || (writer->last_known[device] && !room);
    writer->has_unsaved[device] = !whole;
    atomic_store_explicit(&writer->snapshot_at[device], atomic_load_explicit(&writer->total, memory_order_relaxed),
                          memory_order_relaxed);
    sg_writer_unlock(writer);
}

bool sg_trace_writer_due(const struct sg_trace_writer *writer, uint32_t device)
{
    if (device >= SG_TRACE_DEVICES)
        return false;
    uint64_t at = atomic_load_explicit(&writer->snapshot_at[device], memory_order_relaxed);
    uint64_t after = at < SG_TRACE_SNAPSHOT_EVENTS ? at + !at : SG_TRACE_SNAPSHOT_EVENTS;
    return atomic_load_explicit(&writer->total, memory_order_relaxed) >= at + after;
}

/* Makes a writer as it is before its first event. */
static void writer_reset(struct sg_trace_writer *writer)
{
    writer->life = UNOPENED;
    writer->used = writer->limit = writer->threads = 0;
    writer->block = NULL;
    writer->dropped = writer->sequence = writer->left_blocks = 0;
    writer->fd = -1;
    atomic_store(&writer->turn_fd, -1);
    writer->reported = writer->helper = writer->late = false;
    writer->path[0] = '\0';
    atomic_store(&writer->total, 0);
    atomic_store(&writer->making, false);
    atomic_store(&writer->error, 0);
    memset(&writer->ready, 0, sizeof(writer->ready));
    memset(&writer->retired, 0, sizeof(writer->retired));
    memset(writer->last_known, 0, sizeof(writer->last_known));
    memset(writer->has_unsaved, 0, sizeof(writer->has_unsaved));
    for (int i = 0; i < SG_TRACE_DEVICES; i++)
        atomic_store(&writer->snapshot_at[i], 0);
    /* From 1, so that the zeros of a new thread's `self` are of no generation. */
    writer->generation = atomic_fetch_add(&generations, 1) + 1;
    atomic_store(&writer->lock, 0);
}

/* Copies a text into the writer's own memory, cut to 64 KiB. */
static const char *writer_copy_text(char *to, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    length = length < TEXT_ROOM ? length : TEXT_ROOM - 1;
    if (length)
        memcpy(to, text, length);
    to[length] = '\0';
    return to;
}

int sg_trace_writer_create(const struct sg_trace_writer_options *options, struct sg_trace_writer **ret)
{
    if (strlen(options->path) >= PATH_ROOM)
        return -ENAMETOOLONG;
    struct sg_trace_writer *writer =
        mmap(NULL, sizeof(*writer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (writer == MAP_FAILED)
        return -ENOMEM;
    writer->options = *options;
    strcpy(writer->pattern, options->path);
    writer->options.path = writer->pattern;
    writer->options.conf = writer_copy_text(writer->text, options->conf);
    writer->options.command = writer_copy_text(writer->text + TEXT_ROOM, options->command);
    for (int i = 0; i < SG_STAT_COUNT; i++)
        writer->name_hash[i] = sg_name_hash(sg_stat_info((enum sg_stat)i)->name);
    writer_reset(writer);
    *ret = writer;
    return 0;
}

bool sg_trace_writer_comes_free(struct sg_trace_writer *writer)
{
    enum { RESTS = 1000, REST_NS = 1000000 };
    for (int i = 0; i < RESTS && atomic_load_explicit(&writer->lock, memory_order_relaxed); i++)
        sg_rest(REST_NS);
    return !atomic_load_explicit(&writer->lock, memory_order_relaxed);
}

void sg_trace_writer_close(struct sg_trace_writer *writer)
{
    sg_writer_lock(writer);
    /* Closed under the lock: no event comes after END. All that waits is done without it. */
    enum sg_writer_life before = writer->life;
    writer->life = CLOSED;
    uint64_t size = 0;
    if (before == OPEN) {
        uint64_t now = sg_writer_now(CLOCK_MONOTONIC_COARSE);
        for (uint32_t i = 0; i < SG_TRACE_DEVICES; i++)
            if (writer->has_unsaved[i])
                writer_snapshot_locked(writer, i, &writer->unsaved[i], now, writer_append_last);
        struct segalloc_trace_record last = {
            .kind = SEGALLOC_RECORD_END, .id = atomic_load(&writer->total), .size = writer->dropped,
            .time_ns = now - writer->start_ns};
        writer_put(writer, &last);
        size = writer->data_offset + (writer->sequence - 1) * SEGALLOC_TRACE_BLOCK +
               sizeof(struct segalloc_trace_block) + writer->used * sizeof(struct segalloc_trace_record);
        writer_close_block(writer);
    }
    sg_writer_unlock(writer);
    if (before != OPEN || !sg_writer_stop_helper(writer))
        return;
    void *block;
    while ((block = sg_ring_take(&writer->retired)) || (block = sg_ring_take(&writer->ready)))
        munmap(block, SEGALLOC_TRACE_BLOCK);
    struct stat status;
    if (!sg_writer_file_status(writer->fd, &status) && status.st_dev == writer->device &&
        status.st_ino == writer->inode) {
        /* Blocks that were taken ahead go back; if that fails the file is only longer. The program may have closed our
           descriptor and opened another file under its number, so device and inode are compared. */
        if (ftruncate(writer->fd, (off_t)size) < 0)
            atomic_store(&writer->error, -errno);
        close(writer->fd);
    }
    writer->fd = -1;
}

void sg_trace_writer_fork_child(struct sg_trace_writer *writer)
{
    /* Unmaps without a word in the parent's file: its blocks are the parent's, which goes on writing them. */
    void *block;
    while ((block = sg_ring_take(&writer->retired)) || (block = sg_ring_take(&writer->ready)))
        munmap(block, SEGALLOC_TRACE_BLOCK);
    if (writer->block)
        munmap(writer->block, SEGALLOC_TRACE_BLOCK);
    if (writer->fd >= 0)
        close(writer->fd);
    if (atomic_load(&writer->turn_fd) >= 0)
        close(atomic_load(&writer->turn_fd));
    writer_reset(writer);
}

void sg_trace_writer_destroy(struct sg_trace_writer *writer)
{
    if (!writer)
        return;
    if (writer->life != CLOSED)
        sg_trace_writer_close(writer);
    /* A helper that did not end in time still reads the writer, so its memory stays. */
    if (!writer->helper || atomic_load(&writer->gone))
        munmap(writer, sizeof(*writer));
}

void sg_trace_writer_state(struct sg_trace_writer *writer, struct sg_trace_writer_state *ret)
{
    sg_writer_lock(writer);
    *ret = (struct sg_trace_writer_state){writer->life == OPEN, atomic_load(&writer->total), writer->dropped,
                                          atomic_load(&writer->error), writer->path};
    sg_writer_unlock(writer);
}
