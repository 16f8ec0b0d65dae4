/* Plays random programs of two to four threads over the allocator on the simulated GPU (threads.h), each in a process
   of its own.

     threads [--seeds FROM-TO] [--jobs N] [--patience SECONDS] [--keep-going] [--verbose] [--only THREAD:OPERATION,…]
     threads --minutes N [--from SEED] …
     threads --pauses [--each N] [--fail CALL:N] …

   With --pauses seeds stand for plans of FT_PAUSES, all with tags. With --each N a plan in turns is played again for every Nth
   call that only the library makes of the driver. That call fails. With --fail one named call does.

   A seed falls short when its process ends by itself, says nothing for the patience, or finds a fault. Faults are work of
   two owners unordered, a block that holds other bytes than its owner wrote, and a refusal of what would have fitted. Books
   that don't add up and memory that does not come back are faults too. Its operations are left out then, as long as it
   falls short without them. The rest is printed with the command that repeats it. The exit status is 0 where
   nothing was found.
   SEGALLOC_LIBRARY names another library than the one built beside it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "threads.h"

enum { JOBS_MAX = 16, RETRIES = 6, SHRINK_RUNS = 4000 };

struct options {
    uint64_t from, to;
    unsigned jobs, patience_s, minutes;
    bool keep_going, verbose;
    unsigned each; /* 0: none */
    enum ft_manner manner;
    const char *only, *fail;
};

/* Of a job, in memory that it shares with the one that sums up. */
struct sums {
    uint64_t seeds, plays, operations, allocations, refused, found;
};

static bool parse(int count, char **argument, struct options *ret)
{
    *ret = (struct options){.from = 1, .to = 101, .jobs = 2, .patience_s = 60};
    for (int i = 1; i < count; i++) {
        const char *name = argument[i], *value = i + 1 < count ? argument[i + 1] : "";
        unsigned long long from, to;
        if (strcmp(name, "--keep-going") == 0)
            ret->keep_going = true;
        else if (strcmp(name, "--verbose") == 0)
            ret->verbose = true;
        else if (strcmp(name, "--pauses") == 0)
            ret->manner = FT_PAUSES;
        else if (i++, strcmp(name, "--seeds") == 0 && sscanf(value, "%llu-%llu", &from, &to) == 2)
            ret->from = from, ret->to = to;
        else if (strcmp(name, "--from") == 0)
            ret->from = strtoull(value, NULL, 10);
        else if (strcmp(name, "--minutes") == 0)
            ret->minutes = (unsigned)atoi(value), ret->to = UINT64_MAX;
        else if (strcmp(name, "--jobs") == 0)
            ret->jobs = (unsigned)atoi(value);
        else if (strcmp(name, "--patience") == 0)
            ret->patience_s = (unsigned)atoi(value);
        else if (strcmp(name, "--each") == 0)
            ret->each = (unsigned)atoi(value);
        else if (strcmp(name, "--fail") == 0)
            ret->fail = value;
        else if (strcmp(name, "--only") == 0)
            ret->only = value;
        else
            return false;
    }
    return ret->from < ret->to && ret->jobs > 0 && ret->jobs <= JOBS_MAX && ret->patience_s > 0;
}

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("threads");
        exit(2);
    }
    return memory;
}

/* How a plan ended: 0, or what it fell short by. */
enum ending { FINE, FOUND, CRASHED, HUNG };

static const char *const ending_names[] = {"is fine", "falls short", "ends the process", "hangs"};

