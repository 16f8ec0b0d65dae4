"""Functions that a pluggable allocator leaves unanswered raise, as PyTorch's do."""
import ctypes


def _unsupported(name):
    def call(*_):
        raise RuntimeError(f"CUDAPluggableAllocator does not yet support {name}")
    return call


for _name in ("_cuda_memoryStats", "_cuda_resetAccumulatedMemoryStats", "_cuda_resetPeakMemoryStats",
              "_cuda_memorySnapshot", "_cuda_getMemoryFraction", "_cuda_record_memory_history"):
    globals()[_name] = _unsupported(_name)


class _Allocator:
    hooks = ()

    def __init__(self, malloc, free):
        self.malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(malloc)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(free)
        self.hooks = {}

    def set_reset_fn(self, address):
        self.hooks["reset"] = ctypes.CFUNCTYPE(None)(address)

    def set_memory_fraction_fn(self, address):
        self.hooks["fraction"] = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)(address)

    def set_base_alloc_fn(self, address):
        self.hooks["base"] = address

    def set_record_stream_fn(self, address):
        self.hooks["record_stream"] = address


_cuda_customAllocator = _Allocator
current = None


def _cuda_changeCurrentAllocator(allocator):
    global current
    current = allocator


def _cuda_emptyCache(*_):
    current.hooks["reset"]()


def _cuda_setMemoryFraction(fraction, device):
    current.hooks["fraction"](fraction, device)


def _cuda_getAllocatorBackend():
    return "pluggable" if current else "native"


def _accelerator_isAllocatorInitialized():
    return False


def _accelerator_emptyCache():
    pass


def _accelerator_getDeviceStats(_):
    return {}


def _accelerator_getMemoryInfo(_):
    return (0, 0)
