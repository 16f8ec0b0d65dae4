import ctypes

import torch
from torch import _C

__all__ = [
    "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable",
    "get_per_process_memory_fraction", "set_per_process_memory_fraction", "empty_cache", "memory_stats",
    "memory_stats_as_nested_dict", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "host_memory_stats", "host_memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "memory_allocated", "max_memory_allocated",
    "memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached", "memory_snapshot",
    "memory_summary", "list_gpu_processes", "mem_get_info", "get_allocator_backend", "CUDAPluggableAllocator",
    "change_current_allocator", "MemPool", "use_mem_pool",
]


def _names_only():
    raise NotImplementedError


for _name in __all__:
    globals()[_name] = _names_only


def memory_stats_as_nested_dict(device=0):
    return torch._C._cuda_memoryStats(device)


def memory_allocated(device=0):
    return torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["current"]


def max_memory_allocated(device=0):
    return torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["peak"]


def memory_reserved(device=0):
    return torch._C._cuda_memoryStats(device)["reserved_bytes"]["all"]["current"]


def reset_peak_memory_stats(device=0):
    return torch._C._cuda_resetPeakMemoryStats(device)


def reset_accumulated_memory_stats(device=0):
    return torch._C._cuda_resetAccumulatedMemoryStats(device)


def empty_cache():
    torch._C._cuda_emptyCache()


def set_per_process_memory_fraction(fraction, device=0):
    torch._C._cuda_setMemoryFraction(fraction, device)


def get_per_process_memory_fraction(device=0):
    return torch._C._cuda_getMemoryFraction(device)


def memory_snapshot(include_traces=True):
    return torch._C._cuda_memorySnapshot((0, 0, include_traces))["segments"]


def get_allocator_backend():
    return torch._C._cuda_getAllocatorBackend()


def _record_memory_history():
    torch._C._cuda_record_memory_history()


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self._allocator = _C._cuda_customAllocator(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value
                                                     for name in (malloc, free)))

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    torch._C._cuda_changeCurrentAllocator(allocator.allocator())


class MemPool:
    def __init__(self):
        raise RuntimeError("CUDAPluggableAllocator does not yet support createOrIncrefPool")


from torch.cuda import mem_get_info  # noqa: E402,F811
