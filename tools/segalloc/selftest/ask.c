/* The process of the rows: this program again, natively, by its word --rows. */
#include "selftest/selftest.h"

#include <errno.h>
#include <poll.h>
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
#include "selftest/judging.h"

extern char **environ;

/* Rows that a user may run: little memory, few mappings, nothing that takes minutes. */
static const char *const asked_rows[] = {"device", "names", "handles", "pointers", "reset", "last release", "costs of handles",
    "addresses of a handle", "growth", "exit", "context event", "addresses", "small", "plain", "selftest", "alias"};
#define FREE_LEAST (768 * SG_MIB) /* the rows take half of that at most */
enum { ASKED = sizeof asked_rows / sizeof *asked_rows, LINE_BYTES = 65536, ROWS_IN_ALL = 35 };

int sg_selftest_rows(int argc, char **argv)
{
    struct probe_choice choice = {.count = 0};
    if (argc < 2)
        return -1;
    probe.ordinal = atoi(argv[argc - 1]); /* a process of rows, and each that a row starts, has the device at its end */
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
static int ask_start(const struct sg_selftest *selftest, int *ret_out, pid_t *ret_pid)
{
    int pipes[2];
    char path[] = "/proc/self/exe", rows[] = "--rows", ordinal[16];
    char *argv[] = {path, (char *)(uintptr_t)selftest->launch.verb, rows, ordinal, NULL};
    snprintf(ordinal, sizeof ordinal, "%d", selftest->ordinal);
    posix_spawn_file_actions_t actions;
    if (pipe(pipes) != 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    int error = posix_spawn(ret_pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    *ret_out = pipes[0];
    if (error)
        close(pipes[0]);
    return error;
}

/* Lines of a pipe, with a limit of time. */
struct ask_reader {
    int fd;
    uint64_t until_ns;
    size_t length, line; /* bytes in `text`, and those of the line that was handed out */
    char text[LINE_BYTES];
};

/* The next line, without its end; NULL: there is none, or *ret_late. A line that is too long for the buffer is cut in two. */
static char *ask_line(struct ask_reader *reader, bool *ret_late)
{
    memmove(reader->text, reader->text + reader->line, reader->length -= reader->line);
    reader->line = 0;
    for (;;) {
        char *end = memchr(reader->text, '\n', reader->length);
        uint64_t now = probe_real_ns();
        if (!end && reader->length == sizeof reader->text - 1)
            end = reader->text + reader->length;
        if (end) {
            *end = '\0';
            reader->line = (size_t)(end - reader->text) + (end < reader->text + reader->length);
            return reader->text;
        }
        struct pollfd wait = {.fd = reader->fd, .events = POLLIN};
        *ret_late = now >= reader->until_ns;
        int ready = *ret_late ? 0 : poll(&wait, 1, (int)((reader->until_ns - now) / 1000000) + 1);
        if (*ret_late || (ready < 0 && errno != EINTR))
            return NULL;
        if (ready <= 0)
            continue;
        ssize_t got = read(reader->fd, reader->text + reader->length, sizeof reader->text - 1 - reader->length);
        if (got <= 0)
            return NULL;
        reader->length += (size_t)got;
    }
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

/* The call that failed, and its answer. A device that is there and can't be used is told apart from none. */
static void ask_explain_call(struct sg_selftest *selftest, const char *error, int code)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    char call[SG_JUDGING_CALL];
    sg_judging_call_name(error, call);
    if (selftest->ordinal || (strcmp(call, "cuInit") != 0 && strcmp(call, "cuDeviceGet") != 0))
        snprintf(selftest->problem, sizeof selftest->problem, "device %d can't be used: %s answers %d (%s)",
            selftest->ordinal, call, code, sg_judging_code_name(code));
    else
        snprintf(selftest->problem, sizeof selftest->problem,
            "the driver has no device that can be used: %s answers %d (%s)%s%.60s%s; --sim 24GiB asks a simulated one",
            call, code, sg_judging_code_name(code), hidden ? ", CUDA_VISIBLE_DEVICES is \"" : "", hidden ? hidden : "",
            hidden ? "\"" : "");
}

/* The reason why no row could be asked, by the line of "start" and the status of the process. */
static void ask_explain(struct sg_selftest *selftest, int status)
{
    const json_t *first = json_array_get(selftest->lines, 0), *code = json_object_get(first, "code");
    const char *error = json_string_value(json_object_get(first, "error"));
    if (code && error)
        ask_explain_call(selftest, error, (int)json_integer_value(code));
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
        selftest->devices = (int)json_integer_value(json_object_get(line, "devices"));
        selftest->simulated = json_is_true(json_object_get(line, "simulated"));
    }
}

bool sg_selftest_ask(struct sg_selftest *selftest)
{
    static struct ask_reader reader;
    struct sg_progress progress = {0};
    pid_t pid;
    int status = -1, rows = 0, error = ask_start(selftest, &reader.fd, &pid);
    uint64_t began = probe_real_ns();
    reader.until_ns = began + (uint64_t)(selftest->until_s * 1e9);
    reader.length = reader.line = 0;
    if (error) {
        snprintf(selftest->problem, sizeof selftest->problem, "the process of the rows can't be started: %s", strerror(error));
        return false;
    }
    bool stop = false;
    for (char *line; !stop && (line = ask_line(&reader, &selftest->given_up));) {
        ask_take(selftest, line, &progress, &rows);
        stop = ask_is_full(selftest, json_array_get(selftest->lines, json_array_size(selftest->lines) - 1));
    }
    if (stop || selftest->given_up)
        (void)kill(pid, SIGKILL);
    close(reader.fd);
    sg_progress_end(&progress);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    selftest->seconds = (double)(probe_real_ns() - began) / 1e9;
    ask_note_machine(selftest);
    if (!*selftest->device && !*selftest->problem && selftest->given_up)
        snprintf(selftest->problem, sizeof selftest->problem, "the driver did not answer within %.0f s",
            selftest->until_s);
    else if (!*selftest->device && !*selftest->problem)
        ask_explain(selftest, status);
    return !*selftest->problem;
}
