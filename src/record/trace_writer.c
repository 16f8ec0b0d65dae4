#include "trace_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace_file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum {
    AHEAD_MIN = 4,
    AHEAD_MAX = 32,
    RING = 64, /* > AHEAD_MAX + blocks not yet unmapped: they are unmapped before others are mapped */
    THREADS_MAX = 65535,
    PATH_ROOM = 1024,
    TEXT_ROOM = 64 << 10,
    DATA_OFFSET_MAX = 2 * TEXT_ROOM + (64 << 10),
    AHEAD_AT_OPEN = 2,
    WAIT_STEPS = 100, WAIT_STEP_NS = 50000, /* how long an event may wait for the helper to get a processor: 5 ms */
    LOW_FD = 100,               /* programs that close or count on low descriptors find ours out of their way */
    LAST_EVENT = SG_BLOCK_RECORDS - 1, /* the last place of a block is for SEGALLOC_RECORD_END */
    SNAPSHOT_ROOM = 160                /* and those before it for the last statistics, if the disk is full by then */
};

enum life { UNOPENED, OPEN, FAILED, CLOSED };

/* Blocks on their way between the helper and the events; one side puts, the other takes. */
struct ring {
    void *block[RING];
    _Atomic uint32_t put, taken;
};

struct sg_trace_writer {
    /* What an event touches. */
    _Atomic uint32_t lock;
    uint32_t used, limit; /* records in the block, and how many may be: both 0 without a block */
    struct segalloc_trace_block *block;
    struct segalloc_trace_record *records;
    uint64_t sum; /* checksum of the records so far */
    uint64_t start_ns;
    uint32_t generation; /* of thread indices */
    uint32_t threads;
    _Atomic uint64_t total;
    uint64_t dropped, sequence;

    enum life life;
    _Atomic int error; /* of the disk: no further blocks will come */
    bool told;         /* the error has been told to the user */
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t data_offset;
    uint64_t next_offset; /* of the next block to be taken; the helper's while there is one */

    struct ring ready, retired;
    _Atomic uint32_t ahead, wake, stop, gone; /* wake and gone are futexes */
    bool helper;
    bool late; /* the helper was waited for in vain: events are dropped until it has caught up */

    struct sg_trace_writer_options options; /* its texts point into `text` */
    struct segalloc_trace_header header;
    uint64_t name_hash[SG_STAT_COUNT];
    struct sg_stats last[SG_TRACE_DEVICES];
    bool last_known[SG_TRACE_DEVICES];
    struct sg_stats unsaved[SG_TRACE_DEVICES]; /* came when there was no place any more */
    bool has_unsaved[SG_TRACE_DEVICES];
    _Atomic uint64_t snapshot_at[SG_TRACE_DEVICES];
    uint32_t thread_id[THREADS_MAX + 1];
    char pattern[PATH_ROOM], path[PATH_ROOM + 32];
    char text[2 * TEXT_ROOM];
};

/* Global-dynamic, a few bytes: which index this thread has, and of which writer's life. */
static __thread struct {
    uint32_t generation;
    uint16_t index;
} self;

static _Atomic uint32_t generations;

static void lock(struct sg_trace_writer *writer)
{
    for (unsigned spins = 0; atomic_exchange_explicit(&writer->lock, 1, memory_order_acquire); spins++)
        while (atomic_load_explicit(&writer->lock, memory_order_relaxed)) {
            if (++spins >= 200)
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); /* also lets a holder of lower priority run */
        }
}

static void unlock(struct sg_trace_writer *writer)
{
    atomic_store_explicit(&writer->lock, 0, memory_order_release);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void futex_wake(_Atomic uint32_t *word)
{
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, timeout, NULL, 0);
}

static uint32_t ring_count(const struct ring *ring)
{
    return atomic_load_explicit(&ring->put, memory_order_acquire) -
           atomic_load_explicit(&ring->taken, memory_order_acquire);
}

static void ring_put(struct ring *ring, void *block)
{
    uint32_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    assert(put - atomic_load_explicit(&ring->taken, memory_order_relaxed) < RING);
    ring->block[put % RING] = block;
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
}

