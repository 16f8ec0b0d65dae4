/* The file is kept mapped, so a program that removes all of /dev/shm loses no count that is there.

   A run that is killed leaves its file behind, and the next one removes it. Each run holds a lock on its own file until it
   ends, however it ends, and a file that nobody has locked is nobody's. Numbers of processes would not do for that: containers
   that share /dev/shm may each have a process of a number. */
#include "launch/count_findings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/finding_count.h"
#include "tool.h"

#define NAME_BEGIN "segalloc-findings-"

enum { PATH_BYTES = 4096, TRIES = 100 };

static char path[PATH_BYTES];
static struct sg_finding_count *count, *outer; /* `outer`: of the segalloc run around this one, or NULL */

static struct sg_finding_count *count_map(int file)
{
    void *page = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* Removes files of a folder whose run has ended without that. Those of other users can't be opened, or not be removed. */
static void count_sweep(const char *folder)
{
    DIR *listed = opendir(folder);
    for (const struct dirent *entry; listed && (entry = readdir(listed));) {
        if (strncmp(entry->d_name, NAME_BEGIN, sizeof NAME_BEGIN - 1) != 0)
            continue;
        int file = openat(dirfd(listed), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(listed), entry->d_name, 0); /* within the lock: count_create() looks again with it */
        if (file >= 0)
            close(file);
    }
    if (listed)
        closedir(listed);
}

/* The descriptor, or a copy of it that is none of the standard ones: where those are closed, messages would go into the file. */
static int above_standard(int file)
{
    if (file < 0 || file > STDERR_FILENO)
        return file;
    int copy = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(file);
    errno = error;
    return copy;
}

/* A new file that is locked and still there: another run may sweep between its making and its lock. Returns the
   descriptor, or -1 with errno. */
static int count_create(const char *folder)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat made;
        if ((size_t)snprintf(path, sizeof path, "%s/" NAME_BEGIN "XXXXXX", folder) >= sizeof path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = above_standard(mkostemp(path, O_CLOEXEC));
        if (file < 0)
            return -1;
        if ((flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(file, &made) == 0 && made.st_nlink)
            return file;
        unlink(path);
        close(file);
    }
    errno = EAGAIN;
    return -1;
}

/* A file in a folder, all zero. The command may go on as another user where it begins as root. 0 or an errno. */
static int count_make(const char *folder)
{
    count_sweep(folder);
    int file = count_create(folder), error = file < 0 ? errno : 0;
    if (file < 0)
        return error;
    error = posix_fallocate(file, 0, sizeof *count); /* a full disk is found here, and not by a signal */
    if (!error && geteuid() == 0 && fchmod(file, 0666) != 0)
        error = errno;
    if (!error && !(count = count_map(file)))
        error = errno;
    if (error) {
        unlink(path);
        close(file);
    }
    return error; /* else the descriptor stays open, and with it the lock */
}

static void count_find_outer(void)
{
    const char *around = getenv(SG_FINDING_COUNT_FILE);
    int file = around ? open(around, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    outer = file < 0 ? NULL : count_map(file);
    if (file >= 0)
        close(file);
}

bool sg_count_findings_begin(const char *verb)
{
    const char *own = getenv("TMPDIR");
    const char *const folders[] = {"/dev/shm", own && *own == '/' ? own : "/tmp", "/tmp"};
    int error = 0;
    count_find_outer();
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !count; i++)
        error = count_make(folders[i]);
    if (count && setenv(SG_FINDING_COUNT_FILE, path, 1) == 0)
        return true;
    sg_tool_message(verb,
        "--check=fail needs a file of %zu bytes to count findings in, and there is none to be had in %s, %s or %s: %s",
        sizeof *count, folders[0], folders[1], folders[2], strerror(error));
    return false;
}

void sg_count_findings_end(struct sg_findings_counted *ret)
{
    *ret = (struct sg_findings_counted){.findings = atomic_load(&count->findings),
        .processes = atomic_load(&count->processes),
        .checked = atomic_load(&count->checked)};
    if (outer) {
        atomic_fetch_add(&outer->findings, ret->findings);
        atomic_fetch_add(&outer->processes, ret->processes);
        atomic_fetch_add(&outer->checked, ret->checked);
    }
    unlink(path);
}
