"""An engine that sleeps while a trainer works: its pool's memory leaves and comes back. argv: the allocator's library, and how
many MiB the trainer takes meanwhile."""
import ctypes
import gc
import sys

import torch

MIB = 1 << 20
library = ctypes.CDLL(sys.argv[1])
own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")


def show(what):
    free, _ = torch.cuda.mem_get_info()
    print(what, free // MIB, torch.cuda.memory_allocated() // MIB, flush=True)


torch.cuda.init()
rest = torch.full((512 * MIB,), 3, dtype=torch.uint8, device="cuda")
pool = torch.cuda.MemPool(own.allocator())
with torch.cuda.use_mem_pool(pool):
    weights = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
for number, each in enumerate(weights):
    each[:4].copy_(torch.tensor([number] * 4, dtype=torch.uint8))
show("loaded")
backup = [each[:4].cpu() for each in weights]
torch.cuda.synchronize()
print("sleeps", library.own_sleep())
show("asleep")
trainer = torch.empty(int(sys.argv[2]) * MIB, dtype=torch.uint8, device="cuda")
show("trains")
del trainer
torch.cuda.empty_cache()
print("wakes", library.own_wake())
for each, bytes_ in zip(weights, backup):
    each[:4].copy_(bytes_)
show("awake")
print([each[:4].tolist() for each in weights])
del weights, each, pool, rest
gc.collect()
torch.cuda.empty_cache()
show("over")
