#include "writer/live_pages.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

enum {
    HEAD_BYTES = 512, /* of a page: its numbers stand before its texts */
    BEGUN_S = 60,     /* a page is written within milliseconds */
    UNKNOWN_S = 3600, /* of a page without a namespace, an older library's; a process that lives writes it again */
    ENTRIES_BYTES = 4096,
};

/* An entry of a folder as the kernel writes it (getdents64(2)). opendir() would use the heap. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
};

char *sg_live_page_path(uint64_t pid, char ret[SG_LIVE_PATH])
{
    snprintf(ret, SG_LIVE_PATH, SG_LIVE_FOLDER "/" SG_LIVE_PREFIX "%" PRIu64, pid);
    return ret;
}

/* The beginning of a file as text. False: it is no regular file of this user, or can't be read. */
static bool page_read_head(int folder, const char *path, struct stat *ret_status, char ret[HEAD_BYTES])
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return false;
    /* Not by fstat(), which glibc binds to a version that older ones lack. */
    bool ours = syscall(SYS_newfstatat, fd, "", ret_status, AT_EMPTY_PATH) == 0 && S_ISREG(ret_status->st_mode) &&
                ret_status->st_uid == geteuid();
    ssize_t length = ours ? read(fd, ret, HEAD_BYTES - 1) : -1;
    close(fd);
    ret[length > 0 ? length : 0] = '\0';
    return length >= 0;
}

uint64_t sg_live_namespace(void)
{
    char link[64];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    link[length > 0 ? length : 0] = '\0';
    const char *number = strchr(link, '[');
    return number ? strtoull(number + 1, NULL, 10) : 0;
}

/* A clock in ns. */
static uint64_t page_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

bool sg_live_is_alive(uint64_t pid, uint64_t page_ns)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    char state;
    unsigned long long ticks;
    if (!at || sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                   &state, &ticks) != 2)
        return false;
    uint64_t began_ns = ticks * (SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK)), boot_ns = page_clock_ns(CLOCK_BOOTTIME);
    uint64_t ago = boot_ns > began_ns ? boot_ns - began_ns : 0;
    return state != 'Z' && state != 'X' && page_clock_ns(CLOCK_REALTIME) - ago <= page_ns + SECOND_NS;
}

/* A number of the page by its name; 0: it is not there. */
static uint64_t live_page_number(const char *head, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(head, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* True if a file of the folder was left behind by a process that is no more. */
static bool page_is_left(int folder, const char *name, uint64_t namespace)
{
    struct stat status;
    char head[HEAD_BYTES], *end;
    if (strncmp(name, SG_LIVE_PREFIX, strlen(SG_LIVE_PREFIX)) != 0 || !page_read_head(folder, name, &status, head))
        return false;
    uint64_t pid = strtoull(name + strlen(SG_LIVE_PREFIX), &end, 10);
    uint64_t now_s = page_clock_ns(CLOCK_REALTIME) / SECOND_NS, written_s = (uint64_t)status.st_mtime;
    if (*end == '.') /* begun, and never put into its place */
        return now_s > written_s + BEGUN_S;
    uint64_t its = live_page_number(head, "pid_namespace");
    bool comparable = its ? its == namespace : now_s > written_s + UNKNOWN_S;
    return !*end && pid && live_page_number(head, "pid") == pid && comparable &&
           !sg_live_is_alive(pid, live_page_number(head, "start_realtime_ns"));
}

uint32_t sg_live_sweep(void)
{
    uint64_t namespace = sg_live_namespace();
    int folder = namespace ? open(SG_LIVE_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    uint32_t removed = 0;
    if (folder < 0)
        return 0;
    _Alignas(struct entry) char entries[ENTRIES_BYTES];
    for (long length; (length = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < length;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            at += entry->length;
            if (page_is_left(folder, entry->name, namespace) && unlinkat(folder, entry->name, 0) == 0)
                removed++;
        }
    }
    close(folder);
    return removed;
}
