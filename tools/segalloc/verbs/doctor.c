/* segalloc doctor: are this command's allocations served by us, and if not, why not? */
#include "tool.h"

#include "doctor/examination.h"
#include "doctor/pack.h"
#include "effective_conf.h"
#include "monitor/live_page.h"
#include "reader/stats_read.h"

#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLI_VERB "doctor"
#define CLI_ROWS "verbs/doctor.def"
#include "cli/rows.h"

/* False when what is wrong with the library settles the answer already. */
static bool examine_library(struct sg_examination *examination)
{
    examination->library_found = sg_place_library(examination->library);
    if (!examination->library_found) {
        *examination->library = '\0';
        sg_doctor_conclude(examination, SG_DOCTOR_NO_LIBRARY, "libsegalloc.so.0 was not found; name it in SEGALLOC_LIB");
        return false;
    }
    if (!sg_probe_glibc(examination->library, examination->glibc, sizeof examination->glibc)) {
        sg_doctor_conclude(examination, SG_DOCTOR_NO_LIBRARY, "%.300s is no library for this machine",
            examination->library);
        return false;
    }
    if (strverscmp(examination->glibc, gnu_get_libc_version()) > 0) {
        sg_doctor_conclude(examination, SG_DOCTOR_GLIBC, "the library needs glibc %s, here is %s", examination->glibc,
            gnu_get_libc_version());
        return false;
    }
    return true;
}

/* Adds up what a process left. */
static struct sg_doctor_served doctor_count_served(const struct sg_stats_file *file)
{
    struct sg_doctor_served sum = {0};
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
static void doctor_collect(struct sg_examination *examination, const char *folder)
{
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        char path[SG_PATH_BYTES], error[SG_STATS_ERROR];
        struct sg_stats_file file;
        if (*entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%.200s/%.200s", folder, entry->d_name);
        if (sg_stats_file_read(path, &file, error) == 0) {
            const struct sg_doctor_served served = doctor_count_served(&file);
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
static int examine_command(struct sg_examination *examination, bool json)
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
    doctor_collect(examination, folder);
    bool not_run = examination->watch.status >= SG_EXIT_OURS && examination->watch.status <= SG_EXIT_NOT_FOUND &&
                   strcmp(examination->watch.process[0].program, "segalloc") == 0;
    return not_run ? examination->watch.status : 0;
}

/* Notes the libraries that a running process has loaded. False: that cannot be read. */
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
        sg_watched_note_modules(process, line);
        process->dynamic |= strstr(line, "/libc.so") != NULL || strstr(line, "/ld-linux") != NULL;
    }
    process->seen = true;
    fclose(maps);
    return true;
}

/* Says whether a process that runs is served: by its live page, or else by what it has loaded. */
static int examine_process(struct sg_examination *examination, pid_t pid, bool json)
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
    struct sg_doctor_served served = {0};
    bool live = sg_live_page((uint64_t)pid, page) == SG_LIVE_RUNS && sg_stats_file_read(page, &file, error) == 0;
    if (live) {
        served = examination->total = doctor_count_served(&file);
        sg_stats_file_free(&file);
    }
    examination->running = true;
    examination->watch = (struct sg_watch){.process = &process, .count = 1, .traced = true};
    examination->served = &served;
    if (live && (served.served || served.passed_on))
        sg_doctor_judge_command(examination);
    else if (process.library && process.driver && live)
        sg_doctor_conclude(examination, SG_DOCTOR_READY, "%s has allocated nothing yet", sg_doctor_name(&process));
    else if (process.library && process.driver)
        sg_doctor_conclude(examination, SG_DOCTOR_READY,
            "%s has the library, which keeps no live statistics: live:True counts what is served",
            sg_doctor_name(&process));
    else if (process.library)
        sg_doctor_conclude(examination, SG_DOCTOR_NO_CUDA, "%s has made no CUDA call yet", sg_doctor_name(&process));
    else
        sg_doctor_conclude(examination, process.dynamic ? SG_DOCTOR_NOT_LOADED : SG_DOCTOR_STATIC,
            process.dynamic ? "%s runs without the library: start it with segalloc run"
                            : "%s is statically linked: nothing can be preloaded into it",
            sg_doctor_name(&process));
    if (json)
        sg_doctor_print_json(examination);
    else
        sg_doctor_print_text(examination);
    examination->watch = (struct sg_watch){0};
    examination->served = NULL;
    return examination->answer == SG_DOCTOR_READY || examination->answer == SG_DOCTOR_SERVED ? SG_EXIT_OK
                                                                                             : SG_EXIT_ERROR;
}

