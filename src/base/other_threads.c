#include "other_threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "proc_stat.h"
#include "rest.h"

/* A thread may sleep for a lock that another one holds, who is kept from running. Then it runs again when that one has been
   seen to, so all are looked at this often: a chain of so many. */
enum { RUN_NS = 50000, REST_NS = 20000, LOOKS = 3 };

/* The letter of a thread's state, 0: it has ended. */
static char thread_state(long thread)
{
    char path[64], text[256]; /* the name before it has 64 bytes at most */
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
    const char *state = sg_proc_stat_read(path, text, sizeof text);
    return state ? *state : 0;
}

/* The nanoseconds that a thread has run; 0: it has ended. The kernel's name of that clock is what
   pthread_getcpuclockid() makes of a thread of glibc's. */
static uint64_t thread_run_ns(long thread)
{
    enum { SCHEDULED = 2, OF_A_THREAD = 4 };
    struct timespec run = {0};
    clockid_t clock = (clockid_t)(~(unsigned)thread << 3 | SCHEDULED | OF_A_THREAD);
    return clock_gettime(clock, &run) == 0 ? (uint64_t)run.tv_sec * 1000000000u + (uint64_t)run.tv_nsec : 0;
}

/* False: it has done neither until `end`. */
static bool thread_passes(long thread, uint64_t end)
{
    uint64_t before = thread_run_ns(thread);
    while (thread_state(thread) == 'R' && thread_run_ns(thread) - before < RUN_NS) {
        if (sg_clock_ns() >= end)
            return false;
        sg_rest(REST_NS);
    }
    return true;
}

/* Looks at each thread. The folder is read by the kernel's own call, because opendir() takes memory of the program's
   malloc. */
static bool all_pass(uint64_t end)
{
    _Alignas(struct dirent) char entries[2048];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long self = syscall(SYS_gettid), size = 1;
    bool passed = folder >= 0;
    while (passed && (size = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < size && passed;) {
            const struct dirent *entry = (const struct dirent *)(const void *)(entries + at);
            long thread = strtol(entry->d_name, NULL, 10); /* 0: "." or ".." */
            passed = !thread || thread == self || thread_passes(thread, end);
            at += entry->d_reclen;
        }
    }
    if (folder >= 0)
        close(folder);
    return passed && size == 0;
}

bool sg_other_threads_pass(uint64_t limit_ns)
{
    int error = errno, cancel = sg_cancel_off();
    uint64_t end = sg_clock_ns() + limit_ns;
    bool passed = true;
    for (int look = 0; look < LOOKS && passed; look++)
        passed = all_pass(end);
    sg_cancel_restore(cancel);
    errno = error;
    return passed;
}
