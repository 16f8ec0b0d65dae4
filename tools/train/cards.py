#!/usr/bin/env python3
"""The smallest card on which each of segalloc-train's presets runs, under PyTorch's allocator (by default, and as the
preset's document sets it) and under segalloc, and the longest sequence that each lets onto the document's card.

    tools/train/cards.py build [PRESET...]     (a build folder, or the prefix that segalloc is installed in)

Every load is recorded once on a simulated card that is large enough, and replayed under each allocator's rules; prints
tables in Markdown. A card counts as large enough when every allocation of the recorded steps is served."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROOMY, GIB, UNIT = 3, "1TiB", 1 << 30, 128


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
        trace.unlink(missing_ok=True)
        self.result = run(segalloc, "run", "--sim", ROOMY, "-o", trace, "--", train, "--preset", name, "--dry",
                          "--steps", STEPS, "--json", *more)

    def replay(self, policy, conf, *more):
        return run(segalloc, "replay", trace, "--policy", policy, "--conf", conf, "--json", *more)


def smallest(load, policy, conf):
    return load.replay(policy, conf, "--min-limit")["min_limit_bytes"]


def longest(name, card, policy, conf, start):
    """The longest multiple of 128 tokens that fits, from a length that does."""
    def fits(units):
        load = Load(name, "--max-len", units * UNIT, "--lengths", "lognormal")
        return load.replay(policy, conf, "--limit", card)["ooms"] == 0
    good, bad = start // UNIT, start // UNIT * 2
    if not fits(good):
        good, bad = 0, good
    while good and fits(bad):
        good, bad = bad, bad * 2
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good * UNIT


def main():
    listed = json.loads(subprocess.run([str(train), "--list", "--json"], capture_output=True, text=True).stdout)
    presets = [p for p in listed["presets"] if p["card_bytes"] and (not wanted or p["name"] in wanted)]
    print("| preset | variant | needs | PyTorch, default | the document's setting | segalloc |\n"
          "|---|---|---|---|---|---|")
    for preset in presets:
        for variant in "before", "after":
            load = Load(preset["name"], "--variant", variant)
            rules = ("pytorch", ""), ("pytorch", preset["allocator"]), ("segalloc", "reserve_slack:1.0")
            cards = [f"{smallest(load, *rule) / GIB:.2f}" for rule in rules]
            print(f"| `{preset['name']}` | {variant} | {load.result['peak_bytes'] / GIB:.2f} | {' | '.join(cards)} |",
                  flush=True)
    print("\n| preset | card | longest sequence: PyTorch, default | the document's setting | segalloc |\n"
          "|---|---|---|---|---|")
    for preset in presets:
        rules = ("pytorch", ""), ("pytorch", preset["allocator"]), ("segalloc", "reserve_slack:1.0")
        ends = [longest(preset["name"], preset["card_bytes"], *rule, 1024) for rule in rules]
        print(f"| `{preset['name']}` | {preset['card_bytes'] / GIB:g} | {' | '.join(map(str, ends))} |", flush=True)


if len(sys.argv) < 2:
    sys.exit(__doc__)
root, wanted = Path(sys.argv[1]), sys.argv[2:]
segalloc = find(root, "tools/segalloc/segalloc", "bin/segalloc")
train = find(root, "tools/train/segalloc-train", "bin/segalloc-train").resolve()
with tempfile.TemporaryDirectory() as name:
    trace = Path(name) / "trace"
    main()
