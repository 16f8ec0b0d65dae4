#include "rehearse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"
#include "tool.h"

/* Keeps the last line that is not empty and not only a part of a traceback's frame. */
struct tail {
    char line[SG_REHEARSE_TEXT];
    size_t length;
};

static void take(struct tail *tail, const char *bytes, size_t size, char last[SG_REHEARSE_TEXT])
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

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void become(const char *verb, char **argv, bool to_stderr, int error_pipe)
{
    const struct sg_launch launch = {.verb = verb};
    dup2(error_pipe, STDERR_FILENO);
    if (to_stderr)
        dup2(error_pipe, STDOUT_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    _exit(sg_launch_exec(&launch, argv));
}

bool sg_rehearse_command(const char *verb, char **argv, bool to_stderr, struct sg_rehearse_run *ret)
{
    int ends[2];
    double began = now();
    *ret = (struct sg_rehearse_run){0};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        sg_tool_message(verb, "no pipe for the command's output: %s", strerror(errno));
        return false;
    }
    fflush(NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    pid_t child = fork();
    if (child == 0)
        become(verb, argv, to_stderr, ends[1]);
    close(ends[1]);
    if (child < 0) {
        sg_tool_message(verb, "the command can't be run: %s", strerror(errno));
        close(ends[0]);
        return false;
    }
    struct tail tail = {.length = 0};
    char bytes[8192];
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0 || (got < 0 && errno == EINTR);) {
        if (got > 0) {
            hand_on(bytes, (size_t)got);
            take(&tail, bytes, (size_t)got, ret->last_line);
        }
    }
    close(ends[0]);
    take(&tail, "\n", 1, ret->last_line);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ret->seconds = now() - began;
    return true;
}
