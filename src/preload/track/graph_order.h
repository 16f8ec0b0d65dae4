/* Order that graphs make by other means than followed events. */
#ifndef SG_GRAPH_ORDER_H
#define SG_GRAPH_ORDER_H

#include <stdbool.h>

/* A graph is being made that waits for an event of outside, or for a word of memory. The streams that it is launched in
   are ordered after more than is known. */
void sg_graph_order_waits(void);

/* True if there has been one. No lock. */
bool sg_graph_order_has_waits(void);

#endif
