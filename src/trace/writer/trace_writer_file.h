/* The state of a trace writer, and its half that deals with the file. The other half, trace_writer.c, has the events; these
   two alone include this.

   A *ring* passes blocks between the helper and the events: `ready` from the helper to the events, `retired` back. One side
   puts and the other takes, so neither needs a lock.

   Example, who has which block of a file. Blocks 0 and 1 are full, 2 is at hand, 3 to 6 are ready:
     retired  {0, 1}          put 2, taken 0    the helper unmaps them before it makes others
     block    2               used 17           records 0 to 16; the next event is record 17
     ready    {3, 4, 5, 6}    put 6, taken 2    `ahead` is 4, so the helper sleeps on `wake`
   An event that fills block 2 takes 3 from `ready`, puts 2 into `retired` and wakes the helper, which makes block 7. */
#ifndef SG_TRACE_WRITER_FILE_H
#define SG_TRACE_WRITER_FILE_H

#include <assert.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/rest.h"
#include "trace_file.h"
#include "writer/trace_writer.h"

enum {
    AHEAD_MIN = 4,
    AHEAD_MAX = 32,
    RING = 64, /* > AHEAD_MAX + blocks not yet unmapped: they are unmapped before others are mapped */
    THREADS_MAX = 65535,
    PATH_ROOM = 1024,
    TEXT_ROOM = 64 << 10,
    AHEAD_AT_OPEN = 2,
    /* How long an event may wait for the helper while that is busy with the disk, and while it waits for a processor:
       5 and 50 ms. */
    WAIT_STEP_NS = 50000, WAIT_STEPS_DISK = 100, WAIT_STEPS_PROCESSOR = 1000,
    LOW_FD = 100,               /* programs that close or count on low descriptors find ours out of their way */
    LAST_EVENT = SG_BLOCK_RECORDS - 1, /* the last place of a block is for SEGALLOC_RECORD_END */
    SNAPSHOT_ROOM = 160                /* and those before it for the last statistics, if the disk is full by then */
};

/* UNOPENED until the first event. FAILED and CLOSED are the end: no later event is written. */
enum sg_writer_life { UNOPENED, OPEN, FAILED, CLOSED };

/* Blocks on their way between the helper and the events; one side puts, the other takes. */
struct sg_ring {
    void *block[RING];
    _Atomic uint32_t put, taken;
};

struct sg_trace_writer {
    /* The fields that an event touches, in one or two cache lines. */
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

    enum sg_writer_life life;
    _Atomic int error; /* of the disk: no further blocks will come */
    atomic_bool reported; /* the user has seen the error */
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t data_offset;
    uint64_t next_offset; /* of the next block to be taken; the helper's while there is one */

    struct sg_ring ready, retired;
    _Atomic uint32_t ahead, wake, stop, gone; /* wake and gone are futexes */
    bool helper;
    _Atomic bool making; /* a block: the disk is at work */
    _Atomic int turn_fd; /* of the file that is no longer, or not yet, the trace; -1: none */
    uint64_t left_blocks; /* the first ones, which hold what is left of those that the bound has shortened; the helper's */
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

/* A clock in ns. */
static inline uint64_t sg_writer_now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Takes the writer's lock: spins for as long as an event takes, and then sleeps 20 us between two looks. */
static inline void sg_writer_lock(struct sg_trace_writer *writer)
{
    for (unsigned spins = 0; atomic_exchange_explicit(&writer->lock, 1, memory_order_acquire); spins++)
        while (atomic_load_explicit(&writer->lock, memory_order_relaxed)) {
            if (++spins >= 200)
                sg_rest(20000); /* also lets a holder of lower priority run */
        }
}

static inline void sg_writer_unlock(struct sg_trace_writer *writer)
{
    atomic_store_explicit(&writer->lock, 0, memory_order_release);
}

/* Raises a futex and wakes all that sleep on it. */
static inline void sg_writer_wake(_Atomic uint32_t *word)
{
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL, NULL, 0);
}

/* Blocks in a ring; put and taken take: one side each, so the other side's count may be a moment old. */
static inline uint32_t sg_ring_count(const struct sg_ring *ring)
{
    return atomic_load_explicit(&ring->put, memory_order_acquire) -
           atomic_load_explicit(&ring->taken, memory_order_acquire);
}

/* Puts a block, for which there is room. The block is stored before the count, so that the other side finds it. */
static inline void sg_ring_put(struct sg_ring *ring, void *block)
{
    uint32_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    assert(put - atomic_load_explicit(&ring->taken, memory_order_relaxed) < RING);
    ring->block[put % RING] = block;
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
}

/* Takes the oldest block; NULL: there is none. */
static inline void *sg_ring_take(struct sg_ring *ring)
{
    uint32_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (atomic_load_explicit(&ring->put, memory_order_acquire) == taken)
        return NULL;
    void *block = ring->block[taken % RING];
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
    return block;
}

/* fstat() through the kernel: its name in libc is of glibc 2.33. 0 or a negative errno. */
int sg_writer_file_status(int fd, struct stat *ret);

/* Gives the user one line, once, on why the trace ends (`opened`) or is not begun. Needs no lock. */
void sg_writer_report(struct sg_trace_writer *writer, int error, bool opened);

/* Creates the file under the name that the pattern gives or, where that is taken, with .PID or .PID.N after it. Its
   descriptor is 100 or more where there is such a one. 0 or a negative errno. */
int sg_writer_create_file(struct sg_trace_writer *writer);
/* Writes all of `size` bytes at an offset, whatever signals come. 0 or a negative errno. */
int sg_writer_write(int fd, const void *data, size_t size, uint64_t offset);
/* Writes the header with configuration and command line. The first block begins at the next multiple of the page size, or
   of 4096 if that is larger. 0 or a negative errno. */
int sg_writer_write_header(struct sg_trace_writer *writer);

/* Creates a file that is not there yet, under a descriptor out of the program's way. Maps a block of a file, of which the
   disk has taken the space and the host the memory. Both: 0 or a negative errno. */
int sg_writer_open_new(const char *path, int *ret_fd);
int sg_writer_map_block(int fd, uint64_t offset, void **ret);

/* Writes the texts behind the header. */
int sg_writer_write_texts(const struct sg_trace_writer *writer, int fd);

void sg_writer_report_turn(struct sg_trace_writer *writer, int error);

/* Takes the next block of the file, maps it and makes its pages writable. 0 or a negative errno. -ESTALE: the program has
   closed our descriptor. -EFBIG: the process may not write so much. -ENOSPC: the disk is full. */
int sg_writer_make_block(struct sg_trace_writer *writer, void **ret);

/* Unmaps the retired blocks and makes new ones until enough are ready. Returns the number made. For the helper, or for the
   events where there is none. */
unsigned sg_writer_refill(struct sg_trace_writer *writer);

/* Waits for a block from the helper, in steps of 50 us. Where events come as fast as the processor can make them the helper
   may be short of processor time: it gets up to 1000 steps. A disk that stalls gets 100 steps, once, and no more until the
   helper has caught up. Returns a block or NULL. */
void *sg_writer_wait(struct sg_trace_writer *writer);

#endif
