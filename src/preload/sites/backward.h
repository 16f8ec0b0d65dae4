/* The node that a thread of PyTorch's backward pass works at.

   Why. Such a thread runs no Python. It asks for memory on behalf of a line that ran forward, and the user knows only
   that line.

   How. Each node of the graph has a number, drawn by the thread that made it. A forward allocation notes the number and
   its site. In the backward pass the number of the current node leads back to the site.

   Limits. 65,536 nodes are remembered; an older one is overwritten and its line unknown.

   For example, line 50 makes node 901 (MmBackward0) and allocates: place 901 of the table has site 12. The backward
   thread evaluates node 901 and allocates: "backward of train.py:50". */
#ifndef SG_BACKWARD_H
#define SG_BACKWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sg_thread;

/* Looks for PyTorch's functions, unless they are known; takes the loader's lock. */
void sg_backward_look(void);

/* This thread, which runs Python, asks for memory at `site`: for a node, where it has made one since it asked last. */
void sg_backward_forward(struct sg_thread *self, uint32_t site);

struct sg_backward {
    uint64_t type;    /* of the node: the address of what its class is known by */
    uint32_t forward; /* the site that its forward part asked from; 0: unknown */
};
/* False: this thread is in no backward pass. */
bool sg_backward_now(struct sg_backward *ret);

/* The class of a node, "MmBackward0". False: it has no name. Takes the loader's lock. */
bool sg_backward_name(uint64_t type, char *ret, size_t room);

#endif
