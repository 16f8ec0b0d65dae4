/* Runs random programs under the allocator on the simulated GPU, whose hazard checker watches them.

     ordering --seeds N [--from N] [--json] [--policy NAME] [--kind NAME] [--illegal] [--first]
             [--patience SECONDS] [--jobs N]

   Each seed is a program of every policy and kind, with its own schedule of the work; those of kind "threads" are
   several that run truly at once, so that a seed does not say all about them. Batches of seeds share a process; one
   that says nothing for a while has deadlocked. Programs wait more than they compute, so there are more processes than
   cores. The last line sums up; the exit status is 0 where nothing was found.
   SEGALLOC_LIBRARY names another library than the one built beside it. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { BATCH = 10, JOBS = 6, JOBS_MAX = 16, PATIENCE_S = 20 };

/* What runs for each seed. */
static const struct plan {
    const char *policy, *kind;
    enum kind runs;
} plans[] = {
    {"strict", "cuda", KIND_CUDA},
    {"event", "cuda", KIND_CUDA},
    {"event", "aware", KIND_AWARE},
    {"stream", "cuda", KIND_CUDA},
    {"stream", "aware", KIND_AWARE},
    {"stream", "ranks", KIND_RANKS},
    {"auto", "cuda", KIND_CUDA},
    {"auto", "aware", KIND_AWARE},
    {"auto", "torch", KIND_TORCH},
    {"auto", "pluggable", KIND_AWARE},
    {"strict", "threads", KIND_THREADS},
    {"event", "threads", KIND_THREADS},
    {"stream", "threads", KIND_THREADS},
    {"auto", "threads", KIND_THREADS},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* By batch: what the card is like and how the library is set. */
static const struct {
    const char *sim, *conf;
    bool nothing_waits; /* neither the driver in what the library calls, nor a free: else ranks hang by themselves */
} settings[] = {
    {"256MiB,count=2", "reserve_slack:1.0", true},
    {"64MiB,count=2", "reserve_slack:auto", true},
    {"96MiB,count=2,vmm_sync=always", "reserve_slack:1.05,page_size_mb:2", false},
    {"128MiB,count=2,driver=12.4", "reserve_slack:auto", true},
    {"96MiB,count=2", "reserve_slack:1.0,page_size_mb:2", true},
    {"64MiB,count=2,no-p2p", "expandable_segments:False", false},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

struct sums {
    uint64_t seeds, programs, operations, hazards, deadlocks, lost_bytes, errors, crashes, found_by_check;
};

struct options {
    uint64_t seeds, from;
    const char *policy, *kind;
    const char *check; /* parts of `check` for the library; NULL: off */
    bool json, illegal, first;
    bool unwatched;    /* without the simulator's hazard checker */
    int patience_s, jobs;
};

static bool parse(int count, char **argument, struct options *ret)
{
    *ret = (struct options){.seeds = 200, .from = 1, .patience_s = PATIENCE_S, .jobs = JOBS};
    for (int i = 1; i < count; i++) {
        const char *name = argument[i], *value = i + 1 < count ? argument[i + 1] : NULL;
        if (strcmp(name, "--json") == 0)
            ret->json = true;
        else if (strcmp(name, "--illegal") == 0)
            ret->illegal = true;
        else if (strcmp(name, "--first") == 0)
            ret->first = true;
        else if (strcmp(name, "--unwatched") == 0)
            ret->unwatched = true;
        else if (!value)
            return false;
        else if (i++, strcmp(name, "--seeds") == 0)
            ret->seeds = strtoull(value, NULL, 10);
        else if (strcmp(name, "--from") == 0)
            ret->from = strtoull(value, NULL, 10);
        else if (strcmp(name, "--policy") == 0)
            ret->policy = value;
        else if (strcmp(name, "--kind") == 0)
            ret->kind = value;
        else if (strcmp(name, "--check") == 0)
            ret->check = value;
        else if (strcmp(name, "--patience") == 0)
            ret->patience_s = atoi(value);
        else if (strcmp(name, "--jobs") == 0)
            ret->jobs = atoi(value);
        else
            return false;
    }
    return ret->seeds > 0 && ret->from > 0 && ret->jobs > 0 && ret->jobs <= JOBS_MAX;
}

/* In the child. */

static void *find(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "ordering: there is no %s\n", name);
        exit(2);
    }
    return found;
}

