"""Forty graphs captured one after the other into one pool, each with temporaries, as servers of models do for as many
batch sizes. Prints what PyTorch's cache held at its peak."""
import torch

MIB = 1 << 20
pool = torch.cuda.graph_pool_handle()
given = torch.zeros(MIB, device="cuda")
graphs, results = [], []
for size in range(40, 0, -1):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        wide = given.repeat(size)
        twice = wide * 2
        results.append(twice.view(size, -1).sum(1))
        del wide, twice
    graphs.append(graph)
for graph in graphs:
    graph.replay()
torch.cuda.synchronize()
print("graphs", len(graphs), [tuple(r.shape) for r in results[:2]])
print("held", torch.cuda.max_memory_reserved())
