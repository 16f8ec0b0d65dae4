"""A graph that PyTorch captures: what it computes when it is played again, with other memory coming and going
between."""
import torch
from memory import tell

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
place = torch.zeros(32, 256, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side), torch.no_grad():
    for _ in range(3):
        model(place)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    result = model(place)
wrong = 0
for turn in range(10):
    others = [torch.full((1 << 18,), float(turn), device="cuda") for _ in range(20)]
    values = torch.randn(32, 256, device="cuda")
    place.copy_(values)
    graph.replay()
    with torch.no_grad():
        expected = model(values)
    wrong += not torch.equal(result, expected)
    wrong += any(not torch.all(other == turn).item() for other in others)
    del others
del graph
torch.cuda.synchronize()
tell(wrong=wrong, turns=10)