static void find_extras(enum kind kind)
{
    *(void **)&extras.owner = find("segalloc_sim_owner");
    *(void **)&extras.touches = find("segalloc_sim_touches");
    const char *conf = getenv("SEGALLOC_CONF");
    extras.check_bytes = conf && strstr(conf, "check:off") ? 0 : 1 << 20;
    *(void **)&extras.kernel = find("segalloc_sim_kernel");
    *(void **)&extras.schedule = find("segalloc_sim_schedule");
    *(void **)&extras.hazards = find("segalloc_sim_hazards");
    *(void **)&extras.used = find("segalloc_sim_used");
    *(void **)&extras.torch_malloc = find("segalloc_torch_malloc");
    *(void **)&extras.torch_free = find("segalloc_torch_free");
    *(void **)&extras.trim = find("segalloc_trim");
    *(void **)&extras.stats = find("segalloc_stats");
    *(void **)&extras.torch_record_stream = find("segalloc_torch_record_stream");
    *(void **)&extras.malloc_on = find("segalloc_malloc_on");
    *(void **)&extras.free = find("segalloc_free");
    *(void **)&extras.record_stream = find("segalloc_record_stream");
    if (kind != KIND_TORCH)
        return;
    if (!dlopen(FAKE_TORCH, RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "ordering: %s\n", dlerror());
        exit(2);
    }
    *(void **)&extras.set_current_stream = find("set_current_stream");
    *(void **)&extras.tensor = find("tensor");
    *(void **)&extras.release = find("release");
}

/* Says on descriptor 3 what came of each program. */
static int run_batch(const struct plan *plan, uint64_t from, uint64_t to, bool illegal)
{
    find_extras(plan->runs);
    if (extras.kernel("touch", "w at[bytes], u64 bytes", NULL) != 0 || cuInit(0) != CUDA_SUCCESS)
        return 2;
    uint64_t hazards = 0, lost = 0;
    for (uint64_t seed = from; seed <= to; seed++) {
        struct program *program = calloc(1, sizeof *program);
        if (!program)
            return 2;
        program->seed = seed;
        program->kind = plan->runs;
        program->illegal = illegal;
        program->pluggable = plan->runs == KIND_AWARE && (seed % 3 == 0 || strcmp(plan->kind, "pluggable") == 0);
        program->strict = strcmp(plan->policy, "strict") == 0;
        extras.schedule(seed, seed % 7 == 0 ? (int64_t)(seed % 50) : -1);
        program_run(program);
        uint64_t hazards_now = extras.hazards(), lost_now = extras.used(0) + extras.used(1);
        uint64_t lost_after = lost_now > lost + 2 * extras.check_bytes ? lost_now - lost : 0;
        dprintf(3, "%llu %llu %llu %llu %llu\n", (unsigned long long)seed, (unsigned long long)program->operations,
            (unsigned long long)(hazards_now - hazards),
            (unsigned long long)(program->lost > lost_after ? program->lost : lost_after),
            (unsigned long long)program->errors);
        hazards = hazards_now;
        lost = lost_now;
        free(program);
    }
    return 0;
}

/* In the parent. */

struct job {
    const struct plan *plan;
    uint64_t next, to; /* seeds; the job is done when next > to */
    pid_t child;
    int pipe, silent_ms;
    char line[256];
    size_t length;
};

