#!/usr/bin/env python3
"""The program as its users run it: losses, bit equality, running out, exit status, and the order of its allocations."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = sys.argv[1]
HERE = Path(sys.argv[2])

# All allocations and frees of the recorded training loop (Qwen2.5-7B with LoRA r128 under PyTorch 2.11, transformers
# 5.23, peft 0.21), from loading the model to the program's last free, as lines "allocate,SIZE" and "free,SIZE" with
# newlines between them. qwen25-7b-lora.lengths are the lengths of its 48 micro-steps.
RECORDED_EVENTS = 646270
RECORDED_SHA256 = "fc4ddd7db98a2ad53168ed02908289c6f7cf736b0ec98be5f257f10b39da6859"


def run(*args, status=0, **env):
    done = subprocess.run([TRAIN, *map(str, args)], env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == status, f"{args}: status {done.returncode}, wanted {status}\n{done.stderr}"
    return done


def objects(*args, **more):
    lines = [json.loads(line) for line in run(*args, "--json", **more).stdout.splitlines()]
    return lines[:-1], lines[-1]


def check_learning(text):
    steps, last = objects("--preset", "tiny", "--text", text, "--steps", 50, "--seed", 1)
    losses = [float.fromhex(loss) for loss in last["losses"]]
    assert len(steps) == len(losses) == 50 and last["outcome"] == "completed" and last["schema"]
    for number, step in enumerate(steps, 1):
        assert set(step) >= {"step", "loss", "tokens", "seconds", "peak_bytes"} and step["step"] == number
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), losses
    return last


def check_bits(text):
    base = ["--text", text, "--steps", 3, "--seed", 3]
    eager = objects(*base)[1]["losses"]
    for variant in (["--alloc", "arena"], ["--no-checkpoint"], ["--no-checkpoint", "--alloc", "arena"], []):
        assert objects(*base, *variant)[1]["losses"] == eager, variant
    for sharding in ("zero2", "zero3", "fsdp"):
        for more in ([], ["--no-checkpoint"], ["--alloc", "arena"]):
            assert objects(*base, "--sharding", sharding, *more)[1]["losses"] == eager, (sharding, more)
    dropped = objects(*base, "--dropout", 0.3)[1]["losses"]
    assert dropped != eager and objects(*base, "--dropout", 0.3, "--no-checkpoint")[1]["losses"] == dropped
    assert objects(*base, "--dropout", 0.3, "--alloc", "arena")[1]["losses"] == dropped
    assert objects(*base[:-1], 4)[1]["losses"] != eager
    for variant in (["--tied", "yes"], ["--rank", 0], ["--train", "lora"], ["--heads", 2, "--batch", 1]):
        assert (objects(*base, *variant)[1]["losses"] == objects(*base, *variant, "--alloc", "arena")[1]["losses"]
                != eager), variant


def check_running_out(text):
    steps, last = objects("--text", text, "--steps", 3, status=1, STUB_LIMIT="4000000")
    assert last["outcome"] == "out_of_memory" and len(last["losses"]) == len(steps) == last["steps"] < 3
    plain = run("--text", text, "--steps", 3, status=1, STUB_LIMIT="4000000")
    assert len(plain.stderr.splitlines()) == 1 and "out of device memory" in plain.stderr
    steps, last = objects("--dry", "--steps", 2, "--alloc", "arena", status=1, STUB_LIMIT="4000000")
    assert last["outcome"] == "out_of_memory" and last["losses"] == []


def check_usage(text):
    for args in (["--nosuch"], ["--preset", "nosuch", "--dry"], ["--preset", "tiny"], ["--steps"]):
        wrong = run(*args, status=2)
        assert len(wrong.stderr.splitlines()) == 1 and not wrong.stdout, args
    assert "/nonexistent" in run("--text", "/nonexistent", status=1).stderr
    assert "--preset" in run("--help").stdout and "qwen25-7b-lora" in run("--list").stdout
    assert {p["name"] for p in json.loads(run("--list", "--json").stdout)["presets"]} >= {"tiny", "qwen25-7b-lora"}
    none = run("--text", text, status=1, LD_LIBRARY_PATH="/nonexistent")
    assert "segalloc run --sim" in none.stderr and len(none.stderr.splitlines()) == 1, none.stderr


def check_real_gpu(text):
    """The CPU cannot compute in the memory of a GPU; the schedule alone runs there all the same."""
    refused = run("--text", text, status=1, STUB_POISON="unreachable")
    assert len(refused.stderr.splitlines()) == 1 and "--dry" in refused.stderr, refused.stderr
    run("--dry", "--steps", 1, STUB_POISON="unreachable")


def check_order(folder):
    trace = folder / "trace"
    last = objects("--preset", "qwen25-7b-lora", "--dry", "--steps", 3, "--max-len", 2048, "--lengths",
                   f"file:{HERE / 'qwen25-7b-lora.lengths'}", STUB_TRACE=str(trace), STUB_POISON="0")[1]
    events = trace.read_text().splitlines()
    digest = hashlib.sha256("\n".join(events[:RECORDED_EVENTS]).encode()).hexdigest()
    assert digest == RECORDED_SHA256, "allocations no longer come in the recorded order"
    assert last["peak_bytes"] == 22016871944 and last["parameters"] == 7615616512 + 322961408
    assert sum(1 if e[0] == "a" else -1 for e in events) == 0, "memory left at the end"


with tempfile.TemporaryDirectory() as name:
    text = Path(name) / "text"
    text.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
    check_learning(text)
    check_bits(text)
    check_running_out(text)
    check_usage(text)
    check_real_gpu(text)
    check_order(Path(name))
