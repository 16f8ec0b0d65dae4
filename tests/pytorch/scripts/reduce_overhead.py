"""torch.compile with CUDA graph trees: forward and backward of a small network, and its weights changed in between."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(6):
    x = torch.randn(16, 64, device="cuda")
    torch.compiler.cudagraph_mark_step_begin()
    loss = compiled(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
with torch.inference_mode():
    for n in (16, 16, 16, 24, 24, 24):
        y = compiled(torch.randn(n, 64, device="cuda"))
torch.cuda.synchronize()
print(tuple(y.shape))
from torch._inductor.cudagraph_trees import get_container
manager = get_container(0).tree_manager
print("graphs", manager is not None and manager.graph is not None)
