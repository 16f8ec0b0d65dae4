/* Keeps a file that was there before the rehearsal, before the program writes over it, truncates, replaces or removes it:
   what the program computes is not real, and a checkpoint that is may be at that name.

   The file is moved into the rehearsal's folder, or copied where it has to stay the file that it is. A line of the journal
   there says where it was, and at the end all are put back (kept.c). A file that came after the beginning is the
   rehearsal's own. For example: the rehearsal begins at 10:00, and `model.pt` is of 9:00. It is moved away before it is first
   truncated, and an empty file takes its place. Before the second time it is of 10:01, and nothing is done. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "rehearse/keep.h"
#include "size.h"
#include "tool.h"

/* Up to this size a file that is truncated is copied: locks are small, and other processes have them open. */
enum { SMALL = 16 << 20 };
/* A larger file is not copied byte by byte: it would take minutes, and as much of the disk again. */
#define COPY_MOST (8 * SG_GIB)

/* Two file names behind a letter, each ending with a zero byte. It is on its way to the disk before the file is touched. */
static bool journal_add(const struct sg_keep *keep, char what, const char *one, const char *other)
{
    char path[SG_PLACE_BYTES + 16];
    snprintf(path, sizeof path, "%s/journal", keep->folder);
    FILE *journal = fopen(path, "ae");
    bool good = journal && fprintf(journal, "%c%s%c%s%c", what, one, '\0', other, '\0') > 0;
    return journal ? fclose(journal) == 0 && good : false;
}

static bool is_old(const struct sg_keep *keep, const char *path, bool follow, struct stat *ret)
{
    static const char *const kernels[] = {"/proc/", "/sys/", "/dev/"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strncmp(path, kernels[i], strlen(kernels[i])) == 0)
            return false;
    if (fstatat(AT_FDCWD, path, ret, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(ret->st_mode))
        return false;
    return ret->st_ctim.tv_sec < keep->began.tv_sec ||
           (ret->st_ctim.tv_sec == keep->began.tv_sec && ret->st_ctim.tv_nsec < keep->began.tv_nsec);
}

static bool file_fill(int in, int out, const struct stat *status)
{
    char bytes[65536];
    const struct timespec times[2] = {status->st_atim, status->st_mtim};
    ssize_t got = 0, put = 0;
    if (ioctl(out, FICLONE, in) != 0) {
        if ((uint64_t)status->st_size > COPY_MOST) {
            errno = EFBIG;
            return false;
        }
        while (put == got && (got = read(in, bytes, sizeof bytes)) > 0)
            put = write(out, bytes, (size_t)got);
        if (got != 0)
            return false;
    }
    (void)!fchown(out, status->st_uid, status->st_gid); /* another user's, in a group of ours */
    return fchmod(out, status->st_mode & 07777) == 0 && futimens(out, times) == 0;
}

static bool file_copy(const char *from, const char *to, const struct stat *status)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    if (in >= 0)
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = out >= 0 && file_fill(in, out, status);
    int error = errno;
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) != 0)
        good = false;
    if (out >= 0 && !good)
        unlink(to);
    errno = error;
    return good;
}

/* A folder for what is moved, on the file system of the file: the rehearsal's own, or one in the highest folder above the
   file that can be written to. A program that removes whole folders begins further down. */
static bool folder_on(const struct sg_keep *keep, const char *path, dev_t device, char ret[SG_PLACE_BYTES])
{
    struct stat status;
    char top[SG_PLACE_BYTES] = "", at[SG_PLACE_BYTES];
    if (stat(keep->folder, &status) == 0 && status.st_dev == device)
        return snprintf(ret, SG_PLACE_BYTES, "%s", keep->folder) < SG_PLACE_BYTES;
    snprintf(at, sizeof at, "%s", path);
    for (char *slash; (slash = strrchr(at, '/')) != NULL && slash > at;) {
        *slash = '\0';
        if (stat(at, &status) == 0 && status.st_dev == device && access(at, W_OK) == 0)
            memcpy(top, at, sizeof top);
    }
    int length = snprintf(ret, SG_PLACE_BYTES, "%.4000s/.segalloc-%.64s", top, strrchr(keep->folder, '/') + 1);
    return *top && length < SG_PLACE_BYTES && (mkdir(ret, 0700) == 0 || errno == EEXIST);
}

/* The file goes, and an empty one of the same mode takes its place, so that the call finds what it looks for. */
static bool keep_move_file(const struct sg_keep *keep, const char *path, const struct stat *status, const char *to)
{
    if (!journal_add(keep, 'K', to, path) || rename(path, to) != 0)
        return false;
    int empty = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (empty < 0)
        return true;
    (void)!fchown(empty, status->st_uid, status->st_gid);
    bool good = fchmod(empty, status->st_mode & 07777) == 0;
    return close(empty) == 0 && good;
}

enum way { BY_COPY, BY_MOVE };

static bool keep_file(struct sg_keep *keep, const char *path, const struct stat *status, enum way way)
{
    char folder[SG_PLACE_BYTES], to[SG_PLACE_BYTES + 64];
    unsigned long long number = ++keep->files;
    if (way == BY_MOVE && folder_on(keep, path, status->st_dev, folder)) {
        snprintf(to, sizeof to, "%s/%llu", folder, number);
        if (keep_move_file(keep, path, status, to) || errno == ENOENT)
            return true;
    }
    snprintf(to, sizeof to, "%s/%llu", keep->folder, number);
    if (!journal_add(keep, 'K', to, path) || !file_copy(path, to, status)) {
        sg_tool_message(keep->verb, "%s was there before and can't be kept (%s): it stays; --overwrite lets the program", path,
            strerror(errno));
        return false;
    }
    /* A copy leaves the file as old as it was: it is not to be copied at each call. */
    (void)!fchmodat(AT_FDCWD, path, status->st_mode & 07777, 0);
    return true;
}

bool sg_keep_before_write(struct sg_keep *keep, const char *path, bool truncates)
{
    char real[PATH_MAX];
    struct stat status;
    if (!realpath(path, real) || !is_old(keep, real, true, &status) || access(real, W_OK) != 0)
        return true;
    return keep_file(keep, real, &status, truncates && status.st_size > SMALL ? BY_MOVE : BY_COPY);
}

bool sg_keep_before_removal(struct sg_keep *keep, const char *path)
{
    struct stat status;
    return !is_old(keep, path, false, &status) || keep_file(keep, path, &status, BY_MOVE);
}

bool sg_keep_before_rename(struct sg_keep *keep, const char *from, const char *to)
{
    struct stat status;
    if (lstat(from, &status) != 0)
        return true; /* it will fail */
    if (is_old(keep, from, false, &status)) {
        if (!keep_file(keep, from, &status, BY_COPY))
            return false;
    } else if (lstat(from, &status) == 0 && S_ISDIR(status.st_mode) && !journal_add(keep, 'M', from, to)) {
        return false;
    }
    return sg_keep_before_removal(keep, to);
}
