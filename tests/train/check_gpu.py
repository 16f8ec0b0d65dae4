#!/usr/bin/env python3
"""The GPU's arithmetic against the CPU's, on stand-ins for the driver, NVRTC and cuBLAS that run the same kernels on
the host: one schedule, the same losses but for rounding; what is said where there is no such GPU."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN, MPIRUN = sys.argv[1], sys.argv[2:]
HERE = Path(__file__).parent
SCHEMA = HERE.parents[1] / "docs" / "schemas" / "train.compare.json"
try:
    import jsonschema
except ImportError:
    jsonschema = None


def train(*args, status=0, **env):
    done = subprocess.run([TRAIN, *map(str, args), "--json"], env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=150)
    assert done.returncode == status, f"{args}: {done.returncode}, wanted {status}\n{done.stdout[-600:]}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


def losses(*args):
    return [float.fromhex(loss) for loss in train(*args)["losses"]]


def distance(ours, theirs):
    return max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))


def check_losses(text):
    base = ["--text", text, "--steps", 2, "--seed", 3, "--max-len", 48]
    for more in ([], ["--tied", "yes", "--dropout", 0.2, "--pack"], ["--heads", 4, "--kv-heads", 4, "--head-dim", 8],
                 ["--sharding", "zero3", "--offload", "all"], ["--no-checkpoint", "--sharding", "fsdp"]):
        cpu, gpu = losses(*base, *more, "--backend", "cpu"), losses(*base, *more, "--backend", "gpu")
        assert distance(gpu, cpu) < 1e-5, (more, cpu, gpu)
        assert losses(*base, *more, "--backend", "gpu", "--alloc", "arena") == gpu, more
    assert losses(*base, "--backend", "gpu", "--no-checkpoint") == losses(*base, "--backend", "gpu")
    cpu = losses(*base, "--backend", "cpu")
    for more in ([], ["--sharding", "zero2", "--offload", "optimizer"]):
        bf16 = losses(*base, *more, "--backend", "gpu", "--dtype", "bf16")
        assert 0 < distance(bf16, cpu) < 0.03, (more, cpu, bf16)


def check_compare(text):
    base = ["--text", text, "--steps", 2, "--max-len", 48, "--compare"]
    for dtype, least, most in ("fp32", 0, 1e-5), ("bf16", 1e-6, 0.03):
        said = train(*base, "--dtype", dtype)
        assert said["schema"] == "segalloc.train.compare/1" and said["equal"] is True and said["dtype"] == dtype
        if jsonschema:
            jsonschema.validate(said, {**json.loads(SCHEMA.read_text()), "additionalProperties": False})
        assert len(said["losses_cpu"]) == len(said["losses_gpu"]) == 2
        assert least <= said["largest_relative_difference"] <= most <= 10 * said["tolerance"], said
    shown = subprocess.run([TRAIN, *map(str, base)], capture_output=True, text=True, timeout=100)
    assert shown.returncode == 0 and "equal" in shown.stdout.splitlines()[-1], shown


def check_ranks(text):
    """NCCL's collectives, and without its library through host memory."""
    base = ["--text", text, "--steps", 2, "--seed", 3, "--max-len", 48, "--backend", "gpu", "--clip", 0]
    alone = losses(*base, "--accum", 2)
    command = [*MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2", TRAIN, *map(str, base), "--accum", "1",
               "--json", "--sharding"]
    for kind, without in ("zero3", False), ("zero2", False), ("fsdp", True):
        env = dict(os.environ)
        if without:
            env["LD_LIBRARY_PATH"] = without_nccl(env["LD_LIBRARY_PATH"].split(":"), Path(text).parent / "libraries")
        done = subprocess.run([*command, kind], env=env, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, (kind, done.stderr)
        assert ("NCCL is in use" in done.stderr) is not without, done.stderr
        assert ("through host memory" in done.stderr) is without, done.stderr
        found = [float.fromhex(loss) for loss in json.loads(done.stdout.splitlines()[-1])["losses"]]
        assert distance(found, alone) < 1e-6, (kind, found, alone)


def without_nccl(folders, into):
    """A folder that has of these folders' libraries all but NCCL."""
    into.mkdir()
    for folder in filter(None, folders):
        for library in Path(folder).glob("lib*.so.*"):
            if library.is_file() and "nccl" not in library.name and not (into / library.name).exists():
                (into / library.name).symlink_to(library.resolve())
    return str(into)


def check_refusals(text):
    base = ["--text", text, "--steps", 1]
    for env, words in (({"STUB_GPU_IDLE": "1"}, "--backend cpu"), ({"STUB_GPU_REFUSES": "1"}, "NVRTC")):
        said = train(*base, "--backend", "gpu", status=1, **env)
        assert said["outcome"] == "failed" and words in said["error"], said
    said = train(*base, "--backend", "cpu", status=1, STUB_POISON="unreachable")
    assert "--backend gpu" in said["error"], said
    assert train(*base, "--backend", "auto")["outcome"] == "completed"
    assert train(*base, "--dtype", "bf16", status=1)["error"].count("fp32") > 0


with tempfile.TemporaryDirectory() as name:
    text = Path(name) / "text"
    text.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
    check_losses(text)
    check_compare(text)
    if MPIRUN:
        check_ranks(text)
    check_refusals(text)
