"""What the loops share: how memory is served, and what is told of a run."""
import hashlib
import json
import os
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MODE = os.environ.get("TEST_MODE", "native")
LIST = open(os.environ["TEST_LIST"], "w") if "TEST_LIST" in os.environ else None  # to look into a difference

# As attention_mask: no mask. Without it transformers reads from the device whether several sequences are packed into
# one, and where kernels compute nothing what it reads is what the memory held before.
UNPACKED = {"full_attention": None}

if MODE == "pluggable":
    library = next(p for p in os.environ["LD_PRELOAD"].split(":") if "libsegalloc.so" in p)
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(library, "segalloc_torch_malloc", "segalloc_torch_free"))


class Shapes(TorchDispatchMode):
    """Hashes the name of every operator with the shapes and types of what it gives, in the order of the calls."""

    def __init__(self):
        super().__init__()
        self.hash = hashlib.sha256()
        self.operators = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = result if isinstance(result, (tuple, list)) else (result,)
        shapes = [(tuple(t.shape), str(t.dtype)) for t in tensors if isinstance(t, torch.Tensor)]
        self.hash.update(f"{function} {shapes}\n".encode())
        self.operators += 1
        if LIST:
            LIST.write(f"{function} {shapes}\n")
        return result


class Run:
    def __init__(self):
        self.shapes = Shapes()
        self.steps = 0

    def step(self):
        self.steps += 1

    def finish(self, **more):
        assert not any(name.startswith("PYTORCH_") for name in os.environ), "a variable that children would inherit"
        told = {"steps": self.steps, "operators": self.shapes.operators, "hash": self.shapes.hash.hexdigest(), **more}
        if MODE in ("native", "beneath"):
            stats = torch.cuda.memory_stats()
            told["requested"] = stats["requested_bytes.all.peak"]
            told["reserved"] = stats["reserved_bytes.all.peak"]
            told["allocated"] = stats["allocated_bytes.all.peak"]
            told["live"] = stats["allocated_bytes.all.current"]
        sys.stdout.write("RUN " + json.dumps(told) + "\n")  # in one piece: ranks share it, unbuffered
        sys.stdout.flush()
