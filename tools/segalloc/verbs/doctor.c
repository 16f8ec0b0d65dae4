/* segalloc doctor: are this command's allocations served by us, and if not, why not? */
#include "json.h"
#include "tool.h"

#include "conf.h"
#include "effective_conf.h"
#include "launch/launch.h"
#include "install_paths.h"
#include "launch/machine.h"
#include "launch/own_runtime.h"
#include "monitor/live_page.h"
#include "size.h"
#include "reader/stats_read.h"
#include "launch/loaded_libraries.h"

#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLI_VERB "doctor"
#define CLI_ROWS "verbs/doctor.def"
#include "cli/rows.h"

/* The answers, with the words that --json has for them. */
#define ANSWERS(X)                      \
    X(READY, "ready")                   \
    X(SERVED, "served")                 \
    X(PARTLY, "partly_served")          \
    X(PASSED_ON, "passed_on")           \
    X(STATIC, "statically_linked")      \
    X(OWN_RUNTIME, "runtime_within")    \
    X(NOT_LOADED, "not_loaded")         \
    X(SWITCHED_OFF, "switched_off")     \
    X(NO_DEVICE, "no_device")           \
    X(NO_DRIVER, "no_driver")           \
    X(OLD_DRIVER, "driver_too_old")     \
    X(NO_LIBRARY, "no_library")         \
    X(GLIBC, "glibc_too_old")           \
    X(ELSEWHERE, "allocated_elsewhere") \
    X(NO_CUDA, "no_cuda_call")          \
    X(UNKNOWN, "unknown")

enum answer {
#define ANSWER(name, word) name,
    ANSWERS(ANSWER)
#undef ANSWER
};

static const char *const answer_words[] = {
#define ANSWER(name, word) word,
    ANSWERS(ANSWER)
#undef ANSWER
};

struct served {
    uint64_t served, passed_on; /* allocations, on all devices */
    uint64_t outside;           /* those by calls that segalloc does not serve */
    uint64_t failed;            /* by any call, for want of memory */
    uint64_t vmm_errors;        /* of the driver's memory management */
    char untracked_by[64];      /* the call by which the order of streams was lost; "": it was not */
    char aliases[96];           /* whether pages may have two addresses, as the library says it; "": there are none */
    char pytorch[32];           /* who keeps a cache of PyTorch's tensors, as the library says it; "": no PyTorch */
};

struct examination {
    struct sg_launch launch;
    char **command; /* NULL: look at the machine only */
    bool running;   /* … or at a process that runs */
    struct sg_conf conf;
    char library[SG_PLACE_BYTES], glibc[32], folders[SG_PLACE_BYTES];
    bool library_found;
    struct sg_probe probe;
    struct sg_watch watch;
    struct served *served; /* of each watched process */
    struct served total;
    enum answer answer;
    char because[600];
};

__attribute__((format(printf, 3, 4))) static void conclude(struct examination *examination, enum answer answer,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(examination->because, sizeof examination->because, format, arguments);
    va_end(arguments);
    examination->answer = answer;
}

/* False when what is wrong with the library settles the answer already. */
static bool examine_library(struct examination *examination)
{
    examination->library_found = sg_place_library(examination->library);
    if (!examination->library_found) {
        *examination->library = '\0';
        conclude(examination, NO_LIBRARY, "libsegalloc.so.0 was not found; name it in SEGALLOC_LIB");
        return false;
    }
    if (!sg_probe_glibc(examination->library, examination->glibc, sizeof examination->glibc)) {
        conclude(examination, NO_LIBRARY, "%.300s is no library for this machine", examination->library);
        return false;
    }
    if (strverscmp(examination->glibc, gnu_get_libc_version()) > 0) {
        conclude(examination, GLIBC, "the library needs glibc %s, here is %s", examination->glibc,
                 gnu_get_libc_version());
        return false;
    }
    return true;
}

/* Why the library hands everything on in the environment that has been prepared, or NULL. */
static const char *switched_off(const struct examination *examination)
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

