/* The functions that take the place of PyTorch's in its allocator's table: the surgery.

   Why. While PyTorch's cache is off, its statistics, empty_cache, sending of tensors and pools would answer for a cache that has
   nothing. Each replaced function calls PyTorch's own first, then adds what is ours.

   How. The table is copied, entries are replaced in the copy, and the object is given the copy's address by one atomic
   store. A thread that is inside a function of the old table goes on there. In two steps: *watched*, where PyTorch notices
   nothing, until it decides whether to cache; *taken* after that.

   For example, torch.cuda.memory_stats() calls getDeviceStats by the table. Ours calls PyTorch's, which says 0 bytes
   allocated, and adds 3 GiB of tensors by the core's count. */
#ifndef SG_TORCH_OVERRIDES_H
#define SG_TORCH_OVERRIDES_H

#include <stdbool.h>

/* Has PyTorch ask whether to cache before it reads whether it does, where it has a switch for that. To be called until
   that is decided, whenever PyTorch asks something else: its libraries are loaded one after the other. Changes nothing
   that PyTorch does. */
void sg_torch_overrides_watch(void);

/* Replaces the functions of PyTorch's cache that would answer wrongly while it is off: statistics, empty_cache,
   sending a tensor, the begin of a pool. False, with nothing changed, where this PyTorch lacks the names, or another
   allocator is in force. Before PyTorch's first allocation; the first call alone does anything. */
bool sg_torch_overrides_take(void);

/* True if PyTorch's own allocator is in force, has a switch, and says what it has by structures that are known. */
bool sg_torch_overrides_answer(void);

#endif
