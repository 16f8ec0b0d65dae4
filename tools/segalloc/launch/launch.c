#include "launch/launch.h"

#include "conf.h"
#include "config.h"
#include "effective_conf.h"
#include "writer/path_pattern.h"
#include "inherited.h"
#include "install_paths.h"
#include "segalloc/trace_format.h"
#include "launch/own_runtime.h"
#include "launch/stub_libraries.h"
#include "tool.h"
#include "launch/torch_install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A variable for the Python module: it makes phases of steps, and nothing else. */
#define SG_ONLY_PHASES "SEGALLOC_ONLY_PHASES"

enum { LIST_BYTES = 65536 };

/* The last part of a path. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool in_list(const char *list, const char *item, size_t length, const char *separators)
{
    while (*list) {
        size_t n = strcspn(list, separators);
        if (n == length && strncmp(list, item, n) == 0)
            return true;
        list += n + (list[n] != '\0');
    }
    return false;
}

/* A sanitizer's runtime, which must be the first of all libraries: libasan.so.8, libtsan.so.2 … */
static bool is_sanitizer(const char *item)
{
    const char *name = base_name(item);
    return strncmp(name, "lib", 3) == 0 &&
           (strstr(name, "asan.so") || strstr(name, "tsan.so") || strstr(name, "lsan.so"));
}

enum list_part { LIST_SANITIZERS, LIST_OTHERS };

/* Appends to `list` those of the items of `old` that are of this part, but not what is in `first` or has a file name
   that begins with `drop`. Returns the new length. */
static size_t add_items(char *list, size_t length, const char *old, const char *separators, enum list_part part,
                        const char *first, const char *drop)
{
    for (const char *at = old; *at;) {
        size_t n = strcspn(at, separators);
        char item[SG_PLACE_BYTES];
        snprintf(item, sizeof item, "%.*s", (int)n, at);
        bool dropped = (drop && strncmp(base_name(item), drop, strlen(drop)) == 0) || in_list(first, at, n, separators);
        if (n && !dropped && is_sanitizer(item) == (part == LIST_SANITIZERS))
            length += (size_t)sprintf(list + length, "%s%.*s", length ? ":" : "", (int)n, at);
        at += n + (at[n] != '\0');
    }
    return length;
}

/* Puts `first` ("": nothing) in front of what the list of paths `name` holds already, behind sanitizers' runtimes;
   without what is in it twice then, and without files whose name begins with `drop` (may be NULL). */
static bool set_list(const char *verb, const char *name, const char *first, const char *separators, const char *drop)
{
    static char list[LIST_BYTES];
    const char *old = getenv(name);
    if (!old)
        old = "";
    if (strlen(first) + strlen(old) + 2 > sizeof list) {
        sg_tool_message(verb, "%s is longer than %d bytes", name, LIST_BYTES);
        return false;
    }
    *list = '\0';
    size_t length = add_items(list, 0, old, separators, LIST_SANITIZERS, first, drop);
    if (*first)
        length += (size_t)sprintf(list + length, "%s%s", length ? ":" : "", first);
    length = add_items(list, length, old, separators, LIST_OTHERS, first, drop);
    if (length == 0)
        unsetenv(name);
    else
        setenv(name, list, 1);
    return true;
}

/* Puts the library first on LD_PRELOAD, and what answers torch_memory_saver's calls before it. */
static bool set_preload(const struct sg_launch *launch)
{
    char library[SG_PLACE_BYTES], saver[SG_PLACE_BYTES], both[2 * SG_PLACE_BYTES];
    if (!launch->preload)
        return set_list(launch->verb, "LD_PRELOAD", "", ": ", "libsegalloc.so");
    if (!sg_place_library(library)) {
        const char *named = getenv("SEGALLOC_LIB");
        if (named && *named)
            sg_tool_message(launch->verb, "SEGALLOC_LIB: %s can't be read", named);
        else
            sg_tool_message(launch->verb, "libsegalloc.so.0 is neither beside this program nor in %s; name it in %s",
                            SEGALLOC_LIBDIR, "SEGALLOC_LIB");
        return false;
    }
    if (strpbrk(library, ": ")) {
        sg_tool_message(launch->verb, "%s: LD_PRELOAD can't carry a path with a space or a colon; install it elsewhere",
                        library);
        return false;
    }
    if (!launch->memory_saver)
        return set_list(launch->verb, "LD_PRELOAD", library, ": ", "libsegalloc.so");
    if (!sg_place_memory_saver(saver)) {
        sg_tool_message(launch->verb,
            "--memory-saver: libsegalloc_torch_memory_saver.so is neither beside this program nor in %s",
            SEGALLOC_LIBDIR);
        return false;
    }
    snprintf(both, sizeof both, "%s:%s", saver, library);
    setenv("SEGALLOC_MEMORY_SAVER", saver, 1);
    return set_list(launch->verb, "LD_PRELOAD", both, ": ", "libsegalloc.so");
}

