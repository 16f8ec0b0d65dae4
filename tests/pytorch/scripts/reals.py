"""What programs compute of a few floating-point numbers on the device is as it is on the host, to the bit where the
order of a sum has no part in it."""
import os

import torch

torch.manual_seed(3)
failed = []


def same(name, make, *tensors):
    expected = make(*tensors)
    found = make(*(t.cuda() if isinstance(t, torch.Tensor) else t for t in tensors)).cpu()
    if expected.dtype != found.dtype or not torch.equal(torch.nan_to_num(expected), torch.nan_to_num(found)):
        failed.append(name)
        print(name, "gives", found.flatten()[:8].tolist(), "instead of", expected.flatten()[:8].tolist())


def numbers(*shape, dtype):
    return (torch.randint(-40, 41, shape) / 8).to(dtype)


for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    a, b, c = (numbers(7, 5, dtype=dtype) for _ in range(3))
    long, byte, truth = torch.randint(-5, 6, (7, 5)), torch.randint(0, 9, (7, 5), dtype=torch.uint8), torch.rand(7, 5) > 0.5
    n = str(dtype)[6:] + " "
    for name, make in {
            "full": lambda x: torch.full((37,), 0.3, dtype=dtype, device=x.device),
            "ones": lambda x: torch.ones(5, 7, dtype=dtype, device=x.device),
            "fill_": lambda x: x.clone().fill_(2.5),
            "fill a part": lambda x: x.clone().index_fill_(0, torch.tensor([], dtype=torch.long, device=x.device), 1),
            "fill a row": lambda x: torch.Tensor.__setitem__((y := x.clone()), 3, 7.0) or y,
            "fill a column": lambda x: torch.Tensor.__setitem__((y := x.clone()), (slice(None), 1), 7.0) or y,
            "clone": torch.clone,
            "clone a column": lambda x: x[:, 1].clone(),
            "transposed": lambda x: x.t().contiguous(),
            "expanded": lambda x: x[:, :1].expand(7, 9).contiguous(),
            "neg": torch.neg, "abs": torch.abs, "isnan": torch.isnan, "isfinite": torch.isfinite,
            "logical_not": torch.logical_not,
            "any": torch.any, "all": torch.all, "any of rows": lambda x: x.any(1), "max": torch.max, "min": torch.min,
            "amax": lambda x: x.amax(1), "amin": lambda x: x.amin(0), "sum": torch.sum,
            "sum of rows": lambda x: x.sum(1), "sum of columns": lambda x: x.sum(0), "mean": lambda x: x[:4, :4].mean(), "mean of rows": lambda x: x[:, :4].mean(1),
            "sum of one": lambda x: x[:1, :1].sum(), "sum as double": lambda x: x.sum(dtype=torch.float64),
            "mean transposed": lambda x: x[:4].t().mean(1),
            "plus 1": lambda x: x + 1, "1 minus": lambda x: 1 - x, "+= 1": lambda x: x.clone().add_(1),
            "times 2": lambda x: x * 2, "halved": lambda x: x / 4, "4 /": lambda x: 4 / (x * 0 + 2),
            "plus a scalar tensor": lambda x: x + x[0, 0], "times a row": lambda x: x * x[2],
            "plus a host's scalar": lambda x: x + torch.tensor(0.5),
            "to long": lambda x: x.long(), "to bool": lambda x: x.bool(), "to int": lambda x: x.int(),
            "to uint8": lambda x: x.abs().to(torch.uint8),
            "to float": lambda x: x.float(), "to double": lambda x: x.double(), "to half": lambda x: x.half(),
            "to bfloat16": lambda x: x.bfloat16(),
            "item": lambda x: torch.tensor(x[2, 2].item()),
            "chain": lambda x: ((x + 1) * 2 - x).sum() / 4,
    }.items():
        same(n + name, make, a)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(torch, name)
        same(n + name, op, a, b)
        same(n + name + " scalar", op, a, 1)
        same(n + name + " 0-dim", op, a[0, 0], b[0, 0])
        same(n + name + " strided", op, a[:, -1:], b[:, 1:4])
    for name, op in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda x, y: x / (y.abs() + 1),
                     "add with a factor": lambda x, y: torch.add(x, y, alpha=2), "maximum": torch.maximum,
                     "minimum": torch.minimum, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
                     "equal": lambda x, y: torch.tensor([torch.equal(x, y), torch.equal(x, x)]),
                     "add transposed": lambda x, y: x.t() + y.t(), "add strided": lambda x, y: x[:, ::2] + y[:, ::2]}.items():
        same(n + name, op, a, b)
    same(n + "where", torch.where, truth, a, b)
    same(n + "and long", torch.add, a, long)
    for x in (long, byte, truth):
        same(f"{n}from {x.dtype}", lambda x: x.to(dtype), x)
        same(f"{n}of {x.dtype} times it", lambda x, y: x * y, x, a)
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-7, 65519.0, 6e4, 2049.0]).to(dtype)
    for name, op in {"odd eq": lambda x: x == x, "odd isfinite": torch.isfinite, "odd isnan": torch.isnan,
                     "odd max": torch.max, "odd abs": torch.abs, "odd float": torch.Tensor.float,
                     "odd half": torch.Tensor.half, "odd bfloat16": torch.Tensor.bfloat16,
                     "odd bool": torch.Tensor.bool}.items():
        same(n + name, op, odd)
    if dtype in (torch.float32, torch.float64):
        same(n + "arange", lambda x: torch.arange(0, 40, dtype=dtype, device=x.device), a)
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    same(n + "sum of many", lambda x: torch.ones(3000000, dtype=dtype, device=x.device).sum(dtype=sums), a)

# Not large: programs decide by sums of whole tensors, by bytes and by truths.
bytes_ = torch.full((20_000_000,), 10, dtype=torch.uint8, device="cuda")
assert bytes_[:3].tolist() == [10, 10, 10] and bytes_[-3:].tolist() == [10, 10, 10]
assert bool((bytes_ == 10).all()) and not bool((bytes_ == 11).any())
bytes_[7] = 3
assert int(bytes_.min()) == 3 and int(bytes_.max()) == 10
floats = torch.full((10_000_000,), 42.0, device="cuda")
assert floats.sum().item() == 42.0 * 10_000_000 and floats.mean().item() == 42.0
floats.fill_(0.0)
assert floats.sum().item() == 0.0
# A stream has it after what comes before it.
side = torch.cuda.Stream()
x = torch.full((1000,), 1.0, device="cuda")
for _ in range(20):
    x += 1
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x.clone().mul_(2)
side.synchronize()
assert y.sum().item() == 42000.0
# A graph computes again what it has been given.
given, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = (given + 1).mean()
for value in (100.0, 200.0):
    given[...] = value
    graph.replay()
    assert result.item() == value + 1, result
print("failed", failed)
raise SystemExit(bool(failed))
