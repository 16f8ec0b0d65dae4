"""The process's first memory is a pool's: what is asked for inside lies in it. argv: how it is begun. Prints what does."""
import sys
import threading

import torch

how = sys.argv[1]
pool = torch.cuda.MemPool()
sizes = (1, 2, 30, 4)


def take():
    with torch.cuda.use_mem_pool(pool):
        return [torch.empty(n << 18, device="cuda") for n in sizes]


if how == "warm":
    warm = torch.empty(1 << 20, device="cuda")
if how == "thread":
    found = []
    thread = threading.Thread(target=lambda: found.extend(take()))
    thread.start()
    outside = torch.empty(1 << 20, device="cuda")
    thread.join()
elif how == "capture":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        found = [torch.zeros(n << 18, device="cuda") for n in sizes]
    outside = torch.empty(1 << 20, device="cuda")
else:
    found = take()
    outside = torch.empty(1 << 20, device="cuda")
segments = torch.cuda.memory_snapshot(pool.id)


def lies_inside(tensor):
    return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)


print(how, [lies_inside(each) for each in found], lies_inside(outside),
      sum(b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"),
      torch.cuda.memory_allocated() == sum(4 * each.numel() for each in [*found, outside] + ([warm] if how == "warm" else [])))
