#include "training.h"
#include "ranks/collectives.h"
#include "data.h"
#include "checkpoint/checkpoint.h"

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
    int rank, ranks;
    struct tensor *kept[SCENARIO_KEPT];
    struct phases phases;
    struct awake engine;
    int64_t *tokens;   /* page-locked: of all micro-steps of a step */
    float *losses;     /* page-locked: likewise, and one of the evaluation */
    int64_t *starts;   /* page-locked: positions of packed rows, of all micro-steps of a step */
    int64_t *evaluation_tokens; /* page-locked */
};

enum { GPU_MOST_HEAD_DIM = 2048 }; /* what the threads of a block keep of a row */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int evaluation_batch(const struct options *o)
{
    return o->evaluate_batch ? o->evaluate_batch : o->set.batch;
}

static const struct arithmetic *arithmetic_for(const struct options *o, const struct cuda_rt *rt)
{
    if (o->backend == BACKEND_AUTO)
        return device_host_reaches(rt) ? &arithmetic_cpu : &arithmetic_gpu;
    return o->backend == BACKEND_CPU ? &arithmetic_cpu : &arithmetic_gpu;
}

static void training_open(struct training *t, const struct options *o, const struct cuda_rt *rt,
                          struct allocator *alloc, const struct lengths *lengths, struct text *text)
{
    *t = (struct training){.options = o, .lengths = *lengths, .text = text};
    t->optimizer = (struct optimizer){o->set.rate, 0.9, 0.999, 1e-8, o->set.weight_decay, o->set.clip, 0};
    t->ranks = o->comm ? o->comm->ranks : 1;
    t->rank = o->comm ? o->comm->rank : 0;
    const struct arithmetic *arithmetic = !rt || o->dry ? NULL : arithmetic_for(o, rt);
    device_open(&t->device, rt, alloc, arithmetic, o->threads);
    if (arithmetic && !(arithmetic->dtypes & 1U << o->set.shape.dtype))
        device_fail(&t->device, "this dtype", "the CPU computes in fp32 only; add --dtype fp32, or --dry for the "
                    "allocations alone");
    t->device.comm = rt ? o->comm : NULL;
    if (t->device.state == DEVICE_OK &&
        comm_attach(t->device.comm, &t->device, t->device.error, sizeof t->device.error))
        t->device.state = DEVICE_BROKEN;
    if (arithmetic == &arithmetic_gpu && o->set.shape.head_dim > GPU_MOST_HEAD_DIM)
        device_fail(&t->device, "attention on the GPU", "heads may be 2048 wide at most");
    static const struct shape none = {.hidden = 1, .heads = 1, .kv_heads = 1, .head_dim = 2, .ffn = 1, .vocabulary = 1};
    bool bare = o->scenario && o->scenario->round;
    phases_open(&t->phases, &t->device, o->colocate);
    model_open(&t->model, &t->device, bare ? &none : &o->set.shape, o->seed);
    schedule_open(&t->schedule, &t->device, &t->model, !o->set.no_checkpoint);
    t->schedule.policy = o->set.policy;
    t->schedule.seed = o->seed;
    t->device.limit = rt && o->card_named ? o->card : 0;
    if (text) {
        size_t micro_tokens = (size_t)o->set.batch * (size_t)o->set.longest;
        t->tokens = device_pin(&t->device, (size_t)o->set.accumulation * micro_tokens * sizeof *t->tokens);
        t->losses = device_pin(&t->device, ((size_t)o->set.accumulation + 1) * sizeof *t->losses);
        if (o->pack)
            t->starts = device_pin(&t->device, (size_t)o->set.accumulation * ((size_t)o->set.longest + 1) *
                                               sizeof *t->starts);
        if (o->evaluate)
            t->evaluation_tokens = device_pin(&t->device, (size_t)evaluation_batch(o) * (size_t)o->set.longest *
                                                          sizeof *t->evaluation_tokens);
    }
}

static void training_close(struct training *t)
{
    device_wait(&t->device);
    phases_close(&t->phases);
    engine_end(&t->engine);
    for (int i = 0; i < SCENARIO_KEPT; i++)
        tensor_drop(&t->kept[i]);
    model_drop_weights(&t->model);
    schedule_close(&t->schedule);
    model_close(&t->model, &t->device);
    device_unpin(&t->device, t->tokens);
    device_unpin(&t->device, t->losses);
    device_unpin(&t->device, t->starts);
    device_unpin(&t->device, t->evaluation_tokens);
    comm_detach(t->device.comm, &t->device);
    tensor_forget_spare(&t->device);
    device_close(&t->device);
}

/* Whatever the lengths drawn, the longest that the settings allow is in the second step, when the optimizer's moments
   are there, so that a few steps tell whether a long run fits. */
