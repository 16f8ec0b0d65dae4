/* Random programs against the core, each from a seed, thousands a second. What falls short is shrunk to the fewest
   operations and printed as a C test. Programs are played in children, so that a crash or a hang is one more way to
   fall short. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { JOBS_MOST = 64, FOUND_MOST = 100, BATCH = 32, AGAIN_EVERY = 16 };

struct found {
    uint64_t seed;
    char broken[400];
};

/* What the children and their parent share. */
static struct shared {
    _Atomic uint64_t next, end;
    _Atomic uint64_t seeds, ops, allocated, refused, moved, faults, digest;
    struct worker {
        pid_t pid;
        int errors; /* a file that takes its stderr */
        _Atomic uint64_t seed, since_ns;
        _Atomic bool busy;
        struct fuzz_outcome outcome;
    } worker[JOBS_MOST + 1];
} *shared;

static struct {
    uint64_t from, seeds;
    unsigned jobs;
    double seconds;
    unsigned hang_s; /* a program that takes longer hangs */
    unsigned stop;   /* after so many that fall short */
    bool json, shrinks, plays;
    uint64_t shrink;
    const char *self;
} options = {.seeds = 2000, .jobs = 1, .hang_s = 30, .stop = FOUND_MOST};

static struct found found[FOUND_MOST];
static unsigned founds;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Plays a seed's program; every so often twice, which must say the same. */
static void play_seed(uint64_t seed, struct fuzz_outcome *ret)
{
    struct fuzz_program program = fuzz_draw(seed);
    fuzz_play(&program, ret);
    if (ret->broken[0] || seed % AGAIN_EVERY)
        return;
    struct fuzz_outcome again;
    fuzz_play(&program, &again);
    if (again.digest != ret->digest || again.broken[0])
        snprintf(ret->broken, sizeof ret->broken, "%s", again.broken[0] ? again.broken
                                                                         : "the second time it says other things");
}

static void work_through(struct worker *worker)
{
    dup2(worker->errors, STDERR_FILENO);
    for (;;) {
        uint64_t first = atomic_fetch_add(&shared->next, BATCH), end = first + BATCH;
        end = end < atomic_load(&shared->end) ? end : atomic_load(&shared->end);
        if (first >= end)
            break;
        for (uint64_t seed = first; seed < end; seed++) {
            struct fuzz_outcome outcome;
            worker->seed = seed;
            worker->since_ns = now_ns();
            worker->busy = true;
            play_seed(seed, &outcome);
            shared->seeds++;
            shared->ops += outcome.done;
            shared->allocated += outcome.allocated;
            shared->refused += outcome.refused;
            shared->moved += outcome.moved;
            shared->faults += outcome.faults;
            atomic_fetch_xor(&shared->digest, outcome.digest * (2 * seed + 1));
            if (!outcome.broken[0])
                continue;
            worker->outcome = outcome;
            _exit(1); /* what it has left is not to be in the next one's way; the parent plays the rest of the batch */
        }
        worker->busy = false;
    }
    _exit(0);
}

static int errors_file(void)
{
    char name[] = "/tmp/fuzz-errors-XXXXXX";
    int file = mkstemp(name);
    if (file < 0) {
        perror("traces: /tmp");
        exit(2);
    }
    unlink(name);
    return file;
}

/* What a child that was ended said last that tells why, without what differs from run to run. */
static void read_errors(int file, int status, char *ret, size_t size)
{
    static char text[1 << 16];
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    snprintf(ret, size, "signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *what = strstr(line, "Assertion");
        what = what ? what : strstr(line, "runtime error:");
        what = what ? what : strstr(line, "SUMMARY:");
        if (what) {
            snprintf(ret, size, "%s", strstr(line, "runtime error:") ? line : what);
            return;
        }
    }
}

/* Why a child has ended, "" if it has done all that it was to. */
static void why_ended(const struct worker *worker, int status, bool hung, char *ret, size_t size)
{
    ret[0] = '\0';
    if (hung)
        snprintf(ret, size, "takes over %u s", options.hang_s);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && worker->outcome.broken[0])
        snprintf(ret, size, "%s", worker->outcome.broken);
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
        read_errors(worker->errors, status, ret, size);
}

static void start_worker(struct worker *worker)
{
    if (ftruncate(worker->errors, 0) || lseek(worker->errors, 0, SEEK_SET))
        perror("traces");
    worker->outcome.broken[0] = '\0';
    worker->busy = false;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        work_through(worker);
    worker->pid = pid; /* the child has the same memory there */
    if (pid < 0) {
        perror("traces: fork");
        exit(2);
    }
}

