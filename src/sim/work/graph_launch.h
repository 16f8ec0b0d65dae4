/* Launches of executables: one piece of work for all steps of the image, with the memory that these allocate. */
#ifndef SIM_GRAPH_LAUNCH_H
#define SIM_GRAPH_LAUNCH_H

#include "graphs/image.h"

/* Locked; the lock is given up where something is waited for. In a capture, a launch becomes a child graph of what was
   instantiated. */
CUresult sim_graph_launch(CUgraphExec exec, CUstream stream);

#endif
