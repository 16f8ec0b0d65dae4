"""Preloaded, on the simulator: what Python programs do. Libraries are loaded late and privately, where RTLD_NEXT finds
nothing."""
import ctypes
import os
import sys


class Stat(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("value", ctypes.c_uint64),
                ("peak", ctypes.c_uint64)]


def statistic(name):
    stats = (Stat * 128)()
    count = ctypes.CDLL(None).segalloc_stats(0, stats, 128)
    return next((stat.value for stat in stats[:count] if stat.name == name.encode()), 0)


def hidden():
    try:
        ctypes.CDLL(None).cuMemAlloc_v2
    except AttributeError:
        return True
    return False


user_library, runtime_library = sys.argv[1:]
assert hidden(), "no CUDA is loaded yet"
before = dict(os.environ)
user = ctypes.CDLL(user_library)
address = ctypes.c_void_p()
assert user.user_13_malloc(ctypes.byref(address), 1000) == 0 and user.user_13_free(address) == 0
assert statistic("allocs") == 1 and statistic("frees") == 1

runtime = ctypes.CDLL(runtime_library)
assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1000)) == 0 and runtime.cudaFree(address) == 0
assert statistic("allocs") == 2 and statistic("frees") == 2

driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)) == 0 and driver.cuMemFree_v2(address) == 0
assert statistic("allocs") == 3 and statistic("frees") == 3

free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert driver.cuMemGetInfo_v2(ctypes.byref(free), None) == 0 and 0 < free.value <= 4 << 30
assert dict(os.environ) == before
assert not ctypes.CDLL(None).segalloc_trim(5, ctypes.c_size_t(0))

child = os.fork()
if child == 0:
    os._exit(0 if user.user_13_malloc(ctypes.byref(address), 1000) != 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert user.user_13_malloc(ctypes.byref(address), 1000) == 0 and user.user_13_free(address) == 0
