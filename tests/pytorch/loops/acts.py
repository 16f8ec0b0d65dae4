"""Does to memory what its arguments say, as tests/tools/acts.c does, by PyTorch's tensors: device=N, NAME+MIB, NAME?MIB,
NAME-, fork, kill, _exit."""
import os
import signal
import sys

import torch

DEVICE, TENSORS = 0, {}


def allocate(name, mib):
    TENSORS[name, DEVICE] = torch.empty(mib << 20, dtype=torch.uint8, device=f"cuda:{DEVICE}")


for act in sys.argv[1:]:
    if act.startswith("device="):
        DEVICE = int(act[7:])
    elif act == "fork":
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    elif act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif act == "_exit":
        os._exit(0)
    elif act.endswith("-"):
        del TENSORS[act[:-1], DEVICE]
    elif "+" in act:
        allocate(act[0], int(act[2:]))
    else:
        try:
            allocate(act[0], int(act[2:]))
        except torch.OutOfMemoryError:
            pass
