"""torch.compile as far as it runs without Triton (with --graphs by CUDA graphs too), checkpointing, functorch, custom
autograd."""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8)).cuda()
for backend in ("eager", "aot_eager", *(["cudagraphs"] if "--graphs" in sys.argv else [])):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    for n in (16, 16, 24):
        x = torch.randn(n, 64, device="cuda", requires_grad=True)
        compiled(x).sum().backward()
    print(backend, tuple(x.grad.shape))
x = torch.randn(16, 64, device="cuda", requires_grad=True)
checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
checkpoint(model, x, use_reentrant=True).sum().backward()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


Twice.apply(x).sum().backward()
parameters = dict(model.named_parameters())
jacobian = torch.func.vmap(torch.func.grad(lambda p, x: torch.func.functional_call(model, p, (x,)).sum()),
                           in_dims=(None, 0))(
    parameters, torch.randn(5, 64, device="cuda"))
print(tuple(jacobian["0.weight"].shape))
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    y = model(x)
y.sum().backward()
scripted = torch.jit.trace(model, torch.randn(2, 64, device="cuda"))
print(tuple(scripted(x).shape))