static void judge_machine(struct examination *examination)
{
    char hidden[64];
    const struct sg_probe *probe = &examination->probe;
    const char *off = switched_off(examination);
    if (!probe->driver)
        conclude(examination, NO_DRIVER, "there is no CUDA driver (libcuda.so.1); --sim gives a simulated one");
    else if (probe->result != 0 || probe->devices == 0)
        conclude(examination, NO_DEVICE, "the driver has no device (cuInit says %d)%s; --sim gives a simulated one",
            probe->result, hidden_by(hidden));
    else if (off)
        conclude(examination, SWITCHED_OFF, "%s", off);
    else if (!probe->device[0].vmm)
        conclude(examination, READY, "without virtual memory management memory will be served from fixed segments");
    else
        conclude(examination, READY, "nothing is missing");
}

static const char *name_of(const struct sg_watched *process)
{
    return *process->program ? process->program : "the command";
}

/* A runtime works with drivers of its own major version, however old, and with newer ones. */
static bool is_too_old(const struct examination *examination, const struct sg_watched *process)
{
    return examination->probe.driver && examination->probe.version > 0 &&
           process->runtime_major > examination->probe.version / 1000;
}

#define TWO_DRIVERS                                                                                                    \
    "%s has two drivers loaded, %.150s and %.150s: calls of the one that was loaded later, or that was loaded into a "   \
    "namespace of its own, are not seen"

/* No allocation is on record: why is it so of a process that had the driver loaded? */
static void judge_unserved(struct examination *examination, const struct sg_watched *process)
{
    const char *off = switched_off(examination);
    char hidden[64];
    if (!process->library && !process->dynamic)
        conclude(examination, STATIC, "%s is statically linked: nothing can be preloaded into it", name_of(process));
    else if (!process->library)
        conclude(examination, NOT_LOADED,
            "%s ran without the library: something on the way took LD_PRELOAD away (env -i, sudo, a container, or a "
            "program with more rights than its caller)",
            name_of(process));
    else if (off)
        conclude(examination, SWITCHED_OFF, "%s", off);
    else if (*process->own_runtime && examination->launch.sim)
        conclude(examination, OWN_RUNTIME, "%s " SG_OWN_RUNTIME_TEXT, process->own_runtime);
    else if (is_too_old(examination, process))
        conclude(examination, OLD_DRIVER,
            "the driver, for CUDA %d.%d, is too old for the runtime of %s, libcudart.so.%d: a newer driver is needed, "
            "or "
            "a build of the program for CUDA %d",
            examination->probe.version / 1000, examination->probe.version % 1000 / 10, name_of(process),
            process->runtime_major, examination->probe.version / 1000);
    else if (examination->probe.devices == 0)
        conclude(examination, NO_DEVICE, "%s found no CUDA device%s", name_of(process), hidden_by(hidden));
    else if (*process->drivers[1])
        conclude(examination, ELSEWHERE, TWO_DRIVERS, name_of(process), process->drivers[0], process->drivers[1]);
    else if (process->torch)
        conclude(examination, ELSEWHERE,
            "%s used PyTorch, but no cudaMalloc was seen: its own cache took memory by another way "
            "(expandable_segments:True or backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF), or it made no tensor "
            "on a GPU",
            name_of(process));
    else
        conclude(examination, ELSEWHERE,
            "no cudaMalloc or cuMemAlloc of %s came by: its memory, if it took any, came from cuMemCreate, from "
            "cudaMallocAsync's pools, or was managed memory, which are left alone; or CUDA was loaded with dlmopen or "
            "RTLD_DEEPBIND, by a libcuda that hands out functions of another library, or another preloaded library "
            "answers in front",
            name_of(process));
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
static void judge_idle(struct examination *examination)
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
        conclude(examination, UNKNOWN, "no statistics were left, and %s", examination->watch.traced
                     ? "the command was killed" : "this system does not let the command be watched");
    else if (!command->library)
        judge_unserved(examination, command);
    else if (command->runtime && !examination->probe.driver)
        conclude(examination, NO_DRIVER, "%s found no CUDA driver; --sim gives a simulated one", name_of(command));
    else
        conclude(examination, NO_CUDA, "%s made no CUDA call", name_of(command));
}

