"""A model whose layers are spread over two devices, as Accelerate does for device_map="auto": activations go from one to the
other. Ends with an error where memory is held for work that was long ordered before its next use."""
import sys

import torch
from torch import nn

MIB = 1 << 20
wide, rows, repeats = 1024, 2048, 12
layers = [nn.Linear(wide, wide, device=f"cuda:{i % 2}", dtype=torch.float32) for i in range(8)]


def forward(x):
    for layer in layers:
        x = torch.relu(layer(x.to(layer.weight.device, non_blocking=True)))
    return x


def peaks():
    return [(torch.cuda.memory_stats(i).get("requested_bytes.all.peak", 0),
             torch.cuda.memory_stats(i).get("reserved_bytes.all.peak", 0)) for i in (0, 1)]


with torch.no_grad():
    for _ in range(repeats):
        forward(torch.randn(rows, wide, device="cuda:0"))
for device, (requested, reserved) in enumerate(peaks()):
    if "--bounded" in sys.argv and reserved > requested * 1.5 + 16 * MIB:
        sys.exit(f"device {device}: {reserved / MIB:.0f} MiB reserved for {requested / MIB:.0f} MiB")

optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], 0.01)
for _ in range(3):
    loss = forward(torch.randn(rows, wide, device="cuda:0")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()

# A side stream of each device reads what the other streams free at once.
sides = [torch.cuda.Stream(i) for i in (0, 1)]
for i in range(20):
    device = i % 2
    with torch.cuda.device(device):
        x = torch.full((MIB // 4,), i, dtype=torch.int32, device=f"cuda:{device}")
        sides[device].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(sides[device]):
            kept = (x + 1).to(f"cuda:{1 - device}", non_blocking=True)
        x.record_stream(sides[device])
        del x
        y = torch.full((MIB // 4,), -1, dtype=torch.int32, device=f"cuda:{device}")
        del y
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
print("split over", torch.cuda.device_count(), "devices")
