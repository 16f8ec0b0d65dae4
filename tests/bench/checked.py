"""What `check` costs, as the tables of docs/experiments/check-costs.md: pairs, bytes of bandwidth, and peaks of memory.

Usage: checked.py SEGALLOC CHECKED [--runs N] [--data CSV.zst…] [--python PYTHON --loops LOOP.py…]
       checked.py SEGALLOC CHECKED --runs N --off HOTPATH_BEFORE HOTPATH     pairs of two builds in turn, `check` being off in both

Everything is on the simulated GPU, whose sets and copies are the host's: times say what the library's own work is, and nothing of a card."""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import tempfile

CONFS = {"off": None, "--check": "", "--check=canary": "=canary", "--check=guard": "=guard", "--check=thorough": "=thorough"}
MIB, GIB = 1 << 20, 1 << 30


def run(segalloc, sim, conf, command, **more):
    """A run with its output, its statistics, and the most that its processes held of the device, which is at the head of the simulator's file."""
    with tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder) / "stats.json"
        sim += f",peaks={folder}"
        check = [] if CONFS[conf] is None else [f"--check{CONFS[conf]}"]
        done = subprocess.run([segalloc, "run", "--sim", sim, "--conf", f"stats:{stats}", *check, "--", *map(str, command)], check=False,
                              capture_output=True, text=True, **more)
        if done.returncode:
            raise SystemExit(f"{command} ended with status {done.returncode}: {done.stderr[-2000:]}")
        if "nothing wrong" not in done.stderr and check:
            raise SystemExit(f"{command}: {done.stderr[-2000:]}")
        held = max((struct.unpack_from("<Q", file.read_bytes())[0] for file in pathlib.Path(folder).glob("*.peaks")), default=0)
        return done.stdout, json.loads(stats.read_text())["devices"][0]["statistics"], held


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def pairs(arguments):
    """Modes in turn, so that what else the machine does falls on all of them."""
    for size, count in ((4096, 8000), (4 << 20, 1600)):
        found = {conf: [] for conf in CONFS}
        for _ in range(arguments.runs):
            for conf in CONFS:
                found[conf].append(float(run(arguments.segalloc, "2GiB", conf, [arguments.checked, "pairs", size, count])[0]))
        yield [f"{size} bytes"] + [f"{statistics.median(found[conf]):.0f}" for conf in CONFS]


def off(arguments):
    """Two builds in turn, each first in half of the rounds. The middle of the rounds' ratios says what one costs beside the other."""
    for allocator, name in ("segalloc", "pair_4KiB"), ("segalloc", "pair_4MiB"), ("segalloc_stream", "pair_4KiB"), ("segalloc_stream", "pair_4MiB"):
        found = {hotpath: [] for hotpath in arguments.off}
        for i in range(arguments.runs):
            for hotpath in arguments.off[::-1 if i % 2 else 1]:
                done = subprocess.run([hotpath, "--seconds", "0.1", "--only", allocator, "--name", name, "--json"], check=True, capture_output=True)
                found[hotpath].append(json.loads(done.stdout.splitlines()[0])["ns_median"])
        before, now = (found[hotpath] for hotpath in arguments.off)
        ratio = statistics.median(after / first for first, after in zip(before, now))
        yield [allocator, name, f"{statistics.median(before):.1f}", f"{statistics.median(now):.1f}", f"{100 * (ratio - 1):+.1f} %"]


def share(stats):
    """Bytes that check moves for each 100 bytes that were allocated."""
    total = max(1, stats["allocated_total_bytes"])
    return [f"{100 * stats[key] / total:.3f}" for key in ("check_filled_bytes", "check_read_bytes")]


def recorded(arguments):
    for path in arguments.data:
        csv = subprocess.Popen(["zstdcat", path], stdout=subprocess.PIPE)
        _, stats, _ = run(arguments.segalloc, "96GiB", "--check", [arguments.checked, "play"], stdin=csv.stdout)
        csv.wait()
        yield [pathlib.Path(path).name.split(".")[0], stats["checked_frees"], f"{stats['allocated_total_bytes'] / GIB:.0f} GiB", *share(stats)]


def loops(arguments):
    for loop in arguments.loops:
        name = pathlib.Path(loop).stem
        before = None
        for conf in ("off", "--check", "--check=guard", "--check=thorough"):
            _, stats, held = run(arguments.segalloc, "8GiB", conf, [arguments.python, loop], env={**os.environ, "TEST_MODE": "direct"})
            before = before or held
            yield [name, conf, f"{stats['peak_requested_bytes'] / MIB:.1f}", f"{stats['peak_reserved_bytes'] / MIB:.0f}", f"{held / MIB:.1f}",
                   f"{100 * (held / before - 1):+.1f} %", stats["check_guarded"], *share(stats)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("segalloc")
    parser.add_argument("checked")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--python")
    parser.add_argument("--loops", nargs="*", default=[])
    parser.add_argument("--off", nargs=2, metavar=("BEFORE", "NOW"))
    arguments = parser.parse_args()
    if arguments.off:
        table(["one thread, ns", "", "before", "now", "ratio, in the middle"], off(arguments))
        return
    if arguments.runs:
        table(["ns of the program's thread a pair", *CONFS], pairs(arguments))
    if arguments.data:
        table(["recorded", "frees", "allocated in all", "filled, % of that", "read, % of that"], recorded(arguments))
    if arguments.loops:
        table(["loop", "", "requested, MiB", "reserved, MiB", "held of the device, MiB", "", "guarded", "filled, % of allocated", "read, %"], loops(arguments))


if __name__ == "__main__":
    main()