static void judge_command(struct examination *examination)
{
    uint64_t served = examination->total.served, passed_on = examination->total.passed_on;
    uint64_t outside = examination->total.outside, all = served + passed_on + outside;
    const struct sg_watch *watch = &examination->watch;
    if (outside) {
        conclude(examination, served ? PARTLY : PASSED_ON, "%" PRIu64 " of %" PRIu64 " allocation%s %s by cudaMallocAsync, "
            "cuMemCreate, managed memory, arrays or graphs, which segalloc leaves to the driver", outside, all, sg_plural(all),
            outside == 1 ? "was" : "were");
        return;
    }
    if (served && !passed_on) {
        const struct sg_watched *two = with_two_drivers(watch);
        if (two)
            conclude(examination, PARTLY, "%" PRIu64 " allocation%s served, but " TWO_DRIVERS, served,
                served == 1 ? " was" : "s were", name_of(two), two->drivers[0], two->drivers[1]);
        else
            conclude(examination, SERVED,
                served == 1 ? "the only allocation was served" : "all %" PRIu64 " allocations were served", served);
        return;
    }
    if (served || passed_on) {
        conclude(examination, served ? PARTLY : PASSED_ON, "the driver served %" PRIu64 " of %" PRIu64 " allocation%s",
            passed_on, served + passed_on, sg_plural(served + passed_on));
        return;
    }
    if (examination->total.failed) {
        conclude(examination, ELSEWHERE, "no allocation succeeded, and %" PRIu64 " failed for want of memory",
            examination->total.failed);
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

static void print_machine(const struct examination *examination)
{
    const struct sg_probe *probe = &examination->probe;
    char size[SG_SIZE_TEXT];
    if (examination->library_found)
        printf("  library  %s (needs glibc %s, here is %s)\n", examination->library,
               *examination->glibc ? examination->glibc : "of any age", gnu_get_libc_version());
    if (probe->driver)
        printf("  driver   for CUDA %d.%d, %d device%s\n", probe->version / 1000, probe->version % 1000 / 10,
            probe->devices, sg_plural((uint64_t)probe->devices));
    else
        puts("  driver   none");
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++)
        printf("  device   %d: %s, %s, %s virtual memory management\n", i, probe->device[i].name,
               sg_size_format(probe->device[i].bytes, size), probe->device[i].vmm ? "with" : "without");
}

/* What a mode of PyTorch means, by its first word. */
static const char *pytorch_means(const char *mode)
{
    if (strchr(mode, ','))
        return "every tensor came here until PyTorch began a pool of its own, as CUDA graphs do";
    if (strcmp(mode, "direct") == 0)
        return "its cache is off, every tensor comes here";
    if (strcmp(mode, "beneath") == 0)
        return "its cache is on, what that takes comes here";
    return "its tensors come here by its pluggable allocator";
}

static void print_text(const struct examination *examination)
{
    static const char *const openings[] = {[READY] = "ready: ", [SERVED] = "served: ", [PARTLY] = "partly served: "};
    const char *opening = examination->answer <= PARTLY ? openings[examination->answer] : "not served: ";
    printf("%s%s\n", opening, examination->because);
    if (!examination->running)
        print_machine(examination);
    for (size_t i = 0; i < examination->watch.count; i++) {
        const struct sg_watched *process = &examination->watch.process[i];
        const struct served *served = &examination->served[i];
        if (!process->driver && !process->runtime && i > 0)
            continue;
        printf("  process  %d %s: library %s, driver %s, %" PRIu64 " allocation%s served, %" PRIu64 " passed on\n",
            (int)process->pid, name_of(process), process->library ? "loaded" : "not loaded",
            process->driver ? "loaded" : "not loaded", served->served, sg_plural(served->served), served->passed_on);
    }
    if (*examination->total.untracked_by)
        printf("  order    of streams lost at %s, which this version does not know: freed memory waits for all work\n",
               examination->total.untracked_by);
    if (examination->total.failed)
        printf("  failed   %" PRIu64 " allocation%s, by whichever call, for want of memory\n",
            examination->total.failed, sg_plural(examination->total.failed));
    if (examination->total.vmm_errors)
        printf("  errors   %" PRIu64 " call%s of the driver's memory management failed; memory was had without\n",
            examination->total.vmm_errors, sg_plural(examination->total.vmm_errors));
    if (strncmp(examination->total.aliases, "off", 3) == 0)
        printf("  aliases  %s\n", examination->total.aliases);
    if (*examination->total.pytorch)
        printf("  PyTorch  %s: %s\n", examination->total.pytorch, pytorch_means(examination->total.pytorch));
    if (examination->command)
        printf("  command  ended with status %d\n", examination->watch.status);
}

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

static void json_found(json_t *object, const struct served *served)
{
    SG_JSON_NUMBERS(object, {"failures", served->failed}, {"vmm_errors", served->vmm_errors}, {"untracked_order", *served->untracked_by != '\0'});
    sg_json_set_text(object, "untracked_by", text_or_null(served->untracked_by));
    sg_json_set_text(object, "pytorch_mode", text_or_null(served->pytorch));
    sg_json_set_text(object, "aliases", text_or_null(served->aliases));
}

static json_t *json_process(const struct sg_watched *process, const struct served *served)
{
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"pid", (uint64_t)process->pid});
    sg_json_set_text(result, "program", process->program);
    sg_json_set_flag(result, "watched", process->seen);
    sg_json_set_flag(result, "dynamic", process->dynamic);
    sg_json_set_flag(result, "library", process->library);
    sg_json_set_flag(result, "driver", process->driver);
    sg_json_set_flag(result, "runtime", process->runtime);
    sg_json_set_flag(result, "pytorch", process->torch);
    SG_JSON_NUMBERS(result, {"served", served->served}, {"passed_on", served->passed_on});
    json_found(result, served);
    return result;
}

