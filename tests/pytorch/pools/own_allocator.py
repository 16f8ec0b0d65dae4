"""A script's own allocator in PyTorch's place. argv: its library. Prints what it was asked for."""
import ctypes
import sys

import torch

own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")
torch.cuda.memory.change_current_allocator(own)
library = ctypes.CDLL(sys.argv[1])
kept = [torch.empty(1000 * (i + 1), dtype=torch.uint8, device="cuda") for i in range(10)]
for i in range(100):
    torch.empty(100, device="cuda")
print(library.own_calls(), library.own_live(), torch.cuda.memory.get_allocator_backend())
try:
    torch.cuda.memory_allocated()
    print("counted")
except RuntimeError as error:
    print("does not yet support" in str(error))
