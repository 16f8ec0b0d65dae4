#include "graphs/run.h"

#include "graphs/choice.h"
#include "hazard/hazard.h"
#include "space/link.h"
#include "space/managed.h"
#include "streams/executor.h"

/* Does what the node does, as a piece of work of its own would have. */
static void run_work(struct sim_work *launch, const struct sim_work *template)
{
    sim_lock();
    struct sim_work *work = sim_work_copy(template);
    sim_unlock();
    if (!work)
        return;
    work->context = launch->context;
    work->stream = launch->stream;
    work->position = launch->position;
    sim_lock();
    sim_managed_work(work);
    sim_link_work(work);
    sim_unlock();
    sim_work_perform(work);
    sim_lock();
    if (work->host_sees)
        sim_order_host_after(&launch->after);
    if (work->finish)
        work->finish(work);
    sim_work_free(work);
    sim_unlock();
}

static void run_step(struct sim_work *launch, const struct sim_step *step);

static void run_graph(struct sim_work *launch, CUgraph graph)
{
    struct sim_nodes sorted = {0};
    sim_lock();
    (void)sim_graph_sort(graph, &sorted);
    sim_unlock();
    for (unsigned i = 0; i < sorted.count; i++)
        run_step(launch, &sorted.at[i]->step);
    sim_nodes_clear(&sorted);
}

static void run_choice(struct sim_work *launch, const struct sim_choice *choice)
{
    CUgraph body;
    for (bool first = true;; first = false) {
        sim_lock();
        body = sim_choice_next(choice, first);
        sim_unlock();
        if (!body)
            return;
        run_graph(launch, body);
    }
}

static void run_step(struct sim_work *launch, const struct sim_step *step)
{
    if (step->work) {
        run_work(launch, step->work);
    } else if (step->choice) {
        run_choice(launch, step->choice);
    } else if (step->child) { /* in a conditional node's; elsewhere its steps stand in its place */
        run_graph(launch, step->child);
    } else if (step->address) {
        sim_lock();
        struct sim_memory *memory = sim_memory_find(step->address);
        if (memory && memory->graph)
            sim_graph_memory_give(memory->graph);
        sim_unlock();
    }
}

void sim_image_run(struct sim_work *launch)
{
    struct sim_image *image = *(struct sim_image **)launch->payload;
    sim_lock();
    for (unsigned i = 0; i < image->count; i++) {
        if (image->at[i].step.choice)
            sim_choice_begin(image->at[i].step.choice);
    }
    sim_unlock();
    for (unsigned i = 0; i < image->count; i++)
        run_step(launch, &image->at[i].step);
}

static void graph_parts(CUstream stream, const struct sim_work *launch, CUgraph graph);

/* Bytes that a step touches, whichever way a condition turns out. */
static void step_parts(CUstream stream, const struct sim_work *launch, const struct sim_step *step)
{
    if (step->work)
        sim_hazard_part(stream, launch, step->work);
    if (step->child)
        graph_parts(stream, launch, step->child);
    for (unsigned i = 0; step->choice && i < step->choice->size; i++)
        graph_parts(stream, launch, step->choice->body[i]);
}

static void graph_parts(CUstream stream, const struct sim_work *launch, CUgraph graph)
{
    for (unsigned i = 0; i < graph->nodes.count; i++)
        step_parts(stream, launch, &graph->nodes.at[i]->step);
}

void sim_image_parts(CUstream stream, const struct sim_work *launch)
{
    const struct sim_image *image = *(struct sim_image *const *)launch->payload;
    for (unsigned i = 0; i < image->count; i++)
        step_parts(stream, launch, &image->at[i].step);
}

/* True where a piece of work of the step is so, also one in its child or in what a condition may choose. */
static bool step_has_work(const struct sim_step *step, bool (*is_so)(const struct sim_work *work))
{
    bool has = step->work && is_so(step->work);
    for (unsigned i = 0; step->child && i < step->child->nodes.count; i++)
        has |= step_has_work(&step->child->nodes.at[i]->step, is_so);
    for (unsigned i = 0; step->choice && i < step->choice->size; i++)
        for (unsigned k = 0; k < step->choice->body[i]->nodes.count; k++)
            has |= step_has_work(&step->choice->body[i]->nodes.at[k]->step, is_so);
    return has;
}

static bool work_host_sees(const struct sim_work *work)
{
    return work->host_sees;
}

bool sim_image_host_sees(const struct sim_image *image)
{
    bool sees = false;
    for (unsigned i = 0; i < image->count; i++)
        sees |= step_has_work(&image->at[i].step, work_host_sees);
    return sees;
}

static bool work_may_wait(const struct sim_work *work)
{
    return work->may_wait || work->host_function || work->busy_ns;
}

bool sim_image_may_wait(const struct sim_image *image)
{
    bool waits = false;
    for (unsigned i = 0; i < image->count; i++)
        waits |= image->at[i].step.choice || step_has_work(&image->at[i].step, work_may_wait);
    return waits;
}
