"""A compiled model whose graphs PyTorch captures and replays by itself. usage: compiled.py reduce-overhead|cudagraphs
sim|gpu"""
import importlib.util
import sys

import torch
from memory import not_tried, tell

how, where = sys.argv[1:3]
if how == "reduce-overhead" and importlib.util.find_spec("triton") is None:
    not_tried("torch.compile has no triton here")
width = 64 if where == "sim" else 1024
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, 2 * width),
                            torch.nn.ReLU(), torch.nn.Linear(2 * width, width)).cuda()
options = {"mode": how} if how == "reduce-overhead" else {"backend": how}
compiled = torch.compile(model, **options)
wrong = 0
with torch.no_grad():
    for turn in range(5):
        values = torch.randn(32, width, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        found = compiled(values).clone()
        wrong += not torch.allclose(found, model(values), rtol=1e-2, atol=1e-3)
torch.cuda.synchronize()
tell(wrong=wrong)
