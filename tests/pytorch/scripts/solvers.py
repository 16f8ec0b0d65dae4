"""Linear algebra in memory that was used before: what says whether it went well is set, not left as it lay."""
import torch

used = [torch.full((n,), 0x3E0B7C51, dtype=torch.int32, device="cuda") for n in (1, 4, 64, 1024, 9000)
        for _ in range(40)]
torch.cuda.synchronize()
del used
a = torch.zeros(32, 32, device="cuda")
for name in ("cholesky", "inv", "svd", "qr", "eigh", "eigvalsh", "lu_factor", "ldl_factor", "det", "pinv"):
    out = getattr(torch.linalg, name)(a)
    torch.cuda.synchronize()
    print(name, tuple((out if isinstance(out, torch.Tensor) else out[0]).shape))
print("solve", tuple(torch.linalg.solve(a, a).shape), tuple(torch.linalg.lstsq(a, a)[0].shape),
      tuple(torch.cholesky_solve(a, a).shape))
