#!/usr/bin/env python3
"""The smallest card on which each of segalloc-train's presets runs, under PyTorch's allocator (by default, and as the
preset's document sets it) and under segalloc, and the longest sequence and the largest batch that each lets onto the
document's card, all else as mended. "More" is segalloc against PyTorch by default, and as the document sets it.

    tools/train/cards.py build [PRESET...]     (a build folder, or the prefix that segalloc is installed in)
    tools/train/cards.py build --colocate      where training and rollouts share a card: who holds memory while the other works

Every load is recorded once on a simulated card that is large enough, and replayed under each allocator's rules; prints
tables in Markdown. A card counts as large enough when every allocation of the recorded steps is served."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROOMY, GIB, UNIT, SEQUENCE_FROM = 3, "4TiB,drop_mb=1", 1 << 30, 128, 1024  # large copies move nothing: a pause saves GiB
ENGINES = ("spiral-qwen3-4b", "grpo-fsdp")


def find(folder, *places):
    for place in places:
        if (folder / place).exists():
            return folder / place
    sys.exit(f"{folder} has no {places[0]}: give a build folder or a prefix")


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr.strip() or 'status ' + str(done.returncode)}")
    return json.loads(done.stdout.splitlines()[-1])


class Load:
    """One preset's recorded steps."""

    def __init__(self, name, *more):
        self.trace = Path(folder) / "-".join(str(x).strip("-") for x in (name, *more))
        self.result = run(segalloc, "run", "--sim", ROOMY, "-o", self.trace, "--", train, "--preset", name, "--dry",
                          "--steps", STEPS, "--json", *more)

    def replay(self, rule, *more):
        return run(segalloc, "replay", self.trace, "--policy", rule[0], "--conf", rule[1], "--json", *more)


class Fits:
    """Runs that show if a preset fits its document's card with an option set to a value. Traces are kept, so that each
    value is recorded once for all rules."""

    def __init__(self, preset, option, unit, *more):
        self.preset, self.option, self.unit, self.more, self.loads = preset, option, unit, more, {}

    def __call__(self, rule, units):
        if units not in self.loads:
            self.loads[units] = Load(self.preset["name"], self.option, units * self.unit, *self.more)
        return self.loads[units].replay(rule, "--limit", self.preset["card_bytes"])["ooms"] == 0

    def largest(self, rule):
        good, bad = 0, max(1, SEQUENCE_FROM // self.unit) if self.unit > 1 else 1
        while self(rule, bad):
            good, bad = bad, bad * 2
        while bad - good > 1:
            middle = (good + bad) // 2
            if self(rule, middle):
                good = middle
            else:
                bad = middle
        return good * self.unit

    def forget(self):
        for load in self.loads.values():
            load.trace.unlink()


def rules(preset):
    return ("pytorch", ""), ("pytorch", preset["allocator"]), ("segalloc", "reserve_slack:1.0")


def print_cards(presets):
    print("| preset | variant | needs | PyTorch, default | the document's setting | segalloc |\n"
          "|---|---|---|---|---|---|")
    for preset in presets:
        for variant in "before", "after":
            load = Load(preset["name"], "--variant", variant)
            cards = [load.replay(rule, "--min-limit")["min_limit_bytes"] / GIB for rule in rules(preset)]
            print(f"| `{preset['name']}` | {variant} | {load.result['peak_bytes'] / GIB:.2f} | "
                  f"{' | '.join(f'{card:.2f}' for card in cards)} |", flush=True)
            load.trace.unlink()


def print_largest(presets):
    print("\n| preset | card | longest sequence: PyTorch, default | the document's setting | segalloc | more "
          "| largest batch: PyTorch, default | the document's setting | segalloc | more |\n|" + "---|" * 10)
    for preset in presets:
        cells = []
        for fits in Fits(preset, "--max-len", UNIT, "--lengths", "lognormal"), Fits(preset, "--batch", 1):
            default, documents, ours = (fits.largest(rule) for rule in rules(preset))
            fits.forget()
            more = [f"{(ours / theirs - 1) * 100:+.0f} %" if theirs else "-" for theirs in (default, documents)]
            cells += [default, documents, ours, ", ".join(more)]
        print(f"| `{preset['name']}` | {preset['card_bytes'] / GIB:g} | {' | '.join(map(str, cells))} |", flush=True)


def print_colocated(presets):
    """Smallest cards where training and rollouts share one: both keep their memory, or one has the other's paused."""
    print("\n| preset | training by itself | rollouts by themselves | keep | pause | pause-discard | pause over the larger phase |\n|"
          + "---|" * 7)
    for preset in presets:
        loads = {way: Load(preset["name"], "--colocate", way) for way in ("keep", "pause", "pause-discard")}
        cards = {way: load.replay(("segalloc", "reserve_slack:1.0"), "--min-limit")["min_limit_bytes"] for way, load in loads.items()}
        phases = loads["pause"].result["phase_bytes"]
        larger = max(phases.values())
        print(f"| `{preset['name']}` | {phases['training'] / GIB:.2f} | {phases['rollout'] / GIB:.2f} | "
              f"{' | '.join(f'{card / GIB:.2f}' for card in cards.values())} | {(cards['pause'] / larger - 1) * 100:+.2f} % |", flush=True)
        for load in loads.values():
            load.trace.unlink()


def main():
    listed = json.loads(subprocess.run([str(train), "--list", "--json"], capture_output=True, text=True).stdout)
    presets = [p for p in listed["presets"] if p["card_bytes"] and (not wanted or p["name"] in wanted)]
    if colocated:
        print_colocated([p for p in presets if p["name"] in ENGINES])
        return
    print_cards(presets)
    print_largest(presets)


if len(sys.argv) < 2:
    sys.exit(__doc__)
colocated = "--colocate" in sys.argv
root, wanted = Path(sys.argv[1]), [a for a in sys.argv[2:] if a != "--colocate"]
segalloc = find(root, "tools/segalloc/segalloc", "bin/segalloc")
train = find(root, "tools/train/segalloc-train", "bin/segalloc-train").resolve()
with tempfile.TemporaryDirectory() as folder:
    main()