static int64_t next_length(struct training *t, int micro)
{
    const struct options *o = t->options;
    int64_t length = lengths_next(&t->lengths);
    bool last = t->step == (o->set.steps < 2 ? 1 : 2) && micro == o->set.accumulation * t->ranks - 1;
    return last && lengths_drawn(&t->lengths) ? o->set.longest / LENGTH_STEP * LENGTH_STEP : length;
}

enum { MOST_PIECES = 256 };

/* The sequences of a micro-step's rows: one, or when packing as many as fill the longest length. */
static int next_pieces(struct training *t, int micro, int64_t pieces[MOST_PIECES])
{
    const struct options *o = t->options;
    pieces[0] = next_length(t, micro);
    if (!o->pack)
        return 1;
    int count = 1;
    int64_t left = o->set.longest / LENGTH_STEP * LENGTH_STEP - pieces[0];
    while (left > 0) {
        int64_t length = lengths_next(&t->lengths);
        if (length > left || count == MOST_PIECES - 1)
            length = left;
        pieces[count++] = length;
        left -= length;
    }
    return count;
}

static const int64_t *write_starts(int64_t *to, const int64_t *pieces, int count)
{
    int64_t *at = to;
    *at++ = -1;
    for (int i = 0; i < count; i++)
        for (int64_t position = 0; position < pieces[i]; position++)
            *at++ = position;
    return to;
}

/* A forward over the same windows of the text each time, of the longest length. */
static void training_evaluate(struct training *t)
{
    const struct options *o = t->options;
    struct micro_step micro = {.batch = evaluation_batch(o), .length = o->set.longest / LENGTH_STEP * LENGTH_STEP,
                               .parts = 1};
    if (t->text) {
        struct text windows = *t->text;
        windows.state = o->seed + 1;
        for (int b = 0; b < micro.batch; b++)
            text_window(&windows, micro.length, t->evaluation_tokens + b * micro.length);
        micro.tokens = t->evaluation_tokens;
        micro.ret_loss = &t->losses[o->set.accumulation];
    }
    schedule_evaluate(&t->schedule, &micro);
    device_wait(&t->device);
}

/* Draws the tokens of a micro-step, the `number`th of this rank's; or makes the same draws for another rank. */
static void training_draw(struct training *t, struct micro_step *micro, int number, const int64_t *pieces, int count,
    bool mine)
{
    const struct options *o = t->options;
    int64_t *at = t->tokens + (size_t)number * (size_t)o->set.batch * (size_t)o->set.longest;
    micro->tokens = at;
    for (int b = 0; b < o->set.batch; b++)
        for (int i = 0; i < count; at += pieces[i++])
            text_window(t->text, pieces[i], mine ? at : NULL);
    micro->ret_loss = &t->losses[number];
    if (o->pack && mine)
        micro->starts = write_starts(t->starts + (size_t)number * ((size_t)o->set.longest + 1), pieces, count);
}

/* Queues one step and waits for it. Returns how many tokens it had, on all ranks. */
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
    engine_rollout(&o->set.engine, &t->phases, &t->engine, &o->set.shape, o->card, o->set.longest / 2);
    /* The ranks take the micro-steps in turn, as a process alone would make all of them. */
    const int parts = o->set.accumulation * t->ranks;
    for (int m = 0; m < parts && t->device.state == DEVICE_OK; m++) {
        int64_t pieces[MOST_PIECES];
        int count = next_pieces(t, m, pieces);
        struct micro_step micro = {.batch = o->set.batch, .packed = o->pack, .parts = parts,
                                   .number = (uint64_t)(t->step - 1) * (uint64_t)parts + (uint64_t)m + 1};
        for (int i = 0; i < count; i++)
            micro.length += pieces[i];
        tokens += o->set.batch * micro.length;
        const bool mine = m % t->ranks == t->rank;
        if (t->text)
            training_draw(t, &micro, m / t->ranks, pieces, count, mine);
        if (mine)
            schedule_micro_step(&t->schedule, &micro);
    }
    optimizer_step(&t->optimizer, &t->device, &t->model);
    device_wait(&t->device);
    if (o->evaluate && t->step % o->evaluate == 0)
        training_evaluate(t);
    return tokens;
}

/* The ranks agree after each step on whether to stop, and exchange the losses of their micro-steps. Returns the mean of
   all losses, 0 in a dry run, in the order in which a process alone would add them. */
