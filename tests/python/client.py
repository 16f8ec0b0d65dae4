"""An ordinary script that uses PyTorch's memory functions; it knows nothing of segalloc."""
import json
import sys
import warnings

import torch

MIB = 1 << 20
torch.cuda.init()
allocator = torch._C.current


def tensor(size):
    return allocator.malloc(size, 0, None)


def free(address):
    allocator.free(address, 0, 0, None)


result = {"backend": torch.cuda.get_allocator_backend()}
blocks = [tensor(size * MIB) for size in (100, 200, 300)]
result["allocated"] = torch.cuda.memory_allocated()
result["accelerator"] = torch.accelerator.memory_allocated()
stats = torch.cuda.memory_stats_as_nested_dict()
result["pools"] = all(sum(stats[family][pool][kind] for pool in ("small_pool", "large_pool")) == stats[family]["all"][kind]
                      for family in stats if isinstance(stats[family], dict) and "all" in stats[family]
                      for kind in ("current", "allocated", "freed"))
result["flow"] = all(stats[family]["all"]["allocated"] - stats[family]["all"]["freed"] == stats[family]["all"]["current"]
                     for family in ("allocation", "segment", "allocated_bytes", "reserved_bytes"))
before, total = torch.cuda.mem_get_info()
segments = torch.cuda.memory_snapshot()
result["tiled"] = all(segment["address"] + sum(block["size"] for block in segment["blocks"][:i]) == block["address"]
                      for segment in segments for i, block in enumerate(segment["blocks"]))
result["snapshot"] = sum(segment["total_size"] for segment in segments) - torch.cuda.memory_reserved()
free(blocks.pop())
result["peak"] = torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
result["new_peak"] = torch.cuda.max_memory_allocated()
torch.cuda.reset_accumulated_memory_stats()
stats = torch.cuda.memory_stats_as_nested_dict()
result["reset"] = [stats["allocation"]["all"]["allocated"], stats["num_device_alloc"]]
result["reserved"] = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
result["emptied"] = torch.cuda.memory_reserved()
torch.cuda.set_per_process_memory_fraction(0.25)
result["fraction"] = torch.cuda.get_per_process_memory_fraction()
result["room"] = torch.cuda.mem_get_info()[0]
result["total"] = torch.accelerator.get_memory_info()[1]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.cuda.memory._record_memory_history()
    result["warned"] = [str(each.message) for each in caught]
try:
    torch.cuda.MemPool()
except RuntimeError as error:
    result["pool"] = str(error)
result["source"] = bool(torch.cuda.memory.__loader__.get_source("torch.cuda.memory"))
json.dump(result, sys.stdout)