bool sg_launch_check(const struct sg_launch *launch)
{
    struct sim_config config;
    if (!launch->sim)
        return true;
    const char *wrong = sim_config_parse(launch->sim, &config);
    if (wrong) {
        static const char variable[] = "SEGALLOC_SIM: ";
        bool named = strncmp(wrong, variable, sizeof variable - 1) == 0;
        sg_tool_message(launch->verb, "--sim: %s", named ? wrong + sizeof variable - 1 : wrong);
    }
    return !wrong;
}

/* A program that can't run on the simulated GPU is named before it starts. It is started all the same: it may go on
   without a GPU. */
static void say_own_runtime(const struct sg_launch *launch)
{
    char program[SG_PLACE_BYTES];
    unsetenv(SG_OWN_RUNTIME_SAID);
    if (!launch->command || !sg_own_runtime_find(launch->command, program))
        return;
    sg_tool_message(launch->verb, "%s " SG_OWN_RUNTIME_TEXT, base_name(program));
    setenv(SG_OWN_RUNTIME_SAID, "1", 1);
}

/* Puts the Python module's folder first on PYTHONPATH: there may be another sitecustomize, to which ours gives way. An
   empty entry means the working folder, so the rest stays as it is. False: there is no room. */
static bool add_python_path(const char *folder)
{
    static char list[LIST_BYTES];
    const char *old = getenv("PYTHONPATH");
    size_t length = strlen(folder);
    if (!old || !*old)
        return setenv("PYTHONPATH", folder, 1) == 0;
    if (strncmp(old, folder, length) == 0 && (old[length] == ':' || old[length] == '\0'))
        return true;
    if (length + strlen(old) + 2 > sizeof list)
        return false;
    memcpy(list, folder, length);
    list[length] = ':';
    memcpy(list + length + 1, old, strlen(old) + 1);
    return setenv("PYTHONPATH", list, 1) == 0;
}

/* The path of this program, for the parts in Python that run it: snapshots with a history, stand-ins. */
static void set_tool(void)
{
    char tool[SG_PLACE_BYTES];
    ssize_t named = readlink("/proc/self/exe", tool, sizeof tool - 1);
    if (named <= 0)
        return;
    tool[named] = '\0';
    setenv("SEGALLOC_TOOL", tool, 1);
}

/* A script of a shell may activate another environment than the one that was looked at. So each interpreter looks again
   when it starts (sitecustomize.py), and runs by `segalloc run` once more if its PyTorch is not the one of `site`. */
static void set_late_standins(const char *site)
{
    char folder[SG_PLACE_BYTES];
    const char *old = getenv("PYTHONPATH");
    if (!sg_place_python(folder) || strchr(folder, ':'))
        return;
    size_t length = strlen(folder);
    bool there = old && strncmp(old, folder, length) == 0 && (old[length] == ':' || old[length] == '\0');
    if (!there && (setenv(SG_ONLY_PHASES, "none", 1) != 0 || !add_python_path(folder)))
        return;
    set_tool();
    setenv("SEGALLOC_STANDINS", site, 1);
}

static bool set_simulator(const struct sg_launch *launch)
{
    char folders[SG_PLACE_BYTES];
    if (!sg_launch_check(launch))
        return false;
    if (!sg_place_simulator(folders)) {
        sg_tool_message(launch->verb, "--sim: the simulated GPU is neither beside this program nor in %s/segalloc/sim",
                        SEGALLOC_LIBDIR);
        return false;
    }
    struct sg_standin standin = {0};
    if (launch->command && !sg_standin_prepare(launch->verb, launch->command, folders, &standin))
        return false;
    say_own_runtime(launch);
    setenv("SEGALLOC_SIM", launch->sim, 1);
    sim_inherited_publish(launch->sim);
    if (launch->command && sg_wheel_may_be_another(launch->command, *standin.site))
        set_late_standins(standin.site);
    else
        unsetenv("SEGALLOC_STANDINS");
    if (*standin.preload && !set_list(launch->verb, "LD_PRELOAD", standin.preload, ": ", NULL))
        return false;
    if (*standin.folder && !set_list(launch->verb, "LD_LIBRARY_PATH", standin.folder, ":;", NULL))
        return false;
    return set_list(launch->verb, "LD_LIBRARY_PATH", folders, ":;", NULL);
}

/* SEGALLOC_CONF as it was before the first launch: a tool that launches several times adds other settings to it each
   time. */
static const char *conf_of_user(void)
{
    static bool asked;
    static char *user;
    const char *now = getenv("SEGALLOC_CONF");
    if (!asked)
        user = now ? strdup(now) : NULL;
    asked = true;
    return user;
}

