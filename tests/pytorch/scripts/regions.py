"""Regions of torch_memory_saver over segalloc: what they say and keep. Prints done.

Usage: regions.py torch|preload"""
import ctypes
import os
import sys
import tempfile

import torch
from torch_memory_saver import configure_subprocess
from torch_memory_saver import torch_memory_saver as saver

saver.hook_mode = sys.argv[1]
MIB = 1 << 20


def held():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free) // MIB


def full(mib, value):
    return torch.full((mib * MIB,), value, dtype=torch.uint8, device="cuda")


with saver.region("weights", enable_cpu_backup=True):
    weights = full(60, 7)
with saver.region("kv"):
    cache = full(40, 9)
plain = full(2, 3)
addresses = weights.data_ptr(), cache.data_ptr()
before = held()
saver.pause("kv")
saver.pause("kv")  # is no error
assert before - held() >= 40, held()
saver.pause()
assert before - held() >= 100, held()
assert saver.get_cpu_backup(weights[-5:]).tolist() == [7] * 5
with saver.region("weights", enable_cpu_backup=True):  # an allocation there is refused, and nothing is lost
    try:
        full(32, 1)
        raise SystemExit("a paused tag has allocated")
    except RuntimeError:
        pass
assert bool((plain == 3).all())
work = full(50, 5)
saver.resume("weights")
assert bool((weights == 7).all()) and saver.get_cpu_backup(weights) is None
saver.resume()
assert not bool((cache == 9).any()) and bool((work == 5).all())
assert addresses == (weights.data_ptr(), cache.data_ptr())
assert saver.enabled and saver.retain_cpu_backup is False
with configure_subprocess():
    assert os.environ["LD_PRELOAD"].count("torch_memory_saver") == 1
saver.pause("nobody")
with saver.region("kept", enable_cpu_backup=True):
    kept = full(20, 6)
saver.pause("kept")
first = saver.get_cpu_backup(kept, zero_copy=True)
saver.retain_cpu_backup = True
saver.resume("kept")
assert saver.get_cpu_backup(kept, zero_copy=True).data_ptr() == first.data_ptr() and bool((kept == 6).all())
kept.fill_(8)
saver.retain_cpu_backup = False
saver.pause("kept")
assert saver.get_cpu_backup(kept, zero_copy=True).data_ptr() == first.data_ptr() and bool((first == 8).all())
flags = ctypes.c_uint()
assert saver._impl._binary_wrapper.cdll.cudaHostGetFlags(ctypes.byref(flags), ctypes.c_void_p(first.data_ptr())) == 0
del first
saver.resume("kept")
assert saver.get_cpu_backup(kept) is None and bool((kept == 8).all())
with tempfile.TemporaryDirectory() as folder:
    saver.set_disk_backup_dir(folder)
    with saver.region("filed", enable_disk_backup=True):
        filed = full(30, 5)
    saver.pause("filed")
    assert sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) >= 30 * MIB
    assert saver.get_cpu_backup(filed) is None
    saver.resume("filed")
    assert os.listdir(folder) == [] and bool((filed == 5).all())
saver.memory_margin_bytes = 0
print("done")
