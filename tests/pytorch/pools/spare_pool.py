"""A pool that may be used when the rest runs out."""
import torch

GIB = 1 << 30
options = {"use_on_oom": True}
try:
    pool = torch.cuda.MemPool(**options)
except TypeError:
    raise SystemExit(77) from None
with torch.cuda.use_mem_pool(pool):
    spare = torch.empty(GIB, dtype=torch.uint8, device="cuda")
del spare
held = []
try:
    while True:
        held.append(torch.empty(GIB // 4, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    print("blocks of 256 MiB", len(held), "allocated", torch.cuda.memory_allocated() >> 20)
