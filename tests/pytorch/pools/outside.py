"""A script's own allocator that asks the driver by other calls (outside.c), in PyTorch's place or as a pool's. argv: its library,
"all" or "pool", and how many MiB are asked for beyond 600: what is refused ends the script, as natively."""
import ctypes
import gc
import sys

import torch

MIB = 1 << 20
library = ctypes.CDLL(sys.argv[1])
own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")


def empty(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def fill():
    held = [empty(200) for _ in range(3)]
    del held[1]
    held.append(empty(200))
    more = int(sys.argv[3])
    if more:
        held.append(empty(more))
    if library.own_refused():  # PyTorch takes a pluggable allocator's NULL for memory
        sys.exit("own allocator: refused")
    print("live", library.own_live() // MIB, flush=True)
    return held


if sys.argv[2] == "all":
    torch.cuda.memory.change_current_allocator(own)
    torch.cuda.init()
    kept = fill()
    torch.cuda.synchronize()
else:
    rest = empty(100)
    pool = torch.cuda.MemPool(own.allocator())
    with torch.cuda.use_mem_pool(pool):
        kept = fill()
    print("allocated", torch.cuda.memory_allocated() // MIB, torch.cuda.max_memory_allocated() // MIB,
          torch.cuda.memory_reserved() // MIB)
    del pool
del kept
gc.collect()
print("left", library.own_live() // MIB)
