#!/usr/bin/env python3
"""Training on a simulated GPU whose memory management fails, call by call and error by error: the losses are the same
to the bit, and the books add up."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = sys.argv[1]
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None  # not with a sanitizer
HERE = Path(__file__).parent
CALLS = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")
# that drivers have been seen to give (docs/memory.md, "Failures")
ERRORS = (600, 999, 1, 101, 800)
LEFT_MOST = 8  # allocations that the driver serves before there are fixed segments


def train(text, fault, folder):
    """The losses, how many allocations there were, and the library's statistics."""
    stats = Path(folder) / "stats"
    env = {**os.environ, "SEGALLOC_SIM": "512MiB" + fault, "LD_PRELOAD": LIBRARY,
           "SEGALLOC_CONF": f"stats:{stats},alias:on,reserve_slack:1.0,garbage_collection_threshold:0.02"}
    done = subprocess.run([TRAIN, "--preset", "tiny", "--text", text, "--seed", "1", "--no-checkpoint", "--batch", "6",
                           "--max-len", "80", "--steps", "2", "--json"], env=env, capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, (fault, done.stderr)
    said = [line for line in done.stderr.splitlines() if line.startswith("segalloc: ")]
    told = json.loads(done.stdout.splitlines()[-1])
    file = json.loads(stats.read_text())
    return told["losses"], told["allocations"], file["devices"][0]["statistics"], said


def check(text, folder):
    losses, allocations, calm, said = train(text, "", folder)
    assert calm["calls_unmap"] > 4 and calm["calls_release"] > 4 and calm["calls_create"] > 8 and not said, calm
    asked = calm["allocs"]
    for call in CALLS:
        for error in ERRORS:
            for at in ("2", "7", "5+"):
                fault = f",fail={call}:{at}:{error}"
                again, _, now, said = train(text, fault, folder)
                assert again == losses, (fault, again, losses)
                assert now["allocs"] + now["passed_on"] == asked and now["passed_on"] <= LEFT_MOST, (fault, now)
                assert now["allocations"] == now["requested_bytes"] == now["pending_bytes"] == 0, (fault, now)
                assert now["double_frees"] == now["ooms"] == 0 and now["allocs"] == now["frees"], (fault, now)
                assert now["vmm_errors"] > 0 or call == "cuMemAddressReserve", (fault, now)
                fixed = now["passed_on"] == LEFT_MOST and now["calls_alloc"] > 0
                settled = [line for line in said if "in fixed segments" in line]
                others = [line for line in said if line not in settled]
                assert len(settled) == fixed, (fault, said)
                # refused access may mean that a machine's mappings are out
                assert not others or call == "cuMemSetAccess" and "maps no more pages" in others[0], (fault, said)
                assert len(others) < 2, (fault, said)
    assert allocations > 1000


if LIBRARY:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "text"
        source.write_text("".join(p.read_text() for p in sorted(HERE.glob("*.[ch]"))))
        check(source, name)
