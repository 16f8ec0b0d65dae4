"""Streams, events, memory's history and snapshots, device questions."""
import os
import tempfile

import torch

torch.cuda.memory._record_memory_history(max_entries=1000)
a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
s, t = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
a.record()
with torch.cuda.stream(s):
    x = torch.ones(1 << 20, device="cuda")
    y = x @ torch.ones(1 << 20, 1, device="cuda") if False else x * 2
t.wait_stream(s)
with torch.cuda.stream(t):
    z = y + 1
    y.record_stream(t)
e = t.record_event()
torch.cuda.current_stream().wait_event(e)
b.record()
b.synchronize()
assert a.elapsed_time(b) >= 0 and s.query() and e.query()
with tempfile.TemporaryDirectory() as folder:
    torch.cuda.memory._dump_snapshot(os.path.join(folder, "s.pickle"))
    assert os.path.getsize(os.path.join(folder, "s.pickle")) > 100
torch.cuda.memory._record_memory_history(enabled=None)
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total
torch.cuda.memory_summary()
torch.cuda.memory_stats()
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
torch.cuda.ipc_collect()
assert torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() >= (7, 0)
assert torch.cuda.get_device_name() and torch.cuda.get_arch_list()
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(3)
state = torch.cuda.get_rng_state()
torch.cuda.set_rng_state(state)
torch.cuda.nvtx.range_push("x")
torch.cuda.nvtx.range_pop()
torch.cuda.can_device_access_peer(0, 0) if torch.cuda.device_count() > 1 else None
torch.cuda.get_device_properties(0)
with torch.cuda.device(0):
    torch.zeros(3).cuda()
from torch.profiler import ProfilerActivity, profile, schedule
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, record_shapes=True) as p:
    (torch.ones(100, 100, device="cuda") @ torch.ones(100, 100, device="cuda")).sum().item()
assert p.key_averages().table()
external = torch.cuda.ExternalStream(s.cuda_stream)
with torch.cuda.stream(external):
    torch.ones(10, device="cuda")
with torch.cuda.use_mem_pool(torch.cuda.MemPool()) if False else torch.cuda.stream(t):
    torch.ones(10, device="cuda")
host = torch.empty(1 << 20, pin_memory=True)
host.copy_(x, non_blocking=True)
torch.cuda.synchronize()
print("done")
