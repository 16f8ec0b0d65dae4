"""How much memory a server of models finds that it needs beside its cache of keys and values: the formula of
vllm/utils/mem_utils.py, on weights of 1 GiB and a step that takes 2 GiB for a while. Prints what it finds, in MiB."""
import gc

import torch

GIB = 1 << 30


class Snapshot:
    def __init__(self):
        self.torch_peak = torch.cuda.memory_stats().get("allocated_bytes.all.peak", 0)
        free, total = torch.cuda.mem_get_info()
        self.torch_reserved = torch.cuda.memory_reserved()
        self.non_torch = total - free - self.torch_reserved


torch.zeros(1, device="cuda")
before_create = Snapshot()
allocated = torch.cuda.memory_allocated()
weights = torch.empty(GIB, dtype=torch.uint8, device="cuda")
found_weights = torch.cuda.memory_allocated() - allocated
gc.collect()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = Snapshot()
step = [torch.empty(GIB // 4, dtype=torch.uint8, device="cuda") for _ in range(8)]
del step
gc.collect()
torch.cuda.synchronize()
after = Snapshot()
found = found_weights + after.torch_peak - before.torch_peak + after.non_torch - before_create.non_torch
print(found >> 20)
