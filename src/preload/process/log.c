/* One write() for each text, by sg_own_write(). It keeps errno, because a hook may print in the middle of a call whose
   error the program reads. Where nobody reads stderr the text is lost, and the program goes on.

   A process that has redirected its output by dup2(), as torchrun's redirects and pytest do, has the new file at another
   number besides. For example, 2 and 7 are both capture.txt, opened once: the lines go there. After close(2) and
   open("weights.bin") only 2 has that file, and nothing is written. */
#include "process/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own_write.h"

enum { NUMBERS_LOOKED_AT = 1024 };

static struct stat kept; /* of the file that was there as the library was loaded; mode 0: none was */

/* fstat() and fcntl() by the kernel's own calls: in glibc they have versions since 2.33 and 2.28 that older ones lack. */
static bool log_status(int fd, struct stat *ret)
{
    return syscall(SYS_newfstatat, fd, "", ret, AT_EMPTY_PATH) == 0;
}

static bool log_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int log_descriptor(int fd, int what)
{
    return (int)syscall(SYS_fcntl, fd, what, 0);
}

/* True if another descriptor has that file, opened alike. */
static bool log_has_twin(const struct stat *file, int flags)
{
    struct stat other;
    for (int fd = 0; fd < NUMBERS_LOOKED_AT; fd++) {
        if (fd != STDERR_FILENO && log_status(fd, &other) && log_is_same(&other, file) &&
            log_descriptor(fd, F_GETFL) == flags)
            return true;
    }
    return false;
}

/* True if a file that came to number 2 later is to have the words of the process. A descriptor that is closed by exec was not
   made by dup2(). A terminal is read by people, and what is open for appending is mostly a log. The
   writing end of a pipe() after close(2) is not number 2. */
static bool log_is_for_words(const struct stat *file)
{
    int flags = log_descriptor(STDERR_FILENO, F_GETFL);
    if (flags < 0 || log_descriptor(STDERR_FILENO, F_GETFD) & FD_CLOEXEC)
        return false;
    return S_ISFIFO(file->st_mode) || (S_ISREG(file->st_mode) && flags & O_APPEND) || isatty(STDERR_FILENO) ||
           log_has_twin(file, flags);
}

static bool log_is_stderr(void)
{
    struct stat now;
    if (!log_status(STDERR_FILENO, &now))
        return errno != EBADF; /* a filter of system calls refuses to say */
    return (kept.st_mode && log_is_same(&now, &kept)) || log_is_for_words(&now);
}

void sg_log_keep(void)
{
    int before = errno;
    if (!log_status(STDERR_FILENO, &kept))
        kept.st_mode = 0;
    errno = before;
}

void sg_log_write(const char *text, size_t length)
{
    int before = errno;
    if (log_is_stderr())
        (void)sg_own_write(STDERR_FILENO, text, length);
    errno = before;
}

/* snprintf() into the stack, so that no memory is asked for: the process may have none. */
void sg_log_line(const char *line)
{
    char text[1024];
    int length = snprintf(text, sizeof text, "segalloc: %s\n", line);
    if (length >= (int)sizeof text) {
        length = sizeof text;
        text[sizeof text - 1] = '\n';
    }
    sg_log_write(text, (size_t)length);
}
