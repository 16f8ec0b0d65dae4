#include "launch/loaded_libraries.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/own_runtime.h"
#include "signals.h"

static const long trace_options =
    PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;

/* The entry of a process, made when it is new. NULL without memory. */
static struct sg_watched *process_of(struct sg_watch *watch, pid_t pid)
{
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->process[i].pid == pid)
            return &watch->process[i];
    }
    struct sg_watched *more = realloc(watch->process, (watch->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    watch->process = more;
    more[watch->count] = (struct sg_watched){.pid = pid};
    return &more[watch->count++];
}

/* The process that a thread belongs to. */
static pid_t thread_group_of(pid_t thread)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
    int group = (int)thread;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Tgid: %d", &group) == 1)
            break;
    }
    if (file)
        fclose(file);
    return group;
}

static bool path_has_name(const char *path, const char *prefix)
{
    const char *slash = strrchr(path, '/');
    return slash && strncmp(slash + 1, prefix, strlen(prefix)) == 0;
}

static const struct {
    const char *prefix, *unless;
    enum { MODULE_LOCAL, MODULE_SHARES } shares;
} known_modules[] = {
#define MODULE(prefix, caller, shares, unless) {prefix, unless, MODULE_##shares},
#include "preload/process/modules.def"
};

enum { KNOWN_MODULES = sizeof known_modules / sizeof *known_modules };
_Static_assert(KNOWN_MODULES <= 64, "a bit for each");

/* True if a line has a path of which the last parts begin with `prefix`, which may name a folder: "mooncake/engine.". */
static bool line_has_module(const char *line, const char *prefix)
{
    const char *path = strchr(line, '/'), *at = path ? strstr(path, prefix) : NULL;
    return at && at[-1] == '/' && !strchr(at + strcspn(prefix, "/") + (strchr(prefix, '/') != NULL), '/');
}

void sg_watched_note_modules(struct sg_watched *process, const char *line)
{
    process->verbs |= path_has_name(line, "libibverbs.so");
    for (int i = 0; i < KNOWN_MODULES; i++) {
        if (line_has_module(line, known_modules[i].prefix))
            process->modules |= UINT64_C(1) << i;
        if (known_modules[i].unless && line_has_module(line, known_modules[i].unless))
            process->excused |= UINT64_C(1) << i;
    }
}

const char *sg_watched_sharer(const struct sg_watched *process)
{
    for (int i = 0; i < KNOWN_MODULES; i++)
        if (known_modules[i].shares == MODULE_SHARES && (process->modules & ~process->excused) >> i & 1)
            return known_modules[i].prefix;
    return NULL;
}

bool sg_watched_has(const struct sg_watched *process, const char *module)
{
    for (int i = 0; i < KNOWN_MODULES; i++)
        if (process->modules >> i & 1 && strcmp(known_modules[i].prefix, module) == 0)
            return true;
    return false;
}

/* Notes the file as one that has NVIDIA's runtime within itself, if it is. */
static void look_for_runtime(struct sg_watched *process, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash && !*process->own_runtime && sg_own_runtime_in(path))
        snprintf(process->own_runtime, sizeof process->own_runtime, "%.255s", slash + 1);
}

/* The libraries, where the program itself is none and uses no shared runtime: beside one, a library may have another for
   itself, as PyTorch's linear algebra has. */
static void look_at_files(struct sg_watched *process, FILE *maps)
{
    char line[4600], last[4600] = "";
    rewind(maps);
    while (!process->runtime && !*process->own_runtime && fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = strchr(line, '/');
        if (!path || strcmp(path, last) == 0)
            continue;
        snprintf(last, sizeof last, "%s", path);
        look_for_runtime(process, path);
    }
}

/* "libcudart.so.13" is 13, and so is "libcudart-1a2b3c4d.so.13.0.96", as wheels name it. */
static void note_runtime(struct sg_watched *process, const char *line)
{
    const char *name = strstr(line, "/libcudart"), *version = name ? strstr(name, ".so.") : NULL;
    int major = version ? atoi(version + strlen(".so.")) : 0;
    process->runtime = true;
    process->runtime_major = major > process->runtime_major ? major : process->runtime_major;
}

