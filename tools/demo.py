"""The text of ./demo: recorded PyTorch training replayed beside PyTorch's own allocator, and the trainer on a simulated
GPU with and without the library.

Usage: demo.py BUILD_FOLDER; exit status 1 when something that it shows does not hold."""
import json
import os
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
SEGALLOC = os.path.join(BUILD, "tools/segalloc/segalloc")
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data")
TRACES = {"qwen25-7b-lora": "Qwen2.5-7B, LoRA", "lmcleaner-3b-zero3": "3.6 B, ZeRO-3"}
LABELS = {"default": "PyTorch 2.11", "expandable_segments:True": "PyTorch 2.11, expandable_segments",
        "max_split_size_mb:128,expandable_segments:True": "PyTorch 2.11, that and max_split_size_mb:128"}
# Any Debian has this text; where it is not there, ours will do.
TEXTS = ("/usr/share/common-licenses/GPL-3", os.path.join(DATA, "../../README.md"))

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("SEGALLOC_", "PYTORCH_", "CUDA_VISIBLE_"))}
shortcomings = []


def segalloc(*arguments, status=0, env=None):
    result = subprocess.run([SEGALLOC, *arguments], stdout=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, **(env or {})})
    if result.returncode != status:
        sys.exit(f"segalloc {' '.join(arguments)}: exit status {result.returncode}")
    return result.stdout


def replay(trace, *arguments):
    return json.loads(segalloc("replay", trace, "--json", *arguments))


def gib(size):
    return f"{size / 2**30:.2f} GiB"


def table(heads, rows):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        print("  " + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width)
                                                           for cell, width in zip(row[1:], widths[1:]))]).rstrip())


def holds(what, text):
    if not what:
        shortcomings.append(text)


def recorded():
    """Returns the verdict's line for each trace."""
    with open(os.path.join(DATA, "baselines.json")) as file:
        baselines = json.load(file)
    lines = []
    for name, title in TRACES.items():
        trace = os.path.join(DATA, name + ".csv.zst")
        roomy, tight = replay(trace, "--min-limit"), replay(trace, "--conf", "reserve_slack:1.0")
        live = roomy["peak_requested_bytes"]
        torch = {row["config"]: row for row in baselines if row["trace"] == name and row["config"] in LABELS}
        rows = [[LABELS[config], f"{row['peak_reserved'] / live:.3f}", gib(row["safe_capacity"]),
                 str(sum(row["driver_calls"].values()))] for config, row in torch.items()]
        rows.append(["segalloc", f"{roomy['peak_reserved_bytes'] / live:.3f}", gib(roomy["min_limit_bytes"]),
                     str(sum(roomy["driver_calls"].values()))])
        rows.append(["segalloc, reserve_slack:1.0", f"{tight['peak_reserved_bytes'] / live:.3f}", "",
                     str(sum(tight["driver_calls"].values()))])
        print(f"\n{title}: {roomy['events']} events, {gib(live)} alive at the peak")
        table(["", "reserved ÷ live", "smallest card", "driver calls"], rows)
        best = min(torch.values(), key=lambda row: row["safe_capacity"])
        holds(roomy["ooms"] == 0 and tight["ooms"] == 0, f"{name}: an allocation failed")
        holds(roomy["min_limit_bytes"] <= best["safe_capacity"], f"{name}: PyTorch needs a smaller card")
        holds(tight["peak_reserved_bytes"] < torch["expandable_segments:True"]["peak_reserved"],
              f"{name}: PyTorch's expandable segments reserve less")
        lines.append(f"{title} fits a card of {gib(roomy['min_limit_bytes'])}; PyTorch needs {gib(torch['default']['safe_capacity'])}, "
                     f"at best {gib(best['safe_capacity'])}.")
    return lines


