#include "host_memory.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ascii.h"

/* From below: files and their fields, the group of this process, its memory, then quotas. A file is read anew each time,
   because a program may close descriptors that it does not know.

   Buffers are small, because the stack is a thread's of the program. Every field that is looked for stands in the first
   4 KiB of its file. */
enum { FILE_BYTES = 4096, PATH_BYTES = 768, LINE_BYTES = 512 };

/* Reads a file below the root as text. The kernel gives such a file in one piece, or in several where it is long. One that is
   longer than `text` is cut off. False: it is not there. */
static bool host_read(const char *root, const char *name, char *text, size_t size)
{
    char path[PATH_BYTES];
    size_t length = 0;
    ssize_t got = 1;
    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && got > 0 && length < size - 1) {
        got = read(file, text + length, size - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (file >= 0)
        close(file);
    text[length] = '\0';
    return file >= 0 && got >= 0;
}

/* The number behind a key at the beginning of a line, times `unit`. False: there is none. */
static bool host_field(const char *text, const char *key, uint64_t unit, uint64_t *ret)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, key, length) != 0)
            continue;
        char *end;
        unsigned long long value = strtoull(line + length, &end, 10);
        if (end == line + length || value > UINT64_MAX / unit)
            return false;
        *ret = value * unit;
        return true;
    }
    return false;
}

/* A number alone in a file; "max" is UINT64_MAX. */
static bool group_number(const char *root, const char *group, const char *name, uint64_t *ret)
{
    char path[PATH_BYTES], text[LINE_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", group, name) >= (int)sizeof path ||
        !host_read(root, path, text, sizeof text))
        return false;
    if (strncmp(text, "max", 3) == 0) {
        *ret = UINT64_MAX;
        return true;
    }
    return host_field(text, "", 1, ret);
}

/* The names of the files by the version of control groups. In version 1 a group without a limit has the largest multiple of a
   page. */
struct group_files {
    const char *base, *limit, *used, *cache;
    uint64_t no_limit;
};

static const struct group_files versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", UINT64_MAX},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
        (uint64_t)INT64_MAX / 2},
};

/* Finds the path of this process in /proc/self/cgroup, "" for the root of its namespace. `controller` NULL: that of version
   2, whose line is "0::PATH". False: the file does not have it. */
static bool group_path(const char *text, const char *controller, char path[LINE_BYTES])
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at)
            return false;
        size_t length = (size_t)(at - names - 1), own = controller ? strlen(controller) : 0;
        bool found = !controller && length == 0;
        for (const char *name = names + 1; controller && name < at && !found; name += strcspn(name, ",:") + 1)
            found = strcspn(name, ",:") == own && strncmp(name, controller, own) == 0;
        int bytes = (int)strcspn(at + 1, "\n");
        if (!found || bytes >= LINE_BYTES)
            continue;
        memcpy(path, at + 1, (size_t)bytes);
        path[bytes] = '\0';
        if (strstr(path, "..") || strcmp(path, "/") == 0)
            *path = '\0';
        return true;
    }
    return false;
}

/* Cuts the last part of a path off. False: there was none. */
static bool group_up(char path[LINE_BYTES])
{
    char *last = strrchr(path, '/');
    if (last)
        *last = '\0';
    return last != NULL;
}

/* A share of a total in bytes; a group without a limit keeps nothing back. */
static uint64_t host_share(uint64_t total, double reserve)
{
    return total == UINT64_MAX ? 0 : (uint64_t)(reserve * (double)total);
}

/* The rest of `free` bytes beyond a reserve. */
static uint64_t host_beyond(uint64_t free, uint64_t reserve)
{
    return free > reserve ? free - reserve : 0;
}

/* Bytes that a group leaves beyond its reserve. A group without a limit leaves all. */
static uint64_t group_room(uint64_t limit, uint64_t used, double reserve)
{
    return limit == UINT64_MAX ? UINT64_MAX : host_beyond(host_beyond(limit, used), host_share(limit, reserve));
}

/* Takes a group's limit over where it leaves less than the one that is known, both beyond their reserves. A group without a
   limit has none of the files that version 1 has, or "max" in version 2's.

   For example, 5 of 100 GiB are left of a group, and all 4 GiB of one below. With a reserve of a twentieth the first leaves
   nothing, so it counts. */
static void group_memory(const char *root, const struct group_files *files, const char *group, double reserve,
    struct sg_host_memory *memory)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    uint64_t limit, used, cache = 0;
    if (!group_number(root, group, files->limit, &limit) || limit >= files->no_limit ||
        !group_number(root, group, files->used, &used))
        return;
    if (snprintf(path, sizeof path, "%s/memory.stat", group) < (int)sizeof path &&
        host_read(root, path, text, sizeof text))
        (void)host_field(text, files->cache, 1, &cache);
    used -= cache < used ? cache : used;
    if (group_room(limit, used, reserve) < group_room(memory->group_limit, memory->group_used, reserve)) {
        memory->group_limit = limit;
        memory->group_used = used;
    }
}

