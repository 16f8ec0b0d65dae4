#!/usr/bin/env python3
"""Training on the simulated GPU: the same losses to the bit whoever gives out the memory, and Qwen2.5-7B on 24 GiB."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = sys.argv[1]
# A sanitizer resolves its own functions by dlsym before it can check anything, so a library that hooks dlsym and is
# itself instrumented cannot be preloaded: such builds are tested without it.
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None
HERE = Path(__file__).parent


def train(*args, sim="24GiB", conf=None, status=0):
    """conf None: without the library; otherwise with it, set so."""
    env = {**os.environ, "SEGALLOC_SIM": sim}
    if conf is not None:
        env |= {"LD_PRELOAD": LIBRARY, "SEGALLOC_CONF": conf}
    done = subprocess.run([TRAIN, *map(str, args), "--json"], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{args} {conf}: status {done.returncode}, wanted {status}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def check_bits(text):
    base = ("--preset", "tiny", "--text", text, "--steps", 8, "--seed", 1)
    native = train(*base)["losses"]
    assert len(native) == 8 and train(*base, "--alloc", "arena")["losses"] == native
    offloaded = ["--sharding", "zero3", "--offload", "all"]
    for mode in (["--no-checkpoint"], ["--no-checkpoint", "--alloc", "arena"], ["--threads", 2], offloaded,
                 [*offloaded, "--alloc", "arena"]):
        assert train(*base, *mode)["losses"] == native, mode
    assert train(*base, *offloaded, sim="24GiB,hazard")["losses"] == native
    half = Path(text).parent / "half"
    first = train(*base[:4], "--steps", 4, "--seed", 1, "--save", half)["losses"]
    assert first + train(*base, "--resume", half)["losses"] == native
    if LIBRARY:
        assert first + train(*base, "--resume", half, conf="")["losses"] == native
    confs = ("", "free_sync:strict", "free_sync:event", "expandable_segments:False", "reserve_slack:1.0")
    for conf in confs if LIBRARY else ():
        assert train(*base, conf=conf)["losses"] == native, conf
        assert train(*base, *offloaded, conf=conf)["losses"] == native, conf


def check_large():
    base = ("--preset", "qwen25-7b-lora", "--dry", "--steps", 1)
    confs = (None, "", "reserve_slack:1.0") if LIBRARY else (None,)
    peaks = {train(*base, conf=conf)["peak_bytes"] for conf in confs}
    assert len(peaks) == 1 and 18 << 30 < peaks.pop() < 24 << 30
    for conf in confs:
        assert train(*base, sim="16GiB", conf=conf, status=1)["outcome"] == "out_of_memory"


def check_overflow(text):
    """Cards on which the training lacks memory: it goes on with some of the host's or of another one, and its
    losses are those without."""
    large = ("--preset", "qwen25-7b-lora", "--dry", "--steps", 1)
    peak = train(*large, conf="")["peak_bytes"]
    card = f"{int(0.95 * peak) >> 20}MiB"
    assert train(*large, sim=card, conf="", status=1)["outcome"] == "out_of_memory"
    done = train(*large, sim=card, conf="overflow:host=8GiB")
    assert (done["outcome"], done["peak_bytes"]) == ("completed", peak)
    done = train(*large, sim=card + ",count=2", conf="overflow:peer")
    assert (done["outcome"], done["peak_bytes"]) == ("completed", peak)
    small = ("--preset", "tiny", "--vocabulary", 4096, "--layers", 1, "--max-len", 128, "--batch", 2, "--accum", 1,
             "--text", text, "--steps", 2, "--seed", 1)
    native = train(*small, sim="24GiB,hazard")
    tight = f"{int(0.8 * native['peak_bytes']) >> 20}MiB,hazard"
    assert train(*small, sim=tight, conf="", status=1)["outcome"] == "out_of_memory"
    assert train(*small, sim=tight, conf="overflow:host=1GiB")["losses"] == native["losses"]
    assert train(*small, sim=tight + ",count=2", conf="overflow:peer")["losses"] == native["losses"]


with tempfile.TemporaryDirectory() as name:
    text = Path(name) / "text"
    text.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
    check_bits(text)
    check_large()
    if LIBRARY:
        check_overflow(text)
