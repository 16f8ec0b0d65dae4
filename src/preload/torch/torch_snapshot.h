/* PyTorch's snapshot of its memory, with what is served here instead of by its cache.

   For example, 3 tensors of ours lie side by side. torch.cuda.memory_snapshot() has one more segment, marked as
   expandable, with 3 active blocks and their sizes. */
#ifndef SG_TORCH_SNAPSHOT_H
#define SG_TORCH_SNAPSHOT_H

/* Appends to a SnapshotInfo, whose layout is known: segments of our pages, blocks of tensors among them. Those of PyTorch's
   own cache are there already. */
void sg_torch_snapshot_add(void *snapshot);

#endif
