/* The answer of an examination, from what was found. */
#include "doctor/examination.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch/own_runtime.h"
#include "size.h"

#define TWO_DRIVERS                                                                                                    \
    "%s has two drivers loaded, %.150s and %.150s: calls of the one that was loaded later, or that was loaded into a " \
    "namespace of its own, are not seen"

__attribute__((format(printf, 3, 4))) void sg_doctor_conclude(struct sg_examination *examination,
    enum sg_doctor_answer answer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(examination->because, sizeof examination->because, format, arguments);
    va_end(arguments);
    examination->answer = answer;
}

/* Why the library hands everything on in the environment that has been prepared, or NULL. */
static const char *switched_off(const struct sg_examination *examination)
{
    const char *injection = getenv("CUDA_INJECTION64_PATH");
    if (examination->conf.backend == SG_BACKEND_CUDA_MALLOC_ASYNC)
        return "the option backend:cudaMallocAsync hands everything on to the driver";
    if (injection && *injection)
        return "a profiler or checker is loaded (CUDA_INJECTION64_PATH), which the library stays out of";
    return NULL;
}

/* Behind "no device": the list that may hide them, "" where there is none. */
static const char *hidden_by(char ret[64])
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    *ret = '\0';
    if (list)
        snprintf(ret, 64, " (CUDA_VISIBLE_DEVICES is \"%.30s\")", list);
    return ret;
}

void sg_doctor_judge_machine(struct sg_examination *examination)
{
    char hidden[64];
    const struct sg_probe *probe = &examination->probe;
    const char *off = switched_off(examination);
    if (!probe->driver)
        sg_doctor_conclude(examination, SG_DOCTOR_NO_DRIVER,
            "there is no CUDA driver (libcuda.so.1); --sim gives a simulated one");
    else if (probe->result != 0 || probe->devices == 0)
        sg_doctor_conclude(examination, SG_DOCTOR_NO_DEVICE,
            "the driver has no device (cuInit says %d)%s; --sim gives a simulated one", probe->result,
            hidden_by(hidden));
    else if (off)
        sg_doctor_conclude(examination, SG_DOCTOR_SWITCHED_OFF, "%s", off);
    else if (!probe->device[0].vmm)
        sg_doctor_conclude(examination, SG_DOCTOR_READY,
            "without virtual memory management memory will be served from fixed segments");
    else
        sg_doctor_conclude(examination, SG_DOCTOR_READY, "nothing is missing");
}

const char *sg_doctor_name(const struct sg_watched *process)
{
    return *process->program ? process->program : "the command";
}

/* A runtime works with drivers of its own major version, however old, and with newer ones. */
static bool is_too_old(const struct sg_examination *examination, const struct sg_watched *process)
{
    return examination->probe.driver && examination->probe.version > 0 &&
           process->runtime_major > examination->probe.version / 1000;
}

/* No allocation is on record: why is it so of a process that had the driver loaded? */
static void judge_unserved(struct sg_examination *examination, const struct sg_watched *process)
{
    const char *off = switched_off(examination);
    char hidden[64];
    if (!process->library && !process->dynamic)
        sg_doctor_conclude(examination, SG_DOCTOR_STATIC, "%s is statically linked: nothing can be preloaded into it",
            sg_doctor_name(process));
    else if (!process->library)
        sg_doctor_conclude(examination, SG_DOCTOR_NOT_LOADED,
            "%s ran without the library: something on the way took LD_PRELOAD away (env -i, sudo, a container, or a "
            "program with more rights than its caller)",
            sg_doctor_name(process));
    else if (off)
        sg_doctor_conclude(examination, SG_DOCTOR_SWITCHED_OFF, "%s", off);
    else if (*process->own_runtime && examination->launch.sim)
        sg_doctor_conclude(examination, SG_DOCTOR_OWN_RUNTIME, "%s " SG_OWN_RUNTIME_TEXT, process->own_runtime);
    else if (is_too_old(examination, process))
        sg_doctor_conclude(examination, SG_DOCTOR_OLD_DRIVER,
            "the driver, for CUDA %d.%d, is too old for the runtime of %s, libcudart.so.%d: a newer driver is needed, "
            "or "
            "a build of the program for CUDA %d",
            examination->probe.version / 1000, examination->probe.version % 1000 / 10, sg_doctor_name(process),
            process->runtime_major, examination->probe.version / 1000);
    else if (examination->probe.devices == 0)
        sg_doctor_conclude(examination, SG_DOCTOR_NO_DEVICE, "%s found no CUDA device%s", sg_doctor_name(process),
            hidden_by(hidden));
    else if (*process->drivers[1])
        sg_doctor_conclude(examination, SG_DOCTOR_ELSEWHERE, TWO_DRIVERS, sg_doctor_name(process), process->drivers[0],
            process->drivers[1]);
    else if (process->torch)
        sg_doctor_conclude(examination, SG_DOCTOR_ELSEWHERE,
            "%s used PyTorch, but no cudaMalloc was seen: its own cache took memory by another way "
            "(expandable_segments:True or backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF), or it made no tensor "
            "on a GPU",
            sg_doctor_name(process));
    else
        sg_doctor_conclude(examination, SG_DOCTOR_ELSEWHERE,
            "no cudaMalloc or cuMemAlloc of %s came by: its memory, if it took any, came from cuMemCreate, from "
            "cudaMallocAsync's pools, or was managed memory, which are left alone; or CUDA was loaded with dlmopen or "
            "RTLD_DEEPBIND, by a libcuda that hands out functions of another library, or another preloaded library "
            "answers in front",
            sg_doctor_name(process));
}

