#!/usr/bin/env python3
"""Training on the simulated GPU: the same losses to the bit whoever gives out the memory, and Qwen2.5-7B on 24 GiB."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN, LIBRARY = sys.argv[1:]
HERE = Path(__file__).parent


def train(*args, sim="24GiB", conf=None, status=0):
    """conf None: without the library; otherwise with it, set so."""
    env = {**os.environ, "SEGALLOC_SIM": sim}
    if conf is not None:
        env |= {"LD_PRELOAD": LIBRARY, "SEGALLOC_CONF": conf}
    if "libasan" in subprocess.run(["ldd", TRAIN], capture_output=True, text=True).stdout:
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    done = subprocess.run([TRAIN, *map(str, args), "--json"], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{args} {conf}: status {done.returncode}, wanted {status}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def check_bits(text):
    base = ("--preset", "tiny", "--text", text, "--steps", 8, "--seed", 1)
    native = train(*base)["losses"]
    assert len(native) == 8 and train(*base, "--alloc", "arena")["losses"] == native
    for conf in ("", "free_sync:strict", "free_sync:event", "expandable_segments:False", "reserve_slack:1.0"):
        assert train(*base, conf=conf)["losses"] == native, conf


def check_large():
    base = ("--preset", "qwen25-7b-lora", "--dry", "--steps", 1)
    peaks = {train(*base, conf=conf)["peak_bytes"] for conf in (None, "", "reserve_slack:1.0")}
    assert len(peaks) == 1 and 18 << 30 < peaks.pop() < 24 << 30
    for conf in (None, ""):
        assert train(*base, sim="16GiB", conf=conf, status=1)["outcome"] == "out_of_memory"


with tempfile.TemporaryDirectory() as name:
    text = Path(name) / "text"
    text.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
    check_bits(text)
    check_large()
