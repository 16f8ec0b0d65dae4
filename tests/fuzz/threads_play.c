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
    *(void **)&ft_found.calls = find("segalloc_sim_calls");
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
    FT_MUST(w, cuCtxSetCurrent(t->card->context));
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

static void make_card(struct ft_world *w, int device)
{
    struct ft_card *card = &w->card[device];
    card->device = device;
    card->limit_bytes = w->plan->limit_bytes;
    card->per_thread = (struct ft_stream){.handle = CU_STREAM_PER_THREAD, .own_of_thread = true};
    FT_MUST(w, cuDevicePrimaryCtxRetain(&card->context, device));
    FT_MUST(w, cuCtxSetCurrent(card->context));
    for (unsigned i = 0; i < w->plan->common_streams; i++)
        FT_MUST(w, cuStreamCreate(&card->common[i].handle, i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
}

static void make_world(struct ft_world *w)
{
    int count = (int)w->plan->devices;
    FT_MUST(w, cuInit(0));
    for (int device = 0; device < count; device++)
        make_card(w, device);
    for (int device = 0; device < count && count > 1 && w->plan->peers; device++) {
        FT_MUST(w, cuCtxSetCurrent(w->card[device].context));
        FT_MUST(w, cuCtxEnablePeerAccess(w->card[(device + 1) % count].context, 0));
    }
    ft_kernels_make(w);
}

static void make_thread(struct ft_world *w, unsigned index, struct ft_thread *ret)
{
    const struct ft_part *part = &w->plan->part[index];
    *ret = (struct ft_thread){.world = w,
        .card = &w->card[index % w->plan->devices],
        .part = part,
        .index = index,
        .room = part->blocks_max + FT_SHELF};
    ret->block = calloc(ret->room + 1, sizeof *ret->block);
    if (!ret->block)
        abort();
    FT_MUST(w, cuCtxSetCurrent(ret->card->context));
    for (unsigned i = 0; i < part->streams; i++) {
        ret->own[i].blocking = i % 2;
        FT_MUST(w, cuStreamCreate(&ret->own[i].handle, i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
}

/* All blocks that are left are freed by the thread that began. */
static void end_blocks(struct ft_thread *t)
{
    FT_MUST(t->world, cuCtxSetCurrent(t->card->context));
    while (t->blocks)
        ft_block_check_and_end(t, &t->block[0], (uint32_t)ft_random_at(t->world->plan->seed, t->blocks));
}

static void end_shelf(struct ft_thread *t)
{
    while (t->card->on_shelf) {
        ft_take_over(t, &(struct ft_operation){.which = 0});
        end_blocks(t);
    }
}

static void end_others(struct ft_thread *t)
{
    FT_MUST(t->world, cuCtxSetCurrent(t->card->context));
    ft_others_end(t);
}

static void end_streams(struct ft_thread *t)
{
    for (unsigned i = 0; i < FT_OWN_STREAMS; i++) {
        if (t->own[i].handle)
            FT_MUST(t->world, cuStreamDestroy_v2(t->own[i].handle));
    }
    free(t->block);
}

void ft_wait_all(struct ft_world *w, int device)
{
    for (unsigned i = 1; i <= w->plan->devices; i++) {
        FT_MUST(w, cuCtxSetCurrent(w->card[(device + (int)i) % (int)w->plan->devices].context));
        FT_MUST(w, cuCtxSynchronize());
    }
}

/* Where waits are cut short, what goes back to the driver may do so only after a refusal. */
static bool probe(struct ft_thread *t, uint64_t bytes)
{
    bool there = ft_probe(t, bytes);
    for (int tries = 0; tries < TRIES && !there && !t->world->plan->judged; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        ft_wait_all(t->world, t->card->device);
        there = ft_probe(t, bytes);
    }
    return there;
}

/* All is free, and so nearly all can be had at once. */
static void expect_all_free(struct ft_thread *t)
{
    struct ft_world *w = t->world;
    ft_wait_all(w, t->card->device);
    ft_found.set_limit(t->card->device, w->plan->card_bytes);
    uint64_t most = w->plan->probe_bytes;
    if (!w->plan->refuses_on && !w->plan->refuses_back && most && !probe(t, most))
        ft_fault(w->result, "%llu bytes of %llu were refused when all was free", (unsigned long long)most,
            (unsigned long long)w->plan->limit_bytes);
    FT_MUST(w, cuCtxSynchronize());
}

/* A thread of the driver says that work is over. */
static bool still_on_its_way(const struct ft_world *w, int device)
{
    return ft_statistic(device, "pending_bytes") || (ft_found.used(device) && !w->plan->refuses_back);
}

static void expect_all_given_back(struct ft_world *w, int device)
{
    ft_wait_all(w, device);
    ft_found.trim(device, 0);
    for (int tries = 0; tries < TRIES && still_on_its_way(w, device); tries++) {
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        ft_wait_all(w, device);
        ft_found.trim(device, 0);
    }
    if (ft_found.used(device) && !w->plan->refuses_back)
        ft_fault(w->result, "%llu bytes of card %d did not come back", (unsigned long long)ft_found.used(device),
            device);
    static const char *const levels[] = {"requested_bytes", "allocated_bytes", "pending_bytes", "active_bytes",
        "allocations", "aliased_bytes"};
    for (unsigned i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (ft_statistic(device, levels[i]))
            ft_fault(w->result, "%s is %llu at the end", levels[i], (unsigned long long)ft_statistic(device, levels[i]));
    }
    if (ft_statistic(device, "allocs") != ft_statistic(device, "frees"))
        ft_fault(w->result, "%llu allocations, %llu frees", (unsigned long long)ft_statistic(device, "allocs"),
            (unsigned long long)ft_statistic(device, "frees"));
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

/* Counts calls by name, whatever their version. */
static void count_calls(struct ft_result *result)
{
    enum { ROWS = 2048 };
    static struct segalloc_sim_call rows[ROWS];
    size_t count = ft_found.calls(rows, ROWS);
    for (unsigned i = 0; i < FT_CALLS && ft_call_name(i); i++) {
        size_t length = strlen(ft_call_name(i));
        for (size_t row = 0; row < count && row < ROWS; row++) {
            const char *symbol = rows[row].symbol;
            if (strncmp(symbol, ft_call_name(i), length) == 0 && (!symbol[length] || symbol[length] == '_'))
                result->calls[i] += rows[row].calls;
        }
    }
}

void ft_play(const struct ft_plan *plan, struct ft_result *result)
{
    struct ft_world world = {.plan = plan,
        .result = result,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .pausing = PTHREAD_RWLOCK_INITIALIZER};
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
    for (unsigned i = 0; i < plan->devices; i++)
        end_shelf(&threads[i]);
    ft_resume_end(&threads[0]);
    for (unsigned i = 0; i < plan->threads; i++)
        end_others(&threads[i]);
    for (unsigned i = 0; i < plan->devices; i++)
        expect_all_free(&threads[i]);
    for (unsigned i = 0; i < plan->threads; i++)
        end_streams(&threads[i]);
    for (unsigned i = 0; i < plan->devices; i++)
        expect_all_given_back(&world, (int)i);
    atomic_store(&result->hazards, ft_found.hazards());
    if (ft_found.hazards())
        ft_fault(result, "%llu hazards", (unsigned long long)ft_found.hazards());
    for (unsigned i = 0; i < plan->devices; i++)
        FT_MUST(&world, cuDevicePrimaryCtxRelease_v2((int)i));
    count_calls(result);
    atomic_store(&result->complete, true);
}