static void *ring_take(struct ring *ring)
{
    uint32_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (atomic_load_explicit(&ring->put, memory_order_acquire) == taken)
        return NULL;
    void *block = ring->block[taken % RING];
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
    return block;
}

/* fstat() through the kernel: its name in libc is of glibc 2.33. */
static int file_status(int fd, struct stat *ret)
{
    return syscall(SYS_fstat, fd, ret) < 0 ? -errno : 0;
}

static void tell(struct sg_trace_writer *writer, int error)
{
    char line[PATH_ROOM + 256];
    const char *path = writer->path[0] ? writer->path : writer->pattern;
    if (writer->told || !writer->options.warn)
        return;
    writer->told = true;
    const char *end = writer->life == OPEN ? "the trace ends here" : "no trace is written";
    const char *why = error == -ENOSPC   ? "no space left on the device"
                      : error == -EFBIG  ? "the limit on the size of files is reached"
                      : error == -ESTALE ? "its descriptor was closed by the program"
                      : error == -EINVAL ? "only %p, %h, %r, %e and %% can follow a % sign"
                                         : NULL;
    if (why)
        snprintf(line, sizeof(line), "trace %s: %s; %s, the program goes on", path, why, end);
    else
        snprintf(line, sizeof(line), "trace %s: error %d (%s); %s, the program goes on", path, -error,
                 error == -EACCES ? "permission denied" : error == -EROFS ? "read-only file system" : "errno", end);
    writer->options.warn(line);
}

