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
#include "rehearse/relay.h"
#include "signals.h"
#include "tool.h"

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

/* Waits for the command's own end, whoever holds its output then. After `end` (by command_now(); 0: never) it is ended
   with all that it has begun. Returns its wait status. */
static int command_follow(pid_t child, double end, struct sg_rehearse_run *run)
{
    enum { LOOK_MS = 200, SILENT_MS = 10 }; /* mostly it ends when nobody can write any more */
    int status = 0;
    for (;;) {
        run->signals = sg_signals_count();
        if (waitpid(child, &status, WNOHANG) != 0)
            return status;
        if (end > 0 && command_now() > end) {
            run->too_long = true;
            sg_signals_end_children();
            return SIGKILL;
        }
        if (sg_relay_wait(run->relay, LOOK_MS))
            poll(NULL, 0, SILENT_MS);
    }
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
    ret->relay = sg_relay_begin(ends[0]);
    if (!ret->relay) {
        sg_tool_message(verb, "no thread for the command's output");
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return false;
    }
    sg_signals_forward(child);
    int status = command_follow(child, rehearse->most_seconds > 0 ? began + rehearse->most_seconds : 0, ret);
    sg_signals_forward(0);
    if (sg_signals_first()) /* what it leaves behind is ended too */
        sg_signals_end_children();
    sg_relay_drain(ret->relay);
    ret->process = child;
    ret->watched = keep != NULL;
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ret->seconds = command_now() - began;
    return true;
}
