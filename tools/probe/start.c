#include "start.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "nvrtc.h"
#include "probe.h"

/* Keeps one thread busy for as many nanoseconds by the device's own clock; for a driver that compiles it, where no
   compiler of CUDA is at hand. */
static const char spin_source[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 length)\n{\n"
    "  .reg .u64 %begin, %now, %length;\n  .reg .pred %more;\n"
    "  ld.param.u64 %length, [length];\n  mov.u64 %begin, %globaltimer;\n"
    "again:\n  mov.u64 %now, %globaltimer;\n  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %more, %now, %length;\n  @%more bra again;\n  ret;\n}\n";

static bool find_driver(void)
{
    probe.cu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!probe.cu.library) {
        probe_say("'error': 'no libcuda.so.1'");
        return false;
    }
#define CALL(symbol) *(void **)&probe.cu.symbol = dlsym(probe.cu.library, #symbol);
#include "calls.def"
    *(void **)&probe.virtual_ns = dlsym(probe.cu.library, "segalloc_sim_ns");
    probe.simulated = probe.virtual_ns != NULL;
    return true;
}

static CUresult open_device(void)
{
    CUmemAllocationProp prop = probe_prop();
    CUresult result = probe_answered("cuInit", probe.cu.cuInit ? probe.cu.cuInit(0) : CUDA_ERROR_NOT_FOUND);
    if (result == CUDA_SUCCESS)
        result = ASK(cuDeviceGet, &probe.device, probe.ordinal);
    if (result == CUDA_SUCCESS)
        result = ASK(cuDevicePrimaryCtxRetain, &probe.context, probe.device);
    if (result == CUDA_SUCCESS)
        result = ASK(cuCtxSetCurrent, probe.context);
    if (result == CUDA_SUCCESS)
        result = ASK(cuStreamCreate, &probe.load, CU_STREAM_NON_BLOCKING);
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

/* The kernels as NVRTC compiles them. False: there is none, or the device is simulated and runs none. */
static bool start_compile_kernels(CUmodule *ret)
{
    int major = 0, minor = 0;
    if (probe.simulated || !probe.cu.cuModuleLoadData ||
        probe.cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, probe.device) !=
            CUDA_SUCCESS ||
        probe.cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, probe.device) !=
            CUDA_SUCCESS)
        return false;
    char *image = probe_compile_kernels(major, minor);
    bool loaded = image && probe.cu.cuModuleLoadData(ret, image) == CUDA_SUCCESS;
    free(image);
    return loaded;
}

static void start_load_kernels(void)
{
    CUmodule module;
    if (probe.kernels_path && probe.cu.cuModuleLoad &&
        probe.cu.cuModuleLoad(&module, probe.kernels_path) == CUDA_SUCCESS)
        find_kernels(module);
    else if (probe.compiles && start_compile_kernels(&module))
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
        return probe_refused("opening the device", result);
    start_load_kernels();
    return true;
}