static json_t *json_devices(const struct sg_probe *probe)
{
    json_t *devices = sg_json_array();
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++) {
        json_t *device = sg_json_object(NULL);
        sg_json_set_text(device, "name", probe->device[i].name);
        SG_JSON_NUMBERS(device, {"bytes", probe->device[i].bytes});
        sg_json_set_flag(device, "vmm", probe->device[i].vmm);
        sg_json_add(devices, device);
    }
    return devices;
}

static void print_json(const struct examination *examination)
{
    const struct served *total = &examination->total;
    json_t *result = sg_json_object("segalloc.doctor/1"), *processes = sg_json_array();
    sg_json_set_text(result, "answer", answer_words[examination->answer]);
    sg_json_set_text(result, "because", examination->because);
    SG_JSON_NUMBERS(result, {"served", total->served}, {"passed_on", total->passed_on}, {"outside", total->outside});
    sg_json_set_text(result, "library", examination->library);
    json_found(result, total);
    sg_json_set_text(result, "glibc_needed", examination->glibc);
    sg_json_set_text(result, "glibc", gnu_get_libc_version());
    sg_json_set_signed(result, "driver_version", examination->probe.version);
    sg_json_set(result, "devices", json_devices(&examination->probe));
    for (size_t i = 0; i < examination->watch.count; i++)
        sg_json_add(processes, json_process(&examination->watch.process[i], &examination->served[i]));
    if (examination->command || examination->running) {
        sg_json_set(result, "processes", json_incref(processes));
        sg_json_set(result, "status", examination->running ? json_null() : json_integer(examination->watch.status));
    }
    json_decref(processes);
    sg_json_print(result);
}

/* Adds up what a process left. */
static struct served count(const struct sg_stats_file *file)
{
    struct served sum = {0};
    snprintf(sum.untracked_by, sizeof sum.untracked_by, "%s", file->untracked_by ? file->untracked_by : "");
    snprintf(sum.pytorch, sizeof sum.pytorch, "%s", file->pytorch ? file->pytorch : "");
    snprintf(sum.aliases, sizeof sum.aliases, "%s", file->aliases ? file->aliases : "");
    for (uint32_t i = 0; i < file->count; i++) {
        sum.served += file->devices[i].stats.value[SG_STAT_allocs];
        sum.passed_on += file->devices[i].stats.value[SG_STAT_passed_on];
        sum.outside += file->devices[i].stats.value[SG_STAT_outside_allocs];
        sum.failed += file->devices[i].stats.value[SG_STAT_ooms];
        sum.vmm_errors += file->devices[i].stats.value[SG_STAT_vmm_errors];
    }
    return sum;
}

