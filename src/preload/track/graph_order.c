/* One flag that only becomes true. */
#include "track/graph_order.h"

#include <stdatomic.h>

static atomic_bool graphs_wait;

void sg_graph_order_waits(void)
{
    atomic_store(&graphs_wait, true);
}

bool sg_graph_order_has_waits(void)
{
    return atomic_load_explicit(&graphs_wait, memory_order_relaxed);
}
