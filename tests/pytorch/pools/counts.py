"""How often PyTorch says that it ran out and tried again, and its peaks: plainly, under a limit, in pools, threads and captures.
What is printed is the same in every mode that has pools."""
import threading
import warnings

import torch

MIB = 1 << 20
warnings.simplefilter("ignore")


def empty(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def runs_out(mebibytes=1 << 20):
    try:
        empty(mebibytes)
        return False
    except torch.OutOfMemoryError:
        return True


def say(what, *more):
    stats = torch.cuda.memory_stats()
    print(what, "ooms", stats["num_ooms"], "retries", stats["num_alloc_retries"], "peaks",
          *(stats[f"{name}_bytes.all.peak"] // MIB for name in ("allocated", "active")), *more, flush=True)


first = empty(100)
say("first")
say("plain", runs_out(), runs_out())
torch.cuda.set_per_process_memory_fraction(0.25)
say("limit", runs_out(1000))
torch.cuda.set_per_process_memory_fraction(1.0)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    held = empty(300)
    say("pool", runs_out())
    thread = threading.Thread(target=lambda: say("thread", runs_out()))
    thread.start()
    thread.join()
del held
say("pool is full", runs_out(4000))
del pool
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    inside = runs_out()
    other = first + 1
say("capture", inside)
del graph, other
torch.cuda.reset_accumulated_memory_stats()
say("totals reset")
torch.cuda.reset_peak_memory_stats()
say("peaks reset", runs_out())
