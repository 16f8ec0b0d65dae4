#include "start.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

struct probe probe;

static uint64_t (*virtual_ns)(void);

/* Keeps one thread busy for as many nanoseconds by the device's own clock; for a driver that compiles it, where no
   compiler of CUDA is at hand. */
static const char spin_source[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 length)\n{\n"
    "  .reg .u64 %begin, %now, %length;\n  .reg .pred %more;\n"
    "  ld.param.u64 %length, [length];\n  mov.u64 %begin, %globaltimer;\n"
    "again:\n  mov.u64 %now, %globaltimer;\n  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %more, %now, %length;\n  @%more bra again;\n  ret;\n}\n";

void probe_say(const char *format, ...)
{
    char line[16384], quoted[2048];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"row\": \"%s\", ", probe.row), length = strlen(format);
    if (length >= sizeof quoted)
        abort();
    for (size_t i = 0; i <= length; i++)
        quoted[i] = format[i] == '\'' ? '"' : format[i];
    va_list values;
    va_start(values, format);
    used += (size_t)vsnprintf(line + used, sizeof line - used - 3, quoted, values);
    va_end(values);
    if (used > sizeof line - 3)
        used = sizeof line - 3;
    memcpy(line + used, "}\n", 2);
    if (write(STDOUT_FILENO, line, used + 2) < 0)
        abort();
}

bool probe_skip(const char *format, ...)
{
    char why[256];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    probe_say("'skipped': '%s'", why);
    return true;
}

bool probe_refused(const char *call, CUresult result)
{
    char text[200];
    snprintf(text, sizeof text, "%s", call);
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || *at < ' ')
            *at = ' ';
    probe_say("'error': '%s', 'code': %d", text, (int)result);
    return false;
}

uint64_t probe_real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t probe_ns(void)
{
    return virtual_ns ? virtual_ns() : probe_real_ns();
}

static bool find_driver(void)
{
    probe.cu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!probe.cu.library) {
        probe_say("'error': 'no libcuda.so.1'");
        return false;
    }
#define CALL(symbol) *(void **)&probe.cu.symbol = dlsym(probe.cu.library, #symbol);
#include "calls.def"
    *(void **)&virtual_ns = dlsym(probe.cu.library, "segalloc_sim_ns");
    probe.simulated = virtual_ns != NULL;
    return true;
}

static CUresult open_device(void)
{
    CUmemAllocationProp prop = probe_prop();
    CUresult result = probe.cu.cuInit ? probe.cu.cuInit(0) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuDeviceGet(&probe.device, 0);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuDevicePrimaryCtxRetain(&probe.context, probe.device);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuCtxSetCurrent(probe.context);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuStreamCreate(&probe.load, CU_STREAM_NON_BLOCKING);
    if (!probe.cu.cuMemGetAllocationGranularity ||
        probe.cu.cuMemGetAllocationGranularity(&probe.granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        probe.granule = 2 * MIB;
    return result;
}

static void find_kernels(CUmodule module)
{
    static const struct {
        const char *name;
        CUfunction *at;
    } wanted[] = {{"spin", &probe.kernels.spin}, {"nothing", &probe.kernels.nothing}, {"sweep", &probe.kernels.sweep},
        {"put", &probe.kernels.put}, {"put_part", &probe.kernels.put_part}, {"judge", &probe.kernels.judge},
        {"judge_cached", &probe.kernels.judge_cached}, {"judge_read_only", &probe.kernels.judge_read_only},
        {"judge_asynchronous", &probe.kernels.judge_asynchronous}, {"judge_bulk", &probe.kernels.judge_bulk},
        {"put_programmatic", &probe.kernels.put_programmatic},
        {"judge_programmatic", &probe.kernels.judge_programmatic}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (probe.cu.cuModuleGetFunction(wanted[i].at, module, wanted[i].name) != CUDA_SUCCESS)
            *wanted[i].at = NULL;
}

static void load_kernels(void)
{
    CUmodule module;
    if (probe.kernels_path && probe.cu.cuModuleLoad &&
        probe.cu.cuModuleLoad(&module, probe.kernels_path) == CUDA_SUCCESS)
        find_kernels(module);
    else if (probe.cu.cuModuleLoadData && probe.cu.cuModuleLoadData(&module, spin_source) == CUDA_SUCCESS)
        find_kernels(module);
    if (probe.simulated)
        probe_declare_kernels();
}

bool probe_start(void)
{
    if (!find_driver())
        return false;
    CUresult result = open_device();
    if (result != CUDA_SUCCESS)
        return probe_refused("opening the first device", result);
    load_kernels();
    return true;
}
