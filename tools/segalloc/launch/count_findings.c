/* The file is kept mapped, so a program that removes all of /dev/shm loses no count that is there. */
#include "launch/count_findings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/finding_count.h"
#include "tool.h"

enum { PATH_BYTES = 4096 };

static char path[PATH_BYTES];
static struct sg_finding_count *count, *outer; /* `outer`: of the segalloc run around this one, or NULL */

static struct sg_finding_count *count_map(int file)
{
    void *page = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* A file in a folder, all zero. The command may go on as another user where it begins as root. 0 or an errno. */
static int count_make(const char *folder)
{
    if ((size_t)snprintf(path, sizeof path, "%s/segalloc-check-XXXXXX", folder) >= sizeof path)
        return ENAMETOOLONG;
    int file = mkostemp(path, O_CLOEXEC), error = file < 0 ? errno : 0;
    if (file < 0)
        return error;
    error = posix_fallocate(file, 0, sizeof *count); /* a full disk is found here, and not by a signal */
    if (!error && geteuid() == 0 && fchmod(file, 0666) != 0)
        error = errno;
    if (!error && !(count = count_map(file)))
        error = errno;
    close(file);
    if (error)
        unlink(path);
    return error;
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