/* Takes in, and removes, the statistics that the command's processes left in `folder`. */
static void collect(struct examination *examination, const char *folder)
{
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        char path[SG_PATH_BYTES], error[SG_STATS_ERROR];
        struct sg_stats_file file;
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%.200s/%.200s", folder, entry->d_name);
        if (sg_stats_file_read(path, &file, error) == 0) {
            const struct served served = count(&file);
            examination->total.served += served.served;
            examination->total.passed_on += served.passed_on;
            examination->total.outside += served.outside;
            examination->total.failed += served.failed;
            examination->total.vmm_errors += served.vmm_errors;
            if (*served.untracked_by)
                memcpy(examination->total.untracked_by, served.untracked_by, sizeof served.untracked_by);
            if (*served.aliases)
                memcpy(examination->total.aliases, served.aliases, sizeof served.aliases);
            if (*served.pytorch)
                memcpy(examination->total.pytorch, served.pytorch, sizeof served.pytorch);
            for (size_t i = 0; i < examination->watch.count; i++) {
                if (examination->watch.process[i].pid == atoi(entry->d_name))
                    examination->served[i] = served;
            }
            sg_stats_file_free(&file);
        } else {
            sg_tool_message(examination->launch.verb, "%s", error);
        }
        unlink(path);
    }
    if (files)
        closedir(files);
    rmdir(folder);
}

/* Runs the command with its statistics going to a folder of ours. 0, or the exit status for a failure. */
static int examine_command(struct examination *examination, bool json)
{
    const char *parent = getenv("TMPDIR");
    char folder[200], pattern[SG_PATH_BYTES];
    snprintf(folder, sizeof folder, "%.150s/segalloc-doctor.XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder)) {
        sg_tool_message(examination->launch.verb, "no folder can be made in %s", parent && *parent ? parent : "/tmp");
        return SG_EXIT_OURS;
    }
    snprintf(pattern, sizeof pattern, "%s/%%p", folder);
    setenv("SEGALLOC_STATS", pattern, 1);
    int error = sg_watch_run(&examination->launch, examination->command, json, &examination->watch);
    if (error == 0)
        examination->served = calloc(examination->watch.count + 1, sizeof *examination->served);
    if (error || !examination->served) {
        rmdir(folder);
        sg_tool_message(examination->launch.verb, "the command can't be run: %s", strerror(error ? -error : ENOMEM));
        return SG_EXIT_OURS;
    }
    collect(examination, folder);
    bool not_run = examination->watch.status >= SG_EXIT_OURS && examination->watch.status <= SG_EXIT_NOT_FOUND &&
                   strcmp(examination->watch.process[0].program, "segalloc") == 0;
    return not_run ? examination->watch.status : 0;
}

/* Whether the text is the number of a process rather than a program's name. */
static bool parse_pid(const char *text, pid_t *ret)
{
    char *end;
    long pid = strtol(text, &end, 10);
    *ret = (pid_t)pid;
    return *text >= '0' && *text <= '9' && !*end && pid > 0 && pid <= INT32_MAX && access(text, F_OK) != 0;
}

/* What a running process has loaded. False: that cannot be read. */
static bool look_at_maps(pid_t pid, struct sg_watched *process)
{
    char path[48], line[1024];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return false;
    while (fgets(line, sizeof line, maps)) {
        process->library |= strstr(line, "/libsegalloc.so") != NULL;
        process->driver |= strstr(line, "/libcuda.so") != NULL;
        process->runtime |= strstr(line, "/libcudart.so") != NULL;
        process->torch |= strstr(line, "/libtorch_cuda.so") != NULL;
        process->dynamic |= strstr(line, "/libc.so") != NULL || strstr(line, "/ld-linux") != NULL;
    }
    process->seen = true;
    fclose(maps);
    return true;
}

