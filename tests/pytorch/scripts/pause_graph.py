"""A graph that was captured before a pause gives the same bytes after the resume, and another process fills the card meanwhile.
Prints done.

Usage: pause_graph.py       pause_graph.py fill    (the other process: takes all that it can get, and says how much)"""
import subprocess
import sys

import torch

import segalloc

MIB = 1 << 20


def fill():
    """Takes what is free in smaller and smaller pieces, and writes to it."""
    held, size = [], 256 * MIB
    while size >= MIB:
        try:
            held.append(torch.full((size,), 0xA5, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    torch.cuda.synchronize()
    print(sum(tensor.numel() for tensor in held) // MIB)


if sys.argv[1:] == ["fill"]:
    fill()
    sys.exit()

with segalloc.region("weights"):
    weights = torch.arange(1 << 14, dtype=torch.float32, device="cuda")
with segalloc.region("files", backup="file"):
    more = torch.full((1 << 14,), 3.0, device="cuda")
with segalloc.region("work", backup=False):
    result = torch.zeros(1 << 14, device="cuda")
    ballast = torch.zeros(200 * MIB, dtype=torch.uint8, device="cuda")
source = torch.full((1 << 14,), 2.0, device="cuda")


def step():
    result.copy_(weights)
    result.add_(more)
    result.add_(source)


stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
result.zero_()
graph.replay()
torch.cuda.synchronize()
before = result.cpu()
assert before[7].item() == 12.0, before[:8]
addresses = [tensor.data_ptr() for tensor in (weights, more, result, ballast)]
for _ in range(2):
    segalloc.pause()
    free = torch.cuda.mem_get_info()[0] // MIB
    segalloc.pause()  # is no error
    try:
        with segalloc.region("work", backup=False):
            torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
        raise SystemExit("a paused tag has allocated")
    except RuntimeError:
        pass
    other = subprocess.run([sys.executable, __file__, "fill"], capture_output=True, text=True, timeout=300)
    taken = int(other.stdout.split()[-1]) if other.returncode == 0 else 0
    assert taken > free - 64 and taken > 600, (taken, free, other.stderr[-2000:])
    segalloc.resume()
    assert addresses == [tensor.data_ptr() for tensor in (weights, more, result, ballast)]
    assert not bool(result.any()), "pages came back with bytes of others"
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result.cpu(), before)
try:
    segalloc.pause("nobody")
    raise SystemExit("a tag that nobody has used was paused")
except segalloc.PauseError as error:
    assert error.code == 500
segalloc.pause("weights", backup=False)
segalloc.resume("weights")
assert not bool(weights.any())
weights.copy_(torch.arange(1 << 14, dtype=torch.float32))
graph.replay()
assert torch.equal(result.cpu(), before)
print("done")
