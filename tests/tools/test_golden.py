#!/usr/bin/env python3
"""Every figure of `segalloc replay --json` stays what it was, to the byte, on recorded and generated loads.

    test_golden.py SEGALLOC LOADS DATA [--write]

LOADS: tests/bench/loads.py, which writes the generated loads; DATA: the folder of recorded traces and golden.json.
A change that is meant to alter decisions writes the figures anew with --write, and the diff of golden.json shows what
it altered. A change that is not meant to may not alter any."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

GENERATED = ["convnet", "cupy_large", "cupy_tiny", "diffusion", "graph_batches", "jax_arena", "lora_lengths",
             "moe_training", "rapids", "renderer", "vision_transformer", "xla_train"]
SEED = 11
# Name, and the options of the replay. A limit is a multiple of the peak of what the load asks for.
CONFIGURATIONS = {
    "roomy": [],
    "tight": ["--limit", 1.02],
    "tightest": ["--conf", "reserve_slack:1.0", "--limit", 1.05],
    "too small": ["--limit", 0.9],
    "fixed segments": ["--conf", "expandable_segments:False"],
    "run ahead": ["--run-ahead", "50", "--limit", 1.1],
    "strict": ["--run-ahead", "20", "--conf", "free_sync:strict", "--limit", 1.1],
    "pytorch": ["--policy", "pytorch", "--limit", 1.2],
    "pytorch, expandable": ["--policy", "pytorch", "--conf", "expandable_segments:True", "--limit", 1.1],
}
OF_THE_CLOCK = ("seconds", "events_per_second", "trace")
GRANULE = 2 << 20


def replay(segalloc, trace, options):
    done = subprocess.run([segalloc, "replay", str(trace), "--json"] + options, capture_output=True, text=True,
                          timeout=600, env={k: v for k, v in os.environ.items() if not k.startswith("SEGALLOC_")})
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{trace.name} {' '.join(options)}: status {done.returncode}: {done.stderr.strip()}")
    figures = json.loads(done.stdout)
    for key in OF_THE_CLOCK:
        figures.pop(key)
    return figures


def figures_of(segalloc, trace):
    peak = replay(segalloc, trace, [])["peak_requested_bytes"]
    figures = {}
    for name, options in CONFIGURATIONS.items():
        given = [str(int(peak * o) // GRANULE * GRANULE) if isinstance(o, float) else o for o in options]
        figures[name] = replay(segalloc, trace, given)
    return figures


def differences(wanted, given, path=""):
    if isinstance(wanted, dict) and isinstance(given, dict):
        for key in sorted(set(wanted) | set(given)):
            yield from differences(wanted.get(key, "missing"), given.get(key, "missing"), f"{path}/{key}")
    elif wanted != given:
        yield f"{path}: {json.dumps(wanted)} before, {json.dumps(given)} now"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("segalloc")
    parser.add_argument("loads")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="store the figures instead of comparing them")
    arguments = parser.parse_args()
    golden = arguments.data / "golden.json"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, arguments.loads, folder, "--seed", str(SEED)] + GENERATED, check=True,
                       stdout=subprocess.DEVNULL)
        traces = [pathlib.Path(folder) / f"{name}.csv" for name in GENERATED]
        traces += sorted(arguments.data.glob("*.csv.zst"))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            figures = dict(zip((t.name for t in traces),
                               pool.map(lambda t: figures_of(arguments.segalloc, t), traces)))
    if arguments.write:
        golden.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
        return 0
    found = list(differences(json.loads(golden.read_text()), figures))
    for line in found[:40]:
        print(line)
    print(f"{len(found)} figures differ in {len(figures)} loads x {len(CONFIGURATIONS)} configurations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
