#include "writer/trace_writer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/rest.h"


#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

int sg_writer_file_status(int fd, struct stat *ret)
{
    return syscall(SYS_fstat, fd, ret) < 0 ? -errno : 0;
}

/* strerror() would follow the locale and may use the heap, so the frequent errors have their words here. */
static const char *writer_error_text(int error)
{
    return error == -ENOSPC    ? "no space left on the device"
           : error == -EFBIG   ? "the limit on the size of files is reached"
           : error == -ENOENT  ? "no such file or folder"
           : error == -ENOTDIR ? "part of its path is no folder"
           : error == -EACCES  ? "permission denied"
           : error == -EPERM   ? "the operation is not permitted"
           : error == -EROFS   ? "read-only file system"
           : error == -ESTALE  ? "its descriptor was closed by the program"
           : error == -EINVAL  ? "only %p, %h, %r, %e and %% can follow a % sign"
                               : NULL;
}

void sg_writer_report_turn(struct sg_trace_writer *writer, int error)
{
    char line[PATH_ROOM + 256];
    const char *why = error == -ESTALE ? "the file has gone" : writer_error_text(error);
    if (!writer->options.warn)
        return;
    snprintf(line, sizeof line, "trace %s: its beginning can't be shortened, %s: it has no bound from here on",
        writer->path, why ? why : "for an error of the system");
    writer->options.warn(line);
}

void sg_writer_report(struct sg_trace_writer *writer, int error, bool opened)
{
    char line[PATH_ROOM + 256];
    const char *path = writer->path[0] ? writer->path : writer->pattern;
    if (!writer->options.warn || atomic_exchange(&writer->reported, true))
        return;
    const char *end = opened ? "the trace ends here" : "no trace is written";
    const char *why = writer_error_text(error);
    if (why)
        snprintf(line, sizeof(line), "trace %s: %s; %s, the program goes on", path, why, end);
    else
        snprintf(line, sizeof(line), "trace %s: error %d of the system; %s, the program goes on", path, -error, end);
    writer->options.warn(line);
}

int sg_writer_open_new(const char *path, int *ret_fd)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0)
        return -errno;
    /* Some programs close all low descriptors, or expect the next one to have a certain number. */
    long high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOW_FD);
    if (high < 0)
        high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    int error = high < 0 ? -errno : 0;
    close(fd);
    if (!error)
        *ret_fd = (int)high;
    return error;
}

int sg_writer_create_file(struct sg_trace_writer *writer)
{
    int error = sg_path_expand(writer->pattern, writer->options.environment, writer->path, PATH_ROOM);
    if (error) {
        writer->path[0] = '\0';
        return error;
    }
    size_t length = strlen(writer->path);
    error = sg_path_make_parents(writer->path);
    /* A file that exists is never written over: another process may be writing it, or the user may want it. */
    for (int n = 0; !error && n < 1000; n++) {
        int opened = sg_writer_open_new(writer->path, &writer->fd);
        if (opened != -EEXIST)
            return opened;
        if (n)
            snprintf(writer->path + length, 32, ".%ld.%d", (long)getpid(), n);
        else
            snprintf(writer->path + length, 32, ".%ld", (long)getpid());
    }
    return error ? error : -EEXIST;
}

int sg_writer_write(int fd, const void *data, size_t size, uint64_t offset)
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

int sg_writer_write_header(struct sg_trace_writer *writer)
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
    header->start_realtime_ns = sg_writer_now(CLOCK_REALTIME);
    header->pid = (uint64_t)getpid();
    header->limit_bytes = writer->options.limit_bytes;
    writer->data_offset = writer->next_offset = header->data_offset;
    int error = sg_writer_write(writer->fd, header, sizeof(*header), 0);
    return error ? error : sg_writer_write_texts(writer, writer->fd);
}

int sg_writer_write_texts(const struct sg_trace_writer *writer, int fd)
{
    const struct segalloc_trace_header *header = &writer->header;
    int error = sg_writer_write(fd, writer->options.conf, header->conf_bytes, sizeof(*header));
    return error ? error
                 : sg_writer_write(fd, writer->options.command, header->command_bytes,
                       sizeof(*header) + header->conf_bytes);
}

int sg_writer_map_block(int fd, uint64_t offset, void **ret)
{
    int error;
    do
        error = posix_fallocate(fd, (off_t)offset, SEGALLOC_TRACE_BLOCK);
    while (error == EINTR);
    if (error)
        return -error;
    char *block = mmap(NULL, SEGALLOC_TRACE_BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (block == MAP_FAILED)
        return -errno;
    /* Faults the pages in, so that no event does. On a file system that has no space after all this is an error, and not a
       signal. Older kernels do not know the advice: then each page is touched. */
    if (madvise(block, SEGALLOC_TRACE_BLOCK, MADV_POPULATE_WRITE) < 0) {
        if (errno != EINVAL) {
            error = -errno;
            munmap(block, SEGALLOC_TRACE_BLOCK);
            return error == -EFAULT ? -ENOSPC : error;
        }
        for (size_t at = 0; at < SEGALLOC_TRACE_BLOCK; at += 4096)
            ((volatile char *)block)[at] = 0;
    }
    *ret = block;
    return 0;
}

int sg_writer_make_block(struct sg_trace_writer *writer, void **ret)
{
    struct stat status;
    struct rlimit limit;
    uint64_t end = writer->next_offset + SEGALLOC_TRACE_BLOCK;
    int error = sg_writer_file_status(writer->fd, &status);
    if (error && error != -EBADF)
        return error;
    /* A program that closes descriptors that it did not open may have closed ours, and opened something else under it. */
    if (error || status.st_dev != writer->device || status.st_ino != writer->inode)
        return -ESTALE;
    /* Over this limit the kernel would also send a signal that kills. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur)
        return -EFBIG;
    error = sg_writer_map_block(writer->fd, writer->next_offset, ret);
    if (error)
        return error;
    writer->next_offset = end;
    return 0;
}

unsigned sg_writer_refill(struct sg_trace_writer *writer)
{
    unsigned made = 0;
    void *block;
    while ((block = sg_ring_take(&writer->retired)) != NULL)
        munmap(block, SEGALLOC_TRACE_BLOCK);
    /* Retired blocks went first, which bounds what is mapped: the ring has room for both. */
    while (!atomic_load(&writer->error) && !atomic_load(&writer->stop) &&
           sg_ring_count(&writer->ready) < atomic_load_explicit(&writer->ahead, memory_order_relaxed)) {
        atomic_store(&writer->making, true);
        int error = sg_writer_make_block(writer, &block);
        atomic_store(&writer->making, false);
        if (error) {
            atomic_store(&writer->error, error);
            sg_writer_report(writer, error, true);
            break;
        }
        sg_ring_put(&writer->ready, block);
        made++;
    }
    return made;
}

void *sg_writer_wait(struct sg_trace_writer *writer)
{
    void *block = NULL;
    sg_writer_wake(&writer->wake);
    int disk = 0, processor = 0;
    while (!block && disk < WAIT_STEPS_DISK && processor < WAIT_STEPS_PROCESSOR && !atomic_load(&writer->error)) {
        /* While the helper makes a block it waits for the disk; else it has not been given a processor yet. */
        ++*(atomic_load(&writer->making) ? &disk : &processor);
        sg_rest(WAIT_STEP_NS);
        block = sg_ring_take(&writer->ready);
    }
    writer->late = !block;
    return block;
}
