#include "signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int forwarded[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
enum { FORWARDED = sizeof forwarded / sizeof *forwarded };

static volatile sig_atomic_t first, count;
static volatile pid_t to;

static void signals_take(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int error = errno;
    if (!first)
        first = signal;
    count++;
    if (to > 0 && info->si_code != SI_KERNEL) /* a terminal's go to all in the foreground */
        kill(to, signal);
    errno = error;
}

void sg_signals_hold(struct sg_signals *signals)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = signals_take;
    first = count = 0;
    to = 0;
    for (int i = 0; i < FORWARDED; i++)
        sigaction(forwarded[i], &action, &signals->before[i]);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

void sg_signals_forward(pid_t command)
{
    to = command;
    if (command > 0 && first)
        kill(command, first);
}

void sg_signals_restore(const struct sg_signals *signals)
{
    for (int i = 0; i < FORWARDED; i++)
        sigaction(forwarded[i], &signals->before[i], NULL);
}

int sg_signals_first(void)
{
    return first;
}

int sg_signals_count(void)
{
    return count;
}

/* A child of this process, or 0. */
static pid_t some_child(void)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &child) != 1)
        child = 0;
    if (file)
        fclose(file);
    return child;
}

bool sg_signals_any_child(void)
{
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0) {
    }
    return some_child() > 0;
}

void sg_signals_end_children(void)
{
    enum { ROUNDS = 1000 }; /* of what makes new ones faster than they can be ended */
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = some_child();
        int status;
        if (child <= 0)
            return;
        kill(child, SIGKILL);
        if (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status)) /* it is watched */
            (void)ptrace(PTRACE_CONT, child, NULL, NULL);
    }
}
