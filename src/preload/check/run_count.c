/* One mapped page. It is mapped at the start and not at the first finding, because a program may change its root or confine
   itself in between. */
#include "check/run_count.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/finding_count.h"
#include "process/environment.h"
#include "process/log.h"

static struct sg_finding_count *run_count; /* NULL: nobody asked for it, or `run_count_error` says why it can't be had */
static int run_count_error;
static _Atomic uint64_t run_count_own; /* findings of this process */

void sg_run_count_open(void)
{
    const char *path = sg_environment(SG_FINDING_COUNT_FILE);
    int file = path && *path ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (!path || !*path)
        return;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *run_count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        run_count_error = errno;
    else
        run_count = page;
    if (run_count)
        atomic_fetch_add(&run_count->checked, 1);
    if (file >= 0)
        close(file);
}

static void run_count_say_refused(void)
{
    char line[160];
    snprintf(line, sizeof line, "check: segalloc run can't be told of findings in process %ld (%s): look for its lines",
        (long)getpid(), strerror(run_count_error));
    sg_log_line(line);
}

void sg_run_count_add(void)
{
    bool first = atomic_fetch_add(&run_count_own, 1) == 0;
    if (!run_count) {
        if (first && run_count_error)
            run_count_say_refused();
        return;
    }
    atomic_fetch_add(&run_count->processes, first);
    atomic_fetch_add(&run_count->findings, 1);
}
