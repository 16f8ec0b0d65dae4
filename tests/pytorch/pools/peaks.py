"""Peaks while pools and graphs come and go, in the order in which our own and PyTorch's cache's are told apart exactly."""
import torch

MIB = 1 << 20
asked = (torch.cuda.memory_allocated, torch.cuda.max_memory_allocated, torch.cuda.memory_reserved)


def empty(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def say(what):
    print(what, *[ask() // MIB for ask in asked], flush=True)


first = empty(500)
say("first")
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    held = empty(300)
say("pool")
torch.cuda.reset_peak_memory_stats()
say("reset")
del held
torch.cuda.reset_peak_memory_stats()
say("idle pool")
second = empty(200)
del second
say("beside an idle pool")
del first, pool
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
first = empty(100)
say("alone")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    a = first + 1
    b = a + 1
    c = (b + 1)[:10].clone()
    del a, b
say("graph")
torch.cuda.reset_peak_memory_stats()
graph.replay()
second = empty(60)
del second
say("beside a graph")
del graph, c
torch.cuda.empty_cache()
say("no graph")
