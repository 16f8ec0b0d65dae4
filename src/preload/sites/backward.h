/* The node that a thread of PyTorch's backward pass works at. Such a thread runs no Python. It asks for memory on
   behalf of a line that ran forward; the number of a node in the graph leads back to that line. */
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
