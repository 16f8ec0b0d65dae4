#include "training.h"
#include "data.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct training {
    const struct options *options;
    struct device device;
    struct model model;
    struct schedule schedule;
    struct optimizer optimizer;
    struct lengths lengths;
    struct text *text; /* NULL: dry */
    int step;          /* from 1 */
    struct tensor *kept[SCENARIO_KEPT];
    int64_t *tokens;   /* page-locked: of all micro-steps of a step */
    float *losses;     /* page-locked: likewise */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void training_open(struct training *t, const struct options *o, const struct cuda_rt *rt,
                          struct allocator *alloc, const struct lengths *lengths, struct text *text)
{
    *t = (struct training){.options = o, .lengths = *lengths, .text = text};
    t->optimizer = (struct optimizer){o->set.rate, 0.9, 0.999, 1e-8, o->set.weight_decay, o->set.clip, 0};
    device_open(&t->device, rt, alloc, o->dry ? NULL : &arithmetic_cpu);
    static const struct shape none = {.hidden = 1, .heads = 1, .kv_heads = 1, .head_dim = 2, .ffn = 1, .vocabulary = 1};
    bool bare = o->scenario && o->scenario->round;
    model_open(&t->model, &t->device, bare ? &none : &o->set.shape, o->seed);
    schedule_open(&t->schedule, &t->device, &t->model, !o->set.no_checkpoint);
    t->schedule.policy = o->set.policy;
    t->schedule.seed = o->seed;
    t->device.limit = rt && o->card_named ? o->card : 0;
    if (text) {
        size_t micro_tokens = (size_t)o->set.batch * (size_t)o->set.longest;
        t->tokens = device_pin(&t->device, (size_t)o->set.accumulation * micro_tokens * sizeof *t->tokens);
        t->losses = device_pin(&t->device, (size_t)o->set.accumulation * sizeof *t->losses);
    }
}

static void training_close(struct training *t)
{
    device_wait(&t->device);
    for (int i = 0; i < SCENARIO_KEPT; i++)
        tensor_drop(&t->kept[i]);
    model_drop_weights(&t->model);
    schedule_close(&t->schedule);
    model_close(&t->model);
    device_unpin(&t->device, t->tokens);
    device_unpin(&t->device, t->losses);
    device_close(&t->device);
}

/* Whatever the lengths drawn, the longest that the settings allow is in the second step, when the optimizer's moments
   are there, so that a few steps tell whether a long run fits. */
static int64_t next_length(struct training *t, int micro)
{
    const struct options *o = t->options;
    int64_t length = lengths_next(&t->lengths);
    bool last = t->step == (o->set.steps < 2 ? 1 : 2) && micro == o->set.accumulation - 1;
    return last && lengths_drawn(&t->lengths) ? o->set.longest / LENGTH_STEP * LENGTH_STEP : length;
}

/* Queues one step and waits for it. Returns how many tokens it had. */
static int64_t training_step(struct training *t)
{
    const struct options *o = t->options;
    int64_t tokens = 0;
    t->step++;
    if (o->scenario && o->scenario->round) {
        o->scenario->round(&t->device, t->kept, t->step - 1);
        device_wait(&t->device);
        return 0;
    }
    engine_rollout(&o->set.engine, &t->device, &o->set.shape, o->card, o->set.longest / 2);
    for (int m = 0; m < o->set.accumulation && t->device.state == DEVICE_OK; m++) {
        int64_t length = next_length(t, m);
        struct micro_step micro = {.batch = o->set.batch, .length = length, .parts = o->set.accumulation,
                                   .number = (uint64_t)(t->step - 1) * (uint64_t)o->set.accumulation + (uint64_t)m + 1};
        if (t->text) {
            int64_t *at = t->tokens + (size_t)m * (size_t)o->set.batch * (size_t)o->set.longest;
            for (int b = 0; b < o->set.batch; b++)
                text_window(t->text, length, at + b * length);
            micro.tokens = at;
            micro.ret_loss = &t->losses[m];
        }
        schedule_micro_step(&t->schedule, &micro);
        tokens += o->set.batch * length;
    }
    optimizer_step(&t->optimizer, &t->device, &t->model);
    device_wait(&t->device);
    return tokens;
}

static float mean_loss(const struct training *t)
{
    double sum = 0;
    for (int m = 0; m < t->options->set.accumulation; m++)
        sum += t->losses[m];
    return (float)(sum / t->options->set.accumulation);
}

/* The same run with nothing behind it tells how large the arena must be. */
static size_t plan_arena(const struct options *o, const struct lengths *lengths)
{
    struct options dry = *o;
    dry.dry = true;
    struct training t;
    struct allocator *arena;
    alloc_arena_open(NULL, 0, &arena);
    training_open(&t, &dry, NULL, arena, lengths, NULL);
    for (int s = 0; s < o->set.steps; s++)
        training_step(&t);
    size_t extent = alloc_arena_extent(arena);
    training_close(&t);
    return extent;
}