/* Waits until the pipe's other end is closed. False: the patience is over. */
static bool wait_closed(int end, unsigned patience_s)
{
    struct pollfd polled = {.fd = end, .events = POLLIN};
    int ready;
    do
        ready = poll(&polled, 1, (int)patience_s * 1000);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* What the played process says, until it is known whether somebody wants to hear it. */
static int said = -1;

static void begin_listening(void)
{
    if (said < 0)
        said = memfd_create("said", MFD_CLOEXEC);
    if (said < 0 || ftruncate(said, 0) != 0 || lseek(said, 0, SEEK_SET) != 0) {
        perror("threads");
        exit(2);
    }
}

static void print_said(void)
{
    enum { MOST = 3000 };
    char text[MOST];
    ssize_t bytes = pread(said, text, sizeof text, 0);
    for (ssize_t begin = 0, at = 0; at < bytes; at++) {
        if (text[at] != '\n' && at + 1 < bytes)
            continue;
        fprintf(stderr, "  | %.*s\n", (int)(at - begin), text + begin);
        begin = at + 1;
    }
}

static enum ending play_once(const struct ft_plan *plan, unsigned patience_s, struct ft_result *result, int *ret_status)
{
    int ends[2], status = 0;
    memset(result, 0, sizeof *result);
    begin_listening();
    if (pipe(ends) != 0) {
        perror("threads");
        exit(2);
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        dup2(said, STDERR_FILENO);
        ft_play(plan, result);
        exit(0);
    }
    close(ends[1]);
    bool closed = child > 0 && wait_closed(ends[0], patience_s);
    if (!closed && child > 0)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(ends[0]);
    *ret_status = status;
    return !closed ? HUNG : status != 0 || !result->complete ? CRASHED : result->has_fault ? FOUND : FINE;
}

/* The threads that take turns do the same each time; others may need several tries. */
static bool falls_short_again(const struct ft_plan *plan, unsigned patience_s, struct ft_result *result)
{
    int status;
    for (int tries = plan->turns ? 1 : RETRIES; tries > 0; tries--) {
        if (play_once(plan, patience_s, result, &status) != FINE)
            return true;
    }
    return false;
}

/* Leaves a piece of a thread's operations out where it falls short without it. */
static bool leave_out(struct ft_plan *plan, struct ft_part *part, unsigned at, unsigned count, unsigned patience_s,
    struct ft_result *result)
{
    bool *before = malloc(part->count * sizeof *before), any = false;
    if (!before)
        abort();
    memcpy(before, part->left_out, part->count * sizeof *before);
    for (unsigned i = at; i < at + count && i < part->count; i++) {
        any |= !part->left_out[i];
        part->left_out[i] = true;
    }
    bool short_still = any && falls_short_again(plan, patience_s, result);
    if (!short_still)
        memcpy(part->left_out, before, part->count * sizeof *before);
    free(before);
    return short_still;
}

static void shrink(struct ft_plan *plan, unsigned patience_s, struct ft_result *result)
{
    unsigned runs = 0;
    patience_s = patience_s < 10 ? patience_s : 10;
    for (unsigned piece = 1024; piece > 0; piece /= 2) {
        for (unsigned t = 0; t < plan->threads; t++) {
            for (unsigned at = 0; at < plan->part[t].count && runs < SHRINK_RUNS; at += piece, runs++)
                leave_out(plan, &plan->part[t], at, piece, patience_s, result);
        }
    }
}

static void print_plan(const struct ft_plan *plan, bool all)
{
    fprintf(stderr, "  SEGALLOC_SIM=%s SEGALLOC_CONF=%s\n  %u threads%s, live up to %llu\n", plan->sim, plan->conf,
        plan->threads, plan->turns ? ", in turns" : "", (unsigned long long)plan->live_max_bytes);
    for (unsigned t = 0; t < plan->threads; t++) {
        const struct ft_part *part = &plan->part[t];
        fprintf(stderr, "  thread %u: %s, %u streams, %u blocks\n", t, ft_kind_name(part->kind), part->streams,
            part->blocks_max);
        for (unsigned i = 0; i < part->count && all; i++) {
            if (!part->left_out[i])
                fprintf(stderr, "    %u:%u %s %u %u %llu\n", t, i, ft_action_name(part->operations[i].action),
                    part->operations[i].which, part->operations[i].how, (unsigned long long)part->operations[i].bytes);
        }
    }
}

static void print_command(const struct ft_plan *plan)
{
    const char *between = " --only ";
    fprintf(stderr, "  threads%s --seeds %llu-%llu", plan->manner == FT_PAUSES ? " --pauses" : "",
        (unsigned long long)plan->seed, (unsigned long long)plan->seed + 1);
    if (plan->refused)
        fprintf(stderr, " --fail %s", plan->refused);
    for (unsigned t = 0; t < plan->threads; t++) {
        for (unsigned i = 0; i < plan->part[t].count; i++) {
            if (plan->part[t].left_out[i])
                continue;
            fprintf(stderr, "%s%u:%u", between, t, i);
            between = ",";
        }
    }
    fprintf(stderr, "\n");
}

/* "0:3,1:7": those operations stay, all others are left out. */
static void keep_only(struct ft_plan *plan, const char *text)
{
    for (unsigned t = 0; t < plan->threads && text; t++)
        memset(plan->part[t].left_out, true, plan->part[t].count * sizeof(bool));
    unsigned t, i;
    int used;
    for (; text && sscanf(text, "%u:%u%n", &t, &i, &used) == 2; text += used + (text[used] == ',')) {
        if (t < plan->threads && i < plan->part[t].count)
            plan->part[t].left_out[i] = false;
    }
}

static void say_ending(const struct ft_plan *plan, enum ending ending, int status, const struct ft_result *result)
{
    fprintf(stderr, "seed %llu %s%s%s", (unsigned long long)plan->seed, ending_names[ending],
        result->has_fault ? ": " : "", result->has_fault ? result->fault : "");
    if (ending == CRASHED && WIFSIGNALED(status))
        fprintf(stderr, ": signal %d", WTERMSIG(status));
    fprintf(stderr, "; at");
    for (unsigned t = 0; t < plan->threads; t++)
        fprintf(stderr, " %u:%u", t, result->at[t]);
    fprintf(stderr, "\n");
}

/* With one more call that fails, unless `fail` is NULL. */
static bool run_plan(uint64_t seed, const char *fail, const struct options *options, struct ft_result *result,
    struct sums *sums)
{
    int status;
    struct ft_plan *plan = ft_plan_draw(seed, options->manner);
    keep_only(plan, options->only);
    if (fail && !ft_plan_refuse(plan, fail)) {
        ft_plan_release(plan);
        return true;
    }
    if (options->verbose)
        print_plan(plan, options->only != NULL);
    enum ending ending = play_once(plan, options->patience_s, result, &status);
    sums->plays++;
    sums->operations += result->operations;
    sums->allocations += result->allocations;
    sums->refused += result->refused;
    if (ending != FINE) {
        sums->found++;
        say_ending(plan, ending, status, result);
        print_said();
        if (!options->only && falls_short_again(plan, options->patience_s, result))
            shrink(plan, options->patience_s, result);
        print_plan(plan, true);
        print_command(plan);
    }
    ft_plan_release(plan);
    return ending == FINE;
}

static bool takes_turns(uint64_t seed, enum ft_manner manner)
{
    struct ft_plan *plan = ft_plan_draw(seed, manner);
    bool turns = plan->turns;
    ft_plan_release(plan);
    return turns;
}

static bool run_seed(uint64_t seed, const struct options *options, struct ft_result *result, struct sums *sums)
{
    sums->seeds++;
    bool fine = run_plan(seed, options->fail, options, result, sums);
    if (!fine || !options->each || !takes_turns(seed, options->manner))
        return fine;
    uint64_t calls[FT_CALLS];
    memcpy(calls, result->calls, sizeof calls);
    for (unsigned i = 0; i < FT_CALLS && ft_call_name(i); i++) {
        for (uint64_t n = 1 + seed % options->each; n <= calls[i] && (fine || options->keep_going); n += options->each) {
            char fail[64];
            snprintf(fail, sizeof fail, "%s:%llu", ft_call_name(i), (unsigned long long)n);
            fine &= run_plan(seed, fail, options, result, sums);
        }
    }
    return fine;
}

/* Every jobs-th seed, up to the last or until time is up. */
static void run_job(const struct options *options, unsigned job, struct sums *sums)
{
    struct ft_result *result = shared(sizeof *result);
    time_t end = time(NULL) + (time_t)options->minutes * 60;
    for (uint64_t seed = options->from + job; seed < options->to; seed += options->jobs) {
        if (options->minutes && time(NULL) >= end)
            return;
        if (!run_seed(seed, options, result, &sums[job]) && !options->keep_going)
            return;
    }
}

static int run_all(const struct options *options)
{
    struct sums *sums = shared(JOBS_MAX * sizeof *sums), all = {0};
    bool whole = true;
    pid_t child[JOBS_MAX];
    for (unsigned job = 0; job < options->jobs; job++) {
        if ((child[job] = fork()) == 0) {
            run_job(options, job, sums);
            exit(0);
        }
    }
    for (unsigned job = 0; job < options->jobs; job++) {
        int status = 1;
        whole &= child[job] > 0 && waitpid(child[job], &status, 0) == child[job] && status == 0;
        all.seeds += sums[job].seeds;
        all.plays += sums[job].plays;
        all.operations += sums[job].operations;
        all.allocations += sums[job].allocations;
        all.refused += sums[job].refused;
        all.found += sums[job].found;
    }
    printf("%llu seeds, %llu programs, %llu operations, %llu allocations, %llu refused: %llu fall short\n",
        (unsigned long long)all.seeds, (unsigned long long)all.plays, (unsigned long long)all.operations,
        (unsigned long long)all.allocations, (unsigned long long)all.refused, (unsigned long long)all.found);
    return all.found || !whole || !all.plays;
}

int main(int count, char **argument)
{
    struct options options;
    if (!parse(count, argument, &options)) {
        fprintf(stderr,
            "usage: threads [--seeds FROM-TO | --minutes N [--from SEED]] [--jobs N] [--patience SECONDS] "
            "[--pauses] [--each N] [--fail CALL:N] [--keep-going] [--verbose] [--only THREAD:OPERATION,...]\n");
        return 2;
    }
    const char *library = getenv("SEGALLOC_LIBRARY");
    if (!getenv("FUZZ_THREADS_LOADED")) {
        setenv("FUZZ_THREADS_LOADED", "1", 1);
        setenv("LD_PRELOAD", library ? library : LIBRARY, 1);
        execv("/proc/self/exe", argument);
        perror("threads");
        return 2;
    }
    return run_all(&options);
}
