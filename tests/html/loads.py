"""Traces for pages, by programs on the simulated GPU. `python3 loads.py train STEPS [PAUSE]` is one of these programs:
PAUSE is of each layer, in seconds."""
import ctypes
import os
import pathlib
import random
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def train(steps, pause=0):
    """Allocates as a small training does; the names are what a page shows."""
    import segalloc
    cuda, context, rank = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), int(os.environ.get("RANK", 0))
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    sizes = random.Random(rank)

    def take(mib):
        pointer = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(mib * 1048576))) != 0:
            sys.exit(1)  # as by an exception that nobody catches
        return pointer

    def give(pointers):
        time.sleep(pause)
        for pointer in pointers:
            if pointer:
                cuda.cuMemFree_v2(pointer)

    def load_weights():
        return [take(40) for _ in range(20)]

    def optimizer_state():
        return [take(20) for _ in range(20)]

    def attention():
        return [take(sizes.choice([0.1, 0.5, 3, 9])) for _ in range(40)]

    def mlp():
        return [take(sizes.choice([0.25, 7, 16])) for _ in range(20)]

    def logits(length):
        return [take(length)]

    kept = load_weights() + optimizer_state()
    for step in range(steps):
        with segalloc.phase(f"step {step}"):
            with segalloc.phase("forward"):
                layers = []
                for _ in range(8):
                    layers.append(attention() + mlp())
                    time.sleep(pause)
                layers.append(logits(900 + 40 * rank if step == steps - 2 else 250))
            with segalloc.phase("backward"):
                for layer in reversed(layers):
                    give(layer)
                    kept.append(take(0.3) if step % 3 == 0 and step < 60 else None)


def record(build, path, card, steps, rank=None):
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "tools" / "python"))
    if rank is not None:
        environment["RANK"] = str(rank)
    subprocess.run([pathlib.Path(build) / "tools/segalloc/segalloc", "run", "--sim", card, "--sites", "-f", "-o", path, "--conf",
                    "oom_report:never", "--", sys.executable, __file__, "train", str(steps)], check=False, env=environment)
    assert rank is not None or pathlib.Path(path).exists()


def page(build, out, *paths):
    subprocess.run([pathlib.Path(build) / "tools/segalloc/segalloc", "report", "-f", "--html", out, *paths], check=True)


if __name__ == "__main__" and sys.argv[1:2] == ["train"]:
    train(int(sys.argv[2]), *map(float, sys.argv[3:]))
