"""Random blocks, some in pools, some captured, on a card that they fill up to 85 of 100. argv: the seed."""
import random
import sys

import torch

MIB = 1 << 20
MOST = int(torch.cuda.get_device_properties(0).total_memory * 0.85)
dice = random.Random(int(sys.argv[1]))
pools = [torch.cuda.MemPool() for _ in range(2)]
kept, graphs = [], []


def held():
    return sum(each.numel() for each in kept) + 24 * MIB * len(pools)


for step in range(600):
    size = dice.choice((1000, 70_000, 900_000, 3 * MIB, 12 * MIB, 30 * MIB)) + dice.randrange(1000)
    while kept and (held() + size > MOST or dice.random() < 0.35):
        kept.pop(dice.randrange(len(kept)))
    way = dice.random()
    if way < 0.08 and size < 2 * MIB:
        with torch.cuda.use_mem_pool(pools[dice.randrange(2)]):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    elif way < 0.1 and len(graphs) < 3:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static = torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda")
        graphs.append((graph, static))
    else:
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
print("done", len(kept) > 0)
