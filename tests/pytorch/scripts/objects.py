"""Python objects between ranks, by NCCL, as loggers, evaluators and checkpoints exchange them."""
import os
import sys

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")

told = [{"run": "abc", "seed": 7}, "x" * 3000, list(range(50))] if rank == 0 else [None] * 3
dist.broadcast_object_list(told, src=0)
assert told == [{"run": "abc", "seed": 7}, "x" * 3000, list(range(50))], told
one = ["only"] if rank == 1 else [None]
dist.broadcast_object_list(one, src=1, device=torch.device("cuda"))
assert one == ["only"], one
everybody = [None] * world
dist.all_gather_object(everybody, {"rank": rank, "metrics": "y" * (10 + 500 * rank)})
assert [e["rank"] for e in everybody] == list(range(world)) and [len(e["metrics"]) for e in everybody] == [10 + 500 * r for r in range(world)]
everybody = [None] * world
dist.all_gather_object(everybody, "z" * (900 - 300 * rank))
assert [len(e) for e in everybody] == [900 - 300 * r for r in range(world)]
gathered = [None] * world if rank == 0 else None
dist.gather_object(("from", rank), gathered, dst=0)
assert rank or gathered == [("from", i) for i in range(world)], gathered
mine = [None]
dist.scatter_object_list(mine, [f"for {i}" * (i + 1) for i in range(world)] if rank == 0 else None, src=0)
assert mine == [f"for {rank}" * (rank + 1)], mine
dist.barrier()
sys.stdout.write(f"rank {rank} of {world} has them\n")
sys.stdout.flush()
dist.destroy_process_group()
