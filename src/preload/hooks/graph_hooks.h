/* Order by means that can't be followed. */
#ifndef SG_GRAPH_HOOKS_H
#define SG_GRAPH_HOOKS_H

/* A graph is being made that waits for an event of outside: whichever stream it is launched in comes after that. */
void sg_taints_graph_waits(void);

#endif