def train(*arguments, library=True, folder=None):
    """Runs the trainer on a simulated card; returns its last object and the statistics of the library."""
    stats = os.path.join(folder, "stats.json")
    options = ["--conf", "reserve_slack:1.0", "-f", "-o", os.path.join(folder, "trace")] if library else ["--no-preload"]
    out = segalloc("run", "--sim", "24GiB", *options, "--", "segalloc-train", "--json", *arguments,
                   env={"SEGALLOC_STATS": stats})
    done = json.loads(out.splitlines()[-1])
    if not library:
        return done, None
    with open(stats) as file:
        return done, json.load(file)["devices"][0]["statistics"]


def trainer(folder):
    """Returns the verdict's lines."""
    size = ["--preset", "qwen25-7b-lora", "--dry", "--steps", "2"]
    native, _ = train(*size, library=False, folder=folder)
    ours, stats = train(*size, folder=folder)
    waits = stats["calls_sync"]
    calls = sum(value for name, value in stats.items() if name.startswith("calls_")) - waits - stats["calls_event"]
    reserved = stats["peak_reserved_bytes"]
    served = stats["allocs"] / (stats["allocs"] + stats["passed_on"])
    # Without us each allocation and each free is a call of the driver, and each free waits in it.
    native_calls = stats["allocs"] + stats["frees"]
    print("\nsegalloc-train, Qwen2.5-7B with LoRA r128, 2 steps without arithmetic, on a simulated card of 24 GiB")
    table(["", "outcome", "allocations", "served by us", "reserved ÷ live", "driver calls", "waits for the device"],
          [["without segalloc", native["outcome"], str(native["allocations"]), "-", "-", str(native_calls),
            str(stats["frees"])],
           ["with segalloc, reserve_slack:1.0", ours["outcome"], str(ours["allocations"]), f"{100 * served:.1f} %",
            f"{reserved / ours['peak_bytes']:.3f}", str(calls), str(waits)]])
    holds(native["outcome"] == ours["outcome"] == "completed", "the trainer ran out of memory")
    holds(served == 1, "not every allocation was served")
    holds(stats["peak_requested_bytes"] / reserved >= 0.98, "utilization is below 0.98")
    played = replay(os.path.join(folder, "trace"), "--conf", "reserve_slack:1.0")
    holds(played["peak_reserved_bytes"] / reserved <= 1.01, "the replay of its trace reserves more")

    text = next(path for path in TEXTS if os.path.exists(path))
    real = ["--preset", "tiny", "--text", text, "--steps", "30"]
    losses = {name: train(*real, *extra, library=library, folder=folder)[0]["losses"]
              for name, extra, library in (("without segalloc", [], False), ("with segalloc", [], True),
                                           ("with segalloc, --alloc arena", ["--alloc", "arena"], True))}
    print("\nsegalloc-train, a small model that really trains, 30 steps on a text")
    table(["", "first loss", "last loss"], [[name, f"{float.fromhex(values[0]):.6f}",
                                             f"{float.fromhex(values[-1]):.6f}"]
                                            for name, values in losses.items()])
    equal = len({tuple(values) for values in losses.values()}) == 1
    holds(equal, "the losses differ")
    holds(float.fromhex(losses["with segalloc"][-1]) < 0.8 * float.fromhex(losses["with segalloc"][0]),
          "the loss does not fall")
    return [f"The trainer's {ours['allocations']} allocations were all served, from {gib(reserved)} for {gib(ours['peak_bytes'])} alive; "
            f"{native_calls / calls:.0f} times fewer driver calls.",
            "Trained for real, its losses are equal bit for bit with the library and without it."]


def main():
    print("Recorded PyTorch training, played through the allocator. Smallest card: on which the whole program fits.")
    verdict = recorded()
    with tempfile.TemporaryDirectory() as folder:
        verdict += trainer(folder)
    if shortcomings:
        print("\nThis does not hold: " + "; ".join(shortcomings) + ".")
        return 1
    print("\nVerdict")
    for line in verdict:
        print("  " + line)
    return 0


sys.exit(main())
