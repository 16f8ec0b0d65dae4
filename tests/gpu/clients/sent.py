"""A tensor sent to another process, which reads it and writes into it."""
import sys

import torch
import torch.multiprocessing as multiprocessing
from memory import tell
from multiprocessing.reduction import ForkingPickler

SECONDS = 60


def receive(pipe):
    tensor = ForkingPickler.loads(pipe.recv_bytes())
    total = int(tensor.sum())
    tensor.fill_(3)
    torch.cuda.synchronize()
    pipe.send(total)
    del tensor


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    tensor = torch.arange(1000, device="cuda")
    sent = ForkingPickler.dumps(tensor)  # by this thread, so that what goes wrong is said at once
    child = context.Process(target=receive, args=(there,))
    child.start()
    there.close()
    here.send_bytes(sent)
    if not here.poll(SECONDS):
        child.terminate()
        sys.exit("no answer")
    total = here.recv()
    child.join(timeout=SECONDS)
    torch.cuda.synchronize()
    tell(sum=total, written=int(tensor.sum()), ended=child.exitcode)
