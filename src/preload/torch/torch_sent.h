/* Tensors that PyTorch sends to other processes. PyTorch gives away a whole allocation of the driver's by a legacy
   handle, which mapped memory has none of. A tensor of ours therefore moves to a block of PyTorch's cache, in the
   driver's memory, when it is sent for the first time. The storage gets the new address, and keeps the old one until
   it dies. */
#ifndef SG_TORCH_SENT_H
#define SG_TORCH_SENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A copy of the block that begins at `pointer`, complete; the storage takes it over with PyTorch's next step in this
   thread. NULL where that can't be: a graph may know the address, there is no such block, or no room for one more. Waits
   for the device. */
void *sg_torch_sent_copy(void *pointer);

/* A block is freed: its copy, if it has one, is too. */
extern atomic_int sg_torch_sent_copies __attribute__((visibility("hidden")));
void sg_torch_sent_freed(const void *pointer);

#endif
