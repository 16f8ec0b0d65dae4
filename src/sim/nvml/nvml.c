/* libnvidia-ml.so.1 as far as PyTorch, pynvml and accelerate ask: the devices of the machine, and which processes hold
   how much of their memory. CUDA_VISIBLE_DEVICES hides none of them. It never initialises the driver, which is why programs ask it: a process that forks later has
   touched no device. Source of names, numbers and layouts: NVIDIA's reference of NVML. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "config.h"
#include "extra.h"
#include "inherited.h"
#include "question.h"
#include "visible.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define NVML(name) __attribute__((visibility("default"))) enum result name

enum result { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE };
enum { TEMPERATURE_C = 40, POWER_MW = 60000, POWER_LIMIT_MW = 400000, CLOCK_MHZ = 1410 };

struct device {
    int index;
};

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
};
struct process_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct utilization {
    unsigned gpu, memory;
};

static struct {
    atomic_int users;
    struct sim_config config;
    struct device devices[SIM_DEVICES_MAX];
    pid_t loader; /* in a forked child the driver's locks may be held for ever */
} nvml;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_settings(void)
{
    const char *wrong = sim_config_parse(sim_inherited_setting(), &nvml.config);
    if (wrong)
        nvml.config.devices = 0;
    for (int i = 0; i < SIM_DEVICES_MAX; i++)
        nvml.devices[i].index = i;
    nvml.loader = getpid();
}

NVML(nvmlInit_v2)(void)
{
    pthread_once(&once, read_settings);
    atomic_fetch_add(&nvml.users, 1);
    return SUCCESS;
}

NVML(nvmlInit)(void)
{
    return nvmlInit_v2();
}

NVML(nvmlInitWithFlags)(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

NVML(nvmlShutdown)(void)
{
    if (atomic_load(&nvml.users) == 0)
        return UNINITIALIZED;
    atomic_fetch_sub(&nvml.users, 1);
    return SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(enum result result)
{
    switch (result) {
    case SUCCESS:
        return "Success";
    case UNINITIALIZED:
        return "Uninitialized";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case NOT_FOUND:
        return "Not Found";
    case INSUFFICIENT_SIZE:
        return "Insufficient Size";
    }
    return "Unknown Error";
}

static enum result nvml_answer_text(char *ret, unsigned size, const char *value)
{
    if (atomic_load(&nvml.users) == 0)
        return UNINITIALIZED;
    if (!ret)
        return INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(ret, value);
    return SUCCESS;
}

static enum result nvml_answer_number(const void *device, unsigned *ret, unsigned value)
{
    if (atomic_load(&nvml.users) == 0)
        return UNINITIALIZED;
    if (!device || !ret)
        return INVALID_ARGUMENT;
    *ret = value;
    return SUCCESS;
}

enum { PROCESSES = 64 };

/* The processes that have a context or memory of a device, and bytes; none where this process has no simulated driver. */
static size_t nvml_holders(const struct device *device, struct segalloc_sim_process ret[PROCESSES])
{
    void *driver = getpid() == nvml.loader ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    segalloc_sim_processes_fn function = NULL;
    if (driver) {
        void *symbol = dlsym(driver, "segalloc_sim_processes");
        memcpy(&function, &symbol, sizeof function);
        dlclose(driver);
    }
    size_t count = function ? function(device->index, ret, PROCESSES) : 0;
    return count < PROCESSES ? count : PROCESSES;
}

static uint64_t nvml_used_bytes(const struct device *device)
{
    struct segalloc_sim_process list[PROCESSES];
    uint64_t sum = 0;
    for (size_t i = 0, count = nvml_holders(device, list); i < count; i++)
        sum += list[i].bytes;
    return sum;
}

NVML(nvmlSystemGetDriverVersion)(char *ret, unsigned size)
{
    return nvml_answer_text(ret, size, "580.0");
}

NVML(nvmlSystemGetNVMLVersion)(char *ret, unsigned size)
{
    return nvml_answer_text(ret, size, "13.580.0");
}

NVML(nvmlSystemGetCudaDriverVersion_v2)(int *ret)
{
    pthread_once(&once, read_settings);
    if (!ret)
        return INVALID_ARGUMENT;
    *ret = nvml.config.driver;
    return SUCCESS;
}

NVML(nvmlSystemGetCudaDriverVersion)(int *ret)
{
    return nvmlSystemGetCudaDriverVersion_v2(ret);
}

NVML(nvmlSystemGetProcessName)(unsigned pid, char *ret, unsigned size)
{
    char path[32], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NOT_FOUND;
    if (fgets(name, sizeof name, file))
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
    return nvml_answer_text(ret, size, name);
}

NVML(nvmlDeviceGetCount_v2)(unsigned *ret)
{
    return nvml_answer_number(nvml.devices, ret, (unsigned)nvml.config.devices);
}

NVML(nvmlDeviceGetCount)(unsigned *ret)
{
    return nvmlDeviceGetCount_v2(ret);
}

NVML(nvmlDeviceGetHandleByIndex_v2)(unsigned index, struct device **ret)
{
    if (atomic_load(&nvml.users) == 0)
        return UNINITIALIZED;
    if (!ret || index >= (unsigned)nvml.config.devices)
        return INVALID_ARGUMENT;
    *ret = &nvml.devices[index];
    return SUCCESS;
}

NVML(nvmlDeviceGetHandleByIndex)(unsigned index, struct device **ret)
{
    return nvmlDeviceGetHandleByIndex_v2(index, ret);
}

NVML(nvmlDeviceGetHandleByUUID)(const char *uuid, struct device **ret)
{
    if (!uuid)
        return INVALID_ARGUMENT;
    bool whole = strlen(uuid) == SIM_UUID_TEXT - 1;
    int index = whole ? sim_visible_uuid(&nvml.config, uuid, SIM_UUID_TEXT - 1) : -1;
    return index < 0 ? NOT_FOUND : nvmlDeviceGetHandleByIndex_v2((unsigned)index, ret);
}

NVML(nvmlDeviceGetHandleByPciBusId_v2)(const char *id, struct device **ret)
{
    unsigned domain, bus, slot;
    if (!id || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return INVALID_ARGUMENT;
    if (domain || slot || bus == 0 || bus > (unsigned)nvml.config.devices)
        return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, ret);
}

NVML(nvmlDeviceGetHandleByPciBusId)(const char *id, struct device **ret)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, ret);
}

