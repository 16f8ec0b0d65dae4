"""Random programs with memory by every kind of call beside ours: what a rehearsal says of a card is what happens on it.

usage: own_memory.py --build FOLDER [--from N] [--to N] [--jobs N] [--seconds S] [--words WORD…]

Each seed is a program. A rehearsal says its smallest card, and another is asked about cards a page apart around that. The
program then runs on each of these cards. Three things are wrong: a card that "fits" and fails; a card that "does not fit"
and runs, more than the margin below the smallest that fits; and a program that is said to adapt, for none of these does.

A card may be enough for a GPU that keeps up with the host and too small for one that lags, because memory freed in the
order of a stream is there only once the stream has come to it. A verdict holds for both, so "does not fit" is wrong only
where the program runs with each lag. For example seed 10954 runs on 108 MiB with a GPU that keeps up; with one that lags it
runs out on 116 MiB with the library and without, and 118 MiB is the right answer.

A line on stderr says how far a long run has come. `--from` with the number it names goes on from there."""
import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time

PAGE = 2 << 20
CARDS = (5, 1, 0, -1, -2, -4)  # pages: the cards of one rehearsal, from the smallest that fits. A rehearsal tries up to 4 itself
HIGHER = 16  # pages above which no card is asked about, where none of these fits
LEAST_CARD = 2 * PAGE  # that a rehearsal takes
MARGIN = 4  # pages: a card that "does not fit" so far below one that does must fail
LAGS = ("run_ahead=0", "run_ahead=1000")  # of the simulated GPU, beside its usual one
RAN_OUT = 3
PROGRESS_S = 10

options = argparse.ArgumentParser()
options.add_argument("--build", required=True)
options.add_argument("--from", dest="first", type=int, default=0)
options.add_argument("--to", dest="last", type=int, default=149)
options.add_argument("--jobs", type=int, default=1)
options.add_argument("--seconds", type=float, default=0, help="begin no program after so long")
options.add_argument("--words", nargs="+", help="one program, from words, in place of those of seeds")
options = options.parse_args()

BUILD = os.path.abspath(options.build)
PROGRAM = f"{BUILD}/tests/tools/own_memory"
SEGALLOC = f"{BUILD}/tools/segalloc/segalloc"
LIBRARY = f"{BUILD}/src/preload/libsegalloc.so.0"
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:
    PLAIN["LD_PRELOAD"] = os.environ["SANITIZER"]
# Files, PyTorch and lines of code are no part of these programs. To look after them takes most of a rehearsal's time.
REHEARSE = [SEGALLOC, "rehearse", "--devices", "2", "--json", "--margin", "0", "--overwrite", "--no-torch", "--conf", "sites:False"]
ON_CARD = PLAIN | {"SEGALLOC_CONF": "oom_report:never", "LD_LIBRARY_PATH": f"{BUILD}/src/sim",
                   "LD_PRELOAD": ":".join(filter(None, (PLAIN.get("LD_PRELOAD"), LIBRARY)))}


shared = itertools.count()


class Idle(Exception):
    """The program takes no memory, so there is nothing to say."""


def rehearse(program, cards):
    names = ",".join(f"{card >> 20}MiB" for card in cards)
    result = subprocess.run([*REHEARSE, "--card", names, "--", PROGRAM, *program], env=PLAIN, capture_output=True, text=True,
                            timeout=300)
    if "asked for no device memory" in result.stdout:
        raise Idle
    if result.returncode not in (0, 3):
        raise RuntimeError(f"rehearse ends with {result.returncode}: {result.stderr.strip()[-300:]}")
    return json.loads(result.stdout.splitlines()[-1])


def runs_on(program, card, lag=None):
    """True: the program ended well. Other processes of it are on the same card."""
    name = f"own-memory-{os.getpid()}-{next(shared)}"
    sim = ",".join(filter(None, (str(card), "count=2", lag, f"card={name}")))
    result = subprocess.run([PROGRAM, *program], env=ON_CARD | {"SEGALLOC_SIM": sim}, capture_output=True, text=True, timeout=300)
    with contextlib.suppress(OSError):
        os.unlink(f"/dev/shm/segalloc-sim-{os.geteuid()}-{name}")
    if result.returncode not in (0, RAN_OUT):
        raise RuntimeError(f"on {card >> 20} MiB it ends with {result.returncode}: {result.stdout.strip()} {result.stderr.strip()[-300:]}")
    return result.returncode == 0


