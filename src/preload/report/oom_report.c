/* The parts of the report: processes by NVML or by the table of neighbours, memory by other calls, the command.

   NVML is loaded for the report and unloaded after it. It is not linked, since machines without a driver lack it. */
#include "inspect/core_state.h"
#include "process/glibc_symver.h"

#include "report/oom_report.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "track/captures.h"
#include "track/graph_blocks.h"
#include "track/held_outside.h"
#include "process/host_limits.h"
#include "process/process.h"
#include "process/symbols.h"
#include "services/trim.h"
#include "sites/sites.h"

enum { PROCESSES = 64, COMMAND_BYTES = 240, NVML_SUCCESS = 0 };

/* NVML, as far as it is asked. Source of names, numbers and layouts: NVIDIA's reference of NVML, nvmlProcessInfo_v2_t. */
struct nvml_process {
    unsigned pid;
    unsigned long long used; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
};
typedef int init_fn(void);
typedef int device_fn(const char *uuid, void **ret);
typedef int processes_fn(void *device, unsigned *count, struct nvml_process *list);

struct nvml {
    void *handle;
    init_fn *init, *shutdown;
    device_fn *device;
    processes_fn *processes;
};

static void close_nvml(struct nvml *nvml)
{
    if (nvml->handle)
        (void)sg_library_close(nvml->handle);
    nvml->handle = NULL;
}

/* Loads NVML and finds the four functions that are used. False, with nothing left open: it is not installed, or older
   than these. */
static bool open_nvml(struct nvml *ret)
{
    *ret = (struct nvml){.handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)};
    if (!ret->handle)
        return false;
    void *found[] = {
        sg_dlsym()(ret->handle, "nvmlInit_v2"), sg_dlsym()(ret->handle, "nvmlShutdown"),
        sg_dlsym()(ret->handle, "nvmlDeviceGetHandleByUUID"),
        sg_dlsym()(ret->handle, "nvmlDeviceGetComputeRunningProcesses_v3"),
    };
    memcpy(&ret->init, &found[0], sizeof found[0]);
    memcpy(&ret->shutdown, &found[1], sizeof found[1]);
    memcpy(&ret->device, &found[2], sizeof found[2]);
    memcpy(&ret->processes, &found[3], sizeof found[3]);
    if (found[0] && found[1] && found[2] && found[3] && ret->init() == NVML_SUCCESS)
        return true;
    close_nvml(ret);
    return false;
}

