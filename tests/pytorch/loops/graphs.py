"""CUDA graphs of PyTorch's own making: a captured step, and graphed callables."""
import torch
from record import Run

run = Run()
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 16)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.zeros(32, 512, device="cuda"), torch.zeros(32, device="cuda", dtype=torch.long)


def step():
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = step()
for _ in range(10):
    x.copy_(torch.zeros(32, 512))
    graph.replay()
    run.step()
assert loss.item() == loss.item()
graphed = torch.cuda.make_graphed_callables(
    torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).cuda(),
    (torch.zeros(32, 512, device="cuda", requires_grad=True),))
for _ in range(5):
    graphed(torch.zeros(32, 512, device="cuda", requires_grad=True)).sum().backward()
    torch.zeros(1 << 20, device="cuda")  # memory of others beside the graph's
    run.step()
torch.cuda.synchronize()
del graph, graphed
run.finish()