static void note_driver(struct sg_watched *process, const char *line)
{
    const char *path = strchr(line, '/');
    int at = 0;
    process->driver = true;
    while (path && at < 2 && *process->drivers[at] && strcmp(process->drivers[at], path) != 0)
        at++;
    if (path && at < 2)
        snprintf(process->drivers[at], sizeof process->drivers[at], "%.511s", path);
}

/* Looks at what a thread that is about to end shares with its process. */
static void watch_look_at(struct sg_watch *watch, pid_t thread)
{
    struct sg_watched *process = process_of(watch, thread_group_of(thread));
    char path[64], line[4600], program[4096];
    if (!process)
        return;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)thread);
    ssize_t length = readlink(path, program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        const char *slash = strrchr(program, '/');
        snprintf(process->program, sizeof process->program, "%.255s", slash ? slash + 1 : program);
    }
    snprintf(path, sizeof path, "/proc/%d/maps", (int)thread);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return;
    while (fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = '\0';
        process->seen = true;
        process->dynamic |= path_has_name(line, "ld-linux") || path_has_name(line, "ld-musl") ||
                            path_has_name(line, "ld-2.") || path_has_name(line, "ld.so");
        process->library |= path_has_name(line, "libsegalloc.so");
        if (path_has_name(line, "libcuda.so"))
            note_driver(process, line);
        if (path_has_name(line, "libcudart"))
            note_runtime(process, line);
        process->torch |= path_has_name(line, "libc10_cuda");
        sg_watched_note_modules(process, line);
    }
    if (process->driver && thread == process->pid && length > 0) {
        look_for_runtime(process, program);
        look_at_files(process, maps);
    }
    fclose(maps);
}

static bool signal_stops(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* Lets a stopped thread go on, having looked where it is about to end. */
static void on_stop(struct sg_watch *watch, pid_t thread, int status)
{
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXIT)
        watch_look_at(watch, thread);
    if (event == PTRACE_EVENT_EXEC) {
        struct sg_watched *process = process_of(watch, thread);
        if (process)
            *process = (struct sg_watched){.pid = thread};
    }
    if (event == PTRACE_EVENT_STOP && signal_stops(signal))
        ptrace(PTRACE_LISTEN, thread, NULL, NULL);
    else
        ptrace(PTRACE_CONT, thread, NULL, (void *)(long)(event ? 0 : signal));
}

static void watch_follow(struct sg_watch *watch, pid_t command)
{
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR)
            continue;
        if (thread < 0)
            return;
        if (WIFSTOPPED(status)) {
            on_stop(watch, thread, status);
        } else if (thread == command) {
            watch->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            return;
        }
    }
}

/* The child: waits until it is watched, then becomes the command. */
static _Noreturn void child_become_command(const struct sg_launch *launch, char **argv, bool stdout_to_stderr,
    const int gate[2], const struct sg_signals *signals)
{
    char byte;
    close(gate[1]);
    while (read(gate[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(gate[0]);
    sg_signals_restore(signals);
    if (stdout_to_stderr)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    _exit(sg_launch_exec(launch, argv));
}

int sg_watch_run(const struct sg_launch *launch, char **argv, bool stdout_to_stderr, struct sg_watch *ret)
{
    int gate[2];
    struct sg_watch watch = {0};
    if (pipe(gate) != 0)
        return -errno;
    fflush(NULL);
    struct sg_signals signals;
    sg_signals_hold(&signals);
    pid_t command = fork();
    if (command < 0) {
        int error = errno;
        close(gate[0]);
        close(gate[1]);
        sg_signals_restore(&signals);
        return -error;
    }
    if (command == 0)
        child_become_command(launch, argv, stdout_to_stderr, gate, &signals);
    close(gate[0]);
    watch.traced = ptrace(PTRACE_SEIZE, command, NULL, (void *)trace_options) == 0;
    process_of(&watch, command);
    close(gate[1]);
    sg_signals_forward(command);
    watch_follow(&watch, command);
    sg_signals_forward(0);
    if (sg_signals_first())
        sg_signals_end_children();
    sg_signals_restore(&signals);
    *ret = watch;
    return 0;
}

void sg_watch_free(struct sg_watch *watch)
{
    free(watch->process);
    *watch = (struct sg_watch){0};
}
