"""Graphs that share a pool, graphed callables, pools of memory, autocast's cache in a capture, and AMP's scaler."""
import torch

x = torch.zeros(512, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        (x @ x).relu()
torch.cuda.current_stream().wait_stream(side)
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(first):
    y = (x @ x).relu()
    z = torch.cat([y, y + 1])
with torch.cuda.graph(second, pool=first.pool()):
    w = z * 2
for _ in range(5):
    first.replay()
    second.replay()
torch.cuda.synchronize()
print("graphs", tuple(w.shape))

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
given = torch.randn(8, 64, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (given,))
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
for _ in range(3):
    with torch.autocast("cuda", torch.float16):
        loss = graphed(given).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=False)
print("callables", tuple(given.grad.shape))
del graphed, first, second, y, z, w

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 7, 40)]
outside = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
del inside
with torch.cuda.use_mem_pool(pool):
    again = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
del again, pool
torch.cuda.empty_cache()
torch.cuda.synchronize()
print("pools", outside.numel())