static void start(struct job *job, const struct options *options)
{
    unsigned setting = (unsigned)((job->next - 1) / BATCH % SETTINGS);
    if (job->plan->runs == KIND_RANKS && !settings[setting].nothing_waits)
        setting = 0;
    int ends[2];
    if (pipe(ends) != 0 || (job->child = fork()) < 0) {
        perror("ordering");
        exit(2);
    }
    if (job->child) {
        close(ends[1]);
        job->pipe = ends[0];
        job->silent_ms = 0;
        job->length = 0;
        return;
    }
    char sim[256], conf[256], from[32], to[32], plan[8];
    const char *library = getenv("SEGALLOC_LIBRARY");
    snprintf(sim, sizeof sim, "%s%s,schedule=1", settings[setting].sim, options->unwatched ? "" : ",hazard");
    snprintf(conf, sizeof conf, "%s,check:%s%s,guard_rate:3,pytorch:direct,oom_report:never,wait_limit:%s,free_sync:%s",
        settings[setting].conf, options->check ? options->check : "off", options->check ? "+fail" : "",
        /* who runs out in PyTorch's interface ends: on a busy machine work takes its time */
        options->check && job->plan->runs != KIND_RANKS ? "5"
        : job->plan->runs == KIND_AWARE                 ? "0.2"
                                                        : "0.005",
        job->plan->policy); /* check gives nothing up */
    snprintf(from, sizeof from, "%llu", (unsigned long long)job->next);
    snprintf(to, sizeof to, "%llu", (unsigned long long)job->to);
    snprintf(plan, sizeof plan, "%d", (int)(job->plan - plans));
    setenv("SEGALLOC_SIM", sim, 1);
    setenv("SEGALLOC_CONF", conf, 1);
    setenv("LD_PRELOAD", library ? library : LIBRARY, 1);
    dup2(ends[1], 3);
    execl("/proc/self/exe", "ordering", "--child", plan, from, to, options->illegal ? "illegal" : "legal",
        (char *)NULL);
    _exit(2);
}

static void note_line(struct job *job, const char *line, struct sums *sums)
{
    unsigned long long seed, operations, hazards, lost, errors;
    if (sscanf(line, "%llu %llu %llu %llu %llu", &seed, &operations, &hazards, &lost, &errors) != 5)
        return;
    sums->programs++;
    sums->operations += operations;
    sums->hazards += hazards;
    sums->lost_bytes += lost;
    sums->errors += errors;
    if (hazards || lost || errors)
        fprintf(stderr, "seed %llu, policy %s, kind %s: %llu hazards, %llu bytes lost, %llu errors\n", seed,
            job->plan->policy, job->plan->kind, hazards, lost, errors);
    job->next = seed + 1;
}

/* Reads what the child says. False once it has ended. */
static bool listen_to(struct job *job, struct sums *sums)
{
    ssize_t got = read(job->pipe, job->line + job->length, sizeof job->line - 1 - job->length);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    job->silent_ms = 0;
    job->length += (size_t)got;
    job->line[job->length] = '\0';
    for (char *end; (end = strchr(job->line, '\n')) != NULL;) {
        *end = '\0';
        note_line(job, job->line, sums);
        job->length -= (size_t)(end + 1 - job->line);
        memmove(job->line, end + 1, job->length + 1);
    }
    return true;
}

enum { FAILED_BY_CHECK = 4 /* docs/check.md */ };

/* All programs have run, and the process is to end well: by itself, and without a sanitizer's report. */
static void finish_batch(const struct job *job, bool hangs, int status, struct sums *sums)
{
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FAILED_BY_CHECK))
        return;
    fprintf(stderr, "seeds to %llu, policy %s, kind %s: %s after the last one\n", (unsigned long long)job->to,
        job->plan->policy, job->plan->kind, hangs ? "hangs" : "ends badly");
    sums->deadlocks += hangs;
    sums->crashes += !hangs;
}

/* The child has ended or is to be. The seed that it was at is left out, and the rest of its batch begun anew. */
static void finish(struct job *job, bool hangs, struct sums *sums)
{
    int status = 0;
    if (hangs)
        kill(job->child, SIGKILL);
    waitpid(job->child, &status, 0);
    close(job->pipe);
    job->child = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == FAILED_BY_CHECK) {
        fprintf(stderr, "seeds to %llu, policy %s, kind %s: check has findings\n", (unsigned long long)job->to,
            job->plan->policy, job->plan->kind);
        sums->found_by_check++;
    }
    if (job->next > job->to) {
        finish_batch(job, hangs, status, sums);
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        exit(2);
    fprintf(stderr, "seed %llu, policy %s, kind %s: %s\n", (unsigned long long)job->next, job->plan->policy,
        job->plan->kind, hangs ? "hangs" : "ends the process");
    sums->deadlocks += hangs;
    sums->crashes += !hangs;
    job->next++;
}

