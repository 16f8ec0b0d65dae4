from torch import _C


def memory_allocated():
    if not _C._accelerator_isAllocatorInitialized():
        return 0
    return _C._accelerator_getDeviceStats(0)["allocated_bytes"]["all"]["current"]


def get_memory_info():
    return _C._accelerator_getMemoryInfo(0)