/* A process that has a second driver, whose allocations nobody counts; NULL: none has. */
static const struct sg_watched *with_two_drivers(const struct sg_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++)
        if (*watch->process[i].drivers[1])
            return &watch->process[i];
    return NULL;
}

/* The conclusion on a command none of whose processes loaded the driver. */
static void judge_idle(struct sg_examination *examination)
{
    const struct sg_watched *command = &examination->watch.process[0];
    for (size_t i = 0; i < examination->watch.count; i++) {
        const struct sg_watched *process = &examination->watch.process[i];
        if (process->seen && !process->dynamic) {
            judge_unserved(examination, process);
            return;
        }
        if (process->runtime)
            command = process;
    }
    if (!examination->watch.traced || !command->seen)
        sg_doctor_conclude(examination, SG_DOCTOR_UNKNOWN, "no statistics were left, and %s",
            examination->watch.traced ? "the command was killed" : "this system does not let the command be watched");
    else if (!command->library)
        judge_unserved(examination, command);
    else if (command->runtime && !examination->probe.driver)
        sg_doctor_conclude(examination, SG_DOCTOR_NO_DRIVER, "%s found no CUDA driver; --sim gives a simulated one",
            sg_doctor_name(command));
    else
        sg_doctor_conclude(examination, SG_DOCTOR_NO_CUDA, "%s made no CUDA call", sg_doctor_name(command));
}

void sg_doctor_judge_command(struct sg_examination *examination)
{
    uint64_t served = examination->total.served, passed_on = examination->total.passed_on;
    uint64_t outside = examination->total.outside, all = served + passed_on + outside;
    const struct sg_watch *watch = &examination->watch;
    if (outside) {
        sg_doctor_conclude(examination, served ? SG_DOCTOR_PARTLY : SG_DOCTOR_PASSED_ON,
            "%" PRIu64 " of %" PRIu64 " allocation%s %s by cudaMallocAsync, "
            "cuMemCreate, managed memory, arrays or graphs, which segalloc leaves to the driver",
            outside, all, sg_plural(all), outside == 1 ? "was" : "were");
        return;
    }
    if (served && !passed_on) {
        const struct sg_watched *two = with_two_drivers(watch);
        if (two)
            sg_doctor_conclude(examination, SG_DOCTOR_PARTLY, "%" PRIu64 " allocation%s served, but " TWO_DRIVERS,
                served, served == 1 ? " was" : "s were", sg_doctor_name(two), two->drivers[0], two->drivers[1]);
        else if (examination->total.failed)
            sg_doctor_conclude(examination, SG_DOCTOR_SERVED,
                "%" PRIu64 " allocation%s served, and %" PRIu64 " failed for want of memory", served,
                served == 1 ? " was" : "s were", examination->total.failed);
        else
            sg_doctor_conclude(examination, SG_DOCTOR_SERVED,
                served == 1 ? "the only allocation was served" : "all %" PRIu64 " allocations were served", served);
        return;
    }
    if (served || passed_on) {
        sg_doctor_conclude(examination, served ? SG_DOCTOR_PARTLY : SG_DOCTOR_PASSED_ON,
            "the driver served %" PRIu64 " of %" PRIu64 " allocation%s", passed_on, served + passed_on,
            sg_plural(served + passed_on));
        return;
    }
    if (examination->total.failed) {
        sg_doctor_conclude(examination, SG_DOCTOR_ELSEWHERE,
            "no allocation succeeded, and %" PRIu64 " failed for want of memory", examination->total.failed);
        return;
    }
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->process[i].driver) {
            judge_unserved(examination, &watch->process[i]);
            return;
        }
    }
    judge_idle(examination);
}
