/* Plays a plan: its threads, their turns, and what must hold when all is over. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "threads_world.h"

struct ft_found ft_found;

enum { TRIES = 2000, TRY_NS = 1000000 }; /* so many: a busy machine must not look like a loss */

void ft_fault(struct ft_result *result, const char *format, ...)
{
    va_list arguments;
    atomic_fetch_add(&result->faults, 1);
    if (atomic_exchange(&result->has_fault, true))
        return;
    va_start(arguments, format);
    vsnprintf(result->fault, sizeof result->fault, format, arguments);
    va_end(arguments);
}

bool ft_must(struct ft_world *world, CUresult result, const char *call)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    cuGetErrorName(result, &name);
    ft_fault(world->result, "%s: %s", call, name ? name : "an error without a name");
    return false;
}

static void *find(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "threads: there is no %s\n", name);
        exit(2);
    }
    return found;
}

static void find_all(void)
{
    *(void **)&ft_found.owner = find("segalloc_sim_owner");
    *(void **)&ft_found.kernel = find("segalloc_sim_kernel");
    *(void **)&ft_found.hazards = find("segalloc_sim_hazards");
    *(void **)&ft_found.used = find("segalloc_sim_used");
    *(void **)&ft_found.malloc_on = find("segalloc_malloc_on");
    *(void **)&ft_found.free = find("segalloc_free");
    *(void **)&ft_found.record_stream = find("segalloc_record_stream");
    *(void **)&ft_found.trim = find("segalloc_trim");
    *(void **)&ft_found.set_limit = find("segalloc_set_limit");
    *(void **)&ft_found.stats = find("segalloc_stats");
    *(void **)&ft_found.pieces = find("segalloc_pieces");
    *(void **)&ft_found.tag_push = find("segalloc_tag_push");
    *(void **)&ft_found.tag_pop = find("segalloc_tag_pop");
    *(void **)&ft_found.pause = find("segalloc_pause");
    *(void **)&ft_found.resume = find("segalloc_resume");
}

static void find_torch(const struct ft_plan *plan)
{
    bool needed = false;
    for (unsigned i = 0; i < plan->threads; i++)
        needed |= plan->part[i].kind == FT_TORCH;
    if (!needed)
        return;
    if (!dlopen(FAKE_TORCH, RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "threads: %s\n", dlerror());
        exit(2);
    }
    *(void **)&ft_found.set_current_stream = find("set_current_stream");
    *(void **)&ft_found.tensor = find("tensor");
    *(void **)&ft_found.release = find("release");
}

static void step(struct ft_thread *t, const struct ft_operation *operation)
{
    switch (operation->action) {
    case FT_ALLOCATE:
        ft_allocate(t, operation);
        break;
    case FT_FREE:
        ft_free(t, operation);
        break;
    case FT_USE:
        ft_use(t, operation);
        break;
    case FT_HAND_OVER:
        ft_hand_over(t, operation);
        break;
    case FT_TAKE_OVER:
        ft_take_over(t, operation);
        break;
    case FT_WAIT:
        ft_wait(t, operation);
        break;
    case FT_TRIM:
        ft_trim(t, operation);
        break;
    case FT_LIMIT:
        ft_limit(t, operation);
        break;
    case FT_OTHERS:
        ft_others(t, operation);
        break;
    case FT_STREAM:
        ft_stream_anew(t, operation);
        break;
    case FT_LOOK:
        ft_look(t);
        break;
    case FT_GRAPH:
        ft_capture(t, operation);
        break;
    case FT_PAUSE:
        ft_pause(t, operation);
        break;
    case FT_RESUME:
        ft_resume(t, operation);
        break;
    case FT_ACTIONS:
        break;
    }
}

/* With the mutex. */
static void pass_turn(struct ft_world *w)
{
    unsigned at = (unsigned)(ft_random_at(w->plan->seed, w->turns++) % w->plan->threads);
    for (unsigned i = 0; i < w->plan->threads && w->ended[at]; i++)
        at = (at + 1) % w->plan->threads;
    w->turn = at;
    pthread_cond_broadcast(&w->changed);
}

