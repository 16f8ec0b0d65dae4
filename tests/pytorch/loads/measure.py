#!/usr/bin/env python3
"""Records the programs of programs.py on the simulated GPU, and plays what was recorded on cards of other sizes.

Usage: measure.py SEGALLOC PYTHON FOLDER [--seeds N] [--conf CONF] [NAME…]

Prints a row for each: what is alive at the peak; the smallest card, as a multiple of that; and on a card of 1.02 times
that the driver's time for moving pages, in ms for 1000 allocations (by its table of costs). What FOLDER has recorded
already is not run again."""
import argparse
import json
import pathlib
import re
import subprocess

PROGRAMS = pathlib.Path(__file__).resolve().with_name("programs.py")

parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("Usage: "))
parser.add_argument("segalloc")
parser.add_argument("python")
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--conf", default="")
parser.add_argument("names", nargs="*")
options = parser.parse_intermixed_args()


def replayed(trace, *more, conf=options.conf):
    command = [options.segalloc, "replay", trace, "--json", *(["--conf", conf] if conf else []), *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


options.folder.mkdir(parents=True, exist_ok=True)
all_names = re.search(r"^PROGRAMS = \((.*?)\)", PROGRAMS.read_text(), re.MULTILINE | re.DOTALL)[1]
cards, moves = [], []
for name in options.names or re.findall(r"\w+", all_names):
    for seed in range(options.seeds):
        trace = options.folder / f"{name}.{seed}.trace"
        if not trace.exists():
            new = trace.with_suffix(".new")
            subprocess.run([options.segalloc, "run", "--sim", "80GiB", "-o", new, "--", options.python, PROGRAMS, name,
                            str(seed)], check=True, stdout=subprocess.DEVNULL)
            new.rename(trace)
        live = replayed(trace, conf="reserve_slack:1.0")["peak_requested_bytes"]
        close = replayed(trace, "--limit", str(live * 102 // 100))
        cards.append(replayed(trace, "--min-limit")["min_limit_bytes"] / live)
        moves.append(close["driver_us"]["moves"] / close["allocs"])
        print(f"{name:9} {seed} {live / 2**30:6.2f} GiB, card {cards[-1]:.4f}, moves on 1.02 {moves[-1]:.3f} ms/1000"
              + (f", {close['ooms']} failed" if close["ooms"] else ""), flush=True)
print(f"mean card {sum(cards) / len(cards):.4f}, largest {max(cards):.4f}; mean moves {sum(moves) / len(moves):.3f}, "
      f"most {max(moves):.2f}")
