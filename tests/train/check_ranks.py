#!/usr/bin/env python3
"""Four ranks under mpirun against one process that makes all their micro-steps: losses, parameters and moments; a trace
a rank; what ends one rank ends all; a training saved by four goes on with two."""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN, SEGALLOC, LIBRARY = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
HERE = Path(__file__).parent
SHORT = not LIBRARY  # a build with a sanitizer looks at memory: what is learned, and each sharding, is the other build's
# Sums over ranks are made in the order of the ranks, as a process alone adds its micro-steps: without clipping nothing
# may differ. The norm that clipping asks for is made of the ranks' norms, which changes its last bit. That shows most
# where the gradient is nothing but rounding, for AdamW makes steps of the same size of it: of the keys' biases, which
# softmax does not see.
TOLERANCE = 1e-3
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "rmaps_base_oversubscribe", "1"]
# Open MPI takes two of its own locks in either order, which ThreadSanitizer would end a rank for.
ENVIRONMENT = {**os.environ, "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + ":detect_deadlocks=0"}


def train(*args, ranks=1, status=0, sim="2GiB", **env):
    """Returns the last object; with `ranks`, of rank 0."""
    command = (MPIRUN + ["-n", str(ranks)] if ranks > 1 else []) + [TRAIN, *map(str, args), "--json"]
    done = subprocess.run(command, env={**ENVIRONMENT, "SEGALLOC_SIM": sim, **env}, capture_output=True, text=True,
                          timeout=150)
    assert (done.returncode == 0) == (status == 0), f"{args}: {done.returncode}\n{done.stderr}"
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return (objects[-1] if objects else None), done.stderr


def tensors(folder):
    data = (folder / "training_state.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    body = data[8 + length:]
    return {name: struct.unpack(f"<{(b - a) // 4}f", body[a:b])
            for name, (a, b) in ((name, t["data_offsets"]) for name, t in header.items())}


def distance(a, b):
    """The largest difference of any tensor's elements, relative to that tensor's largest element."""
    assert a.keys() == b.keys()
    return max(max(abs(x - y) for x, y in zip(a[n], b[n])) / (max(map(abs, a[n])) or 1) for n in a)


def check_equal(folder, text):
    """20 steps; the widths make parts that do not divide by four."""
    for clip, tolerance in ((0, 0), (1, TOLERANCE))[:1 if SHORT else 2]:
        base = ["--text", text, "--steps", 20, "--seed", 3, "--hidden", 52, "--ffn", 90, "--rank", 5, "--dropout", 0.1,
                "--clip", clip]
        alone, _ = train(*base, "--accum", 4, "--save", folder / "alone")
        wanted, worst = tensors(folder / "alone"), 0
        kinds = (("zero3", []), ("zero2", []), ("fsdp", ["--offload", "optimizer", "--no-checkpoint"]),
                 ("zero3", ["--offload", "all"]), ("fsdp", []), ("zero2", ["--offload", "optimizer"]))
        for kind, more in kinds[2:4] if SHORT else kinds if not clip else kinds[:1]:
            ours, _ = train(*base, "--accum", 1, "--sharding", kind, *more, "--save", folder / "ranks", ranks=4)
            assert ours["ranks"] == 4 and len(ours["peak_bytes_by_rank"]) == 4 and ours["rank"] == 0
            assert ours["tokens"] == alone["tokens"] and ours["outcome"] == "completed"
            pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(alone["losses"], ours["losses"], strict=True)]
            assert len(pairs) == 20 and all(abs(a - b) <= tolerance * a for a, b in pairs), (clip, kind, more, pairs)
            found = distance(wanted, tensors(folder / "ranks"))
            assert found <= tolerance, (clip, kind, more, found)
            worst = max(worst, found)
            assert ours["budget"]["optimizer"] < alone["budget"]["optimizer"] / 2, "each has a part of the moments"
        print(f"--clip {clip}: largest difference of a parameter or moment after 20 steps, relative to the largest "
              f"element: {worst:.3g}")


def check_resuming(folder, text):
    base = ["--text", text, "--seed", 5, "--sharding", "zero3"]
    whole, _ = train(*base, "--steps", 6, "--accum", 1, ranks=4)
    train(*base, "--steps", 3, "--accum", 1, "--save", folder / "half", ranks=4)
    for ranks, more in ((4, []), (2, ["--offload", "all"]), (1, ["--sharding", "none"]))[1 if SHORT else 0:]:
        rest, _ = train(*base, *more, "--steps", 6, "--accum", 4 // ranks, "--resume", folder / "half", ranks=ranks)
        for a, b in zip(whole["losses"][3:], rest["losses"], strict=True):
            assert abs(float.fromhex(a) - float.fromhex(b)) < 1e-4, (ranks, whole["losses"], rest["losses"])


def check_ends(text):
    """No rank waits for ever for one that has failed, and what cannot work says so once."""
    last, _ = train("--text", text, "--steps", 3, "--sharding", "fsdp", ranks=4, status=1, sim="2MiB")
    assert last["outcome"] == "out_of_memory" and "out of device memory" in last["error"] and 0 <= last["rank"] < 4
    _, errors = train("--text", text, "--steps", 1, ranks=2, status=1)
    assert errors.count("segalloc-train:") == 1 and "--sharding" in errors, errors
    _, errors = train("--text", text, "--steps", 1, "--sharding", "zero3", "--ranks", 3, status=1)
    assert "mpirun -n 3" in errors, errors
    dry, _ = train("--preset", "lmcleaner", "--layers", 2, "--dry", "--steps", 1, ranks=4, sim="64GiB")
    assert dry["ranks"] == 4 and dry["outcome"] == "completed"


def check_arena(text):
    """Each rank's arena is as large as its own batches ask for."""
    base = ["--text", text, "--steps", 4, "--seed", 3, "--accum", 1, "--sharding", "zero3"]
    eager, arena = (train(*base, "--alloc", alloc, ranks=4)[0] for alloc in ("eager", "arena"))
    assert arena["losses"] == eager["losses"] and arena["peak_bytes_by_rank"] == eager["peak_bytes_by_rank"]


def check_traces(folder, text):
    env = {"LD_PRELOAD": LIBRARY, "SEGALLOC_CONF": f"trace:{folder}/t.%r.trace"}
    command = [*MPIRUN, "-n", "4", *(x for name in env for x in ("-x", f"{name}={env[name]}")), TRAIN, "--text",
               str(text), "--steps", "3", "--sharding", "zero3", "--json"]
    done = subprocess.run(command, env={**ENVIRONMENT, "SEGALLOC_SIM": "2GiB"}, capture_output=True, text=True,
                          timeout=150)
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout.splitlines()[-1])["peak_bytes_by_rank"]
    traces = [folder / f"t.{rank}.trace" for rank in (2, 0, 3, 1)]
    table = subprocess.run([SEGALLOC, "report", *traces, "--json"], capture_output=True, text=True, check=True)
    reports = json.loads(table.stdout)["reports"]
    assert [r["rank"] for r in reports] == [0, 1, 2, 3]
    assert [r["peak_requested_bytes"] for r in reports] == peaks
    shown = subprocess.run([SEGALLOC, "report", *traces], capture_output=True, text=True, check=True)
    shown = shown.stdout.splitlines()
    assert shown[0].split()[0] == "rank" and [line.split()[0] for line in shown[1:5]] == ["0", "1", "2", "3"]
    assert shown[5].split()[0] == "all", shown


with tempfile.TemporaryDirectory() as name:
    folder, text = Path(name), Path(name) / "text"
    text.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
    check_equal(folder, text)
    check_resuming(folder, text)
    check_ends(text)
    check_arena(text)
    if LIBRARY:
        check_traces(folder, text)
