"""A script whose last words are PyTorch's peaks, for comparison with the report of its trace."""
import json
import sys

import torch

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, device="cuda") for _ in range(4)))
for step in range(5):
    model(torch.ones(64 + 32 * step, 512, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
stats = torch.cuda.memory_stats()
json.dump({name: stats[f"{name}.all.peak"] for name in ("requested_bytes", "allocated_bytes", "reserved_bytes")} |
          {"allocations": stats["allocation.all.allocated"]}, sys.stdout)
sys.stdout.flush()
