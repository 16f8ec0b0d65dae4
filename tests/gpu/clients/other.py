"""A short piece of work of another framework, and how many of its allocations the library served.
usage: other.py cupy|jax|triton"""
import os
import sys

from memory import MODE, served, tell


def cupy_work():
    import cupy
    pool = cupy.get_default_memory_pool()
    total = 0.0
    for i in range(50):
        a = cupy.arange(1 << 18, dtype=cupy.float32) + i
        total += float((a * 2).sum())
    pool.free_all_blocks()
    return total


def jax_work():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    assert jax.devices()[0].platform == "gpu", jax.devices()
    f = jax.jit(lambda x: jnp.tanh(x @ x.T).sum())
    total = 0.0
    for i in range(20):
        total += float(f(jnp.full((256, 128 + 8 * i), 0.01)))
    return round(total, 3)


def triton_work():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def twice(source, target, n, size: tl.constexpr):
        at = tl.program_id(0) * size + tl.arange(0, size)
        tl.store(target + at, tl.load(source + at, mask=at < n) * 2, mask=at < n)

    total = 0.0
    for i in range(20):
        n = 1000 + 777 * i
        source = torch.arange(n, device="cuda", dtype=torch.float32)
        target = torch.empty_like(source)
        twice[(triton.cdiv(n, 256),)](source, target, n, size=256)
        total += float(target.sum())
    return total


name = sys.argv[1]
value = {"cupy": cupy_work, "jax": jax_work, "triton": triton_work}[name]()
statistics = served()
tell(value=value, allocations=statistics.get("allocs", 0), passed_on=statistics.get("passed_on", 0))
