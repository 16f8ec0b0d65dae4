/* Order that graphs make by other means than followed events.

   Why. A graph may wait for an event of outside or for a word of memory. A stream that it is launched in is then
   ordered after work that nobody here followed.

   For example, a graph waits for an event that stream B records, and stream A launches it. The wait may pass a block of
   B's on to A. So from then on launches count as waits for anything (hooks/graph_hooks.c). */
#ifndef SG_GRAPH_ORDER_H
#define SG_GRAPH_ORDER_H

#include <stdbool.h>

/* A graph is being made that waits for an event of outside, or for a word of memory. The streams that it is launched in
   are ordered after more than is known. */
void sg_graph_order_waits(void);

/* True if there has been one. No lock. */
bool sg_graph_order_has_waits(void);

#endif
