#!/usr/bin/env python3
"""Every figure of `segalloc replay --json` stays what it was, on recorded and generated loads.

    test_golden.py SEGALLOC LOADS DATA [--write]

LOADS: tests/bench/loads.py, which writes the generated loads; DATA: the folder of recorded traces and golden.txt.
A change that is meant to alter decisions writes the figures anew with --write, and the diff of golden.txt shows what
it altered. A change that is not meant to may not alter any.

golden.txt has a table for each load: a row for a figure, a column for a configuration. "=" is the figure to the left of
it, "-" is none. A figure that is 0 or none under all configurations has no row, and neither has one of a device that is
the whole replay's too."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
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
ASKED = ("conf", "free_sync", "policy", "run_ahead", "schema", "sees")  # the question, and no answer to it
NOTHING = (0, None, False, "0", "-")
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


def flat(figures, path=""):
    """(name, figure) of each figure, with a point between the parts of the name."""
    for key, value in figures.items() if isinstance(figures, dict) else enumerate(figures):
        if isinstance(value, (dict, list)):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def table_of(configurations):
    """{figure: its text under each configuration} of a load."""
    rows = {}
    for at, figures in enumerate(configurations.values()):
        for name, value in flat({key: value for key, value in figures.items() if key not in ASKED}):
            rows.setdefault(name, ["-"] * len(configurations))[at] = "-" if value is None else str(value if value is not False else 0)
    return {name: row for name, row in rows.items() if not all(cell in NOTHING for cell in row)
            and not (name.startswith("devices.0.") and rows.get(name[len("devices.0."):]) == row)}


def text_of(tables):
    lines = []
    for load, rows in tables.items():
        lines += [f"{load:<28}" + "".join(f" {name:>13}" for name in CONFIGURATIONS)]
        for name, row in sorted(rows.items()):
            cells = [cell if at == 0 or cell != row[at - 1] else "=" for at, cell in enumerate(row)]
            lines += [f"  {name:<26}" + "".join(f" {cell:>13}" for cell in cells)]
    return "\n".join(lines) + "\n"


def read_tables(text):
    tables = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            rows = tables.setdefault(line.split()[0], {})
            continue
        name, *cells = line.split()
        for at, cell in enumerate(cells):
            cells[at] = cells[at - 1] if cell == "=" else cell
        rows[name] = cells
    return tables


def differences(wanted, given):
    none = ["0"] * len(CONFIGURATIONS)
    for load in sorted(set(wanted) | set(given)):
        old, new = wanted.get(load, {}), given.get(load, {})
        for name in sorted(set(old) | set(new)):
            for at, configuration in enumerate(CONFIGURATIONS):
                before, now = old.get(name, none)[at], new.get(name, none)[at]
                if before != now and not (before in NOTHING and now in NOTHING):
                    yield f"{load}, {configuration}: {name} {before} before, {now} now"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("segalloc")
    parser.add_argument("loads")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="store the figures instead of comparing them")
    arguments = parser.parse_args()
    golden = arguments.data / "golden.txt"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, arguments.loads, folder, "--seed", str(SEED)] + GENERATED, check=True,
                       stdout=subprocess.DEVNULL)
        traces = [pathlib.Path(folder) / f"{name}.csv" for name in GENERATED]
        traces += sorted(arguments.data.glob("*.csv.zst"))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            figures = pool.map(lambda t: table_of(figures_of(arguments.segalloc, t)), traces)
            tables = {t.name: table for t, table in zip(traces, figures)}
    if arguments.write:
        golden.write_text(text_of(tables))
        return 0
    found = list(differences(read_tables(golden.read_text()), tables))
    for line in found[:40]:
        print(line)
    print(f"{len(found)} figures differ in {len(tables)} loads x {len(CONFIGURATIONS)} configurations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
