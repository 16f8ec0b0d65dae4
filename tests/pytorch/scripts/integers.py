"""What programs compute of a few integers on the device, and decide by, is as it is on the host."""
import torch

torch.manual_seed(3)
failed = []

def same(name, make, *tensors):
    expected = make(*tensors)
    found = make(*(t.cuda() if isinstance(t, torch.Tensor) else t for t in tensors)).cpu()
    if expected.dtype != found.dtype or not torch.equal(expected, found):
        failed.append(name)
        print(name, "gives", found.flatten()[:8].tolist(), "instead of", expected.flatten()[:8].tolist())

def numbers(*shape, dtype=torch.long, least=-5, most=6):
    return torch.randint(least, most, shape).to(dtype)

a, b, t, u = numbers(7, 5), numbers(7, 5), numbers(7, 5) > 0, numbers(7, 5) > 1
small, bytes_, ints = numbers(3), numbers(33, dtype=torch.uint8, least=0, most=9), numbers(7, 5, dtype=torch.int32)
for name in ("ones", "zeros"):
    for dtype in (torch.long, torch.int32, torch.bool, torch.uint8):
        same(f"{name} {dtype}", lambda x: getattr(torch, name)(x.shape, dtype=dtype, device=x.device), a)
same("full", lambda x: torch.full((5,), True, device=x.device), a)
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    op = getattr(torch, name)
    same(name, op, a, b)
    same(name + " scalar", op, a, 2)
    same(name + " 0-dim", op, a[0, 0], b[0, 0])
    same(name + " strided", op, a[:, -1:], b[:, 1:4])
    same(name + " int32", op, ints, 1)
    same(name + " mixed", op, a, ints)
same("and", lambda x, y: x & y, a, b)
same("or", lambda x, y: x | y, t, u)
same("xor", lambda x, y: x ^ y, a, 3)
same("not", lambda x: ~x, t)
same("not long", lambda x: ~x, a)
same("long and bool", lambda x, y: x & y, a, t)
same("logical not", torch.logical_not, a)
for dtype in (torch.long, torch.int32, torch.uint8, torch.bool):
    for values in ([0] * 10, [1, 2] * 5, [0, 4] + [0] * 8):
        given = torch.tensor(values).to(dtype)
        for name in ("any", "all"):
            same(f"{name} {dtype} of {values}", getattr(torch.Tensor, name), given)
    same(f"any of rows {dtype}", lambda x: x.any(1), numbers(7, 5, least=0, most=3).to(dtype))
    same(f"all of columns {dtype}", lambda x: x.all(0), numbers(7, 5, least=0, most=3).to(dtype))
same("add", lambda x, y: x + y, a, b)
same("add scalar", lambda x: 3 + x * 2, a)
same("add 0-dim", lambda x: x[0] + x[1], small)
same("sub", lambda x, y: x - y, a, b)
same("rsub", lambda x: 1 - x, a)
same("add transposed", lambda x, y: x.t() + y.t(), a, b)
same("mul", lambda x, y: x * y, a, b)
same("where", torch.where, t, a, b)
same("masked product", lambda x, y: x * y + 7 * (1 - y), a, t.long())
for name in ("sum", "max", "min", "all", "any"):
    op = getattr(torch, name)
    if name in ("all", "any"):
        same(name, op, t)
        same(name + " dim", lambda x: op(x, dim=-1), t)
        same(name + " first", lambda x: op(x, dim=0), t)
        same(name + " of none", op, t[:1, :1])
    else:
        same(name, op, a)
        same(name + " one", op, small[:1])
        same(name + " many", op, numbers(4000))
    if name == "sum":
        for d in (0, 1):
            same(f"sum {d}", lambda x: op(x, dim=d), a)
        same("sum of truth", op, t)
        same("sum transposed", lambda x: op(x.t(), dim=0), a)
same("amax", lambda x: x.amax(dim=1), a)
for to in (torch.long, torch.int32, torch.bool, torch.uint8):
    for x in (a, t, ints):
        same(f"{x.dtype} to {to}", lambda x: x.to(to), x)
same("cat", lambda x, y: torch.cat([x, y, x]), a, b)
same("cat columns", lambda x, y: torch.cat([x, y[:, :1]], dim=-1), a, b)
same("cat strided", lambda x, y: torch.cat([x[:, ::2], y[:, 1:3]], dim=1), a, b)
same("cat bytes", lambda x: torch.cat([x, x[:20], x[3:10]]), bytes_)
same("cat of three dimensions", lambda x: torch.cat([x[None], x[None]], dim=1), a)
same("stack", lambda x, y: torch.stack([x, y], dim=-1), a, b)

same("logical and", torch.logical_and, t, u)
same("logical or", lambda x, y: torch.logical_or(x, y), a, b)
same("maximum", torch.maximum, a, b)
same("minimum", torch.minimum, a, b)
same("arange", lambda x: torch.arange(3, 40, 4, device=x.device), a)
same("cumsum", lambda x: x[0].cumsum(0), a)
same("cumsum of rows", lambda x: x.cumsum(1), a)
same("cumsum of truth", lambda x: x.cumsum(-1), t)


def packed(positions):
    """As transformers decides whether several sequences are in one."""
    return (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)


for x in (torch.arange(600)[None], torch.cat([torch.arange(40), torch.arange(70)])[None]):
    same("packed", packed, x)
    same("is packed", lambda x: ~(packed(x)[:, -1] == 0).all(), x)
same("from lengths", lambda x: torch.arange(9, device=x.device)[None] < x[:, None], small)
same("isin", lambda x, y: torch.isin(x[:, -1], y), a, torch.tensor([2, 3]))
same("isin one", lambda x, y: torch.isin(x[:, -1:], y).any(dim=-1), a, torch.tensor([2]))
same("ended", lambda x, y: (x & ~torch.full((5,), True, device=x.device)).max() == 0, torch.ones(5, dtype=torch.long),
     0)
for dtype in (torch.bool, torch.long, torch.int32, torch.uint8):
    for shape in ((9,), (7, 5), (2, 3, 4), (50, 300), (60000,)):
        x = numbers(*shape, least=0, most=3).to(dtype)
        same(f"nonzero {dtype} {shape}", torch.nonzero, x)
        same(f"length of what a mask selects {dtype} {shape}", lambda x: torch.tensor(x[x != 0].shape), x)
same("nonzero of zeros", torch.nonzero, torch.zeros(6, 3, dtype=torch.bool))
for dtype in (torch.float32, torch.float16, torch.bfloat16):  # no special token of a vocabulary, and never none of it
    picked = torch.zeros(3, 1001, dtype=dtype, device="cuda").argmax(-1)
    assert picked.tolist() == [500] * 3, picked
    assert torch.zeros(1, 9, dtype=dtype, device="cuda").argmax(-1, keepdim=True).tolist() == [[4]]
    assert torch.multinomial(torch.zeros(3, 1001, device="cuda"), num_samples=1).tolist() == [[500]] * 3
large = torch.ones(1 << 21, dtype=torch.long, device="cuda")  # too large to be done
assert large.shape == (1 << 21,)
print("failed", failed)
raise SystemExit(bool(failed))
