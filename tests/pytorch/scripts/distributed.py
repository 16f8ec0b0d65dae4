"""What ranks tell each other: objects, sizes, sums of numbers from the host, groups, and two ways of data parallel
training."""
import os
import sys

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device if "--eager" in sys.argv else None)


def values(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype).to(device)  # a copy is real, a fill is not


for dtype in (torch.int32, torch.int64, torch.float32, torch.float64, torch.float16, torch.bfloat16):
    total = values(rank + 1, 10 * rank, dtype=dtype)
    dist.all_reduce(total)
    assert total.tolist() == [sum(range(1, world + 1)), 10 * sum(range(world))], (dtype, total)
largest = values(rank, -rank)
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
assert largest.tolist() == [world - 1, 0], largest
mean = values(rank, dtype=torch.float32)
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert mean.tolist() == [(world - 1) / 2], mean
parts = [values(0) for _ in range(world)]
dist.all_gather(parts, values(100 + rank))
assert [p.item() for p in parts] == [100 + i for i in range(world)], parts
flat = values(*[0] * world)
dist.all_gather_into_tensor(flat, values(7 * rank))
assert flat.tolist() == [7 * i for i in range(world)], flat
mine = values(0)
dist.reduce_scatter_tensor(mine, values(*range(world)))
assert mine.item() == world * rank, mine
swapped = values(*[0] * world)
dist.all_to_all_single(swapped, values(*[10 * rank + i for i in range(world)]))
assert swapped.tolist() == [10 * i + rank for i in range(world)], swapped
told = values(42 if rank == 0 else 0)
dist.broadcast(told, 0)
assert told.item() == 42, told
got = values(0)
other = (rank + 1) % world
for request in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, (rank - 1) % world),
                                       dist.P2POp(dist.isend, values(3 * rank), other)]):
    request.wait()
assert got.item() == 3 * ((rank - 1) % world), got
mine = values(0)
dist.scatter(mine, [values(50 + i) for i in range(world)] if rank == 0 else None, 0)
assert mine.item() == 50 + rank, mine
gathered = [values(0) for _ in range(world)] if rank == 0 else None
dist.gather(values(rank), gathered, 0)
assert rank or [g.item() for g in gathered] == list(range(world)), gathered
half = [dist.new_group([i]) for i in range(world)]
everybody = dist.new_group(list(range(world)))
dist.barrier(group=everybody)
total = values(5)
dist.all_reduce(total, group=half[rank])
assert total.item() == 5
big = torch.empty(1 << 20, device=device)
dist.all_reduce(big)
work = dist.all_reduce(values(1), async_op=True)
work.wait()

from torch.nn.parallel import DistributedDataParallel

model = torch.nn.Sequential(torch.nn.Linear(64, 64 + 0 * rank), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
ddp = DistributedDataParallel(model, device_ids=[device.index], find_unused_parameters=True, static_graph=False)
from torch.distributed.optim import ZeroRedundancyOptimizer

optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-3)
for step in range(3):
    with ddp.no_sync() if step == 1 else torch.enable_grad():
        ddp(torch.zeros(4, 64, device=device)).sum().backward()
    optimizer.step()
optimizer.consolidate_state_dict(0)
from torch.distributed.fsdp import FullyShardedDataParallel

fsdp = FullyShardedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)), device_id=device,
                                sync_module_states=True)
fsdp(torch.zeros(4, 64, device=device)).sum().backward()
fsdp.clip_grad_norm_(1.0)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cuda", (world,))
tp = parallelize_module(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                            torch.nn.Linear(128, 64)).to(device), mesh,
                        {"0": ColwiseParallel(), "2": RowwiseParallel()})
tp(torch.zeros(4, 64, device=device)).sum().backward()
assert distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).full_tensor().tolist() == list(range(8))
dist.barrier()
torch.cuda.synchronize()
sys.stdout.write(f"rank {rank} of {world} is done\n")  # in one piece: ranks share it, unbuffered
sys.stdout.flush()
dist.destroy_process_group()
