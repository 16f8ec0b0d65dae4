/* Types and functions as nvml.h of the CUDA toolkit has them. The library is loaded and begun once, for as long as the tool
   runs. A GPU that nobody uses may take seconds to wake up, and `segalloc top` looks every second. */
#include "monitor/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct nvml_handle *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilization {
    unsigned gpu, memory;
};

static struct {
    bool looked, there, begun;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *ret);
    int (*device)(unsigned index, nvml_device *ret);
    int (*uuid)(nvml_device device, char *ret, unsigned size);
    int (*memory)(nvml_device device, struct nvml_memory *ret);
    int (*utilization)(nvml_device device, struct nvml_utilization *ret); /* NULL: the library has none */
} nvml;

/* Copies a symbol into a pointer to a function. False: it is not there. */
static bool nvml_find(void *library, const char *name, void *ret)
{
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool nvml_load(void)
{
    if (nvml.looked)
        return nvml.there;
    nvml.looked = true;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    (void)nvml_find(library, "nvmlDeviceGetUtilizationRates", &nvml.utilization);
    nvml.there = nvml_find(library, "nvmlInit_v2", &nvml.init) && nvml_find(library, "nvmlShutdown", &nvml.shutdown) &&
                 nvml_find(library, "nvmlDeviceGetCount_v2", &nvml.count) &&
                 nvml_find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.device) &&
                 nvml_find(library, "nvmlDeviceGetUUID", &nvml.uuid) &&
                 nvml_find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
    return nvml.there;
}

/* Reads one device. False: NVML has no such device, or not for this user. */
static bool nvml_read_device(unsigned index, struct sg_nvml_device *ret)
{
    struct nvml_memory memory;
    struct nvml_utilization utilization;
    nvml_device device;
    if (nvml.device(index, &device) != 0)
        return false;
    *ret = (struct sg_nvml_device){.index = index, .busy_percent = -1};
    if (nvml.uuid(device, ret->uuid, sizeof ret->uuid) != 0)
        ret->uuid[0] = '\0';
    if (nvml.memory(device, &memory) == 0) {
        ret->total_bytes = memory.total;
        ret->used_bytes = memory.used;
    }
    if (nvml.utilization && nvml.utilization(device, &utilization) == 0)
        ret->busy_percent = (int)utilization.gpu;
    return true;
}

unsigned sg_nvml_read(struct sg_nvml_device ret[SG_NVML_DEVICES])
{
    unsigned count = 0, found = 0;
    if (!nvml_load())
        return 0;
    nvml.begun = nvml.begun || nvml.init() == 0;
    if (!nvml.begun)
        return 0;
    if (nvml.count(&count) != 0) { /* the driver is another one now: the next look begins anew */
        (void)nvml.shutdown();
        nvml.begun = false;
        return 0;
    }
    for (unsigned i = 0; i < count && found < SG_NVML_DEVICES; i++)
        found += nvml_read_device(i, &ret[found]);
    return found;
}

json_t *sg_nvml_json(void)
{
    struct sg_nvml_device device[SG_NVML_DEVICES];
    unsigned count = sg_nvml_read(device);
    json_t *devices = sg_json_array();
    for (unsigned i = 0; i < count; i++) {
        json_t *result = sg_json_object(NULL);
        SG_JSON_NUMBERS(result, {"index", device[i].index});
        sg_json_set_text(result, "uuid", *device[i].uuid ? device[i].uuid : NULL);
        sg_json_set_known(result, "total_bytes", device[i].total_bytes, device[i].total_bytes > 0);
        sg_json_set_known(result, "used_bytes", device[i].used_bytes, device[i].total_bytes > 0);
        sg_json_set_known(result, "busy_percent", (uint64_t)device[i].busy_percent, device[i].busy_percent >= 0);
        sg_json_add(devices, result);
    }
    return devices;
}
