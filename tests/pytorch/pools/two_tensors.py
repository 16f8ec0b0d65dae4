"""300 MiB in a pool, and 200 beside it."""
import torch

MIB = 1 << 20
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    held = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
rest = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
print("allocated", torch.cuda.memory_allocated() // MIB)
