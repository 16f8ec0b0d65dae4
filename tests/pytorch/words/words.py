"""An ordinary script that asks PyTorch about memory, gives memory back, runs out and goes on. Prints one JSON
object."""
import ctypes
import json
import subprocess
import sys
import os

import torch

MIB = 1 << 20
facts = {"version": torch.__version__}

# The device's free memory, as a process sees it that has nothing to do with this one.
LOOK = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); c = ctypes.c_void_p(); f, t = ctypes.c_size_t(), "
        "ctypes.c_size_t()\n"
        "assert d.cuInit(0) == 0 and d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0) == 0 and d.cuCtxSetCurrent(c) == "
        "0\n"
        "assert d.cuMemGetInfo_v2(ctypes.byref(f), ctypes.byref(t)) == 0; print(f.value)")


def free_for_others():
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PYTHONPATH")}
    return int(subprocess.run([sys.executable, "-c", LOOK], env=environment, check=True, stdout=subprocess.PIPE).stdout)


def train(batch, model, optimizer):
    model(torch.ones(batch, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


model = torch.nn.Linear(256, 256, device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
train(4, model, optimizer)

blocks = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(6)]
facts["allocated"] = torch.cuda.memory_allocated()
facts["accelerator"] = torch.accelerator.memory_allocated() if hasattr(torch.accelerator, "memory_allocated") else None
before = free_for_others()
del blocks
held = free_for_others()
torch.cuda.empty_cache()
facts["given_back"] = free_for_others() - before
facts["kept_until_then"] = held - before
facts["reserved"] = torch.cuda.memory_reserved()

torch.cuda.reset_peak_memory_stats()
facts["new_peak"] = torch.cuda.max_memory_allocated()
snapshot = torch.cuda.memory._snapshot()
facts["snapshot"] = sum(segment["total_size"] for segment in snapshot["segments"])
facts["snapshot_reserved"] = torch.cuda.memory_reserved()
facts["viz"] = len(torch.cuda._memory_viz.segsum(snapshot)) > 0
facts["summary"] = torch.cuda.memory_summary()

try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    facts["huge"] = str(error)
held = []
try:
    while True:
        held.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    facts["text"] = str(error)
facts["filled"] = len(held)
del held
train(4, model, optimizer)
facts["trained"] = True
facts["ooms"] = torch.cuda.memory_stats()["num_ooms"]

try:
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=64)
    def finder(batch):
        torch.empty(batch * 256 * MIB, dtype=torch.uint8, device="cuda")
        return batch

    facts["batch"] = finder()
except ImportError:
    facts["batch"] = None

torch.cuda.set_per_process_memory_fraction(0.5)
facts["fraction"] = torch.cuda.get_per_process_memory_fraction() if hasattr(torch.cuda, "get_per_process_memory_fraction") else 0.5
try:
    torch.empty(2200 * MIB, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    facts["limited"] = str(error)
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(2200 * MIB, dtype=torch.uint8, device="cuda")

# Every function of torch.cuda.memory: what becomes of a call.
answers = {}
pointer = torch.cuda.caching_allocator_alloc(1000)
CALLS = {"caching_allocator_alloc": (1000,), "caching_allocator_delete": (pointer,),
         "caching_allocator_enable": (True,), "set_per_process_memory_fraction": (1.0,), "use_mem_pool": None,
         "MemPool": ()}
for name in torch.cuda.memory.__all__:
    if name in ("CUDAPluggableAllocator", "change_current_allocator", "use_mem_pool", "list_gpu_processes"):
        continue
    try:
        getattr(torch.cuda.memory, name)(*CALLS.get(name, ()))
        answers[name] = "works"
    except Exception as error:
        answers[name] = f"{type(error).__name__}: {error}"
facts["answers"] = answers

side = torch.cuda.Stream()
shared = torch.ones(1 << 20, device="cuda")
with torch.cuda.stream(side):
    shared.record_stream(side)
    shared.mul_(2)
del shared
torch.cuda.synchronize()
torch.cuda.reset_accumulated_memory_stats()
json.dump(facts, sys.stdout)