/* Adds --conf to SEGALLOC_CONF. Settings that the user wrote down for this very command are right, or nothing is
   run. */
static bool set_conf(const struct sg_launch *launch)
{
    struct sg_conf conf;
    sg_tool_conf_quietly(&conf);
    unsigned bad = sg_tool_conf_check(launch->verb, launch->conf, &conf);
    if (bad) {
        sg_tool_message(launch->verb, "--conf is wrong: nothing was run");
        return false;
    }
    static char text[LIST_BYTES];
    const char *old = conf_of_user();
    size_t length = 0;
    if (old && strlen(old) < sizeof text / 2)
        length = (size_t)sprintf(text, "%s", old);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        char value[SG_PATH_BYTES];
        if (conf.source[i] == SG_CONF_ARGUMENT)
            length += (size_t)sprintf(text + length, "%s%s:%s", length ? "," : "", sg_option_info(i)->name,
                                      sg_conf_format(&conf, i, value, sizeof value));
    }
    if (length)
        setenv("SEGALLOC_CONF", text, 1);
    return true;
}

/* The kind of file at a path where a trace is to be written. */
static enum { IS_EMPTY, IS_TRACE, IS_OTHER } kind_of(const char *path)
{
    uint64_t magic = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return IS_OTHER;
    struct stat status;
    bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t got = regular ? read(file, &magic, sizeof magic) : -1;
    close(file);
    return got == 0                                                              ? IS_EMPTY
           : got == (ssize_t)sizeof magic && magic == SEGALLOC_TRACE_MAGIC ? IS_TRACE
                                                                                 : IS_OTHER;
}

/* Makes room for a trace where something is: an empty file goes, a trace only where that was asked for. */
static bool launch_make_room(const struct sg_launch *launch, const char *path)
{
    int kind = kind_of(path);
    if (kind == IS_OTHER) {
        sg_tool_message(launch->verb, "%s exists and is not a trace; it stays, name another file", launch->trace);
        return false;
    }
    if (kind == IS_TRACE && !launch->force) {
        sg_tool_message(launch->verb, "%s is there already; -f replaces it", launch->trace);
        return false;
    }
    if (unlink(path) == 0)
        return true;
    sg_tool_message(launch->verb, "the trace that is there can't be replaced: %s: %s", launch->trace, strerror(errno));
    return false;
}

static char *launch_environment(const char *name)
{
    return getenv(name);
}

/* The process that the program is to be, and when it begins. */
static void set_run(void)
{
    char run[48];
    snprintf(run, sizeof run, "%ld@%lld", (long)getpid(), (long long)time(NULL));
    setenv("SEGALLOC_RUN", run, 1);
}

static bool launch_set_trace(const struct sg_launch *launch)
{
    char path[SG_PLACE_BYTES], folder[SG_PLACE_BYTES], expanded[SG_PATH_BYTES];
    const char *trace = launch->trace;
    if (!*trace) {
        sg_tool_message(launch->verb, "-o needs the name of a file");
        return false;
    }
    if (*trace == '/')
        *path = '\0';
    else if (!getcwd(path, sizeof path)) {
        sg_tool_message(launch->verb, "the working folder has no name: %s", strerror(errno));
        return false;
    }
    size_t length = strlen(path);
    if (length + strlen(trace) + 2 > SG_PATH_BYTES) {
        sg_tool_message(launch->verb, "the name of the trace is longer than %d bytes", SG_PATH_BYTES - 1);
        return false;
    }
    snprintf(path + length, sizeof path - length, "%s%s", length ? "/" : "", trace);
    if (sg_path_expand(path, launch_environment, expanded, sizeof expanded) == -EINVAL) {
        sg_tool_message(launch->verb, "-o %s: after %% there may be p (process), h (host), r (rank), e (program) or %%",
            trace);
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(base_name(path) - path), path);
    bool pattern = strchr(path, '%') != NULL;
    /* Folders that are not there yet the library makes. */
    if (access(folder, F_OK) == 0 && access(folder, W_OK | X_OK) != 0) {
        sg_tool_message(launch->verb, "no trace can be written to %s: %s", folder, strerror(errno));
        return false;
    }
    if (!pattern && access(path, F_OK) == 0 && !launch_make_room(launch, path))
        return false;
    setenv("SEGALLOC_TRACE", path, 1);
    set_run();
    return true;
}

