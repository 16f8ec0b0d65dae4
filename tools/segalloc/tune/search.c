#include "tune/search.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "size.h"
#include "tune/choice.h"
#include "tune/play.h"
#include "tune/steady.h"

enum { MEMBERS_A_ROUND = 2 };

/* State that the threads of one batch share. */
struct sg_tune_running {
    struct sg_tune_search *search;
    size_t first, tasks; /* task i: trace i % traces of candidate first + i / traces */
    atomic_size_t next, ended;
    double deadline;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int status;
    char error[SG_TUNE_ERROR];
};

struct task {
    struct sg_tune_running *running;
    bool needed; /* without it nothing can be said: the deadline does not end it */
};

static double search_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* An addition to the candidates; an index, or a negative errno. Settings that are there already, or are refused, add
   nothing and give -EEXIST and -EINVAL. */
static ssize_t search_add_candidate(struct sg_tune_search *search, const char *const *value)
{
    char error[SG_TUNE_SPACE_ERROR];
    struct sg_tune_candidate *candidate = calloc(1, sizeof *candidate);
    struct sg_tune_candidate **larger = realloc(search->candidate, (search->count + 1) * sizeof *larger);
    int status = candidate && larger ? 0 : -ENOMEM;
    if (larger)
        search->candidate = larger;
    if (status == 0)
        status = sg_tune_space_make(search->space, value, &candidate->setting, error);
    for (size_t i = 0; status == 0 && i < search->count; i++) {
        if (sg_tune_space_same(search->space, &candidate->setting, &search->candidate[i]->setting))
            status = -EEXIST;
    }
    if (status == 0 && !(candidate->result = calloc(search->traces, sizeof *candidate->result)))
        status = -ENOMEM;
    if (status) {
        free(candidate);
        return status;
    }
    search->candidate[search->count] = candidate;
    return (ssize_t)search->count++;
}

const struct sg_tune_candidate *sg_tune_find(const struct sg_tune_search *search, const char *const *value)
{
    char error[SG_TUNE_SPACE_ERROR];
    struct sg_tune_setting setting;
    if (sg_tune_space_make(search->space, value, &setting, error) != 0)
        return NULL;
    for (size_t i = 0; i < search->count; i++) {
        if (search->candidate[i]->done && sg_tune_space_same(search->space, &setting, &search->candidate[i]->setting))
            return search->candidate[i];
    }
    return NULL;
}

/* Index of a parameter, or of none. */
static unsigned parameter_of(const struct sg_tune_space *space, const char *key)
{
    unsigned i = 0;
    while (i < space->parameters && strcmp(space->parameter[i].key, key) != 0)
        i++;
    return i;
}

/* The settings that guides paste for PyTorch, alone and together. */
static int add_references(struct sg_tune_search *search)
{
    const struct sg_tune_space *space = search->space;
    unsigned expandable = parameter_of(space, "expandable_segments"), split = parameter_of(space, "max_split_size_mb");
    if (space->policy != SG_POLICY_PYTORCH)
        return 0;
    for (int which = 1; which < 4; which++) {
        const char *value[SG_TUNE_PARAMETERS] = {0};
        bool possible = (!(which & 1) || space->parameter[expandable].searched) &&
                        (!(which & 2) || space->parameter[split].searched) &&
                        !(which & 2 && space->parameter[split].named);
        if (!possible || search->count >= search->candidates_max)
            continue;
        value[expandable] = which & 1 ? "True" : NULL;
        value[split] = which & 2 ? "128" : NULL;
        ssize_t index = search_add_candidate(search, value);
        if (index == -ENOMEM)
            return -ENOMEM;
        if (index >= 0)
            search->candidate[index]->reference = true;
    }
    return 0;
}

