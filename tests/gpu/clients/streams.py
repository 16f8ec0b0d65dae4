"""The stream that PyTorch has current, as the library sees it: on the default stream, on others, in other threads."""
import threading

import torch
from memory import MODE, current_stream_by_symbol, piece_stream, tell

LEGACY = 1  # how the library notes the default stream
wrong = []


def look(where):
    expected = torch.cuda.current_stream().cuda_stream
    if current_stream_by_symbol() != expected:
        wrong.append(f"{where}: the symbols say another stream")
    block = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    if MODE in ("direct", "torch"):
        noted = piece_stream(block.data_ptr())
        if noted is None or (noted or LEGACY) != (expected or LEGACY):
            wrong.append(f"{where}: noted {noted}, current {expected}")


torch.empty(1, device="cuda")
look("default")
streams = [torch.cuda.Stream() for _ in range(3)]
for stream in streams:
    with torch.cuda.stream(stream):
        look("a stream of its own")


def elsewhere():
    look("a thread")
    with torch.cuda.stream(streams[0]):
        look("a stream in a thread")


thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
block = torch.ones(1 << 20, device="cuda")
with torch.cuda.stream(streams[1]):
    block.record_stream(streams[1])
    total = block.sum()
del block
torch.cuda.synchronize()
tell(wrong=wrong, sum=float(total))