NVML(nvmlDeviceGetName)(const struct device *device, char *ret, unsigned size)
{
    return device ? nvml_answer_text(ret, size, sim_config_device_name(&nvml.config)) : INVALID_ARGUMENT;
}

NVML(nvmlDeviceGetUUID)(const struct device *device, char *ret, unsigned size)
{
    char uuid[SIM_UUID_TEXT];
    if (!device)
        return INVALID_ARGUMENT;
    sim_config_uuid_text(&nvml.config, device->index, uuid);
    return nvml_answer_text(ret, size, uuid);
}

NVML(nvmlDeviceGetIndex)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, device ? (unsigned)device->index : 0);
}

NVML(nvmlDeviceGetMinorNumber)(const struct device *device, unsigned *ret)
{
    return nvmlDeviceGetIndex(device, ret);
}

NVML(nvmlDeviceGetPciInfo_v3)(const struct device *device, struct pci *ret)
{
    if (!device || !ret)
        return INVALID_ARGUMENT;
    *ret = (struct pci){.bus = (unsigned)device->index + 1};
    snprintf(ret->legacy_id, sizeof ret->legacy_id, "0000:%02X:00.0", ret->bus & 0xff);
    snprintf(ret->id, sizeof ret->id, "00000000:%02X:00.0", ret->bus & 0xff);
    return SUCCESS;
}

NVML(nvmlDeviceGetMemoryInfo)(const struct device *device, struct memory *ret)
{
    if (!device || !ret)
        return INVALID_ARGUMENT;
    sim_question_note(&nvml.config);
    ret->total = nvml.config.bytes;
    ret->used = nvml_used_bytes(device) + (nvml.config.model ? nvml.config.model->kept : 0);
    ret->free = ret->total - ret->used;
    return SUCCESS;
}

NVML(nvmlDeviceGetMemoryInfo_v2)(const struct device *device, struct memory_v2 *ret)
{
    struct memory plain;
    enum result result = ret ? nvmlDeviceGetMemoryInfo(device, &plain) : INVALID_ARGUMENT;
    if (result == SUCCESS)
        *ret = (struct memory_v2){ret->version, plain.total, 0, plain.free, plain.used};
    return result;
}

/* The count goes in as the room, and out as what is needed. */
static enum result nvml_answer_processes(const struct device *device, unsigned *count, void *list, size_t size)
{
    struct segalloc_sim_process holder[PROCESSES];
    if (!device || !count)
        return INVALID_ARGUMENT;
    unsigned room = *count;
    *count = (unsigned)nvml_holders(device, holder);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; list && i < *count; i++) {
        const struct process row = {(unsigned)holder[i].pid, holder[i].bytes};
        memset((char *)list + i * size, 0xff, size);
        memcpy((char *)list + i * size, &row, sizeof row);
    }
    return SUCCESS;
}

