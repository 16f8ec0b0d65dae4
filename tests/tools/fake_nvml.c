/* Stands in for libnvidia-ml.so.1: three devices. The second has no figures of memory, as integrated ones; of the third nothing may
   be asked. NVML_BEGINS names a file that gets a line for each time it begins. With NVML_RELOAD the second look fails, as after another
   driver was loaded. */
#include <stdio.h>
#include <stdlib.h>

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilization {
    unsigned gpu, memory;
};

#define API __attribute__((visibility("default")))
enum { UNINITIALIZED = 1, NOT_SUPPORTED = 3, NO_PERMISSION = 4 };
static char devices[3];

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetCount_v2(unsigned *ret);
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
API int nvmlDeviceGetUUID(void *device, char *ret, unsigned size);
API int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *ret);
API int nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *ret);

int nvmlInit_v2(void)
{
    const char *name = getenv("NVML_BEGINS");
    FILE *file = name ? fopen(name, "a") : NULL;
    if (file) {
        fputs("begun\n", file);
        fclose(file);
    }
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    static int looks;
    if (++looks == 2 && getenv("NVML_RELOAD"))
        return UNINITIALIZED;
    *ret = sizeof devices;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
    *ret = &devices[index];
    return index == 2 ? NO_PERMISSION : 0;
}

int nvmlDeviceGetUUID(void *device, char *ret, unsigned size)
{
    snprintf(ret, size, "GPU-0000000%d-of-a-stand-in", (int)((char *)device - devices));
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *ret)
{
    if (device != devices)
        return NOT_SUPPORTED;
    *ret = (struct nvml_memory){24ULL << 30, 9ULL << 30, 15ULL << 30};
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *ret)
{
    *ret = (struct nvml_utilization){45, 7};
    return device == devices ? 0 : NOT_SUPPORTED;
}
