"""What every PyTorch since 2.1 has: a training loop on two streams, running out and going on, graphs in one pool, four
threads. Prints what it did, and what PyTorch's statistics said where they have to be right."""
import threading

import torch

MIB = 1 << 20
print("torch", torch.__version__.split("+")[0])
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for n in range(1, 6):
    x = torch.ones(8 * n, 256, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        x.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    model(y).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
print("loop", n)

times, held = 0, []
for _ in range(3):
    try:
        while True:
            held.append(torch.empty(200 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        times += str(error).startswith("CUDA out of memory. Tried to allocate ")
        del held[::2], error
print("ran out", times)
del held
torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
print("free again", free > total - 200 * MIB)

pool, graphs, results = torch.cuda.graph_pool_handle(), [], []
given = torch.zeros(MIB, device="cuda")
for size in range(8, 0, -1):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results.append((given.repeat(size) * 2).view(size, -1).sum(1))
    graphs.append(graph)
for graph in graphs:
    graph.replay()
torch.cuda.synchronize()
print("graphs", len(graphs))


def work():
    for n in range(50):
        a = torch.ones(n + 1, 1000, device="cuda")
        b = a @ a.t()
        del a, b


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.cuda.synchronize()
print("threads", len(threads))