NVML(nvmlDeviceGetComputeRunningProcesses)(const struct device *device, unsigned *count, struct process *list)
{
    return nvml_answer_processes(device, count, list, sizeof *list);
}

NVML(nvmlDeviceGetComputeRunningProcesses_v2)(const struct device *device, unsigned *count, struct process_v2 *list)
{
    return nvml_answer_processes(device, count, list, sizeof *list);
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3)(const struct device *device, unsigned *count, struct process_v2 *list)
{
    return nvml_answer_processes(device, count, list, sizeof *list);
}

#define NONE_OF(name)                                                    \
    NVML(name)(const struct device *device, unsigned *count, void *list) \
    {                                                                    \
        (void)list;                                                      \
        return nvml_answer_number(device, count, 0);                     \
    }
NONE_OF(nvmlDeviceGetGraphicsRunningProcesses)
NONE_OF(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE_OF(nvmlDeviceGetGraphicsRunningProcesses_v3)

NVML(nvmlDeviceGetUtilizationRates)(const struct device *device, struct utilization *ret)
{
    if (!device || !ret)
        return INVALID_ARGUMENT;
    *ret = (struct utilization){0, 0};
    return SUCCESS;
}

NVML(nvmlDeviceGetTemperature)(const struct device *device, int sensor, unsigned *ret)
{
    return sensor == 0 ? nvml_answer_number(device, ret, TEMPERATURE_C) : INVALID_ARGUMENT;
}

/* nvmlTemperature_v1_t: version, sensor, temperature. */
NVML(nvmlDeviceGetTemperatureV)(const struct device *device, int ret[3])
{
    if (!device || !ret || ret[1] != 0)
        return INVALID_ARGUMENT;
    ret[2] = TEMPERATURE_C;
    return SUCCESS;
}

NVML(nvmlDeviceGetPowerUsage)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, POWER_MW);
}

NVML(nvmlDeviceGetEnforcedPowerLimit)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, POWER_LIMIT_MW);
}

NVML(nvmlDeviceGetPowerManagementLimit)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, POWER_LIMIT_MW);
}

NVML(nvmlDeviceGetClockInfo)(const struct device *device, int which, unsigned *ret)
{
    (void)which;
    return nvml_answer_number(device, ret, CLOCK_MHZ);
}

NVML(nvmlDeviceGetMaxClockInfo)(const struct device *device, int which, unsigned *ret)
{
    (void)which;
    return nvml_answer_number(device, ret, CLOCK_MHZ);
}

/* An attribute of the devices, as the driver has it. */
static int nvml_attribute(CUdevice_attribute which)
{
    int value = 0;
    (void)sim_model_attribute(nvml.config.model, which, &value);
    return value;
}

NVML(nvmlDeviceGetCudaComputeCapability)(const struct device *device, int *major, int *minor)
{
    if (!device || !major || !minor)
        return INVALID_ARGUMENT;
    *major = nvml_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = nvml_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return SUCCESS;
}

NVML(nvmlDeviceGetComputeMode)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, 0);
}

NVML(nvmlDeviceGetPersistenceMode)(const struct device *device, unsigned *ret)
{
    return nvml_answer_number(device, ret, 1);
}

/* Every processor: there is no device that would be nearer to some. */
NVML(nvmlDeviceGetCpuAffinity)(const struct device *device, unsigned words, unsigned long *ret)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (!device || !ret || !words)
        return INVALID_ARGUMENT;
    memset(ret, 0, words * sizeof *ret);
    for (long i = 0; i < processors && i < (long)words * 64; i++)
        ret[i / 64] |= 1ul << i % 64;
    return SUCCESS;
}

NVML(nvmlDeviceGetP2PStatus)(const struct device *first, const struct device *second, int which, unsigned *ret)
{
    enum { P2P_OK, P2P_NOT_SUPPORTED = 5, CAPABILITY_NVLINK = 2 };
    bool can = nvml.config.peers && which != CAPABILITY_NVLINK;
    return second ? nvml_answer_number(first, ret, can ? P2P_OK : P2P_NOT_SUPPORTED) : INVALID_ARGUMENT;
}

#define ABSENT(name)                 \
    NVML(name)(void)                 \
    {                                \
        return NOT_SUPPORTED;        \
    }
ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ABSENT(nvmlDeviceGetGpuFabricInfo)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
ABSENT(nvmlDeviceGetFanSpeed)
ABSENT(nvmlDeviceGetMigMode)
ABSENT(nvmlDeviceGetTotalEnergyConsumption)
ABSENT(nvmlDeviceGetEccMode)
