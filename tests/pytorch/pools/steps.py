"""Steps whose sizes differ, after a pool has begun: at most 3 GiB at a time, and what one step leaves does not fit the next."""
import torch

MIB = 1 << 20
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    kept = torch.empty(1024, device="cuda")
for step in range(3):
    many = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(12)]
    del many
    one = torch.empty(3072 * MIB, dtype=torch.uint8, device="cuda")
    del one
print("done", torch.cuda.memory_stats()["num_ooms"])
