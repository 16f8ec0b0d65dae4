/* Files are replaced as a whole, so that a reader finds the old text or the new one. */
#include "device/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP "sys/fs/cgroup/job"

enum { HOST_PATH = SIM_NAME_MAX + 64, KIB = 1024 };

/* True for the device that has a host. */
static bool host_is_of(const struct sim_device *device)
{
    return sim.config.host[0] && device->index == 0;
}

static void host_path(const char *name, char ret[HOST_PATH])
{
    snprintf(ret, HOST_PATH, "%s/%s", sim.config.host, name);
}

static void host_write(const char *name, const char *form, ...)
{
    char path[HOST_PATH], part[HOST_PATH + 16], text[256];
    va_list arguments;
    va_start(arguments, form);
    int length = vsnprintf(text, sizeof text, form, arguments);
    va_end(arguments);
    host_path(name, path);
    snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
    int file = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    bool whole = write(file, text, (size_t)length) == length;
    close(file);
    if (whole)
        (void)rename(part, path);
    else
        (void)unlink(part);
}

/* The last number of a file's first line, or `otherwise`: "max", or no file. */
static uint64_t host_number(const char *name, uint64_t otherwise)
{
    char path[HOST_PATH], text[128] = "";
    host_path(name, path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return otherwise;
    text[strcspn(text, "\n")] = '\0';
    const char *word = strrchr(text, ' ');
    char *end;
    word = word ? word + 1 : text;
    uint64_t value = strtoull(word, &end, 10);
    return end == word ? otherwise : value;
}

bool sim_host_start(void)
{
    static const char *const folders[] = {"proc", "proc/self", "sys", "sys/fs", "sys/fs/cgroup", GROUP};
    char path[HOST_PATH];
    for (size_t i = 0; sim.config.host[0] && i < sizeof folders / sizeof *folders; i++) {
        host_path(folders[i], path);
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            fprintf(stderr, "segalloc simulator: no folder %s: %s\n", path, strerror(errno));
            return false;
        }
    }
    return true;
}

uint64_t sim_host_neighbour(const struct sim_device *device)
{
    return host_is_of(device) ? host_number("neighbour", 0) : 0;
}

uint64_t sim_host_cache(const struct sim_device *device)
{
    return host_is_of(device) && sim.config.integrated ? host_number("cache", 0) : 0;
}

bool sim_host_forbids(const struct sim_device *device, uint64_t used, uint64_t bytes)
{
    uint64_t hard = host_is_of(device) ? host_number(GROUP "/dmem.max", UINT64_MAX) : UINT64_MAX;
    return used > hard || bytes > hard - used;
}

/* Ends the process as the kernel does. */
static void host_kill(const char *why, uint64_t used, uint64_t neighbour, uint64_t most)
{
    host_write("killed", "%s: %" PRIu64 " and the neighbour's %" PRIu64 " of %" PRIu64 "\n", why, used, neighbour, most);
    (void)raise(SIGKILL);
}

void sim_host_show(const struct sim_device *device, uint64_t used)
{
    if (!host_is_of(device))
        return;
    uint64_t most = device->bytes, neighbour = sim_host_neighbour(device), cache = sim_host_cache(device);
    uint64_t others = host_number("group_neighbour", 0), group = others + (sim.config.integrated ? used : 0);
    uint64_t group_most = host_number(GROUP "/memory.max", UINT64_MAX), soft = host_number(GROUP "/dmem.min", 0);
    uint64_t left = used + neighbour < most ? most - used - neighbour : 0;
    host_write("proc/self/cgroup", "0::/job\n");
    host_write("proc/meminfo", "MemTotal: %" PRIu64 " kB\nMemFree: %" PRIu64 " kB\nMemAvailable: %" PRIu64 " kB\n",
        most / KIB, (cache < left ? left - cache : 0) / KIB, left / KIB);
    host_write(GROUP "/memory.current", "%" PRIu64 "\n", group);
    host_write(GROUP "/dmem.current", "nvidia/0000:01:00.0/vidmem %" PRIu64 "\n", used);
    if (sim.config.integrated && used + neighbour > most)
        host_kill("the host has no memory left", used, neighbour, most);
    if (group > group_most)
        host_kill("memory.max", group - others, others, group_most);
    if (!sim.config.integrated && soft && used > soft && used + neighbour > most)
        host_kill("above dmem.min", used, neighbour, most);
}
