#!/usr/bin/env python3
"""Rehearses the programs of programs.py, runs them on simulated cards of about the smallest size that was found, and
compares: is the verdict what then happens, and is what `segalloc tune` predicts what a fresh run reserves?

Usage: verdicts.py SEGALLOC PYTHON FOLDER [--cards LIST] [NAME…]

Prints a row for each, and ends with status 1 where a verdict was wrong or a prediction more than 0.5 % off. FOLDER keeps
the traces; what it has of a program already is not made again."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

PROGRAMS = pathlib.Path(__file__).resolve().with_name("programs.py")
STEP = 2 << 20  # to which a card is found
ROOMY = 80 << 30  # the card of what is tuned for: a page is a share of it
MOST_OFF = 0.005

parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("Usage: "))
parser.add_argument("segalloc")
parser.add_argument("python")
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--cards", default="0.98,1.00,1.02,1.1", help="multiples of the smallest")
parser.add_argument("names", nargs="*")
options = parser.parse_intermixed_args()


def once(path, *command):
    """The object that a command prints, kept in a file."""
    if not path.exists():
        done = subprocess.run([options.segalloc, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)
        path.write_text(done.stdout.splitlines()[-1])
    return json.loads(path.read_text())


def run(trace, card, name, conf=""):
    """The report of a run of the program on a card of so many bytes; large copies move nothing, for the host's sake."""
    if not trace.exists():
        new = trace.with_suffix(".new")
        subprocess.run([options.segalloc, "run", "--sim", f"{card},drop_mb=1", *(["--conf", conf] if conf else []),
                        "-f", "-o", new, "--", options.python, PROGRAMS, name], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        new.rename(trace)
    return once(trace.with_suffix(".report"), "report", "--json", trace)


options.folder.mkdir(parents=True, exist_ok=True)
all_names = re.search(r"^PROGRAMS = \((.*?)\)", PROGRAMS.read_text(), re.MULTILINE | re.DOTALL)[1]
times, wrong = [float(part) for part in options.cards.split(",")], 0
for name in options.names or re.findall(r"\w+", all_names):
    at = options.folder / name
    first = once(at.with_suffix(".first"), "rehearse", "--json", "--margin", "0", "-f", "-o", at.with_suffix(".trace"),
                 "--", options.python, PROGRAMS, name)
    smallest = first["smallest_card_bytes"]
    cards = [int(smallest * part) // STEP * STEP for part in times]
    said = once(at.with_suffix(".verdict"), "rehearse", "--json", "--margin", "0", "--card",
                ",".join(map(str, cards)).replace(",", "B,") + "B", "--", options.python, PROGRAMS, name)
    verdicts = {card["bytes"]: card["fits"] for card in said["cards"]}
    row = []
    for part, card in zip(times, cards):
        ran = run(options.folder / f"{name}.{part}.trace", card, name)
        fits = ran["ooms"] == 0
        wrong += fits != verdicts[card]
        row.append(f"{part:.2f} {'fits' if verdicts[card] else 'not '}{' ' if fits == verdicts[card] else ' WRONG'}")
    tuned = once(at.with_suffix(".tune"), "tune", "--json", "--limit", f"{ROOMY}B",
                 at.with_suffix(".trace"))["recommended"]
    fresh = run(options.folder / f"{name}.tuned.trace", ROOMY, name, tuned["conf"])["peak_reserved_bytes"]
    off = tuned["peak_reserved_bytes"] / fresh - 1
    wrong += abs(off) > MOST_OFF
    print(f"{name:9} {smallest / 2**30:6.2f} GiB  " + "  ".join(row)
          + f"  tuned {tuned['conf'] or 'the defaults'}: {fresh / 2**30:.2f} GiB, predicted {off:+.2%}", flush=True)
sys.exit(wrong > 0)
