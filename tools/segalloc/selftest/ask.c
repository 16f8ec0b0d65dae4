/* The process of the rows: this program again, natively, by its word --rows. */
#include "selftest/selftest.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/size.h"
#include "driver/cuda_abi.h"
#include "probe.h"
#include "progress.h"
#include "runner.h"

extern char **environ;

/* Rows that a user may run: little memory, few mappings, nothing that takes minutes. */
static const char *const asked_rows[] = {"device", "names", "handles", "pointers", "reset", "last release", "costs of handles",
    "addresses of a handle", "growth", "exit", "context event", "addresses", "small", "plain", "selftest", "alias"};
#define FREE_LEAST (768 * SG_MIB) /* the rows take half of that at most */
enum { ASKED = sizeof asked_rows / sizeof *asked_rows, LINE_BYTES = 65536, ROWS_IN_ALL = 32 };

int sg_selftest_rows(int argc, char **argv)
{
    struct probe_choice choice = {.count = 0};
    if (argc < 2)
        return -1;
    signal(SIGPIPE, SIG_IGN); /* a process that a row has started may end first */
    probe.verb = argv[0];
    probe.row = "start";
    probe.quick = probe.gentle = probe.compiles = true;
    probe.rounds = 3;
    if (strcmp(argv[1], "--rows") != 0)
        return probe_play_role(argv[1], strcmp(argv[1], "--free") == 0 ? "" : argc > 2 ? argv[2] : NULL);
    for (int i = 0; i < ASKED; i++)
        (void)probe_choose(&choice, asked_rows[i]);
    return probe_run_rows(&choice);
}

/* Starts it with its output in *ret_out. 0, or an errno. */
static int ask_start(const struct sg_selftest *selftest, FILE **ret_out, pid_t *ret_pid)
{
    int pipes[2];
    char path[] = "/proc/self/exe", rows[] = "--rows", *argv[] = {path, (char *)(uintptr_t)selftest->launch.verb, rows, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe(pipes) != 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    int error = posix_spawn(ret_pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    *ret_out = error ? NULL : fdopen(pipes[0], "r");
    if (!*ret_out)
        close(pipes[0]);
    return error;
}

/* True if the line says that so little is free that the rows could take it from others. */
static bool ask_is_full(struct sg_selftest *selftest, const json_t *line)
{
    const json_t *available = json_object_get(line, "free_bytes");
    char size[SG_SIZE_TEXT], least[SG_SIZE_TEXT];
    if (!available || (uint64_t)json_integer_value(available) >= FREE_LEAST)
        return false;
    snprintf(selftest->problem, sizeof selftest->problem,
        "%s are free on the device, and the rows want %s, so that others lack nothing: ask again when there is more",
        sg_size_format((uint64_t)json_integer_value(available), size), sg_size_format(FREE_LEAST, least));
    return true;
}

/* Takes in a line. Those that are no objects with a row are others', such as a driver's own. */
static void ask_take(struct sg_selftest *selftest, const char *line, struct sg_progress *progress, int *rows)
{
    const size_t count = json_array_size(selftest->lines);
    json_t *object = json_loads(line, 0, NULL);
    const char *row = json_string_value(json_object_get(object, "row"));
    if (!row) {
        json_decref(object);
        return;
    }
    const json_t *last = count ? json_array_get(selftest->lines, count - 1) : NULL;
    if (!last || strcmp(json_string_value(json_object_get(last, "row")), row) != 0)
        sg_progress_show(progress, row, (double)(*rows)++ / ROWS_IN_ALL);
    (void)json_array_append_new(selftest->lines, object);
}

static const char *ask_name_of_code(int code)
{
    switch (code) {
#define RESULT(name, number, text) \
    case number:                   \
        return #name;
#include "driver/cuda_result.def"
    default:
        return "an error of no name";
    }
}

/* The reason why no row could be asked, by the line of "start" and the status of the process. */
static void ask_explain(struct sg_selftest *selftest, int status)
{
    const json_t *first = json_array_get(selftest->lines, 0), *code = json_object_get(first, "code");
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES"), *error = json_string_value(json_object_get(first, "error"));
    if (code)
        snprintf(selftest->problem, sizeof selftest->problem,
            "the driver has no device that can be used: it answers %d (%s)%s%.60s%s; --sim 24GiB asks a simulated one",
            (int)json_integer_value(code), ask_name_of_code((int)json_integer_value(code)),
            hidden ? ", CUDA_VISIBLE_DEVICES is \"" : "", hidden ? hidden : "", hidden ? "\"" : "");
    else if (error && strstr(error, "libcuda.so.1"))
        snprintf(selftest->problem, sizeof selftest->problem,
            "there is no CUDA driver (libcuda.so.1); --sim 24GiB asks a simulated one");
    else
        snprintf(selftest->problem, sizeof selftest->problem, "the driver could not be asked: %.200s (status %d)",
            error ? error : "its process said nothing", status);
}

static void ask_note_machine(struct sg_selftest *selftest)
{
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        const char *device = json_string_value(json_object_get(line, "device"));
        if (!device || *selftest->device)
            continue;
        snprintf(selftest->device, sizeof selftest->device, "%s", device);
        selftest->driver = (int)json_integer_value(json_object_get(line, "driver"));
        selftest->simulated = json_is_true(json_object_get(line, "simulated"));
    }
}

bool sg_selftest_ask(struct sg_selftest *selftest)
{
    static char line[LINE_BYTES];
    struct sg_progress progress = {0};
    FILE *out = NULL;
    pid_t pid;
    int status = -1, rows = 0, error = ask_start(selftest, &out, &pid);
    uint64_t began = probe_real_ns();
    if (error) {
        snprintf(selftest->problem, sizeof selftest->problem, "the process of the rows can't be started: %s", strerror(error));
        return false;
    }
    while (out && fgets(line, sizeof line, out)) {
        ask_take(selftest, line, &progress, &rows);
        if (ask_is_full(selftest, json_array_get(selftest->lines, json_array_size(selftest->lines) - 1))) {
            (void)kill(pid, SIGKILL);
            break;
        }
    }
    if (out)
        fclose(out);
    sg_progress_end(&progress);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    selftest->seconds = (double)(probe_real_ns() - began) / 1e9;
    ask_note_machine(selftest);
    if (!*selftest->device && !*selftest->problem)
        ask_explain(selftest, status);
    return !*selftest->problem;
}
