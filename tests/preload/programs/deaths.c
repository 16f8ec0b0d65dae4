/* How a program ends that was refused memory: by a signal as it would be natively, with the code and address that a core file
   and a debugger show, or by handlers of its own. Preloaded, the report comes first; it does not where the program goes on.

     deaths [report] */
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"

enum { OWN_STATUS = 7, STACK_BYTES = 1 << 16 };
static char *const BAD_ADDRESS = (char *)24;
static bool is_reported;
static struct sigaction before;

static void touch(void)
{
    char *volatile address = BAD_ADDRESS;
    *address = 1;
}

static void fault(void)
{
    touch();
}

static void be_killed(void)
{
    kill(getpid(), SIGSEGV);
    pause();
}

static void raise_it(void)
{
    raise(SIGFPE);
}

static void stop_own(int signal)
{
    (void)signal;
    _exit(OWN_STATUS);
}

/* As faulthandler and JVMs do: what was there before comes next. */
static void hand_on(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else
        sigaction(signal, &before, NULL);
}

static void fault_with_own(void)
{
    struct sigaction own = {.sa_handler = stop_own};
    sigaction(SIGSEGV, &own, NULL);
    touch();
}

static void fault_with_chain(void)
{
    struct sigaction own = {.sa_sigaction = hand_on, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &own, &before);
    touch();
}

static void give_stack(void)
{
    static char memory[STACK_BYTES];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    sigaltstack(&stack, NULL);
}

static void fault_on_own_stack(void)
{
    give_stack();
    struct sigaction own = {.sa_handler = stop_own, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &own, NULL);
    touch();
}

/* No room for a handler's frame: the kernel ends the process at once. */
static void lose_stack(void)
{
    __asm__ volatile(
#if defined(__x86_64__)
        "movq $64, %rsp\n pushq %rax\n"
#else
        "mov sp, #64\n str x0, [sp]\n"
#endif
    );
}

static void lose_stack_beside_another(void)
{
    give_stack();
    lose_stack();
}

static sigjmp_buf back;

static void go_back(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* A program that recovers ends as ever: the report comes at its end. */
static void recover(void)
{
    struct sigaction own = {.sa_handler = go_back};
    sigaction(SIGSEGV, &own, NULL);
    if (sigsetjmp(back, 1) == 0)
        touch();
    exit(OWN_STATUS);
}

static const struct way {
    const char *name;
    void (*end)(void);
    int signal; /* 0: it exits with OWN_STATUS */
    int code;   /* of the signal that ends it */
    bool at_address, reports;
} ways[] = {
    {"abort", abort, SIGABRT, SI_TKILL, false, true},
    {"fault", fault, SIGSEGV, SEGV_MAPERR, true, true},
    {"killed", be_killed, SIGSEGV, SI_USER, false, true},
    {"raise", raise_it, SIGFPE, SI_TKILL, false, true},
    {"own handler", fault_with_own, 0, 0, false, false},
    {"chain", fault_with_chain, SIGSEGV, SEGV_MAPERR, true, true},
    {"own handler and stack", fault_on_own_stack, 0, 0, false, false},
    {"no stack", lose_stack, SIGSEGV, 0, false, false},
    {"no stack but another", lose_stack_beside_another, SIGSEGV, 0, false, true},
    {"recovers", recover, 0, 0, false, true},
};

static void play(const struct way *way, int error)
{
    const struct rlimit none = {0, 0};
    void *address;
    setrlimit(RLIMIT_CORE, &none);
    dup2(error, STDERR_FILENO);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || cudaMalloc(&address, (size_t)1 << 40) == cudaSuccess)
        _exit(99);
    way->end();
    _exit(98);
}

/* Follows the child to its end; *ret: the last signal that came to it. */
static int follow(pid_t child, siginfo_t *ret)
{
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        ptrace(PTRACE_GETSIGINFO, child, NULL, ret);
        ptrace(PTRACE_CONT, child, NULL, (void *)(intptr_t)WSTOPSIG(status));
    }
    return status;
}

static bool try(const struct way *way)
{
    char said[8192];
    int ends[2];
    siginfo_t last = {0};
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0)
        play(way, ends[1]);
    close(ends[1]);
    int status = follow(child, &last);
    ssize_t length = read(ends[0], said, sizeof said - 1);
    said[length > 0 ? length : 0] = '\0';
    close(ends[0]);
    bool ended = way->signal ? WIFSIGNALED(status) && WTERMSIG(status) == way->signal
                             : WIFEXITED(status) && WEXITSTATUS(status) == OWN_STATUS;
    bool known = !way->code || last.si_code == way->code;
    bool placed = !way->at_address || last.si_addr == (void *)BAD_ADDRESS;
    bool reported = (strstr(said, "out of memory on device") != NULL) == (is_reported && way->reports);
    if (!ended || !known || !placed || !reported)
        printf("not so: %s: status %x, code %d at %p, said %s\n", way->name, (unsigned)status, last.si_code, last.si_addr,
            length > 0 ? said : "nothing");
    return ended && known && placed && reported;
}

int main(int argc, char **argv)
{
    int wrong = 0;
    is_reported = argc > 1 && strcmp(argv[1], "report") == 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        wrong += !try(&ways[i]);
    return wrong != 0;
}