/* Takes the next block of the file, maps it and makes its pages writable. */
static int make_block(struct sg_trace_writer *writer, void **ret)
{
    struct stat status;
    struct rlimit limit;
    uint64_t end = writer->next_offset + SEGALLOC_TRACE_BLOCK;
    int error = file_status(writer->fd, &status);
    if (error || status.st_dev != writer->device || status.st_ino != writer->inode)
        return -ESTALE;
    /* Over this limit the kernel would also send a signal that kills. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur)
        return -EFBIG;
    do
        error = posix_fallocate(writer->fd, (off_t)writer->next_offset, SEGALLOC_TRACE_BLOCK);
    while (error == EINTR);
    if (error)
        return -error;
    char *block = mmap(NULL, SEGALLOC_TRACE_BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd,
                       (off_t)writer->next_offset);
    if (block == MAP_FAILED)
        return -errno;
    if (madvise(block, SEGALLOC_TRACE_BLOCK, MADV_POPULATE_WRITE) < 0) {
        if (errno != EINVAL) {
            error = -errno;
            munmap(block, SEGALLOC_TRACE_BLOCK);
            return error == -EFAULT ? -ENOSPC : error;
        }
        for (size_t at = 0; at < SEGALLOC_TRACE_BLOCK; at += 4096)
            ((volatile char *)block)[at] = 0;
    }
    writer->next_offset = end;
    *ret = block;
    return 0;
}

/* Unmaps what is done with and makes blocks until enough are ready. Returns how many it made. */
static unsigned refill(struct sg_trace_writer *writer)
{
    unsigned made = 0;
    void *block;
    while ((block = ring_take(&writer->retired)) != NULL)
        munmap(block, SEGALLOC_TRACE_BLOCK);
    while (!atomic_load(&writer->error) && !atomic_load(&writer->stop) &&
           ring_count(&writer->ready) < atomic_load_explicit(&writer->ahead, memory_order_relaxed)) {
        int error = make_block(writer, &block);
        if (error) {
            atomic_store(&writer->error, error);
            tell(writer, error);
            break;
        }
        ring_put(&writer->ready, block);
        made++;
    }
    return made;
}

static void *help(void *user)
{
    struct sg_trace_writer *writer = user;
    prctl(PR_SET_NAME, "segalloc-trace", 0, 0, 0);
    while (!atomic_load(&writer->stop)) {
        uint32_t seen = atomic_load_explicit(&writer->wake, memory_order_acquire);
        if (!refill(writer) && !atomic_load(&writer->stop))
            futex_wait(&writer->wake, seen, NULL);
    }
    futex_wake(&writer->gone);
    return NULL;
}

static void start_helper(struct sg_trace_writer *writer)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    atomic_store(&writer->gone, 0);
    if (!writer->options.create_thread || pthread_attr_init(&attributes))
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* of this thread, on Linux; the new one inherits it */
    writer->helper = writer->options.create_thread(&thread, &attributes, help, writer) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Creates the file under the name that the pattern gives, or, where that is taken, with .PID and .PID.N after it. */
static int create_file(struct sg_trace_writer *writer)
{
    int error = sg_path_expand(writer->pattern, writer->options.environment, writer->path, PATH_ROOM);
    if (error) {
        writer->path[0] = '\0';
        return error;
    }
    size_t length = strlen(writer->path);
    error = sg_path_make_parents(writer->path);
    for (int n = 0; !error && n < 1000; n++) {
        int fd = open(writer->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        if (fd >= 0) {
            long high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOW_FD);
            if (high < 0)
                high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
            close(fd);
            if (high < 0)
                return -errno;
            writer->fd = (int)high;
            return 0;
        }
        if (errno != EEXIST)
            return -errno;
        if (n)
            snprintf(writer->path + length, 32, ".%ld.%d", (long)getpid(), n);
        else
            snprintf(writer->path + length, 32, ".%ld", (long)getpid());
    }
    return error ? error : -EEXIST;
}

static int write_all(int fd, const void *data, size_t size, uint64_t offset)
{
    while (size) {
        ssize_t done = pwrite(fd, data, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        data = (const char *)data + done;
        size -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

static int write_header(struct sg_trace_writer *writer)
{
    struct segalloc_trace_header *header = &writer->header;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    page = page < 4096 ? 4096 : page;
    header->magic = SEGALLOC_TRACE_MAGIC;
    header->version = SEGALLOC_TRACE_VERSION;
    header->header_bytes = sizeof(*header);
    header->conf_bytes = (uint32_t)strlen(writer->options.conf);
    header->command_bytes = (uint32_t)strlen(writer->options.command);
    header->data_offset = (sizeof(*header) + header->conf_bytes + header->command_bytes + page - 1) / page * page;
    header->start_realtime_ns = now_ns(CLOCK_REALTIME);
    header->pid = (uint64_t)getpid();
    header->limit_bytes = writer->options.limit_bytes;
    writer->data_offset = writer->next_offset = header->data_offset;
    int error = write_all(writer->fd, header, sizeof(*header), 0);
    if (!error)
        error = write_all(writer->fd, writer->options.conf, header->conf_bytes, sizeof(*header));
    if (!error)
        error = write_all(writer->fd, writer->options.command, header->command_bytes,
                          sizeof(*header) + header->conf_bytes);
    return error;
}

static void open_block(struct sg_trace_writer *writer, void *mapping)
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

static void fail(struct sg_trace_writer *writer, int error)
{
    tell(writer, error);
    atomic_store(&writer->error, error);
    writer->life = FAILED;
}

/* Opens the file at the first event. Called with the lock. */
static void open_trace(struct sg_trace_writer *writer)
{
    struct stat status;
    void *block;
    int error = create_file(writer);
    if (error) {
        fail(writer, error);
        return;
    }
    error = file_status(writer->fd, &status);
    if (!error) {
        writer->device = status.st_dev;
        writer->inode = status.st_ino;
        error = write_header(writer);
    }
    if (!error)
        error = make_block(writer, &block);
    if (error) {
        close(writer->fd);
        writer->fd = -1;
        unlink(writer->path);
        fail(writer, error);
        return;
    }
    writer->start_ns = now_ns(CLOCK_MONOTONIC_COARSE);
    open_block(writer, block);
    writer->life = OPEN;
    atomic_store(&writer->stop, 0);
    atomic_store(&writer->ahead, AHEAD_AT_OPEN);
    refill(writer);
    atomic_store(&writer->ahead, AHEAD_MIN);
    start_helper(writer);
}

static void close_block(struct sg_trace_writer *writer)
{
    writer->block->checksum = sg_checksum_end(writer->sum);
    ring_put(&writer->retired, writer->block);
    writer->block = NULL;
    writer->used = writer->limit = 0;
}

/* Where events come as fast as the processor can make them the helper may be short of processor time, not of disk: it
   is given some. A disk that stalls is waited for once, no longer than this, and then not again until the helper has
   caught up. */
static void *wait_for_helper(struct sg_trace_writer *writer)
{
    void *block = NULL;
    futex_wake(&writer->wake);
    for (int i = 0; !block && i < WAIT_STEPS && !atomic_load(&writer->error); i++) {
        nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP_NS}, NULL);
        block = ring_take(&writer->ready);
    }
    writer->late = !block;
    return block;
}

/* Finds a place for a record where the block at hand has none. False: there is none now. Called with the lock. */
static __attribute__((noinline)) bool next_place(struct sg_trace_writer *writer)
{
    if (writer->life == UNOPENED)
        open_trace(writer);
    if (writer->life != OPEN)
        return false;
    if (writer->used < writer->limit)
        return true;
    if (!writer->helper)
        refill(writer);
    void *block = ring_take(&writer->ready);
    if (!block && writer->helper && !writer->late && !atomic_load(&writer->error))
        block = wait_for_helper(writer);
    if (!block)
        return false; /* the full block stays at hand: SEGALLOC_RECORD_END still goes into it */
    if (writer->block)
        close_block(writer);
    open_block(writer, block);
    if (writer->helper) {
        uint32_t ahead = atomic_load_explicit(&writer->ahead, memory_order_relaxed);
        bool behind = ring_count(&writer->ready) < ahead / 2;
        writer->late &= behind;
        if (behind && ahead < AHEAD_MAX)
            atomic_store_explicit(&writer->ahead, ahead * 2, memory_order_relaxed);
        futex_wake(&writer->wake);
    }
    return true;
}

/* Appends a record. The lock is held and there is a place. */
static inline void put(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    uint32_t used = writer->used;
    writer->records[used] = *record;
    writer->sum = sg_checksum_add(writer->sum, record);
    writer->used = used + 1;
    /* Whoever reads the file of a killed process sees the record whole or not at all. */
    __atomic_store_n(&writer->block->count, used + 1, __ATOMIC_RELEASE);
}

static inline bool append(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    if (__builtin_expect(writer->used >= writer->limit, 0) && !next_place(writer)) {
        writer->dropped += writer->life != CLOSED;
        return false;
    }
    put(writer, record);
    atomic_store_explicit(&writer->total, atomic_load_explicit(&writer->total, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return true;
}

/* Gives the calling thread an index, with a definition. 0 while there is no place for one. Called with the lock. */
static __attribute__((noinline)) uint16_t index_thread(struct sg_trace_writer *writer, uint64_t time)
{
    uint32_t id = (uint32_t)syscall(SYS_gettid), index = 1;
    while (index <= writer->threads && writer->thread_id[index] != id)
        index++;
    if (index > writer->threads) {
        struct segalloc_trace_record define = {.kind = SEGALLOC_RECORD_DEFINE_THREAD, .thread = (uint16_t)index,
                                               .id = id, .time_ns = time};
        if (index > THREADS_MAX) {
            index = 0; /* from here on threads are not told apart */
        } else if (append(writer, &define)) {
            writer->thread_id[index] = id;
            writer->threads = index;
        } else {
            return 0;
        }
    }
    self.generation = writer->generation;
    self.index = (uint16_t)index;
    return self.index;
}

/* What the header says of the devices comes from their definitions. Called with the lock. */
static __attribute__((noinline)) void note_device(struct sg_trace_writer *writer,
                                                  const struct segalloc_trace_record *define)
{
    if (writer->header.devices <= define->stream)
        writer->header.devices = define->stream + 1;
    if (define->stream == 0) {
        writer->header.granularity = define->id;
        writer->header.device_bytes = define->size;
    }
    if (writer->life == OPEN)
        write_all(writer->fd, &writer->header, sizeof(writer->header), 0);
}

void sg_trace_writer_emit(void *sink, const struct segalloc_trace_record *event)
{
    struct sg_trace_writer *writer = sink;
    struct segalloc_trace_record record = *event;
    uint64_t now = now_ns(CLOCK_MONOTONIC_COARSE);
    lock(writer);
    if (record.kind == SEGALLOC_RECORD_DEFINE_DEVICE)
        note_device(writer, &record);
    /* The first event opens the file and with it the clock. */
    if (writer->used < writer->limit || next_place(writer)) {
        record.time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
        record.thread = self.generation == writer->generation ? self.index : index_thread(writer, record.time_ns);
        append(writer, &record);
    } else {
        writer->dropped += writer->life != CLOSED;
    }
    unlock(writer);
}

struct sg_event_sink sg_trace_writer_sink(struct sg_trace_writer *writer)
{
    return (struct sg_event_sink){sg_trace_writer_emit, writer};
}

/* Into the places that every block keeps for the end. */
static bool append_last(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    if (writer->used >= LAST_EVENT)
        return false;
    put(writer, record);
    atomic_store_explicit(&writer->total, atomic_load_explicit(&writer->total, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return true;
}

/* Writes what differs from the last snapshot. Returns whether all of it found a place. Called with the lock. */
static bool write_snapshot(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats, uint64_t now,
                           bool (*write)(struct sg_trace_writer *, const struct segalloc_trace_record *))
{
    struct segalloc_trace_record pending = {.kind = SEGALLOC_RECORD_STATISTIC, .stream = device};
    const struct sg_stats *last = &writer->last[device];
    bool some = false, whole = true, known = writer->last_known[device];
    pending.time_ns = now > writer->start_ns ? now - writer->start_ns : 0;
    /* One record behind, so that the last one can be marked. */
    for (int i = 0; i < SG_STAT_COUNT && whole; i++)
        for (int peak = 0; peak < (sg_stat_info((enum sg_stat)i)->kind == SG_STAT_LEVEL ? 2 : 1); peak++) {
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

static bool append_now(struct sg_trace_writer *writer, const struct segalloc_trace_record *record)
{
    return append(writer, record);
}

void sg_trace_writer_statistics(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats)
{
    if (device >= SG_TRACE_DEVICES)
        return;
    uint64_t now = now_ns(CLOCK_MONOTONIC_COARSE);
    lock(writer);
    bool room = writer->used < writer->limit || next_place(writer);
    bool whole = room && write_snapshot(writer, device, stats, now, append_now);
    if (whole)
        writer->last[device] = *stats;
    else
        writer->unsaved[device] = *stats;
    /* Of a snapshot that broke off nobody knows what was read: the next one has everything. */
    writer->last_known[device] = whole || (writer->last_known[device] && !room);
    writer->has_unsaved[device] = !whole;
    atomic_store_explicit(&writer->snapshot_at[device], atomic_load_explicit(&writer->total, memory_order_relaxed),
                          memory_order_relaxed);
    unlock(writer);
}

bool sg_trace_writer_due(const struct sg_trace_writer *writer, uint32_t device)
{
    if (device >= SG_TRACE_DEVICES)
        return false;
    uint64_t at = atomic_load_explicit(&writer->snapshot_at[device], memory_order_relaxed);
    uint64_t after = at < SG_TRACE_SNAPSHOT_EVENTS ? at + !at : SG_TRACE_SNAPSHOT_EVENTS;
    return atomic_load_explicit(&writer->total, memory_order_relaxed) - at >= after;
}

static void reset(struct sg_trace_writer *writer)
{
    writer->life = UNOPENED;
    writer->used = writer->limit = writer->threads = 0;
    writer->block = NULL;
    writer->dropped = writer->sequence = 0;
    writer->fd = -1;
    writer->told = writer->helper = writer->late = false;
    writer->path[0] = '\0';
    atomic_store(&writer->total, 0);
    atomic_store(&writer->error, 0);
    memset(&writer->ready, 0, sizeof(writer->ready));
    memset(&writer->retired, 0, sizeof(writer->retired));
    memset(writer->last_known, 0, sizeof(writer->last_known));
    memset(writer->has_unsaved, 0, sizeof(writer->has_unsaved));
    for (int i = 0; i < SG_TRACE_DEVICES; i++)
        atomic_store(&writer->snapshot_at[i], 0);
    writer->generation = atomic_fetch_add(&generations, 1) + 1;
    atomic_store(&writer->lock, 0);
}

static const char *copy_text(char *to, const char *text)
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
    struct sg_trace_writer *writer = mmap(NULL, sizeof(*writer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                          0);
    if (writer == MAP_FAILED)
        return -ENOMEM;
    writer->options = *options;
    strcpy(writer->pattern, options->path);
    writer->options.path = writer->pattern;
    writer->options.conf = copy_text(writer->text, options->conf);
    writer->options.command = copy_text(writer->text + TEXT_ROOM, options->command);
    for (int i = 0; i < SG_STAT_COUNT; i++)
        writer->name_hash[i] = sg_name_hash(sg_stat_info((enum sg_stat)i)->name);
    reset(writer);
    *ret = writer;
    return 0;
}

/* True when the helper has gone, so that everything is ours again. */
static bool stop_helper(struct sg_trace_writer *writer)
{
    if (!writer->helper)
        return true;
    atomic_store(&writer->stop, 1);
    futex_wake(&writer->wake);
    for (int i = 0; i < 200 && !atomic_load(&writer->gone); i++)
        futex_wait(&writer->gone, 0, &(struct timespec){.tv_nsec = 10000000});
    return atomic_load(&writer->gone) != 0;
}

void sg_trace_writer_close(struct sg_trace_writer *writer)
{
    lock(writer);
    enum life before = writer->life;
    writer->life = CLOSED;
    uint64_t size = 0;
    if (before == OPEN) {
        uint64_t now = now_ns(CLOCK_MONOTONIC_COARSE);
        for (uint32_t i = 0; i < SG_TRACE_DEVICES; i++)
            if (writer->has_unsaved[i])
                write_snapshot(writer, i, &writer->unsaved[i], now, append_last);
        struct segalloc_trace_record last = {
            .kind = SEGALLOC_RECORD_END, .id = atomic_load(&writer->total), .size = writer->dropped,
            .time_ns = now - writer->start_ns};
        put(writer, &last);
        size = writer->data_offset + (writer->sequence - 1) * SEGALLOC_TRACE_BLOCK +
               sizeof(struct segalloc_trace_block) + writer->used * sizeof(struct segalloc_trace_record);
        close_block(writer);
    }
    unlock(writer);
    if (before != OPEN || !stop_helper(writer))
        return;
    void *block;
    while ((block = ring_take(&writer->retired)) || (block = ring_take(&writer->ready)))
        munmap(block, SEGALLOC_TRACE_BLOCK);
    struct stat status;
    if (!file_status(writer->fd, &status) && status.st_dev == writer->device && status.st_ino == writer->inode) {
        /* What was taken ahead goes back; without that the file is only longer. */
        if (ftruncate(writer->fd, (off_t)size) < 0)
            atomic_store(&writer->error, -errno);
        close(writer->fd);
    }
    writer->fd = -1;
}

void sg_trace_writer_fork_child(struct sg_trace_writer *writer)
{
    void *block;
    while ((block = ring_take(&writer->retired)) || (block = ring_take(&writer->ready)))
        munmap(block, SEGALLOC_TRACE_BLOCK);
    if (writer->block)
        munmap(writer->block, SEGALLOC_TRACE_BLOCK);
    if (writer->fd >= 0)
        close(writer->fd);
    reset(writer);
}

void sg_trace_writer_destroy(struct sg_trace_writer *writer)
{
    if (!writer)
        return;
    if (writer->life != CLOSED)
        sg_trace_writer_close(writer);
    if (!writer->helper || atomic_load(&writer->gone))
        munmap(writer, sizeof(*writer));
}

void sg_trace_writer_state(struct sg_trace_writer *writer, struct sg_trace_writer_state *ret)
{
    lock(writer);
    *ret = (struct sg_trace_writer_state){writer->life == OPEN, atomic_load(&writer->total), writer->dropped,
                                          atomic_load(&writer->error), writer->path};
    unlock(writer);
}
