#include "writer/replaced_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* stat() and its kin by the kernel's own call: in glibc they have a version since 2.33 that older ones lack. On machines
   of 64 bits both have one structure. */
static bool file_status(int fd, const char *path, int flags, struct stat *ret)
{
    return syscall(SYS_newfstatat, fd, path, ret, flags) == 0;
}

/* A copy of the descriptor to which the program's output goes, if this file is that one. Its content so far must stay, and
   the new content goes behind it. -1: the file is another one. */
static int dup_of_output(const struct stat *status)
{
    struct stat output;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (file_status(fd, "", AT_EMPTY_PATH, &output) && output.st_dev == status->st_dev &&
            output.st_ino == status->st_ino)
            return dup(fd);
    }
    return -1;
}

/* A FIFO without a reader would be waited for: only an opening that does not wait finds that. */
static int open_in_place(struct sg_replaced_file *ret, const char *path)
{
    int tried = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (tried < 0)
        return -errno;
    ret->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    int error = ret->fd < 0 ? -errno : 0;
    close(tried);
    return error;
}

/* True if a path is a link that this user or root has made. In /tmp somebody else could have made it, so as to have another
   file overwritten. */
static bool is_trusted_link(const char *path)
{
    struct stat link;
    return file_status(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &link) && S_ISLNK(link.st_mode) &&
           (link.st_uid == geteuid() || link.st_uid == 0);
}

int sg_replaced_file_open(struct sg_replaced_file *ret, const char *path, mode_t mode)
{
    struct stat status, own;
    char target[PATH_MAX];
    ret->temporary[0] = '\0';
    bool is_link = file_status(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &own) && S_ISLNK(own.st_mode);
    if ((!is_link || is_trusted_link(path)) && file_status(AT_FDCWD, path, 0, &status)) {
        ret->fd = dup_of_output(&status);
        if (ret->fd >= 0)
            return 0;
        if (!S_ISREG(status.st_mode))
            return open_in_place(ret, path);
        if (is_link && realpath(path, target))
            path = target;
    }
    int length = snprintf(ret->path, sizeof ret->path, "%s", path);
    int longer = snprintf(ret->temporary, sizeof ret->temporary, "%s.%ld.new", path, (long)getpid());
    if (length >= SG_REPLACED_BYTES || longer >= SG_REPLACED_BYTES)
        return -ENAMETOOLONG;
    unlink(ret->temporary);
    /* Where others can write too, nothing of theirs is followed. */
    ret->fd = open(ret->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, mode);
    return ret->fd < 0 ? -errno : 0;
}

int sg_replaced_file_close(struct sg_replaced_file *file, int error)
{
    if (close(file->fd) < 0 && !error)
        error = -errno;
    if (!file->temporary[0])
        return error;
    if (!error && rename(file->temporary, file->path) < 0)
        error = -errno;
    if (error)
        unlink(file->temporary);
    return error;
}