/* NVML's name of a device: its order of devices is not CUDA's. */
static bool uuid_of(int device, char ret[48])
{
    CUuuid uuid;
    CUresult (*get)(CUuuid *uuid, CUdevice device);
    void *symbol = sg_cuda_symbol("cuDeviceGetUuid");
    memcpy(&get, &symbol, sizeof symbol);
    if (!symbol || get(&uuid, device) != CUDA_SUCCESS)
        return false;
    int length = snprintf(ret, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        length += snprintf(ret + length, 48 - (size_t)length, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
            (unsigned char)uuid.bytes[i]);
    return true;
}

/* Reads the beginning of a file as a text. Below 0: it can't be read. */
static ssize_t read_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

/* A process's name by /proc, with anything that a terminal would take for more than text replaced. */
static void process_name(int pid, char *ret, size_t size)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    (void)read_file(path, ret, size);
    for (char *c = ret; *c; c++) {
        if (*c == '\n')
            *c = '\0';
        else if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

static int process_by_bytes(const void *a, const void *b)
{
    uint64_t one = ((const struct sg_oom_process *)a)->bytes, other = ((const struct sg_oom_process *)b)->bytes;
    return (one < other) - (one > other);
}

/* The others of a list that this process is in: in one that it is not in, numbers of processes are those of another
   namespace, where this one has a number that nobody here knows. */
static size_t take_others(const struct nvml_process *list, unsigned count, struct sg_oom_process *ret, bool *ret_complete)
{
    size_t others = 0;
    bool here = false;
    for (unsigned i = 0; i < count; i++) {
        bool own = list[i].pid == (unsigned)getpid();
        here |= own;
        if (own || !list[i].used || list[i].used == UINT64_MAX)
            continue;
        ret[others] = (struct sg_oom_process){.pid = (int)list[i].pid, .bytes = list[i].used};
        process_name(ret[others].pid, ret[others].name, sizeof ret[others].name);
        others++;
    }
    qsort(ret, others, sizeof *ret, process_by_bytes);
    *ret_complete = here && count < PROCESSES;
    return here ? others : 0;
}

/* Lists the others by NVML. *ret_complete: these are all of them. */
static size_t list_others(int device, struct sg_oom_process ret[PROCESSES], bool *ret_complete)
{
    struct nvml nvml;
    struct nvml_process list[PROCESSES];
    char uuid[48];
    void *handle;
    unsigned count = PROCESSES;
    size_t others = 0;
    if (!uuid_of(device, uuid) || !open_nvml(&nvml))
        return 0;
    if (nvml.device(uuid, &handle) == NVML_SUCCESS && nvml.processes(handle, &count, list) == NVML_SUCCESS)
        others = take_others(list, count < PROCESSES ? count : PROCESSES, ret, ret_complete);
    (void)nvml.shutdown();
    close_nvml(&nvml);
    return others;
}

/* Where the library serves them: for machines without NVML, and containers that NVML numbers otherwise. */
static size_t list_neighbours(int device, struct sg_oom_process ret[PROCESSES])
{
    struct sg_neighbour_holds holds[PROCESSES];
    size_t count = sg_trim_others(device, holds, PROCESSES);
    for (size_t i = 0; i < count; i++) {
        ret[i] = (struct sg_oom_process){.pid = (int)holds[i].pid, .bytes = holds[i].bytes};
        process_name(ret[i].pid, ret[i].name, sizeof ret[i].name);
    }
    qsort(ret, count, sizeof *ret, process_by_bytes);
    return count;
}

/* Bytes of the current device that anybody uses; 0: not known. *ret_quota stays 0 where all of the device may be used, or
   where another one is current. Else it is the total that the driver gives with free memory, which is less by more than
   drivers differ. */
static uint64_t used_bytes(int device, uint64_t *ret_quota)
{
    const struct sg_driver *driver = sg_process_driver();
    size_t available, total, whole;
    CUdevice current;
    if (driver->mem_info(&available, &total) != CUDA_SUCCESS)
        return 0;
    if (driver->ctx_get_device(&current) == CUDA_SUCCESS && current == device &&
        driver->device_total(&whole, device) == CUDA_SUCCESS && sg_core_is_quota(total, whole))
        *ret_quota = total;
    return total - available;
}

static bool is_idle(enum segalloc_outside what)
{
    return what == SEGALLOC_OUTSIDE_POOLS_IDLE || what == SEGALLOC_OUTSIDE_POOLS_LEAVING || what == SEGALLOC_OUTSIDE_GRAPHS_IDLE;
}

/* Memory that this process holds by other calls, a row for each kind. Returns how many there are. Managed memory is
   left out: it can move to the host. */
static size_t list_own(int device, struct sg_oom_own ret[SEGALLOC_OUTSIDE_COUNT])
{
    struct sg_outside outside = {0};
    size_t rows = 0;
    sg_held_outside(device, &outside, NULL);
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++) {
        enum segalloc_outside what = (enum segalloc_outside)i;
        if (outside.bytes[i] && what != SEGALLOC_OUTSIDE_OTHER && what != SEGALLOC_OUTSIDE_MANAGED)
            ret[rows++] = (struct sg_oom_own){.how = sg_outside_call(what),
                .bytes = outside.bytes[i],
                .idle = is_idle(what),
                .guards = what == SEGALLOC_OUTSIDE_GUARDS};
    }
    return rows;
}

/* Appends an argument as a shell takes it. False: no room. */
static bool report_quote(char *text, size_t size, const char *argument)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
    size_t used = strlen(text);
    bool quoted = !*argument || argument[strspn(argument, plain)];
    int length = snprintf(text + used, size - used, "%s%s%s%s", used ? " " : "", quoted ? "'" : "", argument,
        quoted ? "'" : "");
    return length < (int)(size - used) && !strpbrk(argument, "'\n");
}

/* The command line of this process, "" where it is too long to be of use. */
static void report_read_command(char ret[COMMAND_BYTES])
{
    char all[COMMAND_BYTES];
    ssize_t length = read_file("/proc/self/cmdline", all, sizeof all);
    bool fits = length > 0 && length < COMMAND_BYTES - 1;
    *ret = '\0';
    for (const char *argument = all; fits && argument < all + length; argument += strlen(argument) + 1)
        fits = report_quote(ret, COMMAND_BYTES, argument);
    if (!fits)
        *ret = '\0';
}

/* All parts are gathered first, then the core writes the text under its lock. Neighbours are asked only where NVML
   named none. */
size_t sg_oom_report(struct sg_core *core, int device, char *buffer, size_t size)
{
    struct sg_oom_process process[PROCESSES];
    char command[COMMAND_BYTES];
    report_read_command(command);
    struct sg_oom_own own[SEGALLOC_OUTSIDE_COUNT];
    bool complete = false;
    size_t others = list_others(device, process, &complete);
    bool some_only = !complete && others == 0;
    uint64_t quota = 0, used = used_bytes(device, &quota);
    if (some_only)
        others = list_neighbours(device, process);
    struct sg_host_limits limits;
    struct sg_oom_host host = {0};
    bool shared = sg_host_limits_read(device, &limits) && limits.integrated;
    if (shared)
        host = (struct sg_oom_host){limits.memory.total, limits.memory.available, limits.kept,
            limits.memory.group_limit, limits.memory.group_used};
    const struct sg_oom_around around = {
        .host = shared ? &host : NULL,
        .process = process,
        .processes = others,
        .some_only = some_only || shared,
        .complete = complete && !shared, /* the host's memory has users that no driver lists */
        .own = own,
        .owns = list_own(device, own),
        .used = used,
        .quota = quota,
        .command = command,
        .parked = sg_captures_deferred_bytes(core, device),
        .graphs = sg_graphs_freed_bytes(core, device),
        .site = sg_sites_describe,
    };
    return sg_core_oom_text(core, device, &around, buffer, size);
}