static void begin_turn(struct ft_thread *t)
{
    struct ft_world *w = t->world;
    if (!w->plan->turns)
        return;
    pthread_mutex_lock(&w->mutex);
    while (w->turn != t->index)
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

static void end_turn(struct ft_thread *t, bool last)
{
    struct ft_world *w = t->world;
    pthread_mutex_lock(&w->mutex);
    w->ended[t->index] |= last;
    if (w->plan->turns)
        pass_turn(w);
    pthread_mutex_unlock(&w->mutex);
}

static void *work(void *data)
{
    struct ft_thread *t = data;
    struct ft_world *w = t->world;
    begin_turn(t);
    FT_MUST(w, cuCtxSetCurrent(w->context));
    for (unsigned i = 0; i < t->part->count && !atomic_load(&w->result->has_fault); i++) {
        atomic_store(&w->result->at[t->index], i);
        if (t->part->left_out[i])
            continue;
        step(t, &t->part->operations[i]);
        atomic_fetch_add(&w->result->operations, 1);
        end_turn(t, false);
        begin_turn(t);
    }
    end_turn(t, true);
    return NULL;
}

static void make_world(struct ft_world *w)
{
    FT_MUST(w, cuInit(0));
    FT_MUST(w, cuDevicePrimaryCtxRetain(&w->context, 0));
    FT_MUST(w, cuCtxSetCurrent(w->context));
    ft_kernels_make(w);
    for (unsigned i = 0; i < w->plan->common_streams; i++)
        FT_MUST(w, cuStreamCreate(&w->common[i].handle, i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    w->per_thread = (struct ft_stream){.handle = CU_STREAM_PER_THREAD, .own_of_thread = true};
}

static void make_thread(struct ft_world *w, unsigned index, struct ft_thread *ret)
{
    const struct ft_part *part = &w->plan->part[index];
    *ret = (struct ft_thread){.world = w, .part = part, .index = index, .room = part->blocks_max + FT_SHELF};
    ret->block = calloc(ret->room + 1, sizeof *ret->block);
    if (!ret->block)
        abort();
    for (unsigned i = 0; i < part->streams; i++) {
        ret->own[i].blocking = i % 2;
        FT_MUST(w, cuStreamCreate(&ret->own[i].handle, i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
}

/* All blocks that are left are freed by the thread that began. */
static void end_blocks(struct ft_thread *t)
{
    while (t->blocks)
        ft_block_check_and_end(t, &t->block[0], (uint32_t)ft_random_at(t->world->plan->seed, t->blocks));
}

static void end_shelf(struct ft_thread *t)
{
    while (t->world->on_shelf) {
        ft_take_over(t, &(struct ft_operation){.which = 0});
        end_blocks(t);
    }
}

static void end_streams(struct ft_thread *t)
{
    for (unsigned i = 0; i < FT_OWN_STREAMS; i++) {
        if (t->own[i].handle)
            FT_MUST(t->world, cuStreamDestroy_v2(t->own[i].handle));
    }
    free(t->block);
}

/* Where waits are cut short, what goes back to the driver may do so only after a refusal. */
static bool probe(struct ft_thread *t, uint64_t bytes)
{
    bool there = ft_probe(t, bytes);
    for (int tries = 0; tries < TRIES && !there && !t->world->plan->judged; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        there = ft_probe(t, bytes);
    }
    return there;
}

/* All is free, and so nearly all can be had at once. */
static void expect_all_free(struct ft_thread *t)
{
    struct ft_world *w = t->world;
    FT_MUST(w, cuCtxSynchronize());
    ft_found.set_limit(0, w->plan->card_bytes);
    uint64_t most = w->plan->probe_bytes;
    if (!w->plan->refuses_on && !w->plan->refuses_back && most && !probe(t, most))
        ft_fault(w->result, "%llu bytes of %llu were refused when all was free", (unsigned long long)most,
            (unsigned long long)w->plan->limit_bytes);
    FT_MUST(w, cuCtxSynchronize());
}

/* What still comes back is on its way: a thread of the driver says that work is over. */
static void expect_all_given_back(struct ft_world *w)
{
    ft_found.trim(0, 0);
    for (int tries = 0; tries < TRIES && ft_found.used(0) && !w->plan->refuses_back; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        FT_MUST(w, cuCtxSynchronize());
        ft_found.trim(0, 0);
    }
    if (ft_found.used(0) && !w->plan->refuses_back)
        ft_fault(w->result, "%llu bytes of the card did not come back", (unsigned long long)ft_found.used(0));
    static const char *const levels[] = {"requested_bytes", "allocated_bytes", "pending_bytes", "active_bytes",
        "allocations", "aliased_bytes"};
    for (unsigned i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (ft_statistic(levels[i]))
            ft_fault(w->result, "%s is %llu at the end", levels[i], (unsigned long long)ft_statistic(levels[i]));
    }
    if (ft_statistic("allocs") != ft_statistic("frees"))
        ft_fault(w->result, "%llu allocations, %llu frees", (unsigned long long)ft_statistic("allocs"),
            (unsigned long long)ft_statistic("frees"));
}

static void run_threads(struct ft_world *w, struct ft_thread *threads)
{
    pthread_t handle[FT_THREADS_MAX];
    w->turn = w->plan->threads;
    for (unsigned i = 0; i < w->plan->threads; i++) {
        if (pthread_create(&handle[i], NULL, work, &threads[i]) != 0)
            abort();
    }
    pthread_mutex_lock(&w->mutex);
    pass_turn(w);
    pthread_mutex_unlock(&w->mutex);
    for (unsigned i = 0; i < w->plan->threads; i++)
        pthread_join(handle[i], NULL);
}

void ft_play(const struct ft_plan *plan, struct ft_result *result)
{
    struct ft_world world = {.plan = plan,
        .result = result,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .pausing = PTHREAD_RWLOCK_INITIALIZER,
        .limit_bytes = plan->limit_bytes};
    struct ft_thread threads[FT_THREADS_MAX];
    setenv("SEGALLOC_SIM", plan->sim, 1);
    setenv("SEGALLOC_CONF", plan->conf, 1);
    find_all();
    find_torch(plan);
    make_world(&world);
    for (unsigned i = 0; i < plan->threads; i++)
        make_thread(&world, i, &threads[i]);
    run_threads(&world, threads);
    ft_resume(&threads[0], &(struct ft_operation){.how = 0}); /* all, if there is room */
    for (unsigned i = 0; i < plan->threads; i++)
        end_blocks(&threads[i]);
    end_shelf(&threads[0]);
    ft_resume_end(&threads[0]);
    for (unsigned i = 0; i < plan->threads; i++)
        ft_others_end(&threads[i]);
    expect_all_free(&threads[0]);
    for (unsigned i = 0; i < plan->threads; i++)
        end_streams(&threads[i]);
    expect_all_given_back(&world);
    atomic_store(&result->hazards, ft_found.hazards());
    if (ft_found.hazards())
        ft_fault(result, "%llu hazards", (unsigned long long)ft_found.hazards());
    FT_MUST(&world, cuDevicePrimaryCtxRelease_v2(0));
    atomic_store(&result->complete, true);
}
