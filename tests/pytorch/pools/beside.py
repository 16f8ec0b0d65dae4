"""4 GiB of tensors, and 3 GiB from the driver's own pool by cudaMallocAsync, of which PyTorch knows nothing."""
import ctypes

import torch

GIB = 1 << 30
torch.cuda.init()
first = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
address = ctypes.c_void_p()
assert runtime.cudaMallocAsync(ctypes.byref(address), ctypes.c_size_t(3 * GIB), None) == 0
second = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("allocated", torch.cuda.memory_allocated() // GIB)
