"""Data parallel training: started by torchrun with two ranks; then the same model sharded (FSDP2)."""
import os

import torch
import torch.distributed as dist
from record import Run
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

run = Run()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
assert dist.get_world_size() == 2


def layers():
    return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.step()


train(DistributedDataParallel(layers(), device_ids=[torch.cuda.current_device()], bucket_cap_mb=4), 4)
sharded = layers()
for layer in sharded:
    fully_shard(layer)
train(fully_shard(sharded), 4)
one = torch.full((16,), float(dist.get_rank()), device="cuda")
dist.all_reduce(one)
dist.barrier(device_ids=[torch.cuda.current_device()])
torch.cuda.synchronize()
run.finish(rank=dist.get_rank())
dist.destroy_process_group()
