#include "rehearse/rehearse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch.h"
#include "rehearse/keep.h"
#include "signals.h"
#include "tool.h"

/* Keeps the last line that is not empty and not only a part of a traceback's frame. */
struct tail {
    char line[SG_REHEARSE_TEXT];
    size_t length;
};

static void tail_take(struct tail *tail, const char *bytes, size_t size, char last[SG_REHEARSE_TEXT])
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '\n' && bytes[i] != '\r') {
            if (tail->length < sizeof tail->line - 1)
                tail->line[tail->length++] = bytes[i];
            continue;
        }
        tail->line[tail->length] = '\0';
        if (tail->length > strspn(tail->line, " \t"))
            memcpy(last, tail->line, tail->length + 1);
        tail->length = 0;
    }
}

static void hand_on(const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = write(STDERR_FILENO, bytes, size);
        if (put < 0 && errno != EINTR)
            return;
        if (put > 0) {
            bytes += put;
            size -= (size_t)put;
        }
    }
}

static double command_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void command_become(const char *verb, char **argv, bool to_stderr, int error_pipe, int keep_socket,
    const struct sg_signals *signals)
{
    const struct sg_launch launch = {.verb = verb};
    dup2(error_pipe, STDERR_FILENO);
    if (to_stderr)
        dup2(error_pipe, STDOUT_FILENO);
    sg_signals_restore(signals);
    if (keep_socket >= 0)
        sg_keep_install(keep_socket);
    _exit(sg_launch_exec(&launch, argv));
}

/* Hands the command's output on until nobody can write any more. Once a signal has ended it, not longer than it is
   there itself: what it leaves behind is ended. After `end` (by command_now(); 0: never) all of it is. Returns its wait
   status. */
static int command_follow(pid_t child, int output, double end, struct sg_rehearse_run *run)
{
    enum { LOOK_MS = 200 };
    struct tail tail = {.length = 0};
    char bytes[8192], *last_line = run->last_line;
    int status = 0;
    bool ended = false;
    for (;;) {
        struct pollfd ready = {.fd = output, .events = POLLIN};
        if (poll(&ready, 1, LOOK_MS) > 0) {
            ssize_t got = read(output, bytes, sizeof bytes);
            if (got == 0 || (got < 0 && errno != EINTR))
                break;
            if (got > 0) {
                hand_on(bytes, (size_t)got);
                tail_take(&tail, bytes, (size_t)got, last_line);
            }
        }
        if (!ended) {
            run->signals = sg_signals_count();
            ended = waitpid(child, &status, WNOHANG) == child;
        }
        if (ended && sg_signals_first())
            sg_signals_end_children();
        if (end > 0 && command_now() > end) {
            run->too_long = true;
            sg_signals_end_children(); /* the command too */
            status = ended ? status : SIGKILL;
            ended = true;
            break;
        }
    }
    tail_take(&tail, "\n", 1, last_line);
    while (!ended) {
        run->signals = sg_signals_count();
        ended = waitpid(child, &status, 0) == child || errno != EINTR;
    }
    return status;
}

/* The parent's part of keeping files: without it the program would wait for ever at its first call that asks. */
static bool watch_files(const struct sg_rehearse *rehearse, const struct sg_keep *keep, int socket)
{
    int listener = sg_keep_receive(socket);
    if (listener >= 0 && sg_keep_watch(keep, listener))
        return true;
    if (listener >= 0)
        close(listener);
    sg_tool_message(rehearse->verb, "files that are there can't be kept here");
    return false;
}

bool sg_rehearse_command(const struct sg_rehearse *rehearse, const struct sg_keep *keep, struct sg_rehearse_run *ret)
{
    const char *verb = rehearse->verb;
    bool to_stderr = rehearse->json;
    int ends[2], sockets[2] = {-1, -1};
    double began = command_now();
    *ret = (struct sg_rehearse_run){0};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        sg_tool_message(verb, "no pipe for the command's output: %s", strerror(errno));
        return false;
    }
    if (keep && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        keep = NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        command_become(verb, rehearse->command, to_stderr, ends[1], sockets[1], &rehearse->signals);
    close(ends[1]);
    if (keep)
        close(sockets[1]);
    if (keep && child > 0 && !watch_files(rehearse, keep, sockets[0]))
        kill(child, SIGKILL);
    if (keep)
        close(sockets[0]);
    if (child < 0) {
        sg_tool_message(verb, "the command can't be run: %s", strerror(errno));
        close(ends[0]);
        return false;
    }
    sg_signals_forward(child);
    int status = command_follow(child, ends[0], rehearse->most_seconds > 0 ? began + rehearse->most_seconds : 0, ret);
    close(ends[0]);
    sg_signals_forward(0);
    if (sg_signals_first())
        sg_signals_end_children();
    ret->process = child;
    ret->watched = keep != NULL;
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ret->seconds = command_now() - began;
    return true;
}
