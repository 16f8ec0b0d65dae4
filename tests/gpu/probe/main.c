/* Asks a driver what the allocator and the simulator take for granted. Prints a line of JSON for each answer as it
   comes. What asks the driver is a process of its own: one that crashes, or takes longer than its row may, is replaced,
   and the next row goes on.

   usage: gpu_probe [--quick] [--rounds N] [--kernels FILE] [--group GROUP]… [ROW]…
          gpu_probe --list          (the rows, as JSON)
          gpu_probe --free          (bytes free on the device, by the driver's word)
          gpu_probe --hold BYTES    (takes memory until so much is free, and keeps it until its input ends) */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"
#include "start.h"

enum { START_SECONDS = 60, CHOSEN_MAX = 64 };

static const struct row {
    const char *group, *name;
    bool (*run)(void);
    int seconds;
    const char *settles;
} rows[] = {
#define ROW(group, name, function, seconds, settles) {#group, name, function, seconds, settles},
#include "rows.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

static const char *chosen[CHOSEN_MAX];
static int chosen_count;

static bool is_chosen(const struct row *row)
{
    for (int i = 0; i < chosen_count; i++)
        if (strcmp(chosen[i], row->group) == 0 || strcmp(chosen[i], row->name) == 0)
            return true;
    return !chosen_count;
}

static int next_row(int from)
{
    while (from < ROWS && !is_chosen(&rows[from]))
        from++;
    return from;
}

/* A row has ended well, or the process ends: what a failed row leaves behind shall not be in the way of the next. */
static void run_rows(int from, int told)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!probe_start())
        _exit(2);
    for (int i = next_row(from); i < ROWS; i = next_row(i + 1)) {
        unsigned char number = (unsigned char)i;
        probe.row = rows[i].name;
        if (write(told, &number, 1) != 1)
            _exit(1);
        bool well = rows[i].run();
        number = UCHAR_MAX;
        if (write(told, &number, 1) != 1 || !well)
            _exit(well);
    }
    _exit(0);
}

/* What the process of rows is at. */
struct state {
    int row;      /* which one, or the next */
    bool running; /* it has begun and not ended */
};

/* Follows the process. False where it took too long. */
static bool follow(int told, struct state *state)
{
    for (;;) {
        unsigned char number;
        struct pollfd wait = {.fd = told, .events = POLLIN};
        int seconds = state->running ? rows[state->row].seconds : START_SECONDS;
        int ready = poll(&wait, 1, seconds * 1000);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            return false;
        if (ready < 0 || read(told, &number, 1) <= 0)
            return true;
        state->running = number != UCHAR_MAX;
        state->row = state->running ? number : state->row + 1;
    }
}

/* The status of the process, which may be stuck in the driver: -1 then. */
static int reap(pid_t pid)
{
    for (int tries = 0; tries < 500; tries++) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

static void explain(const struct state *state, bool in_time, int status)
{
    probe.row = rows[state->row].name;
    if (!in_time)
        probe_say("'error': 'no answer within %d s'", state->running ? rows[state->row].seconds : START_SECONDS);
    else if (status < 0)
        probe_say("'error': 'its process does not end'");
    else if (WIFSIGNALED(status))
        probe_say("'error': 'its process was ended by signal %d'", WTERMSIG(status));
    else
        probe_say("'error': 'its process ended with status %d'", WEXITSTATUS(status));
}

static int run_all(void)
{
    int failed = 0;
    for (struct state state = {.row = next_row(0)}; state.row < ROWS; state.row = next_row(state.row)) {
        int told[2];
        int before = state.row;
        pid_t pid = pipe(told) == 0 ? fork() : -1;
        if (pid < 0)
            return 1;
        if (pid == 0) {
            close(told[0]);
            run_rows(state.row, told[1]);
        }
        close(told[1]);
        bool in_time = follow(told[0], &state);
        close(told[0]);
        if (!in_time)
            kill(pid, SIGKILL);
        int status = reap(pid);
        if (!state.running && in_time && status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 2)
            return 2; /* there is no driver, which has been said */
        if (state.running || !in_time || state.row == before) {
            explain(&state, in_time, status);
            failed++;
            state.row++;
            state.running = false;
        }
    }
    return failed ? 1 : 0;
}

static void list(void)
{
    for (int i = 0; i < ROWS; i++) {
        probe.row = rows[i].name;
        probe_say("'group': '%s', 'seconds': %d, 'settles': '%s'", rows[i].group, rows[i].seconds, rows[i].settles);
    }
}

static int usage(void)
{
    fputs("usage: gpu_probe [--quick] [--rounds N] [--kernels FILE] [--group GROUP]... [ROW]... | --list | --free | "
          "--hold BYTES\n", stderr);
    return 2;
}

static int play_role(const char *role, const char *argument)
{
    static const struct {
        const char *name;
        int (*play)(const char *argument);
    } roles[] = {{"--grow", probe_role_grow}, {"--leave", probe_role_leave}, {"--hold", probe_role_hold},
        {"--free", probe_role_free}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i].name) == 0)
            return argument && probe_start() ? roles[i].play(argument) : 2;
    return -1;
}

static bool known(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0 || strcmp(rows[i].group, name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* children may end first */
    probe.rounds = 30;
    probe.row = "start";
    if (argc > 1) {
        int status = play_role(argv[1], strcmp(argv[1], "--free") == 0 ? "" : argc > 2 ? argv[2] : NULL);
        if (status >= 0)
            return status;
    }
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--list") == 0) {
            list();
            return 0;
        }
        if (strcmp(argv[i], "--quick") == 0)
            probe.quick = true;
        else if (strcmp(argv[i], "--rounds") == 0 && more)
            probe.rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--kernels") == 0 && more)
            probe.kernels_path = argv[++i];
        else if (strcmp(argv[i], "--group") == 0 && more && known(argv[i + 1]) && chosen_count < CHOSEN_MAX)
            chosen[chosen_count++] = argv[++i];
        else if (known(argv[i]) && chosen_count < CHOSEN_MAX)
            chosen[chosen_count++] = argv[i];
        else
            return usage();
    }
    probe.rounds = probe.quick ? 1 : probe.rounds < 1 ? 1 : probe.rounds > 500 ? 500 : probe.rounds;
    return run_all();
}
