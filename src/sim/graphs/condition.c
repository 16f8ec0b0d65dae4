#include "graphs/condition.h"

#include <stdlib.h>

static struct sim_condition *conditions; /* all that there are */

static cuuint64_t last_handle;

struct sim_condition *sim_condition_find(cuuint64_t handle)
{
    struct sim_condition *condition = conditions;
    while (condition && condition->handle != handle)
        condition = condition->next;
    return condition;
}

void sim_condition_unref(struct sim_condition *condition)
{
    if (--condition->refs)
        return;
    struct sim_condition **link = &conditions;
    while (*link != condition)
        link = &(*link)->next;
    *link = condition->next;
    free(condition);
}

void sim_conditions_of_graph_gone(CUgraph graph)
{
    for (struct sim_condition *condition = conditions, *next; condition; condition = next) {
        next = condition->next;
        if (condition->graph != graph)
            continue;
        condition->graph = NULL;
        sim_condition_unref(condition);
    }
}

struct sim_condition *sim_condition_new(CUgraph graph, unsigned at_launch, bool assigned)
{
    struct sim_condition *made = calloc(1, sizeof *made);
    if (made) {
        *made = (struct sim_condition){.handle = ++last_handle,
            .graph = graph,
            .value = at_launch,
            .at_launch = at_launch,
            .assigned = assigned,
            .refs = 1,
            .next = conditions};
        conditions = made;
    }
    return made;
}
