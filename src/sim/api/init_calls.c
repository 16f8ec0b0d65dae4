/* Entry points that start the driver, and say which it is. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/device_start.h"
#include "api/exports.h"
#include "calls.h"
#include "hazard/hazard.h"
#include "inherited.h"
#include "streams/executor.h"
#include "streams/schedule.h"
#include "visible.h"

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static void fork_begins(void)
{
    sim_lock();
}

static void fork_over_in_parent(void)
{
    sim_unlock();
}

static void fork_over_in_child(void)
{
    sim_state_set(SIM_FORKED);
    sim_unlock();
}

/* The process that started the driver. A child by the kernel's clone, which calls no handler of a fork, has none of the
   threads that would be waited for. */
static pid_t started_by;

static void driver_end(void)
{
    if (sim_state_now() != SIM_READY || started_by != getpid())
        return;
    sim_state_set(SIM_GONE);
    sim_executor_stop();
    if (sim.config.hazard_exit && sim_hazard_reports()) {
        fflush(NULL);
        _exit(sim.config.hazard_exit);
    }
}

/* A list that begins with a device of a larger machine is a mistake in the settings; "" and "-1" hide all on purpose. */
static void driver_say_hidden(const char *list)
{
    static bool said;
    if (said || !list || strtol(list, NULL, 10) < sim.config.devices || !sim.config.devices)
        return;
    said = true;
    fprintf(stderr,
        "segalloc simulator: CUDA_VISIBLE_DEVICES=%.40s names no device of a machine that has %d; count=N makes more "
        "(segalloc rehearse: --devices N)\n",
        list, sim.config.devices);
}

/* The devices that CUDA_VISIBLE_DEVICES leaves. The driver reads the environment once, whatever comes of it. */
static CUresult driver_start_devices(void)
{
    static bool read;
    static char *list; /* NULL: all */
    int index[SIM_DEVICES_MAX];
    const char *set = read ? NULL : getenv("CUDA_VISIBLE_DEVICES");
    if (set && !(list = strdup(set)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    read = true;
    int count = sim_visible(&sim.config, list, index);
    if (!count)
        driver_say_hidden(list);
    return count ? sim_devices_start(index, count) : CUDA_ERROR_NO_DEVICE;
}

static CUresult driver_start(void)
{
    static bool complained;
    const char *complaint = sim_config_parse(sim_inherited_setting(), &sim.config);
    if (complaint && !complained)
        fprintf(stderr, "%s\n", complaint);
    complained = complaint != NULL;
    if (complaint)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exports_follow(sim.config.driver);
    started_by = getpid();
    CUresult result = driver_start_devices();
    if (result != CUDA_SUCCESS)
        return result;
    if (sim.config.scheduled)
        sim_schedule_start(sim.config.seed, sim.config.run_ahead);
    sim_calls_configure(&sim.config);
    pthread_atfork(fork_begins, fork_over_in_parent, fork_over_in_child);
    atexit(driver_end);
    sim_state_set(SIM_READY);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    bool was_there = sim_state_now() != SIM_FRESH;
    CUresult result = (CUresult)sim_enter(SIM_CALL_cuInit, NULL);
    if (was_there && result != CUDA_SUCCESS)
        return result;
    if (result == CUDA_SUCCESS && flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&start_lock);
    bool ready = sim_state_now() == SIM_READY;
    if (result == CUDA_SUCCESS && !ready)
        result = driver_start();
    if (result != CUDA_SUCCESS && !ready)
        sim_state_set(SIM_FAILED);
    pthread_mutex_unlock(&start_lock);
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER(cuDriverGetVersion);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&start_lock);
    *version = sim_driver_version();
    pthread_mutex_unlock(&start_lock);
    return CUDA_SUCCESS;
}

/* Says once who asked for private tables: its next CUDA call will fail with "named symbol not found", which explains
   nothing. `segalloc run` says so before the start where it finds the runtime in the program's file. */
static void driver_say_whose_runtime(const void *caller)
{
    static atomic_bool said;
    const char *before = getenv("SEGALLOC_SIM_RUNTIME_SAID");
    Dl_info module;
    if (before || atomic_exchange(&said, true) || !dladdr(caller, &module) || !module.dli_fname)
        return;
    const char *slash = strrchr(module.dli_fname, '/');
    fprintf(stderr,
        "segalloc: %s is or has NVIDIA's own runtime, which can't start on the simulated GPU: link the program with "
        "-cudart shared, and without DT_RPATH\n",
        slash ? slash + 1 : module.dli_fname);
}

/* It hands out private tables by a UUID; NVIDIA's own runtime verifies the driver through them. None here. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_ENTER(cuGetExportTable);
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    driver_say_whose_runtime(__builtin_return_address(0));
    *table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
