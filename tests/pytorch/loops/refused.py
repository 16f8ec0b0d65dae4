"""The same loop once a fault of the simulated driver, each in a process of its own: tensors come from the host, are
copied, read back and go.

Usage: refused.py SIM FAULT…, where FAULT is what fail= takes, or "none". Prints a line RUN for each: what was read, as
a hash, how much of the device is not free again at the end, and the library's own counts."""
import ctypes
import hashlib
import json
import os
import random
import sys

import torch

STEPS, MIB = 160, 1 << 20


class Stat(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("value", ctypes.c_uint64),
                ("peak", ctypes.c_uint64)]


def statistics():
    library = ctypes.CDLL(None)
    if not hasattr(library, "segalloc_stats"):
        return {}
    rows = (Stat * 128)()
    count = library.segalloc_stats(0, rows, len(rows))
    return {row.name.decode(): row.value for row in rows[:count]}


def free_bytes():
    """Once all that is idle has gone back to the driver."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    library = ctypes.CDLL(None)
    if hasattr(library, "segalloc_trim"):
        library.segalloc_trim.argtypes = [ctypes.c_int, ctypes.c_size_t]
        library.segalloc_trim(0, 0)
    return torch.cuda.mem_get_info()[0]


def play():
    numbers, digest, alive = random.Random(11), hashlib.sha256(), []
    for step in range(STEPS):
        if alive and numbers.random() < 0.45:
            tensor, value = alive.pop(numbers.randrange(len(alive)))
            copy = tensor if step % 5 else tensor.clone()
            for part in (copy[:64].cpu(), copy[-64:].cpu()):
                assert part.eq(value).all(), step
                digest.update(part.numpy().tobytes())
        else:
            length = numbers.randint(64, 9 * MIB if numbers.random() < 0.6 else 50000)
            value = numbers.randint(1, 250)
            alive.append((torch.full((length,), value, dtype=torch.uint8).cuda(non_blocking=step % 2 == 0), value))
        if step % 50 == 49:
            torch.cuda.empty_cache()
    return digest.hexdigest()


def run(sim, fault):
    os.environ["SEGALLOC_SIM"] = sim if fault == "none" else f"{sim},fail={fault}"
    torch.empty(1, device="cuda")
    before = free_bytes()
    told = {"fault": fault, "hash": play()}
    told["left"] = before - free_bytes()
    told.update({k: v for k, v in statistics().items() if k in ("vmm_errors", "passed_on", "allocations", "ooms")})
    print("RUN " + json.dumps(told), flush=True)


def main(sim, *faults):
    for fault in faults:
        child = os.fork()  # before anything of CUDA: importing it all costs more than the loop
        if child == 0:
            try:
                run(sim, fault)
                status = 0
            except BaseException as error:  # pylint: disable=broad-except
                print(f"{fault}: {error!r}", file=sys.stderr, flush=True)
                status = 1
            sys.stdout.flush()
            os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(f"{fault}: failed")


main(*sys.argv[1:])
