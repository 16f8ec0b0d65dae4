#include "runner.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"
#include "start.h"

enum { START_SECONDS = 60 };

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

static bool runner_is_chosen(const struct probe_choice *choice, const struct row *row)
{
    for (int i = 0; i < choice->count; i++)
        if (strcmp(choice->name[i], row->group) == 0 || strcmp(choice->name[i], row->name) == 0)
            return true;
    return !choice->count;
}

static int runner_next(const struct probe_choice *choice, int from)
{
    while (from < ROWS && !runner_is_chosen(choice, &rows[from]))
        from++;
    return from;
}

bool probe_choose(struct probe_choice *choice, const char *name)
{
    bool known = false;
    for (int i = 0; i < ROWS; i++)
        known = known || strcmp(rows[i].name, name) == 0 || strcmp(rows[i].group, name) == 0;
    if (known && choice->count < PROBE_CHOSEN_MOST)
        choice->name[choice->count++] = name;
    return known;
}

/* A row has ended well, or the process ends: what a failed row leaves behind shall not be in the way of the next. */
static void runner_run_rows(const struct probe_choice *choice, int from, int told)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!probe_start())
        _exit(2);
    for (int i = runner_next(choice, from); i < ROWS; i = runner_next(choice, i + 1)) {
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

/* The row of a process of rows. */
struct state {
    int row;      /* which one, or the next */
    bool running; /* it has begun and not ended */
};

/* Seconds that the row of a process may take. */
static int state_seconds(const struct state *state)
{
    return (state->running ? rows[state->row].seconds : START_SECONDS) * (probe.patience > 1 ? probe.patience : 1);
}

/* Follows the process. False where it took too long. */
static bool runner_follow(int told, struct state *state)
{
    for (;;) {
        unsigned char number;
        struct pollfd wait = {.fd = told, .events = POLLIN};
        int ready = poll(&wait, 1, state_seconds(state) * 1000);
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
static int runner_reap(pid_t pid)
{
    for (int tries = 0; tries < 500; tries++) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

static void runner_explain(const struct state *state, bool in_time, int status)
{
    probe.row = rows[state->row].name;
    if (!in_time)
        probe_say("'error': 'no answer within %d s'", state_seconds(state));
    else if (status < 0)
        probe_say("'error': 'its process does not end'");
    else if (WIFSIGNALED(status))
        probe_say("'error': 'its process was ended by signal %d'", WTERMSIG(status));
    else
        probe_say("'error': 'its process ended with status %d'", WEXITSTATUS(status));
}

int probe_run_rows(const struct probe_choice *choice)
{
    int failed = 0;
    for (struct state state = {.row = runner_next(choice, 0)}; state.row < ROWS;
         state.row = runner_next(choice, state.row)) {
        int told[2];
        int before = state.row;
        pid_t pid = pipe(told) == 0 ? fork() : -1;
        if (pid < 0)
            return 1;
        if (pid == 0) {
            close(told[0]);
            runner_run_rows(choice, state.row, told[1]);
        }
        close(told[1]);
        bool in_time = runner_follow(told[0], &state);
        close(told[0]);
        if (!in_time)
            kill(pid, SIGKILL);
        int status = runner_reap(pid);
        if (!state.running && in_time && status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 2)
            return 2; /* there is no driver, which has been said */
        if (state.running || !in_time || state.row == before) {
            runner_explain(&state, in_time, status);
            failed++;
            state.row++;
            state.running = false;
        }
    }
    return failed ? 1 : 0;
}

void probe_list(void)
{
    for (int i = 0; i < ROWS; i++) {
        probe.row = rows[i].name;
        probe_say("'group': '%s', 'seconds': %d, 'settles': '%s'", rows[i].group, rows[i].seconds, rows[i].settles);
    }
}

int probe_play_role(const char *role, const char *argument)
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
