#!/usr/bin/env python3
"""Rehearses programs, runs them on simulated cards of about the smallest size that was found, and compares: is the verdict
what then happens, and is what `segalloc tune` predicts what a fresh run reserves?

Usage: verdicts.py SEGALLOC PYTHON FOLDER [--cards LIST] [--devices N] [--again] [NAME…]
       verdicts.py SEGALLOC PYTHON FOLDER [--cards LIST] [--devices N] [--again] --name NAME -- COMMAND…

A NAME is a program of programs.py; `--name` gives one to any other command. Prints a row for each program, and ends with
status 1 where a verdict was wrong or a prediction more than 0.5 % off. Where `tune` says that the lag of the GPU decides
a prediction is a lower bound. FOLDER keeps the traces, what each command said
(NAME.*.log) and the rows (table). What it has of a program already is not made again; --again makes it anew."""
import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import time

PROGRAMS = pathlib.Path(__file__).resolve().with_name("programs.py")
STEP = 2 << 20  # to which a card is found
ROOMY = 80 << 30  # the card of what is tuned for: a page is a share of it
MOST_OFF = 0.005
DOES_NOT_FIT = 3  # the exit status of a rehearsal

parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("Usage: "))
parser.add_argument("segalloc")
parser.add_argument("python")
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--cards", default="0.98,1.00,1.02,1.1", help="multiples of the smallest")
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--again", action="store_true")
parser.add_argument("--no-tune", action="store_true", help="leave the prediction out")
parser.add_argument("--name")
parser.add_argument("rest", nargs="*")


def split(arguments):
    """What stands before a "--", and after it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1:]


own, command = split(sys.argv[1:])
options = parser.parse_intermixed_args(own)
if bool(command) != bool(options.name):
    parser.error("--name NAME and -- COMMAND go together")


@dataclasses.dataclass
class Ran:
    """How a run ended, and what its processes' traces say."""
    status: int
    failures: int
    reserved: int

    @property
    def fits(self):
        return self.failures == 0 and self.status == 0


class Program:
    def __init__(self, name, words):
        self.name, self.words, self.at = name, words, options.folder / name

    def path(self, part):
        return self.at.with_name(f"{self.name}.{part}")

    def said(self, part, *arguments):
        """The object that a command of segalloc prints and its status, kept in a file."""
        kept = self.path(part + ".json")
        if options.again or not kept.exists():
            with open(self.path(part + ".log"), "w") as log:
                done = subprocess.run([options.segalloc, *map(str, arguments)], stdout=subprocess.PIPE, stderr=log,
                                      text=True)
            if not done.stdout.strip():
                raise RuntimeError(f"{self.name}: {arguments[0]} ended with status {done.returncode}, see {log.name}")
            kept.write_text(json.dumps({"status": done.returncode, "said": json.loads(done.stdout.splitlines()[-1])}))
        kept = json.loads(kept.read_text())
        return kept["said"], kept["status"]

    def rehearse(self, part, *arguments):
        return self.said(part, "rehearse", "--json", "--devices", options.devices, *arguments, "--", *self.words)

    def run(self, part, card, conf=""):
        """The program on a card of so many bytes."""
        kept = self.path(part + ".json")
        if options.again or not kept.exists():
            for old in options.folder.glob(f"{self.name}.{part}.*.trace"):
                old.unlink()
            with open(self.path(part + ".log"), "w") as log:
                status = subprocess.run([options.segalloc, "run", "--sim", f"{card},count={options.devices}",
                                         *(["--conf", conf] if conf else []), "-f", "-o", self.path(f"{part}.%p.trace"),
                                         "--", *self.words], stdout=log, stderr=log).returncode
            ran = Ran(status, 0, 0)
            for trace in options.folder.glob(f"{self.name}.{part}.*.trace"):
                report = json.loads(subprocess.run([options.segalloc, "report", "--json", trace],
                                                   stdout=subprocess.PIPE, check=True).stdout)
                ran.failures += report["ooms"]
                ran.reserved = max(ran.reserved, report["peak_reserved_bytes"] or 0)
            kept.write_text(json.dumps(dataclasses.asdict(ran)))
        return Ran(**json.loads(kept.read_text()))


def judge(program):
    """A row, and how many parts of it are wrong."""
    trace, wrong, row = program.path("trace"), 0, []
    smallest = program.rehearse("first", "-f", "-o", trace)[0]["smallest_card_bytes"]
    times = [float(part) for part in options.cards.split(",")]
    cards = [int(smallest * part) // STEP * STEP for part in times]
    said, status = program.rehearse("verdict", "--card", ",".join(f"{card}B" for card in cards))
    verdicts = {card["bytes"]: card["fits"] for card in said["cards"]}
    wrong += (status == DOES_NOT_FIT) != (not all(verdicts.values()))
    for part, card in zip(times, cards):
        right = program.run(f"{part:.2f}", card).fits == verdicts[card]
        wrong += not right
        row.append(f"{part:.2f} {'fits' if verdicts[card] else 'not '}{' ' if right else ' WRONG'}")
    row = f"{program.name:10} {smallest / 2**30:6.2f} GiB  " + "  ".join(row)
    if said["smallest_card_bytes"] is None:
        row += "  again: not known"
    elif said["smallest_card_bytes"] != smallest:
        row += f"  again {(said['smallest_card_bytes'] - smallest) / 2**20:+.0f} MiB"
    if options.no_tune:
        return row, wrong
    tuned = program.said("tune", "tune", "--json", "--limit", f"{ROOMY}B", trace)[0]["recommended"]
    fresh = program.run("tuned", ROOMY, tuned["conf"]).reserved
    off = tuned["peak_reserved_bytes"] / fresh - 1
    row += f"  tuned {tuned['conf'] or 'the defaults'}: {fresh / 2**30:.2f} GiB, predicted {off:+.2%}"
    if tuned["lag_decides"]:
        row += f" (the lag decides: {tuned['lagging_reserved_bytes'] / 2**30:.2f} GiB and more)"
    wrong += off > MOST_OFF if tuned["lag_decides"] else abs(off) > MOST_OFF
    return row, wrong


options.folder.mkdir(parents=True, exist_ok=True)
all_names = re.findall(r"\w+", re.search(r"^PROGRAMS = \((.*?)\)", PROGRAMS.read_text(), re.MULTILINE | re.DOTALL)[1])
programs = [Program(options.name, command)] if command else [
    Program(name, [options.python, str(PROGRAMS), name]) for name in options.rest or all_names]
all_wrong = 0
for each in programs:
    began = time.monotonic()
    text, wrong_here = judge(each)
    all_wrong += wrong_here
    text += f"  ({time.monotonic() - began:.0f} s)"
    with open(options.folder / "table", "a") as table:
        table.write(text + "\n")
    print(text, flush=True)
sys.exit(all_wrong > 0)