/* The defaults, the current setting, the latter without each of its keys, and what people paste. */
static int add_first(struct sg_tune_search *search)
{
    const struct sg_tune_space *space = search->space;
    const char *value[SG_TUNE_PARAMETERS] = {0};
    ssize_t index = search_add_candidate(search, value);
    if (index < 0)
        return (int)index;
    search->candidate[0]->reference = true;
    if ((index = search_add_candidate(search, space->now)) > 0)
        search->current = (size_t)index;
    if (index == -ENOMEM)
        return -ENOMEM;
    for (unsigned i = 0; i < space->parameters; i++) {
        if (!space->now[i] || search->count >= search->candidates_max)
            continue;
        memcpy(value, space->now, sizeof value);
        value[i] = NULL;
        if (search_add_candidate(search, value) == -ENOMEM)
            return -ENOMEM;
    }
    return add_references(search);
}

/* The settings that differ from `candidate` in one parameter, as far as the budget goes. */
static int search_expand(struct sg_tune_search *search, struct sg_tune_candidate *candidate)
{
    const struct sg_tune_space *space = search->space;
    candidate->expanded = true;
    for (unsigned i = 0; i < space->parameters; i++) {
        const struct sg_tune_parameter *parameter = &space->parameter[i];
        const char *value[SG_TUNE_PARAMETERS];
        memcpy(value, candidate->setting.value, sizeof value);
        for (unsigned j = 0; j <= parameter->count && search->count < search->candidates_max; j++) {
            value[i] = j < parameter->count ? parameter->value[j] : NULL;
            if (value[i] && sg_tune_page_is_too_large(search, parameter, value[i]))
                continue;
            if (search_add_candidate(search, value) == -ENOMEM)
                return -ENOMEM;
        }
    }
    return 0;
}

static bool search_stopped(void *user)
{
    const struct task *task = user;
    const struct sg_tune_search *search = task->running->search;
    return atomic_load_explicit(search->stop, memory_order_relaxed) ||
           (!task->needed && search_now() > task->running->deadline);
}

static void running_fail(struct sg_tune_running *running, const char *path, const char *error)
{
    pthread_mutex_lock(&running->lock);
    if (running->status == 0)
        snprintf(running->error, sizeof running->error, "%.200s: %s", path, error);
    running->status = -EIO;
    pthread_mutex_unlock(&running->lock);
    atomic_store(&running->next, running->tasks);
}

/* True when the trace was played to its end. */
static bool replay_candidate(struct sg_tune_running *running, struct sg_tune_candidate *candidate, size_t index,
    bool needed)
{
    const struct sg_tune_trace *trace = &running->search->trace[index];
    struct task task = {.running = running, .needed = needed};
    struct sg_tune_cursor cursor = {.trace = trace, .stopped = search_stopped, .user = &task};
    char error[SG_PLAY_ERROR];
    if (sg_tune_play(running->search, candidate, &cursor, 0, &candidate->result[index], error) != 0) {
        running_fail(running, trace->path, error);
        return false;
    }
    return !cursor.cut;
}

static void *running_work(void *user)
{
    struct sg_tune_running *running = user;
    struct sg_tune_search *search = running->search;
    for (size_t task; (task = atomic_fetch_add(&running->next, 1)) < running->tasks;) {
        size_t index = running->first + task / search->traces;
        struct sg_tune_candidate *candidate = search->candidate[index];
        bool mine = task % (size_t)search->ranks->count == (size_t)search->ranks->rank;
        if (mine && !replay_candidate(running, candidate, task % search->traces, index == 0 || index == search->current))
            candidate->result[task % search->traces].events = 0;
        atomic_fetch_add(&running->ended, 1);
        pthread_mutex_lock(&running->lock);
        pthread_cond_signal(&running->changed);
        pthread_mutex_unlock(&running->lock);
    }
    return NULL;
}