/* The rest of a batch that a child has not come to is played by one of its own. */
static void finish_batch(struct worker *worker)
{
    uint64_t seed = worker->seed + 1, first = options.from;
    uint64_t end = first + (worker->seed - first) / BATCH * BATCH + BATCH;
    end = end < atomic_load(&shared->end) ? end : atomic_load(&shared->end);
    for (; seed < end && founds < options.stop; seed++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            struct fuzz_outcome outcome;
            dup2(worker->errors, STDERR_FILENO);
            play_seed(seed, &outcome);
            shared->seeds++;
            worker->outcome = outcome;
            _exit(outcome.broken[0] != 0);
        }
        int status = 0;
        bool hung = false;
        for (uint64_t began = now_ns(); waitpid(pid, &status, WNOHANG) == 0; usleep(200)) {
            if (now_ns() - began > options.hang_s * UINT64_C(1000000000)) {
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                hung = true;
                break;
            }
        }
        found[founds].seed = seed;
        why_ended(worker, status, hung, found[founds].broken, sizeof found[founds].broken);
        founds += found[founds].broken[0] != 0;
        if (ftruncate(worker->errors, 0))
            perror("traces");
        worker->outcome.broken[0] = '\0';
    }
}

/* Whether a worker goes on. */
static bool look_after(struct worker *worker)
{
    int status;
    bool hung = worker->busy && now_ns() > worker->since_ns + options.hang_s * UINT64_C(1000000000);
    if (hung)
        kill(worker->pid, SIGKILL);
    if (waitpid(worker->pid, &status, hung ? 0 : WNOHANG) == 0)
        return true;
    char broken[400];
    why_ended(worker, status, hung, broken, sizeof broken);
    if (!broken[0])
        return false;
    if (founds < options.stop) {
        found[founds].seed = worker->seed;
        snprintf(found[founds++].broken, sizeof broken, "%s", broken);
        worker->outcome.broken[0] = '\0';
        if (ftruncate(worker->errors, 0))
            perror("traces");
        finish_batch(worker);
    }
    if (founds >= options.stop) {
        shared->end = 0;
        return false;
    }
    start_worker(worker);
    return true;
}

static void run(void)
{
    uint64_t began = now_ns(), told = began;
    shared->next = options.from;
    shared->end = options.from + options.seeds;
    for (unsigned i = 0; i < options.jobs; i++)
        start_worker(&shared->worker[i]);
    bool alive[JOBS_MOST];
    memset(alive, 1, sizeof alive);
    for (bool any = true; any; usleep(5000)) {
        any = false;
        for (unsigned i = 0; i < options.jobs; i++) {
            alive[i] = alive[i] && look_after(&shared->worker[i]);
            any = any || alive[i];
        }
        uint64_t now = now_ns();
        if (options.seconds > 0 && (double)(now - began) > options.seconds * 1e9)
            shared->end = 0;
        if (now - told > UINT64_C(10000000000)) {
            told = now;
            fprintf(stderr, "%" PRIu64 " seeds, %.0f a second, %u fell short\n", (uint64_t)shared->seeds,
                (double)shared->seeds / ((double)(now - began) / 1e9), founds);
        }
    }
    double seconds = (double)(now_ns() - began) / 1e9;
    printf(options.json ? "{\"seeds\":%" PRIu64 ",\"operations\":%" PRIu64 ",\"blocks\":%" PRIu64
                          ",\"refused\":%" PRIu64
                          ",\"unmaps\":%" PRIu64 ",\"faults\":%" PRIu64 ",\"fell_short\":%u,\"seconds\":%.1f,"
                          "\"seeds_per_second\":%.0f,\"digest\":\"%016" PRIx64 "\"}\n"
                        : "%" PRIu64 " seeds, %" PRIu64 " operations, %" PRIu64 " blocks, %" PRIu64 " refused, %" PRIu64
                          " unmaps, %" PRIu64 " calls made to fail; %u fell short; %.1f s, %.0f seeds a second; digest "
                          "%016" PRIx64 "\n",
        (uint64_t)shared->seeds, (uint64_t)shared->ops, (uint64_t)shared->allocated, (uint64_t)shared->refused,
        (uint64_t)shared->moved, (uint64_t)shared->faults, founds, seconds, (double)shared->seeds / seconds,
        (uint64_t)shared->digest);
}

static char wanted[400]; /* how a program falls short that is shrunk */

/* How a program falls short, "" if it does not. */
static void try_program(const struct fuzz_program *program, char *ret, size_t size)
{
    struct worker *worker = &shared->worker[JOBS_MOST];
    if (ftruncate(worker->errors, 0))
        perror("traces");
    worker->outcome.broken[0] = '\0';
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(worker->errors, STDERR_FILENO);
        struct fuzz_outcome outcome;
        fuzz_play(program, &outcome);
        worker->outcome = outcome;
        _exit(outcome.broken[0] != 0);
    }
    int status = 0;
    bool hung = false;
    for (uint64_t began = now_ns(); waitpid(pid, &status, WNOHANG) == 0; usleep(100)) {
        if (now_ns() - began > options.hang_s * UINT64_C(1000000000)) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            hung = true;
            break;
        }
    }
    why_ended(worker, status, hung, ret, size);
}