/* Both versions may be mounted at once, with the memory controller in one of them. A group without the files of a version has
   no limit there. */
bool sg_host_memory_read(const char *root, double reserve, struct sg_host_memory *ret)
{
    enum { KIB = 1024 };
    char text[FILE_BYTES], path[LINE_BYTES], group[PATH_BYTES];
    struct sg_host_memory memory = {.group_limit = UINT64_MAX};
    if (!host_read(root, "/proc/meminfo", text, sizeof text) || !host_field(text, "MemTotal:", KIB, &memory.total) ||
        !host_field(text, "MemAvailable:", KIB, &memory.available))
        return false;
    bool grouped = host_read(root, "/proc/self/cgroup", text, sizeof text);
    for (int i = 0; grouped && i < 2; i++) {
        bool more = group_path(text, i ? "memory" : NULL, path);
        while (more) {
            if (snprintf(group, sizeof group, "%s%s", versions[i].base, path) < (int)sizeof group)
                group_memory(root, &versions[i], group, reserve, &memory);
            more = group_up(path);
        }
    }
    *ret = memory;
    return true;
}

/* A group's limit may be larger than the machine, and then its reserve is never reached. */
uint64_t sg_host_memory_kept(const struct sg_host_memory *memory, double reserve)
{
    uint64_t machine = host_share(memory->total, reserve), group = host_share(memory->group_limit, reserve);
    return machine > group ? machine : group;
}

/* Both bounds hold at once, so the lesser one counts. Neither is looked at beyond zero, because memory that is used
   already cannot be taken back here. */
uint64_t sg_host_memory_room(const struct sg_host_memory *memory, double reserve)
{
    uint64_t machine = host_beyond(memory->available, host_share(memory->total, reserve));
    uint64_t group = group_room(memory->group_limit, memory->group_used, reserve);
    return machine < group ? machine : group;
}

bool sg_device_quotas_exist(const char *root)
{
    char text[LINE_BYTES];
    return host_read(root, "/sys/fs/cgroup/dmem.capacity", text, sizeof text);
}

/* True if the first word of a line has the address in it, in any case: "nvidia/0000:65:00.0/vidmem 1024". */
static bool quota_names(const char *line, const char *pci)
{
    size_t word = strcspn(line, " \n"), length = strlen(pci);
    for (size_t i = 0; i + length <= word; i++) {
        size_t same = 0;
        while (same < length && sg_ascii_lower(line[i + same]) == sg_ascii_lower(pci[same]))
            same++;
        if (same == length)
            return true;
    }
    return false;
}

/* A device's number in a file dmem.* of a group. False: it is not named there, or by "max". */
static bool quota_number(const char *root, const char *group, const char *name, const char *pci, uint64_t *ret)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", group, name) >= (int)sizeof path ||
        !host_read(root, path, text, sizeof text))
        return false;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (quota_names(line, pci) && line[strcspn(line, " \n")] == ' ')
            return host_field(line + strcspn(line, " \n") + 1, "", 1, ret);
    }
    return false;
}

/* Takes over what a group says of the device. True if it says anything.

   For example, dmem.max is 8 GiB, dmem.min 4 and dmem.current 5. Then 3 GiB are left below the hard quota, and 1 GiB is
   above the soft one. A group above that has 2 GiB left replaces the hard quota, and the 1 GiB stays. */
static bool quota_of_group(const char *root, const char *group, const char *pci, struct sg_device_quota *quota)
{
    uint64_t hard, soft, used;
    if (!quota_number(root, group, "dmem.current", pci, &used))
        return false;
    bool has_hard = quota_number(root, group, "dmem.max", pci, &hard);
    bool has_soft = quota_number(root, group, "dmem.min", pci, &soft) && soft;
    if (has_hard && (quota->hard == UINT64_MAX || host_beyond(hard, used) < host_beyond(quota->hard, quota->used))) {
        quota->hard = hard;
        quota->used = used;
    }
    uint64_t excess = has_soft ? host_beyond(used, soft) : 0;
    quota->soft_excess = excess > quota->soft_excess ? excess : quota->soft_excess;
    return has_hard || has_soft;
}

/* All groups from this process's up to the root are asked: the kernel keeps to each of them. */
bool sg_device_quota_read(const char *root, const char *pci, struct sg_device_quota *ret)
{
    char text[FILE_BYTES], path[LINE_BYTES], group[PATH_BYTES];
    struct sg_device_quota quota = {.hard = UINT64_MAX};
    bool named = false;
    bool more = *pci && host_read(root, "/proc/self/cgroup", text, sizeof text) && group_path(text, NULL, path);
    while (more) {
        if (snprintf(group, sizeof group, "%s%s", versions[0].base, path) < (int)sizeof group)
            named |= quota_of_group(root, group, pci, &quota);
        more = group_up(path);
    }
    if (named)
        *ret = quota;
    return named;
}