static void sum_parts(const struct sg_play_result *result, struct sg_tune_candidate *candidate)
{
    struct sg_tune_figures *first = &candidate->first, *rest = &candidate->rest;
    first->reserved += result->parted ? result->first.peak_reserved : result->peak_reserved;
    first->ooms += result->parted ? result->first.ooms : result->ooms;
    first->calls += result->first.calls;
#define CALL(name) first->calls += result->parted ? 0 : result->calls.name;
    SG_PLAY_CALLS(CALL)
#undef CALL
    rest->reserved += result->rest.peak_reserved;
    rest->ooms += result->rest.ooms;
    rest->calls += result->rest.calls;
}

/* Over what has been played; false where a trace was not played to its end. */
static bool candidate_sum(const struct sg_tune_search *search, struct sg_tune_candidate *candidate)
{
    for (size_t i = 0; i < search->traces; i++) {
        const struct sg_play_result *result = &candidate->result[i];
        if (!result->events)
            return false;
        candidate->requested += result->peak_requested;
        candidate->reserved += result->peak_reserved;
        candidate->ooms += result->ooms;
        candidate->pages_moved += result->pages_moved;
        candidate->bytes_moved += result->bytes_moved;
        candidate->growth_ns += result->growth_ns;
        candidate->move_ns += result->move_ns;
        candidate->allocs += result->allocs;
#define CALL(name) candidate->calls += result->calls.name;
        SG_PLAY_CALLS(CALL)
#undef CALL
        sum_parts(result, candidate);
    }
    return true;
}

static void search_show_progress(const struct sg_tune_search *search, const struct sg_tune_running *running)
{
    char least[SG_SIZE_TEXT] = "";
    uint64_t bytes = UINT64_MAX;
    for (size_t i = 0; i < search->count; i++) {
        const struct sg_tune_candidate *candidate = search->candidate[i];
        if (candidate->done && !candidate->ooms && candidate->reserved < bytes)
            bytes = candidate->reserved;
    }
    if (bytes != UINT64_MAX)
        sg_size_format(bytes, least);
    fprintf(stderr, "\r\033[K%zu of %zu settings tried%s%s",
            running->first + atomic_load(&running->ended) / search->traces, search->count,
            *least ? ", least reserved so far " : "", least);
    fflush(stderr);
}

/* Sleeps until the threads have ended, with a line of progress on a terminal. */
static void wait_for(struct sg_tune_running *running)
{
    double shown = 0;
    pthread_mutex_lock(&running->lock);
    while (atomic_load(&running->ended) < running->tasks && atomic_load(&running->next) < running->tasks) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&running->changed, &running->lock, &until);
        if (running->search->progress && search_now() - shown > 0.1) {
            shown = search_now();
            search_show_progress(running->search, running);
        }
    }
    pthread_mutex_unlock(&running->lock);
}

/* Gives each rank the results of the others, or the error of the first that has one. */
static void running_exchange_ranks(struct sg_tune_running *running)
{
    const struct sg_tune_search *search = running->search;
    const struct sg_tune_ranks *ranks = search->ranks;
    int status = 0;
    for (int rank = 0; rank < ranks->count && !status; rank++) {
        status = running->status;
        sg_tune_ranks_share(ranks, rank, &status, sizeof status);
        if (status)
            sg_tune_ranks_share(ranks, rank, running->error, sizeof running->error);
    }
    running->status = status;
    for (size_t task = 0; task < running->tasks && !status; task++)
        sg_tune_ranks_share(ranks, (int)(task % (size_t)ranks->count),
            &search->candidate[running->first + task / search->traces]->result[task % search->traces],
            sizeof(struct sg_play_result));
}

/* True if time is up, or the user has ended the search. The first rank decides it for all. */
static bool is_over(const struct sg_tune_running *running)
{
    bool over = atomic_load(running->search->stop) || search_now() > running->deadline;
    sg_tune_ranks_share(running->search->ranks, 0, &over, sizeof over);
    return over;
}

