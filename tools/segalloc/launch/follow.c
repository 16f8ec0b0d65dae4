/* All signals are blocked and taken by sigwaitinfo(), one after the other: no handler, and none is lost between a look and a
   wait. SIGCHLD is one of them. */
#include "launch/follow.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

/* How signals were, for the child. */
struct follow {
    sigset_t mask;
    struct sigaction child_ended;
};

/* Faults of this process itself stay what they are. */
static void follow_hold(struct follow *follow, sigset_t *ret_taken)
{
    static const int left[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigfillset(ret_taken);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        sigdelset(ret_taken, left[i]);
    sigprocmask(SIG_BLOCK, ret_taken, &follow->mask);
    sigaction(SIGCHLD, &plain, &follow->child_ended); /* where it was ignored, no child would be waited for */
}

static void follow_restore(const struct follow *follow)
{
    sigaction(SIGCHLD, &follow->child_ended, NULL);
    sigprocmask(SIG_SETMASK, &follow->mask, NULL);
}

/* True if a signal has come to the command too: from the terminal, which sends it to the whole group in the foreground. A
   terminal that is gone sends two to the first process of its session alone. A timer that was set before the exec is this process's
   alone: `perl -e 'alarm 9; exec @ARGV' segalloc run …`. */
static bool follow_has_come(const siginfo_t *info)
{
    switch (info->si_code == SI_KERNEL ? info->si_signo : 0) {
    case SIGINT:
    case SIGQUIT:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGWINCH:
        return true;
    case SIGHUP:
    case SIGCONT:
        return getsid(0) != getpid();
    default:
        return false;
    }
}

static void follow_send(pid_t command, const siginfo_t *info)
{
    if (info->si_code == SI_QUEUE)
        (void)sigqueue(command, info->si_signo, info->si_value);
    else if (!follow_has_come(info))
        (void)kill(command, info->si_signo);
}

/* Takes leave of children that have ended; orphans come to the first process of a container. True: the command has, with
   *ret. Stops with it. */
static bool follow_look(pid_t command, int *ret)
{
    int status;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        if (child != command)
            continue;
        if (!WIFSTOPPED(status)) {
            *ret = status;
            return true;
        }
        (void)raise(SIGSTOP);
        (void)kill(command, SIGCONT);
    }
    return false;
}

static int follow_wait(pid_t command, const sigset_t *taken)
{
    siginfo_t info;
    int status;
    while (!follow_look(command, &status)) {
        if (sigwaitinfo(taken, &info) > 0 && info.si_signo != SIGCHLD)
            follow_send(command, &info);
    }
    return status;
}

int sg_follow_run(const struct sg_launch *launch, char **argv)
{
    struct follow follow;
    sigset_t taken;
    pid_t self = getpid();
    fflush(NULL);
    follow_hold(&follow, &taken);
    pid_t command = fork();
    if (command == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != self) /* it is gone already */
            _exit(SG_EXIT_OURS);
        follow_restore(&follow);
        sg_launch_is_this(launch);
        _exit(sg_launch_exec(launch, argv));
    }
    if (command < 0) {
        sg_tool_message(launch->verb, "no process for the command: %s", strerror(errno));
        return -1;
    }
    return follow_wait(command, &taken);
}

/* Where a signal ended the command the same one ends this process, because whoever waits asks for that. It leaves no core file: its
   memory is of no interest to anyone. */
_Noreturn void sg_follow_end(int status)
{
    if (WIFSIGNALED(status)) {
        const struct rlimit none = {0};
        const struct sigaction plain = {.sa_handler = SIG_DFL};
        sigset_t one;
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        sigemptyset(&one);
        sigaddset(&one, WTERMSIG(status));
        (void)sigaction(WTERMSIG(status), &plain, NULL);
        (void)raise(WTERMSIG(status));
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        _exit(128 + WTERMSIG(status)); /* the first process of a container is spared */
    }
    _exit(WEXITSTATUS(status));
}
