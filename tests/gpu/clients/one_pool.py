"""As many graphs as a server captures for its batch sizes, all in one pool, each with a temporary tensor. What that takes
of the device. usage: one_pool.py GRAPHS MIB"""
import sys

import torch
from memory import tell

count, mib = int(sys.argv[1]), int(sys.argv[2])
elements = mib * (1 << 20) // 4
place = torch.zeros(1024, device="cuda")


def work():
    temporary = place.repeat(elements // place.numel())
    return temporary.view(-1, place.numel()).sum(0)


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    work()
torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
torch.cuda.empty_cache()
before = torch.cuda.mem_get_info()[0]
pool = torch.cuda.graph_pool_handle()
graphs, results = [], []
for _ in range(count):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results.append(work())
    graphs.append(graph)
torch.cuda.synchronize()
peak = before - torch.cuda.mem_get_info()[0]
place.fill_(2.0)
expected, wrong = work(), 0
for graph, result in zip(graphs, results):
    graph.replay()
    wrong += not torch.equal(result, expected)
torch.cuda.synchronize()
tell(wrong=wrong, peak_bytes=max(peak, 0))
