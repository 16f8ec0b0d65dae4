/* Tensors that PyTorch sends to other processes.

   Why. PyTorch gives away a whole allocation of the driver's by a legacy handle, and mapped memory has none of that
   kind.

   How. A tensor of ours moves to a block of PyTorch's cache, in the driver's memory, when it is sent for the first
   time. The storage gets the new address, and keeps the old one until it dies.

   Limits. 4,096 copies at a time. A tensor that a graph may know by address does not move, and sending it fails as
   PyTorch says.

   For example, queue.put(t) with t of 64 MiB: the copy needs 64 MiB of the driver's, for which idle pages go back
   first. 64 MiB are copied, the receiver opens the copy, and when t is freed so is the copy. */
#ifndef SG_TORCH_SENT_H
#define SG_TORCH_SENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A copy of the block that begins at `pointer`, complete; the storage takes it over with PyTorch's next step in this
   thread. NULL where that can't be: a graph may know the address, there is no such block, or no room for one more. Waits
   for the device. */
void *sg_torch_sent_copy(void *pointer);

/* Bytes that the last copy of this thread found no room for; 0: it failed otherwise, or not at all. For example, a tensor of
   200 MiB is sent on a card of 400 MiB that holds nothing else. With 64 MiB for rounding 264 are wanted, and 200 are free. So the
   copy lacked room for 200 MiB, and PyTorch, which finds no pointer of its own, is told that. It would name an invalid
   pointer alone. The next tensor that is sent begins with 0 again. */
size_t sg_torch_sent_lacked(void);

/* A block is freed: its copy, if it has one, is too. */
extern atomic_int sg_torch_sent_copies __attribute__((visibility("hidden")));
void sg_torch_sent_freed(const void *pointer);

#endif
