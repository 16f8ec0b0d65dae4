"""A sum over one rank by NCCL, which makes its buffers and its transports all the same."""
import os

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "0")
import torch  # noqa: E402
import torch.distributed as distributed  # noqa: E402
from memory import served, tell  # noqa: E402

store = distributed.HashStore()
distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
tensor = torch.arange(1 << 16, device="cuda")
for _ in range(3):
    distributed.all_reduce(tensor)
    gathered = [torch.empty_like(tensor)]
    distributed.all_gather(gathered, tensor)
torch.cuda.synchronize()
total = int(gathered[0].sum())
distributed.destroy_process_group()
tell(sum=total, passed_on=served().get("passed_on", 0))
