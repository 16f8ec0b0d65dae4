"""A graph's memory leaves the device while its last launch may still run: by empty_cache(), or because a tensor does not fit beside it. argv:
"empty" or "out"."""
import sys

import torch

MIB = 1 << 20


def empty(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


first = empty(60)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    a = first.clone()
    b = a.clone()
    del a, b
torch.cuda.synchronize()
graph.replay()
del graph
if sys.argv[1] == "out":
    more = empty(400)
else:
    torch.cuda.empty_cache()
print(torch.cuda.memory_allocated() // MIB, flush=True)
torch.cuda.synchronize()
print("ended", torch.cuda.memory_reserved() // MIB)