/* What the device has given out beyond the tensors: caches, fragments, contexts. */
static void measure_outside(struct training *t, struct run_result *r)
{
    size_t unused, total;
    if (t->device.rt->cudaMemGetInfo(&unused, &total))
        return;
    r->device_bytes = total;
    size_t outside = total - unused > t->device.live ? total - unused - t->device.live : 0;
    if (outside > r->outside)
        r->outside = outside;
}

static void run_steps(struct training *t, void (*report)(void *, const struct step_result *), void *context,
                      struct run_result *r)
{
    double started = now();
    for (int s = 1; s <= t->options->set.steps; s++) {
        double step_started = now();
        int64_t tokens = training_step(t);
        if (t->device.state != DEVICE_OK)
            break;
        struct step_result step = {s, 0, tokens, now() - step_started, t->device.live, t->device.peak};
        if (r->losses)
            step.loss = r->losses[s - 1] = mean_loss(t);
        r->steps = s;
        r->tokens += tokens;
        if (t->device.rt && t->options->budget)
            measure_outside(t, r);
        if (report)
            report(context, &step);
    }
    r->seconds = now() - started;
    r->peak = t->device.peak;
    r->allocations = t->device.allocations;
    memcpy(r->budget, t->device.peak_by, sizeof r->budget);
    r->refused = t->device.refused;
    r->live = t->device.live;
    if (t->device.state == DEVICE_OUT_OF_MEMORY && t->device.rt) {
        size_t unused;
        if (t->device.rt->cudaMemGetInfo(&unused, &r->device_bytes))
            r->device_bytes = 0;
    }
    r->parameters = t->model.elements;
    r->trained_parameters = t->model.trained_elements;
}

void training_plan(const struct options *options, struct run_result *ret_result)
{
    struct run_result r = {.outcome = OUTCOME_FAILED};
    struct options o = *options;
    o.dry = true;
    struct lengths lengths;
    if (!lengths_open(&lengths, o.set.lengths, o.set.longest, o.seed, r.error, sizeof r.error)) {
        struct training t;
        training_open(&t, &o, NULL, alloc_eager_open(NULL), &lengths, NULL);
        run_steps(&t, NULL, NULL, &r);
        training_close(&t);
        lengths_close(&lengths);
        r.outcome = OUTCOME_COMPLETED;
    }
    *ret_result = r;
}

static void run_with(const struct options *o, const struct cuda_rt *rt, const struct lengths *lengths,
                     struct text *text, void (*report)(void *, const struct step_result *), void *context,
                     struct run_result *r)
{
    struct allocator *alloc;
    if (o->arena) {
        r->arena = plan_arena(o, lengths);
        int rc = alloc_arena_open(rt, r->arena, &alloc);
        if (rc != CUDA_SUCCESS_VALUE) {
            r->outcome = rc == CUDA_ERROR_OUT_OF_MEMORY ? OUTCOME_OUT_OF_MEMORY : OUTCOME_FAILED;
            r->peak = 0;
            snprintf(r->error, sizeof r->error, "the arena needs %zu bytes: %s", r->arena, rt->cudaGetErrorString(rc));
            rt->cudaGetLastError();
            return;
        }
    } else {
        alloc = alloc_eager_open(rt);
    }
    struct training t;
    training_open(&t, o, rt, alloc, lengths, text);
    if (text)
        r->losses = calloc((size_t)o->set.steps + 1, sizeof *r->losses);
    run_steps(&t, report, context, r);
    training_close(&t);
    static const enum outcome outcomes[] = {OUTCOME_COMPLETED, OUTCOME_OUT_OF_MEMORY, OUTCOME_FAILED};
    r->outcome = outcomes[t.device.state];
    memcpy(r->error, t.device.error, sizeof r->error);
}

void training_run(const struct options *options, const struct cuda_rt *rt,
                  void (*report)(void *context, const struct step_result *step), void *context,
                  struct run_result *ret_result)
{
    struct run_result *r = ret_result;
    *r = (struct run_result){.outcome = OUTCOME_FAILED};
    struct lengths lengths;
    struct text text = {0};
    if (lengths_open(&lengths, options->set.lengths, options->set.longest, options->seed, r->error, sizeof r->error))
        return;
    if (options->dry ||
        !text_open(&text, options->text, (size_t)options->set.longest, options->seed, r->error, sizeof r->error))
        run_with(options, rt, &lengths, options->dry ? NULL : &text, report, context, r);
    text_close(&text);
    lengths_close(&lengths);
}
