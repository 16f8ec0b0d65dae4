/* The bound of a trace. Its oldest part is shortened to what it leaves behind, in a new file that takes the old one's
   place. All of it is the helper's work, beside the events.

   Example, with a bound of 64 MiB. At 64 blocks the helper shortens the oldest 32 to 2, and copies the newest 32 behind
   them. Events have meanwhile filled block 65: it is copied too. Then the writer's lock is taken, and the block that is
   being written is copied. The new file gets the old one's name, and events go on there. A process that is killed at any
   moment leaves the old file or the new one, whole. */
#include "writer/trace_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/meta.h"
#include "writer/trace_fold.h"

struct turn {
    char path[PATH_ROOM], new_path[PATH_ROOM + 8];
    int fd;
    uint64_t copied; /* blocks of the old file that the new one has, shortened or whole */
    uint64_t blocks; /* of the new one */
    void *open;      /* its next block, mapped */
};

/* Events go on meanwhile, and need blocks. False: the trace is about to be closed. */
static bool go_on(void *user)
{
    struct sg_trace_writer *writer = user;
    (void)sg_writer_refill(writer);
    return !atomic_load(&writer->stop);
}

/* Blocks that are closed, of the file that is being written. Their number only grows. */
static uint64_t closed_blocks(struct sg_trace_writer *writer)
{
    sg_writer_lock(writer);
    uint64_t closed = writer->life == OPEN && writer->block ? writer->sequence - 1 : 0;
    sg_writer_unlock(writer);
    return closed;
}

/* The path that the file has now: the program may have left the folder that a relative one begins at. */
static int find_path(struct sg_trace_writer *writer, struct turn *turn)
{
    char link[64];
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", writer->fd);
    ssize_t length = readlink(link, turn->path, sizeof turn->path - 1);
    if (length < 0)
        return -errno;
    turn->path[length] = '\0';
    int error = sg_writer_file_status(writer->fd, &status);
    if (error || status.st_dev != writer->device || status.st_ino != writer->inode || status.st_nlink == 0)
        return -ESTALE;
    snprintf(turn->new_path, sizeof turn->new_path, "%s.turn", turn->path);
    return 0;
}

static int copy_closed(struct sg_trace_writer *writer, struct turn *turn, uint64_t upto)
{
    struct segalloc_trace_block *block = sg_meta_map(SEGALLOC_TRACE_BLOCK);
    int error = block ? 0 : -ENOMEM;
    for (; !error && turn->copied < upto; turn->copied++, turn->blocks++) {
        error = go_on(writer) ? sg_trace_block_read(writer->fd, writer->data_offset, turn->copied, block) : -ECANCELED;
        if (error)
            break;
        block->sequence = turn->blocks;
        error = sg_trace_block_write(turn->fd, writer->data_offset, turn->blocks, block);
    }
    sg_meta_unmap(block, SEGALLOC_TRACE_BLOCK);
    return error;
}

/* Copies the block that is being written, gives the new file its name, and has the events go on in it. Under the writer's
   lock. *ret_gone: blocks of the old file that are mapped. */
static int change_over_locked(struct sg_trace_writer *writer, struct turn *turn, const struct stat *status,
    void *ret_gone[RING + 1], unsigned *ret_count)
{
    struct segalloc_trace_block *old = writer->block, *new = turn->open;
    int error = sg_writer_write(turn->fd, &writer->header, sizeof writer->header, 0);
    memcpy(new, old, sizeof *old + writer->used * sizeof(struct segalloc_trace_record));
    new->sequence = turn->blocks;
    if (!error && rename(turn->new_path, turn->path) < 0)
        error = -errno;
    if (error)
        return error;
    ret_gone[(*ret_count)++] = old;
    for (void *block; (block = sg_ring_take(&writer->ready)) != NULL;)
        ret_gone[(*ret_count)++] = block;
    int fd = writer->fd;
    writer->fd = turn->fd;
    turn->fd = fd;
    atomic_store(&writer->turn_fd, fd);
    turn->open = NULL;
    writer->device = status->st_dev;
    writer->inode = status->st_ino;
    writer->block = new;
    writer->records = (void *)(new + 1);
    writer->sequence = turn->blocks + 1;
    writer->next_offset = writer->data_offset + writer->sequence * SEGALLOC_TRACE_BLOCK;
    return 0;
}

/* Maps the block that events are to go on in. */
static int make_open(struct sg_trace_writer *writer, struct turn *turn)
{
    if (turn->open)
        munmap(turn->open, SEGALLOC_TRACE_BLOCK);
    turn->open = NULL;
    return sg_writer_map_block(turn->fd, writer->data_offset + turn->blocks * SEGALLOC_TRACE_BLOCK, &turn->open);
}

static int change_over(struct sg_trace_writer *writer, struct turn *turn)
{
    void *gone[RING + 1];
    unsigned count = 0;
    struct stat status;
    bool over = false;
    int error = sg_writer_file_status(turn->fd, &status);
    while (!error && !over) {
        error = copy_closed(writer, turn, closed_blocks(writer));
        error = error ? error : make_open(writer, turn);
        if (error)
            break;
        sg_writer_lock(writer);
        if (writer->life != OPEN || !writer->block)
            error = -ECANCELED;
        else if ((over = writer->sequence - 1 == turn->copied))
            error = change_over_locked(writer, turn, &status, gone, &count);
        sg_writer_unlock(writer);
    }
    for (unsigned i = 0; i < count; i++)
        munmap(gone[i], SEGALLOC_TRACE_BLOCK);
    return error;
}

static int take_turn(struct sg_trace_writer *writer, struct turn *turn, uint64_t shortened)
{
    uint64_t left = 0;
    int error = find_path(writer, turn);
    if (error)
        return error;
    (void)unlink(turn->new_path);
    error = sg_writer_open_new(turn->new_path, &turn->fd);
    if (error)
        return error;
    atomic_store(&writer->turn_fd, turn->fd);
    error = sg_writer_write_texts(writer, turn->fd);
    if (!error)
        error = sg_trace_fold(writer->fd, turn->fd, writer->data_offset, shortened, go_on, writer, &left);
    turn->copied = shortened;
    turn->blocks = left;
    if (!error)
        error = change_over(writer, turn);
    if (error)
        (void)unlink(turn->new_path);
    else
        writer->left_blocks = left;
    return error;
}

void sg_writer_turn(struct sg_trace_writer *writer)
{
    uint64_t most = writer->options.ring_bytes / SEGALLOC_TRACE_BLOCK, closed = most ? closed_blocks(writer) : 0;
    if (!most || closed < writer->left_blocks + most || atomic_load(&writer->error))
        return;
    struct turn turn = {.fd = -1};
    int error = take_turn(writer, &turn, closed - most / 2);
    if (turn.open)
        munmap(turn.open, SEGALLOC_TRACE_BLOCK);
    atomic_store(&writer->turn_fd, -1);
    if (turn.fd >= 0)
        close(turn.fd); /* of the old file, or of a new one that is no use */
    if (!error || error == -ECANCELED)
        return;
    writer->options.ring_bytes = 0;
    sg_writer_report_turn(writer, error);
}