/* Plays the candidates from `first` on. */
static int run_batch(struct sg_tune_running *running, size_t first)
{
    struct sg_tune_search *search = running->search;
    size_t started = 0, wanted = (search->count - first) * search->traces;
    running->first = first;
    running->tasks = wanted;
    atomic_store(&running->next, 0);
    atomic_store(&running->ended, 0);
    pthread_t *thread = calloc(search->threads, sizeof *thread);
    while (thread && started < search->threads && started < wanted &&
           pthread_create(&thread[started], NULL, running_work, running) == 0)
        started++;
    if (!started)
        running_work(running);
    else
        wait_for(running);
    for (size_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    running_exchange_ranks(running);
    for (size_t i = first; i < search->count; i++)
        search->candidate[i]->done = running->status == 0 && candidate_sum(search, search->candidate[i]);
    return running->status;
}

/* The member of the front to look around next: what would be recommended, then the least reserved first. NULL: none is
 * left. */
static struct sg_tune_candidate *next_member(struct sg_tune_search *search)
{
    sg_tune_front(search);
    struct sg_tune_candidate *found = search->candidate[sg_tune_best(search)];
    if (!found->expanded)
        return found;
    found = NULL;
    for (size_t i = 0; i < search->count; i++) {
        struct sg_tune_candidate *candidate = search->candidate[i];
        if (candidate->front && !candidate->expanded && (!found || sg_tune_is_better(search, candidate, found)))
            found = candidate;
    }
    return found;
}

/* Where memory runs out in the rest, what fits comes before all else: the whole is chosen on. */
static enum sg_tune_basis basis_of(const struct sg_tune_search *search)
{
    bool parted = false;
    for (size_t i = 0; i < search->traces; i++)
        parted |= search->candidate[0]->result[i].parted;
    bool runs_out = search->candidate[0]->rest.ooms || search->candidate[search->current]->rest.ooms;
    return !parted ? SG_TUNE_UNDIVIDED : runs_out ? SG_TUNE_RUNS_OUT : SG_TUNE_FIRST_PARTS;
}

/* One change away from the defaults first; then, in rounds, one change away from what is best so far. */
static int search_all(struct sg_tune_search *search, struct sg_tune_running *running)
{
    int status = add_first(search);
    if (status == 0)
        status = search_expand(search, search->candidate[0]);
    size_t first = 0;
    while (status == 0 && search->count > first) {
        status = run_batch(running, first);
        first = search->count;
        if (status || !search->candidate[0]->done)
            return status ? status : -EINTR;
        search->basis = basis_of(search);
        if (is_over(running))
            return 0;
        for (int i = 0; status == 0 && (i < MEMBERS_A_ROUND || search->count == first); i++) {
            struct sg_tune_candidate *member = search->count < search->candidates_max ? next_member(search) : NULL;
            if (!member)
                break;
            status = search_expand(search, member);
        }
    }
    search->complete = status == 0;
    return status;
}

int sg_tune_search(struct sg_tune_search *search, char *error)
{
    struct sg_tune_running running = {.search = search, .deadline = search_now() + search->seconds_max};
    pthread_mutex_init(&running.lock, NULL);
    pthread_cond_init(&running.changed, NULL);
    int status = search_all(search, &running);
    if (search->progress)
        fputs("\r\033[K", stderr);
    if (status && status != -EINTR)
        snprintf(error, SG_TUNE_ERROR, "%s", *running.error ? running.error : "no host memory left for the search");
    pthread_cond_destroy(&running.changed);
    pthread_mutex_destroy(&running.lock);
    if (status == 0) {
        sg_tune_settle(search);
        sg_tune_front(search);
    }
    return status;
}

void sg_tune_search_free(struct sg_tune_search *search)
{
    for (size_t i = 0; i < search->count; i++) {
        free(search->candidate[i]->result);
        free(search->candidate[i]);
    }
    free(search->candidate);
    search->candidate = NULL;
    search->count = 0;
}
