"""A rollout engine and a training in turn, by torch_memory_saver: weights, and keys and values, are in regions; the rest is not.

EMPTY=1 gives PyTorch's cached memory back before each resume. Prints MiB: the most used, the most left while paused, used at first."""
import json
import os

import torch
from torch_memory_saver import torch_memory_saver as saver

MIB = 1 << 20


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


torch.zeros(1, device="cuda")
base = used()
with saver.region(tag="weights", enable_cpu_backup=True):
    weights = [torch.empty(48 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
with saver.region(tag="kv"):
    kv = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
most = asleep = trained = 0
for step in range(3):
    for rows in (7, 13, 29, 5, 17):  # activations of the rollout, of many sizes
        held = [torch.empty((rows + i) * MIB, dtype=torch.uint8, device="cuda") for i in range(12)]
        del held
    torch.cuda.synchronize()
    most = max(most, used())
    saver.pause()
    asleep = max(asleep, used() - base)
    grads = [torch.empty(96 * MIB + step * 7 * MIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
    acts = [torch.empty((31 + 3 * i) * MIB, dtype=torch.uint8, device="cuda") for i in range(12)]
    trained = max(trained, used())
    del grads, acts
    if os.environ.get("EMPTY"):
        torch.cuda.empty_cache()
    saver.resume()
    most = max(most, used())
print(json.dumps({"peak_mib": max(most, trained) // MIB, "asleep_mib": asleep // MIB, "base_mib": base // MIB}))