def runs_with_each_lag(program, card):
    return all(runs_on(program, card, lag) for lag in LAGS)


def judge(program):
    """(kind, text) of each thing that is wrong; kinds "run N below", "lag" and "idle" are only counted."""
    try:
        need = rehearse(program, [1 << 40])["smallest_card_bytes"] or PAGE
        need = max(need, LEAST_CARD)
        cards = [need + i * PAGE for i in CARDS if need + i * PAGE >= LEAST_CARD]
        verdict = rehearse(program, cards)
        fits = {card["bytes"]: card["fits"] for card in verdict["cards"]}
        while not fits[cards[0]] and cards[0] < need + HIGHER * PAGE:
            cards.insert(0, cards[0] + PAGE)
            fits |= {card["bytes"]: card["fits"] for card in rehearse(program, cards[:1])["cards"]}
        runs = {card: runs_on(program, card) for card in cards}
        smallest = min((card for card in fits if all(fits[larger] for larger in fits if larger >= card)), default=None)
        for card in cards:
            if fits[card] and not (runs[card] and (card not in (smallest, cards[0]) or runs_with_each_lag(program, card))):
                yield "wrong fit", f'{card >> 20} MiB "fits", and fails'
            if runs[card] and not fits[card] and smallest:
                if card <= smallest - MARGIN * PAGE and runs_with_each_lag(program, card):
                    yield "wrong does not fit", f'{card >> 20} MiB "does not fit", and runs; {smallest >> 20} MiB fits'
                else:
                    yield f"run {(smallest - card) // PAGE} below", ""
        if smallest is None:
            if runs[cards[0]] and runs_with_each_lag(program, cards[0]):
                yield "wrong does not fit", f"the smallest card is {need >> 20} MiB, but {cards[0] >> 20} MiB does not fit"
            else:
                yield "lag", ""
        if verdict["adapts"] or any(card["adapted"] for card in verdict["cards"]):
            yield "adapts", "it is said to adapt"
    except Idle:
        yield "idle", ""
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        yield "error", str(error)


def seed_judged(seed):
    return seed, list(judge(["--seed", str(seed)]))


if options.words:
    found = [text for kind, text in judge(options.words) if text]
    print("\n".join(found) or "right")
    sys.exit(bool(found))

begun = shown = time.monotonic()
done, next_seed = 0, options.first
counts = collections.Counter()
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append("SIGTERM"))
signal.signal(signal.SIGINT, lambda *_: stopped.append("SIGINT"))


def seeds():
    for seed in range(options.first, options.last + 1):
        if stopped or (options.seconds and time.monotonic() - begun > options.seconds):
            return
        yield seed


def below():
    return ", ".join(f"{counts[kind]} {kind.split()[1]}" for kind in sorted(counts) if kind.startswith("run ")) or "none"


def summary():
    passed = time.monotonic() - begun
    return (f'{done} programs ({options.first} to {next_seed - 1}) in {passed:.0f} s: {counts["wrong fit"]} wrong "fits", '
            f'{counts["wrong does not fit"]} wrong "does not fit", {counts["adapts"]} said to adapt, {counts["error"]} errors; '
            f'{below()} ran so many pages below, {counts["lag"]} for a GPU that lags, {counts["idle"]} took no memory')


with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    numbers = seeds()
    while batch := list(itertools.islice(numbers, 16 * options.jobs)):
        for seed, found in pool.map(seed_judged, batch):
            done, next_seed = done + 1, seed + 1
            for kind in {kind for kind, _ in found}:
                counts[kind] += 1
            for _, text in filter(lambda each: each[1], found):
                print(f"seed {seed}: {text}", flush=True)
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            print(f"{summary()}; go on with --from {next_seed}", file=sys.stderr, flush=True)
print(summary())
sys.exit(done == 0 or any(counts[kind] for kind in ("wrong fit", "wrong does not fit", "adapts", "error")))
