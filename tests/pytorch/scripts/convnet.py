"""An image classifier: residual blocks, channels_last, AMP with a scaler, workers by fork and by spawn, pinned memory,
EMA."""
import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 64, 64, generator=g), i % 10


class Block(nn.Module):
    def __init__(self, a, b, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                                  nn.Conv2d(b, b, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(b))
        self.side = nn.Conv2d(a, b, 1, stride, bias=False) if a != b or stride != 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def main():
    torch.backends.cudnn.benchmark = "--benchmark" in sys.argv
    model = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Block(32, 32), Block(32, 64, 2),
                          nn.Dropout2d(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda().to(memory_format=torch.channels_last)
    ema = copy.deepcopy(model).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cuda")
    for context in (None, "fork", "spawn"):
        data = DataLoader(Pictures(), batch_size=16, shuffle=True, num_workers=2 if context else 0, pin_memory=True,
                          multiprocessing_context=context, persistent_workers=bool(context))
        for epoch in range(2):
            for x, y in data:
                x = x.to("cuda", non_blocking=True, memory_format=torch.channels_last)
                y = y.to("cuda", non_blocking=True)
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
                optimizer.zero_grad(set_to_none=True)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                with torch.no_grad():
                    for a, b in zip(ema.parameters(), model.parameters()):
                        a.lerp_(b, 0.01)
        print("workers", context, tuple(x.shape))
    with torch.inference_mode():
        print(tuple(ema(x).shape))


if __name__ == "__main__":
    main()