static bool fails_so(const struct fuzz_program *program)
{
    char broken[400];
    try_program(program, broken, sizeof broken);
    return strcmp(broken, wanted) == 0;
}

static int shrink(uint64_t seed)
{
    struct fuzz_program program = fuzz_draw(seed);
    struct fuzz_outcome outcome = {0};
    try_program(&program, wanted, sizeof wanted);
    if (!wanted[0]) {
        printf("seed %" PRIu64 " does not fall short\n", seed);
        return 0;
    }
    uint32_t before = program.ops;
    fuzz_shrink(&program, fails_so);
    snprintf(outcome.broken, sizeof outcome.broken, "%s", wanted);
    char name[64];
    snprintf(name, sizeof name, "test_seed_%" PRIu64, seed);
    printf("/* Seed %" PRIu64 ", %u operations of %u: %s --shrink %" PRIu64 " */\n", seed, program.ops, before,
        options.self, seed);
    fuzz_emit(&program, name, &outcome);
    return 1;
}

static int play_here(uint64_t seed)
{
    struct fuzz_outcome outcome;
    struct fuzz_program program = fuzz_draw(seed);
    if (options.from && options.from < seed)
        for (uint64_t before = options.from; before < seed; before++) {
            program = fuzz_draw(before);
            fuzz_play(&program, &outcome);
        }
    program = fuzz_draw(seed);
    fuzz_play(&program, &outcome);
    printf("seed %" PRIu64 ": %u operations, %" PRIu64 " done, %" PRIu64 " blocks, %" PRIu64
           " refused; conf \"%s\"; %s\n",
        seed, program.ops, outcome.done, outcome.allocated, outcome.refused, program.setup.conf,
        outcome.broken[0] ? outcome.broken : "holds");
    return outcome.broken[0] != 0;
}

static void usage(FILE *to)
{
    fprintf(to,
        "usage: traces [--seeds N] [--from SEED] [--jobs N] [--seconds S] [--hang S] [--stop N] [--json]\n"
        "       traces --shrink SEED   the fewest operations on which it falls short in the same way, as a C test\n"
        "       traces --play SEED     in this process, for a debugger\n");
}

static void read_options(int argc, char **argv)
{
    static const struct option names[] = {{"seeds", required_argument, NULL, 's'},
        {"from", required_argument, NULL, 'f'},
        {"jobs", required_argument, NULL, 'j'}, {"seconds", required_argument, NULL, 't'},
        {"hang", required_argument, NULL, 'H'},
        {"stop", required_argument, NULL, 'S'}, {"shrink", required_argument, NULL, 'k'},
        {"play", required_argument, NULL, 'p'}, {"json", no_argument, NULL, 'J'},
        {"help", no_argument, NULL, 'h'}, {0}};
    options.self = argv[0];
    for (int got; (got = getopt_long(argc, argv, "h", names, NULL)) >= 0;) {
        switch (got) {
        case 's':
            options.seeds = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            options.from = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            options.jobs = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 't':
            options.seconds = strtod(optarg, NULL);
            break;
        case 'H':
            options.hang_s = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'S':
            options.stop = (unsigned)strtoul(optarg, NULL, 10);
            options.stop = options.stop < FOUND_MOST ? options.stop : FOUND_MOST;
            break;
        case 'k':
        case 'p':
            options.shrinks = got == 'k';
            options.plays = got == 'p';
            options.shrink = strtoull(optarg, NULL, 10);
            break;
        case 'J':
            options.json = true;
            break;
        default:
            usage(got == 'h' ? stdout : stderr);
            exit(got == 'h' ? 0 : 2);
        }
    }
    if (options.jobs < 1 || options.jobs > JOBS_MOST || optind < argc) {
        usage(stderr);
        exit(2);
    }
}

/* Each way of falling short once, with the first seed that does. */
static void print_found(void)
{
    for (unsigned i = 0; i < founds; i++) {
        unsigned alike = 0, first = 0;
        for (unsigned k = founds; k-- > 0;) {
            bool same = strcmp(found[k].broken, found[i].broken) == 0;
            alike += same;
            first = same ? k : first;
        }
        if (first == i)
            fprintf(stderr, "%u of them: %s\n    %s --shrink %" PRIu64 "\n", alike, found[i].broken, options.self,
                found[i].seed);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    if (options.plays)
        return play_here(options.shrink);
    shared->worker[JOBS_MOST].errors = errors_file();
    for (unsigned i = 0; i < options.jobs; i++)
        shared->worker[i].errors = errors_file();
    if (options.shrinks)
        return shrink(options.shrink);
    run();
    print_found();
    return founds > 0;
}