static bool chosen(const struct options *options, const struct plan *plan)
{
    return (!options->policy || strcmp(options->policy, plan->policy) == 0) &&
           (!options->kind || strcmp(options->kind, plan->kind) == 0);
}

/* Batch after batch, of each all that runs. */
static bool next_job(const struct options *options, uint64_t *batch, unsigned *plan, struct job *ret)
{
    uint64_t last = options->from + options->seeds - 1;
    for (; *batch <= last; *plan = 0, *batch = (*batch - 1) / BATCH * BATCH + BATCH + 1) {
        while (*plan < PLANS && !chosen(options, &plans[*plan]))
            ++*plan;
        if (*plan == PLANS)
            continue;
        uint64_t end = (*batch - 1) / BATCH * BATCH + BATCH;
        *ret = (struct job){.plan = &plans[(*plan)++], .next = *batch, .to = end < last ? end : last};
        return true;
    }
    return false;
}

static bool found(const struct sums *sums)
{
    return sums->hazards || sums->deadlocks || sums->lost_bytes || sums->errors || sums->crashes || sums->found_by_check;
}

static void run_all(const struct options *options, struct sums *sums)
{
    enum { TICK_MS = 200 };
    struct job jobs[JOBS_MAX] = {{0}};
    uint64_t batch = options->from;
    unsigned plan = 0;
    for (bool more = true; more;) {
        struct pollfd polled[JOBS_MAX];
        more = false;
        for (int i = 0; i < JOBS_MAX; i++) {
            bool stop = i >= options->jobs || (options->first && found(sums));
            bool unfinished = jobs[i].plan && jobs[i].next <= jobs[i].to;
            if (!jobs[i].child && !stop && (unfinished || next_job(options, &batch, &plan, &jobs[i])))
                start(&jobs[i], options);
            polled[i] = (struct pollfd){.fd = jobs[i].child ? jobs[i].pipe : -1, .events = POLLIN};
            more |= jobs[i].child != 0;
        }
        if (!more)
            break;
        int ready = poll(polled, JOBS_MAX, TICK_MS);
        for (int i = 0; i < JOBS_MAX; i++) {
            if (!jobs[i].child)
                continue;
            if (ready > 0 && polled[i].revents) {
                if (!listen_to(&jobs[i], sums))
                    finish(&jobs[i], false, sums);
            } else if (ready == 0 && (jobs[i].silent_ms += TICK_MS) > options->patience_s * 1000) {
                finish(&jobs[i], true, sums);
            }
        }
    }
}

int main(int count, char **argument)
{
    struct options options;
    struct sums sums = {0};
    if (count == 6 && strcmp(argument[1], "--child") == 0)
        return run_batch(&plans[atoi(argument[2])], strtoull(argument[3], NULL, 10), strtoull(argument[4], NULL, 10),
            strcmp(argument[5], "illegal") == 0);
    if (!parse(count, argument, &options)) {
        fprintf(stderr, "usage: ordering --seeds N [--from N] [--json] [--policy NAME] [--kind NAME] [--illegal] "
                        "[--first] [--patience SECONDS] [--jobs N] [--check PARTS] [--unwatched]\n");
        return 2;
    }
    run_all(&options, &sums);
    sums.seeds = options.seeds;
    printf(options.json ? "{\"seeds\": %llu, \"programs\": %llu, \"operations\": %llu, \"hazards\": %llu, "
                          "\"deadlocks\": %llu, \"lost_bytes\": %llu, \"errors\": %llu, \"crashes\": %llu, \"found_by_check\": %llu}\n"
                        : "%llu seeds, %llu programs, %llu operations: %llu hazards, %llu deadlocks, %llu bytes lost, "
                          "%llu errors, %llu crashes, %llu batches with findings of check\n",
        (unsigned long long)sums.seeds, (unsigned long long)sums.programs, (unsigned long long)sums.operations,
        (unsigned long long)sums.hazards, (unsigned long long)sums.deadlocks, (unsigned long long)sums.lost_bytes,
        (unsigned long long)sums.errors, (unsigned long long)sums.crashes,
        (unsigned long long)sums.found_by_check);
    return found(&sums);
}
