/* Order by means that can't be followed. */
#ifndef SG_TAINTS_H
#define SG_TAINTS_H

/* A graph is being made that waits for an event of outside: whichever stream it is launched in comes after that. */
void sg_taints_graph_waits(void);

#endif
