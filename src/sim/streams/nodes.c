#include "streams/nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sim_nodes_add(struct sim_nodes *nodes, CUgraphNode node)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        if (nodes->at[i] == node)
            return 0;
    }
    if (nodes->count == nodes->room) {
        unsigned room = nodes->room ? 2 * nodes->room : 4;
        CUgraphNode *grown = realloc(nodes->at, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        nodes->at = grown;
        nodes->room = room;
    }
    nodes->at[nodes->count++] = node;
    return 0;
}

void sim_nodes_clear(struct sim_nodes *nodes)
{
    free(nodes->at);
    *nodes = (struct sim_nodes){0};
}

int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from)
{
    struct sim_nodes copy = {0};
    if (from->count) {
        copy.at = malloc(from->count * sizeof *copy.at);
        if (!copy.at)
            return -ENOMEM;
        memcpy(copy.at, from->at, from->count * sizeof *copy.at);
        copy.count = copy.room = from->count;
    }
    free(to->at);
    *to = copy;
    return 0;
}

void sim_nodes_remove(struct sim_nodes *nodes, CUgraphNode node)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < nodes->count; i++) {
        if (nodes->at[i] != node)
            nodes->at[kept++] = nodes->at[i];
    }
    nodes->count = kept;
}