/* Asks the driver, natively or on the simulated GPU, and takes in the user's options for its first device. */
static void doctor_ask_driver(struct sg_examination *examination)
{
    struct sg_probe *probe = &examination->probe;
    bool simulated = examination->launch.sim && sg_place_simulator(examination->folders);
    if (sg_probe_driver(simulated ? examination->folders : NULL, probe) && probe->devices)
        (void)sg_tool_conf_card(NULL, probe->device[0].name, probe->version, &examination->conf);
}

static int doctor_examine(struct sg_examination *examination, bool json)
{
    int failed = examination->command ? SG_EXIT_OURS : SG_EXIT_ERROR;
    if (!sg_launch_check(&examination->launch))
        return SG_EXIT_USAGE;
    if (examine_library(examination)) {
        if (!sg_launch_prepare(&examination->launch))
            return failed;
        sg_tool_conf_quietly(&examination->conf);
        doctor_ask_driver(examination);
        failed = examination->command ? examine_command(examination, json) : 0;
        if (failed)
            return failed;
        if (examination->command)
            sg_doctor_judge_command(examination);
        else
            sg_doctor_judge_machine(examination);
    } else if (examination->command) {
        sg_tool_message(examination->launch.verb, "%s", examination->because);
        return failed;
    }
    if (json)
        sg_doctor_print_json(examination);
    else
        sg_doctor_print_text(examination);
    return examination->answer == SG_DOCTOR_READY || examination->answer == SG_DOCTOR_SERVED ? SG_EXIT_OK
                                                                                             : SG_EXIT_ERROR;
}

/* Packs what is known of this machine. Without the library or a driver it is packed all the same. */
static int doctor_pack(struct sg_examination *examination, const char *path, const char *trace)
{
    if (!sg_launch_check(&examination->launch))
        return SG_EXIT_USAGE;
    (void)examine_library(examination);
    examination->launch.preload = false;
    if (!sg_launch_prepare(&examination->launch))
        return SG_EXIT_ERROR;
    sg_tool_conf_quietly(&examination->conf);
    doctor_ask_driver(examination);
    return sg_doctor_pack(examination, path, trace);
}

int sg_verb_doctor(int argc, char **argv)
{
    static struct sg_examination examination;
    struct sg_cli cli;
    const char *pack = NULL, *trace = NULL;
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
        case OPTION_pack:
            pack = optarg;
            break;
        case OPTION_trace:
            trace = optarg;
            break;
        case OPTION_json:
            json = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (trace && !pack)
        return sg_tool_usage(argv[0], "--trace goes with --pack FILE");
    if (pack && optind < argc)
        return sg_tool_usage(argv[0], "--pack takes no program, \"%s\" is left over", argv[optind]);
    if (pack)
        return doctor_pack(&examination, pack, trace);
    pid_t pid;
    /* A number names a process, unless a program of that name is here. */
    bool after = optind + 2 == argc && strcmp(argv[optind + 1], "--json") == 0; /* as other verbs take it */
    if (optind + 1 + after == argc && strcmp(argv[optind - 1], "--") != 0 && sg_tool_pid(argv[optind], &pid) &&
        access(argv[optind], F_OK) != 0)
        return examine_process(&examination, pid, json || after);
    examination.command = optind < argc ? argv + optind : NULL;
    examination.launch.command = examination.command;
    int status = doctor_examine(&examination, json);
    sg_watch_free(&examination.watch);
    free(examination.served);
    return status;
}
