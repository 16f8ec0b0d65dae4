"""Pools with an allocator of their own, pools within pools, and what PyTorch says of them. argv: the allocator's library."""
import ctypes
import gc
import sys

import torch

MIB = 1 << 20
library = ctypes.CDLL(sys.argv[1])
own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")


def within(pool, tensor):
    return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in torch.cuda.memory_snapshot(pool.id))


outer, inner = torch.cuda.MemPool(own.allocator()), torch.cuda.MemPool()
with torch.cuda.use_mem_pool(outer):
    weights = [torch.full((30 * MIB,), i, dtype=torch.uint8, device="cuda") for i in range(3)]
    with torch.cuda.use_mem_pool(inner):
        between = torch.ones(5 * MIB, dtype=torch.uint8, device="cuda")
    after = torch.ones(40 * MIB, dtype=torch.uint8, device="cuda")
rest = torch.ones(7 * MIB, dtype=torch.uint8, device="cuda")
print("own", library.own_calls(), library.own_live() // MIB)
print("outer", [within(outer, each) for each in [*weights, between, after, rest]])
print("inner", [within(inner, each) for each in [*weights, between, after, rest]])
print("uses", outer.use_count(), inner.use_count())
print("pool's own snapshot", sum(s["total_size"] for s in outer.snapshot()) // MIB)
weights[1].record_stream(torch.cuda.Stream())
del weights[1]
with torch.cuda.use_mem_pool(outer):
    again = torch.ones(30 * MIB, dtype=torch.uint8, device="cuda")
print("calls after reuse", library.own_calls() <= 5)
print("allocated", torch.cuda.memory_allocated() // MIB)
del weights, between, after, again, rest, inner, outer
gc.collect()
torch.cuda.empty_cache()
print("left", library.own_live(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
