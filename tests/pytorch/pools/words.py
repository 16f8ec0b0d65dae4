"""What PyTorch says of memory: statistics, resets, observers, history, snapshots; before and after the first graph."""
import os
import pickle
import tempfile

import torch

MIB = 1 << 20
M = torch.uint8
folder = tempfile.mkdtemp()
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, asked, total, free: seen.append((device, asked // MIB, total >> 30)))


def run_out():
    try:
        torch.empty(1 << 45, dtype=M, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)[:38]


def say(what):
    stats = torch.cuda.memory_stats()
    print(what, "ooms", stats["num_ooms"], "observed", len(seen), "allocated", torch.cuda.memory_allocated(),
          torch.cuda.max_memory_allocated(), "in all", stats["allocation.all.allocated"], stats["allocation.all.freed"],
          stats["allocated_bytes.all.allocated"])


first = torch.ones(1000, device="cuda")
print(run_out())
say("first")
big = torch.empty(200 * MIB, dtype=M, device="cuda")
del big
torch.cuda.reset_peak_memory_stats()
say("peak reset")
torch.cuda.reset_accumulated_memory_stats()
say("totals reset")
second = torch.empty(10 * MIB, dtype=M, device="cuda")
say("again")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = second + 1
graph.replay()
say("graph")
print(run_out())
active = sum(b["size"] for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated")
print("snapshot", active == torch.cuda.memory_allocated(), "reserved", sum(
    s["total_size"] for s in torch.cuda.memory_snapshot()) == torch.cuda.memory_reserved())
torch.cuda.memory._record_memory_history(max_entries=1000)
xs = [torch.empty(100000 * (i + 1), device="cuda") for i in range(5)]
del xs[1]
print(run_out())
torch.cuda.memory._dump_snapshot(os.path.join(folder, "dump"))
with open(os.path.join(folder, "dump"), "rb") as file:
    dumped = pickle.load(file)
events = dumped["device_traces"][0]
print("history", sum(e["action"] == "alloc" for e in events), sum(e["action"] == "oom" for e in events),
      any(e.get("frames") for e in events))
print("dumped", sum(b["size"] for s in dumped["segments"] for b in s["blocks"] if b["state"] == "active_allocated") ==
      torch.cuda.memory_allocated())
print(seen)