static float training_agree(struct training *t, bool *stop)
{
    const int mine = t->options->set.accumulation, width = mine + 1;
    float *own = calloc((size_t)(t->ranks + 1) * (size_t)width, sizeof *own), *all = own + width;
    if (!own)
        abort();
    own[mine] = *stop;
    if (t->losses)
        memcpy(own, t->losses, (size_t)mine * sizeof *own);
    if (t->device.comm)
        comm_exchange(t->device.comm, own, all, (size_t)width * sizeof *own);
    else
        memcpy(all, own, (size_t)width * sizeof *own);
    double sum = 0;
    for (int m = 0; m < mine; m++)
        for (int r = 0; r < t->ranks; r++)
            sum += all[r * width + m];
    for (int r = 0; r < t->ranks; r++)
        *stop = *stop || all[r * width + mine] > 0;
    free(own);
    return (float)(sum / (mine * t->ranks));
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

/* Memory that the device has given out beyond the tensors: caches, fragments, contexts. */
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
    const struct options *o = t->options;
    double started = seconds_now();
    int first = t->step;
    r->first = first + 1;
    while (t->step < o->set.steps) {
        double step_started = seconds_now();
        int64_t tokens = training_step(t);
        if (t->device.state != DEVICE_OK)
            break;
        double ended = seconds_now();
        struct step_result step = {.step = t->step, .tokens = tokens, .seconds = ended - step_started,
                                   .live = t->device.live, .peak = t->device.peak};
        step.left = (ended - started) / (t->step - first) * (o->set.steps - t->step);
        bool stop = o->stop && *o->stop;
        step.loss = training_agree(t, &stop);
        if (r->losses)
            r->losses[t->step - first - 1] = step.loss;
        step.evaluated = o->evaluate && t->step % o->evaluate == 0 && t->text;
        if (step.evaluated)
            step.evaluation = t->losses[o->set.accumulation];
        r->steps = t->step - first;
        r->tokens += tokens;
        if (t->device.rt && t->options->budget)
            measure_outside(t, r);
        if (report)
            report(context, &step);
        if (stop) {
            r->interrupted = t->step < o->set.steps;
            break;
        }
    }
    r->seconds = seconds_now() - started;
    r->peak = t->device.peak;
    if (t->phases.way != COLOCATE_FREE)
        phases_note_peak(&t->phases);
    memcpy(r->phase_peak, t->phases.peak, sizeof r->phase_peak);
    r->allocations = t->device.allocations;
    memcpy(r->budget, t->device.peak_by, sizeof r->budget);
    r->refused = t->device.refused;
    r->live = t->device.live;
    if (t->device.state == DEVICE_OUT_OF_MEMORY && t->device.rt)
        measure_outside(t, r);
    r->parameters = t->model.elements;
    r->trained_parameters = t->model.trained_elements;
}

void training_plan(const struct options *options, int steps, struct run_result *ret_result)
{
    struct run_result r = {.outcome = OUTCOME_FAILED};
    struct options o = *options;
    o.dry = true;
    o.comm = NULL; /* the rank that gets the longest batch */
    struct lengths lengths;
    if (!lengths_open(&lengths, o.set.lengths, o.set.longest, o.seed, r.error, sizeof r.error)) {
        const size_t parts = (size_t)o.set.accumulation, ranks = options->comm ? (size_t)options->comm->ranks : 1;
        if (o.set.steps && !o.pack && (steps > o.set.steps || ranks > 1))
            lengths_bring(&lengths, (size_t)steps * parts * ranks, (size_t)o.set.steps * parts - 1);
        struct training t;
        training_open(&t, &o, NULL, alloc_eager_open(NULL), &lengths, NULL);
        run_steps(&t, NULL, NULL, &r);
        training_close(&t);
        lengths_close(&lengths);
        r.outcome = OUTCOME_COMPLETED;
    }
    *ret_result = r;
}

/* Both false after a fault, which is then in r->error. */
static bool training_resume(struct training *t, struct run_result *r)
{
    struct progress progress;
    if (!t->options->resume || t->device.state != DEVICE_OK)
        return true;
    if (saved_read(t->options->resume, &t->device, &t->model, &progress, r->error, sizeof r->error))
        return false;
    t->step = t->optimizer.steps = (int)progress.step;
    t->lengths.state = progress.lengths;
    t->lengths.next = progress.lengths_next;
    t->text->state = progress.text;
    return true;
}

static bool training_save(struct training *t, struct run_result *r)
{
    if (!t->options->save || t->device.state != DEVICE_OK)
        return true;
    struct progress progress = {(uint64_t)t->step, t->lengths.state, t->lengths.next, t->text->state};
    return !saved_write(t->options->save, &t->device, &t->model, &progress, r->error, sizeof r->error);
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
    bool kept = (!o->save || !saved_make(o->save, &t.device, r->error, sizeof r->error)) && training_resume(&t, r);
    if (kept) {
        run_steps(&t, report, context, r);
        kept = training_save(&t, r);
    }
    if (kept && t.device.comm && t.device.state == DEVICE_OK) {
        if (!(r->peaks = calloc((size_t)t.ranks, sizeof *r->peaks)))
            abort();
        comm_exchange(t.device.comm, &r->peak, r->peaks, sizeof r->peak);
    }
    training_close(&t);
    if (!kept)
        return;
    static const enum outcome outcomes[] = {OUTCOME_COMPLETED, OUTCOME_OUT_OF_MEMORY, OUTCOME_FAILED};
    r->outcome = t.device.state == DEVICE_OK && r->interrupted ? OUTCOME_INTERRUPTED : outcomes[t.device.state];
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