/* Says whether a process that runs is served: by its live page, or else by what it has loaded. */
static int examine_process(struct examination *examination, pid_t pid, bool json)
{
    char path[64], page[SG_LIVE_PATH], error[SG_STATS_ERROR];
    struct sg_stats_file file;
    struct sg_watched process = {.pid = pid};
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *comm = fopen(path, "re");
    if (comm && fgets(process.program, sizeof process.program, comm))
        process.program[strcspn(process.program, "\n")] = '\0';
    if (comm)
        fclose(comm);
    if (!*process.program)
        return sg_tool_error(examination->launch.verb, "there is no process %d", (int)pid);
    if (!look_at_maps(pid, &process))
        return sg_tool_error(examination->launch.verb, "process %d is another user's: its libraries cannot be read",
            (int)pid);
    struct served served = {0};
    bool live = sg_live_page((uint64_t)pid, page) == SG_LIVE_RUNS && sg_stats_file_read(page, &file, error) == 0;
    if (live) {
        served = examination->total = count(&file);
        sg_stats_file_free(&file);
    }
    examination->running = true;
    examination->watch = (struct sg_watch){.process = &process, .count = 1, .traced = true};
    examination->served = &served;
    if (live && (served.served || served.passed_on))
        judge_command(examination);
    else if (process.library && process.driver && live)
        conclude(examination, READY, "%s has allocated nothing yet", name_of(&process));
    else if (process.library && process.driver)
        conclude(examination, READY,
            "%s has the library, which keeps no live statistics: live:True counts what is served", name_of(&process));
    else if (process.library)
        conclude(examination, NO_CUDA, "%s has made no CUDA call yet", name_of(&process));
    else
        conclude(examination, process.dynamic ? NOT_LOADED : STATIC, process.dynamic
                     ? "%s runs without the library: start it with segalloc run"
                     : "%s is statically linked: nothing can be preloaded into it", name_of(&process));
    if (json)
        print_json(examination);
    else
        print_text(examination);
    examination->watch = (struct sg_watch){0};
    examination->served = NULL;
    return examination->answer == READY || examination->answer == SERVED ? SG_EXIT_OK : SG_EXIT_ERROR;
}

static int examine(struct examination *examination, bool json)
{
    int failed = examination->command ? SG_EXIT_OURS : SG_EXIT_ERROR;
    if (!sg_launch_check(&examination->launch))
        return SG_EXIT_USAGE;
    if (examine_library(examination)) {
        if (!sg_launch_prepare(&examination->launch))
            return failed;
        sg_tool_conf_quietly(&examination->conf);
        bool simulated = examination->launch.sim && sg_place_simulator(examination->folders);
        sg_probe_driver(simulated ? examination->folders : NULL, &examination->probe);
        failed = examination->command ? examine_command(examination, json) : 0;
        if (failed)
            return failed;
        if (examination->command)
            judge_command(examination);
        else
            judge_machine(examination);
    } else if (examination->command) {
        sg_tool_message(examination->launch.verb, "%s", examination->because);
        return failed;
    }
    if (json)
        print_json(examination);
    else
        print_text(examination);
    return examination->answer == READY || examination->answer == SERVED ? SG_EXIT_OK : SG_EXIT_ERROR;
}

int sg_verb_doctor(int argc, char **argv)
{
    static struct examination examination;
    struct sg_cli cli;
    bool json = false;
    examination.launch = (struct sg_launch){.verb = argv[0], .preload = true};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_sim:
            examination.launch.sim = optarg;
            break;
        case OPTION_conf:
            examination.launch.conf = sg_tool_conf_join(examination.launch.conf, optarg);
            break;
        case OPTION_json:
            json = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    pid_t pid;
    bool after = optind + 2 == argc && strcmp(argv[optind + 1], "--json") == 0; /* as other verbs take it */
    if (optind + 1 + after == argc && strcmp(argv[optind - 1], "--") != 0 && parse_pid(argv[optind], &pid))
        return examine_process(&examination, pid, json || after);
    examination.command = optind < argc ? argv + optind : NULL;
    examination.launch.command = examination.command;
    int status = examine(&examination, json);
    sg_watch_free(&examination.watch);
    free(examination.served);
    return status;
}
