"""What vLLM takes for the memory of its activations (vllm/utils/mem_utils.py: the increase of PyTorch's own peak, and that
of what is in use beside PyTorch), where it is known. usage: profile_run.py BYTES"""
import gc
import sys

import torch
from memory import tell

peak = int(sys.argv[1])


class Snapshot:
    def __init__(self):
        statistics = torch.cuda.memory_stats()
        self.torch_peak = statistics.get("allocated_bytes.all.peak", 0)
        free, total = torch.cuda.mem_get_info()
        self.not_torch = total - free - torch.cuda.memory_reserved()


weights = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
gc.collect()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = Snapshot()
for _ in range(3):  # the layers of one step, of which half live at a time
    pieces = [torch.zeros(peak // 8, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del pieces
torch.cuda.synchronize()
gc.collect()
torch.cuda.empty_cache()
after = Snapshot()
found = (after.torch_peak - before.torch_peak) + (after.not_torch - before.not_torch)
tell(found=found, torch_peak_increase=after.torch_peak - before.torch_peak,
     not_torch_increase=after.not_torch - before.not_torch)
