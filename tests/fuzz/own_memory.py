"""Random programs with memory by every kind of call beside ours: what a rehearsal says of a card is what happens on it.

usage: own_memory.py --build FOLDER [--seeds FIRST-LAST] [--jobs N] [--seconds S]

A rehearsal of each program is asked about cards a page apart around its need. Then the program runs on the smallest of
those that fit, where it must end well. A rehearsal may be wrong in the other direction by the margin below. The simulated
driver serves a small block from what is left of the last page of a card, which a rehearsal does not count on."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

PAGE = 2 << 20
PAGES = 30  # cards in one rehearsal
MARGIN = 2  # pages: a card that "does not fit" so far below one that does must fail
RAN_OUT = 3

options = argparse.ArgumentParser()
options.add_argument("--build", required=True)
options.add_argument("--seeds", default="0-149")
options.add_argument("--jobs", type=int, default=1)
options.add_argument("--seconds", type=float, default=0, help="begin no program after so long")
options = options.parse_args()

BUILD = os.path.abspath(options.build)
PROGRAM = f"{BUILD}/tests/tools/own_memory"
SEGALLOC = f"{BUILD}/tools/segalloc/segalloc"
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:
    PLAIN["LD_PRELOAD"] = os.environ["SANITIZER"]


class Idle(Exception):
    """The program takes no memory, so there is nothing to say."""


def rehearse(seed, cards):
    names = ",".join(f"{card >> 20}MiB" for card in cards)
    result = subprocess.run([SEGALLOC, "rehearse", "--json", "--margin", "0", "--card", names, "--", PROGRAM, "--seed", str(seed)],
                            env=PLAIN, capture_output=True, text=True, timeout=300)
    if "asked for no device memory" in result.stdout:
        raise Idle
    if result.returncode not in (0, 3):
        raise RuntimeError(f"rehearse ends with {result.returncode}: {result.stderr.strip()[-300:]}")
    return json.loads(result.stdout.splitlines()[-1])


def run_on(seed, card):
    """True: the program ended well."""
    environment = PLAIN | {"SEGALLOC_SIM": str(card), "SEGALLOC_CONF": "oom_report:never",
                           "LD_PRELOAD": ":".join(filter(None, (PLAIN.get("LD_PRELOAD"), LIBRARY))),
                           "LD_LIBRARY_PATH": f"{BUILD}/src/sim"}
    result = subprocess.run([PROGRAM, "--seed", str(seed)], env=environment, capture_output=True, text=True, timeout=300)
    if result.returncode not in (0, RAN_OUT):
        raise RuntimeError(f"on {card >> 20} MiB it ends with {result.returncode}: {result.stdout.strip()} {result.stderr.strip()[-300:]}")
    return result.returncode == 0


def one(seed):
    """A line for each thing that is wrong."""
    wrong = []
    try:
        first = rehearse(seed, [1 << 40])["smallest_card_bytes"] or PAGE
        top = max(first + 2 * PAGE, (PAGES + 1) * PAGE)
        verdict = rehearse(seed, [top - i * PAGE for i in range(PAGES)])
        fits = {card["bytes"]: card["fits"] for card in verdict["cards"]}
        smallest = min((card for card in fits if all(fits[larger] for larger in fits if larger >= card)), default=None)
        if smallest is None:
            return [f"seed {seed}: the smallest card is {first >> 20} MiB, but {top >> 20} MiB does not fit"]
        if not run_on(seed, smallest):
            wrong.append(f'seed {seed}: {smallest >> 20} MiB "fits", and fails')
        below = smallest - MARGIN * PAGE
        if below in fits and run_on(seed, below):
            wrong.append(f'seed {seed}: {below >> 20} MiB "does not fit", and runs')
    except Idle:
        pass
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        wrong.append(f"seed {seed}: {error}")
    return wrong


LIBRARY = f"{BUILD}/src/preload/libsegalloc.so.0"
first, _, last = options.seeds.partition("-")
begun, done, found = time.monotonic(), 0, 0
with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    for start in range(int(first), int(last or first) + 1, 64):
        if options.seconds and time.monotonic() - begun > options.seconds:
            break
        for lines in pool.map(one, range(start, min(start + 64, int(last or first) + 1))):
            done += 1
            found += bool(lines)
            for line in lines:
                print(line, flush=True)
print(f"{done} programs in {time.monotonic() - begun:.0f} s, {found} wrong")
sys.exit(found > 0 or done == 0)