/* The Python module, with PyTorch's memory functions (--torch) or for torch_memory_saver alone. */
static bool set_python(const struct sg_launch *launch)
{
    char folder[SG_PLACE_BYTES];
    if (launch->torch)
        unsetenv(SG_ONLY_PHASES);
    else
        setenv(SG_ONLY_PHASES, "none", /* overwrite */ 0);
    set_tool();
    if (!sg_place_python(folder)) {
        sg_tool_message(launch->verb, "--%s: the Python module is neither beside this program nor in %s/segalloc/python",
            launch->torch ? "torch" : "memory-saver", SEGALLOC_LIBDIR);
        return false;
    }
    if (strchr(folder, ':')) {
        sg_tool_message(launch->verb, "%s: PYTHONPATH can't carry a path with a colon; install it elsewhere", folder);
        return false;
    }
    if (add_python_path(folder))
        return true;
    sg_tool_message(launch->verb, "PYTHONPATH is longer than %d bytes", LIST_BYTES);
    return false;
}

/* With places, an optimizer's steps are phases; PyTorch's memory functions stay its own. A command that --torch was
   given for has both already. A part that can't be had is left out. */
static void set_phases(void)
{
    char folder[SG_PLACE_BYTES];
    const char *old = getenv("PYTHONPATH");
    if (!sg_place_python(folder) || strchr(folder, ':'))
        return;
    size_t length = strlen(folder);
    const char *only = getenv(SG_ONLY_PHASES);
    if (old && strncmp(old, folder, length) == 0 && (old[length] == ':' || old[length] == '\0')) {
        if (only && strcmp(only, "none") == 0)
            setenv(SG_ONLY_PHASES, "1", 1);
        return;
    }
    if (setenv(SG_ONLY_PHASES, "1", 1) == 0 && !add_python_path(folder))
        unsetenv(SG_ONLY_PHASES);
}

/* PyTorch before 2.7 asks the environment alone whether to keep its cache; what the user says there stands. */
static void set_pytorch(const struct sg_launch *launch)
{
    struct sg_conf conf;
    struct sg_wheel wheel;
    char version[32];
    sg_tool_conf_quietly(&conf);
    if (conf.pytorch == SG_PYTORCH_DIRECT && launch->command && sg_wheel_find(launch->command, &wheel) &&
        sg_wheel_version(&wheel, version) && strverscmp(version, "2.7") < 0)
        setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", /* overwrite */ 0);
}

/* NVTX, where the program has ranges of it, loads what this names and tells it of them. A profiler's own stays. */
static void set_nvtx(void)
{
    char library[SG_PLACE_BYTES];
    if (sg_place_library(library))
        setenv("NVTX_INJECTION64_PATH", library, /* overwrite */ 0);
}

static void set_places(const struct sg_launch *launch)
{
    struct sg_conf conf;
    sg_tool_conf_quietly(&conf);
    if (!conf.sites)
        return;
    set_nvtx();
    if (!launch->torch)
        set_phases();
}

/* A verb that says more itself leaves none of an outer `segalloc run`. */
static void set_summary(const struct sg_launch *launch)
{
    char where[64];
    snprintf(where, sizeof where, "%s@%ld", launch->summary == SG_SUMMARY_ALWAYS ? "always" : "terminal",
        (long)getpid());
    if (launch->summary == SG_SUMMARY_NEVER)
        unsetenv("SEGALLOC_SUMMARY");
    else
        setenv("SEGALLOC_SUMMARY", where, 1);
}

void sg_launch_is_this(const struct sg_launch *launch)
{
    set_summary(launch);
    if (launch->trace)
        set_run();
}

void sg_launch_leave_torch(struct sg_launch *launch)
{
    launch->torch = false;
    setenv(SG_ONLY_PHASES, "1", 1);
}

bool sg_launch_prepare(const struct sg_launch *launch)
{
    set_summary(launch);
    if (launch->sim && !set_simulator(launch))
        return false;
    if (!set_preload(launch))
        return false;
    if ((launch->torch || launch->memory_saver) && launch->preload && !set_python(launch))
        return false;
    if (launch->conf && !set_conf(launch))
        return false;
    if (launch->preload && !launch->torch)
        set_pytorch(launch);
    if (launch->preload)
        set_places(launch);
    if (launch->trace && !launch_set_trace(launch))
        return false;
    if (launch->stats)
        setenv("SEGALLOC_STATS", launch->stats, 1);
    return true;
}

int sg_launch_exec(const struct sg_launch *launch, char **argv)
{
    char path[SG_PLACE_BYTES];
    execvp(argv[0], argv);
    int error = errno;
    if (error == ENOENT && sg_place_program(argv[0], path)) {
        execv(path, argv);
        error = errno;
    }
    bool missing = error == ENOENT || error == ENOTDIR;
    if (missing && access(argv[0], F_OK) == 0 && strchr(argv[0], '/'))
        sg_tool_message(launch->verb, "%s: its interpreter or loader is not there", argv[0]);
    else
        sg_tool_message(launch->verb, "%s: %s", argv[0], missing ? "no such program" : strerror(error));
    return missing ? SG_EXIT_NOT_FOUND : SG_EXIT_NOT_EXECUTABLE;
}
