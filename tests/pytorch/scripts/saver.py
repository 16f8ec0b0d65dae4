"""Memory that sleeps, by torch_memory_saver: what is made in a region leaves the device when paused, and is back at the
same address when resumed. Prints what is the same in every run.

Usage: saver.py torch|preload [before|after]    (its library, for `preload`, before or after what is preloaded already)"""
import os
import sys

hook, *order = sys.argv[1:]
MIB = 1 << 20
if hook == "preload" and "SAVER_STARTED" not in os.environ:
    # Its own configure_subprocess() only knows `before`, and imports PyTorch for its version.
    from torch_memory_saver.utils import get_binary_path_from_package

    library = str(get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))
    others = [path for path in os.environ.get("LD_PRELOAD", "").split(":") if path]
    preload = [*others, library] if order == ["after"] else [library, *others]
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": ":".join(preload), "SAVER_STARTED": "1"})

import torch  # noqa: E402
from torch_memory_saver import torch_memory_saver as saver  # noqa: E402

saver.hook_mode = hook


def held():
    """By all, in steps of 64 MiB: what others' tensors and contexts take is less."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / (64 * MIB)) * 64


def write(tensor, value):
    """By copies, since the simulated GPU runs no kernels."""
    for part in tensor[:4], tensor[-4:]:
        part.copy_(torch.full((4,), value, dtype=torch.uint8))


def full(mib, value):
    tensor = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    write(tensor, value)
    return tensor


def ends(tensor):
    return tensor[:2].tolist() + tensor[-2:].tolist()


plain = full(2, 3)
with saver.region(tag="weights"):
    weights = full(512, 1)
with saver.region(tag="cache"):
    cache = full(256, 2)
before = held()
addresses = weights.data_ptr(), cache.data_ptr()
for tag in ("cache", "weights"):
    saver.pause(tag)
    print("paused", tag, before - held())
work = full(640, 5)
print("asleep", ends(plain), ends(work))
del work
torch.cuda.empty_cache()
for tag in ("weights", "cache"):
    saver.resume(tag)
    print("resumed", tag, before - held())
print("addresses", (weights.data_ptr(), cache.data_ptr()) == addresses)
write(weights, 7)
write(cache, 8)
print("used", ends(weights), ends(cache), ends(plain))
for _ in range(3):
    saver.pause()
    print("paused", before - held())
    saver.resume()
    print("resumed", before - held())
del weights, cache, plain
torch.cuda.empty_cache()
print("done")
