"""DataLoader workers (forked children) beside the device, pinned batches, a second stream, and a child process."""
import json
import os
import subprocess
import sys

import torch
from record import Run
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((1000,), float(i)), i


def main():
    run = Run()
    total = torch.zeros(1, device="cuda")
    side = torch.cuda.Stream()
    for _ in range(2):
        for x, i in DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True):
            with torch.cuda.stream(side):
                x = x.cuda(non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            x.record_stream(torch.cuda.current_stream())
            assert [float(v) for v in x.cpu()[:, 7]] == [float(v) for v in i]  # copies are true
            total += x.sum()
        run.step()
    child = subprocess.run([sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"],
                           check=True, capture_output=True, text=True)
    ours = [n for n in json.loads(child.stdout) if n.startswith("PYTORCH_") and n not in os.environ]
    assert not ours, ours
    run.finish()


if __name__ == "__main__":
    main()
