"""The parts of tests/gpu/run that take PyTorch or another framework."""
import concurrent.futures
import os

from machine import Failed, NoTime, Skipped, Slow
from parts import enough

MIB = 1 << 20
COMPUTED = ("wrong", "losses", "value")  # facts that come of arithmetic on the device


class Outcome(dict):
    """What a client told in one mode, or why it told nothing: {"error": …}, {"late": …}."""

    def wrong(self):
        return self.get("error") or self.get("late")


def outcome(ask, limit=None):
    """Of a call that runs a client. `limit`: seconds within which it must end, so that more is a fault of the library."""
    try:
        return Outcome(ask())
    except Failed as why:
        return Outcome(error=str(why))
    except Slow as why:
        return Outcome(error=str(why)) if limit and why.given >= limit else Outcome(late=str(why))
    except NoTime as why:
        return Outcome(late=str(why))


class Native:
    """How long the native run took, as enough() asks for it."""

    def __init__(self, told):
        self.seconds = told["seconds"]


def by_mode(machine, name, modes, ask, judge):
    """A row for each mode, one after another, natively first: (results by mode, problems). `ask(mode, seconds)` runs the
    client and gives what it told; `judge(mode, told, native)` says (what is wrong, a note). Where natively something is
    wrong, no mode is compared with it."""
    results, problems = {}, []
    for number, mode in enumerate(("native", *modes)):
        limit = enough(Native(results["native"])) if results else None
        with machine.step(len(modes) + 1 - number):
            told = results[mode] = outcome(lambda: ask(mode, limit or 120), limit)
        wrong, note = (told.wrong(), "") if told.wrong() else judge(mode, told, results["native"])
        status = "no time" if "late" in told else "ok" if not wrong else "native no" if mode == "native" else "differs"
        machine.row(f"{name}, {mode}", status, wrong or note)
        if wrong and mode == "native":
            break
        problems += [f"{name}, {mode}: {wrong}"] if status == "differs" else []
    return results, problems


def others(row, native, same):
    """Facts that are not the native ones. Those that come of arithmetic are compared where the device does any."""
    asked = [key for key in same if key not in COMPUTED or native["computes"] is not False]
    return [f"{key} {row[key]}, natively {native[key]}" for key in asked if row[key] != native[key]]


def in_modes(machine, name, client, arguments, modes, same=(), timeout=120, close=(), noted=("direct",),
             native=None, **more):
    """A row of one client: natively first, unless that is known, then in each mode at once. Facts named in `same` must be the native ones,
    those in `close` at most a tenth above. Before anything is said to differ, it is asked natively once more. Of modes in `noted`, which only who asks for them by name gets, it is only
    noted what they cannot do."""
    if not native:
        with machine.step(2):
            native = outcome(lambda: machine.client(client, "native", *arguments, timeout=timeout, **more))
    results, problems, notes, late = {"native": native}, [], [], False
    if native.wrong():
        machine.row(name, "no time" if "late" in native else "native no", native.wrong().split(": ", 2)[-1])
        return results, []
    if "not_tried" in native:
        machine.row(name, "skipped", native["not_tried"])
        return results, []
    limit = enough(Native(native)) * (len(modes) + 1) / 2  # they share the processors

    def one(mode):
        return outcome(lambda: machine.client(client, mode, *arguments, timeout=limit, **more), limit)

    with concurrent.futures.ThreadPoolExecutor(min(machine.jobs, 3)) as pool:
        results.update(zip(modes, pool.map(one, modes)))
    for mode in modes:
        row = results[mode]
        wrong = row.wrong() or ", ".join(
            others(row, native, same) +
            [f"{key} {row[key]}, natively {native[key]}" for key in close if row[key] > native[key] * 1.1 + 64 * MIB])
        late |= "late" in row
        if wrong and mode not in noted and "late" not in row:
            problems.append(f"{name}, {mode}: {wrong}")
        notes.append(f"{mode} {'no: ' + wrong if wrong else 'ok'}")
    if problems:
        again = outcome(lambda: machine.client(client, "native", *arguments, timeout=timeout, **more))
        if "error" in again or not again.wrong() and others(again, native, same):
            machine.row(name, "native no", "natively it " + ("fails the second time" if "error" in again else
                                                              "says something else each time"))
            return results, []
    if set(same) & set(COMPUTED) and native["computes"] is False:
        notes.append("the device does no arithmetic: values are not compared")
    machine.row(name, "differs" if problems else "no time" if late else "ok", "; ".join(notes))
    return results, problems


def all_of(machine, rows):
    """Several rows, one after another: (results by name, problems). Modes of which it is only noted what they cannot do
    come when all rows have had the others."""
    results, problems = {}, []
    for number, (name, row) in enumerate(rows.items()):
        with machine.step(len(rows) - number):
            results[name], found = in_modes(machine, name, **{**row, "modes": [m for m in row["modes"] if m not in noted(row)]})
        problems += found
    later = {name: row for name, row in rows.items() if noted(row) and not lacking(results[name]["native"])}
    for number, (name, row) in enumerate(later.items()):
        with machine.step(len(later) - number):
            more, _ = in_modes(machine, f"{name}, by name", native=results[name]["native"], **{**row, "modes": noted(row)})
        results[name].update(more)
    return results, problems


def lacking(native):
    """Whether there is nothing natively that a mode can be compared with."""
    return native.wrong() or "not_tried" in native


def noted(row):
    return [mode for mode in row["modes"] if mode in row.get("noted", ("direct",))]


def there(machine, name, modules, note="not installed"):
    """Whether the interpreter has the modules of a row. If not, or if that is not known in time, the row says so."""
    try:
        if machine.has(*modules):
            return True
        machine.row(name, "skipped", note)
    except (Slow, NoTime) as why:
        machine.row(name, "no time", str(why))
    return False


def order(machine):
    """Whether streams are still followed after what real programs load: the CUDA-12 runtime, bindings, frameworks."""
    results, problems = {}, []
    rows = (("torch", ["torch"]), ("cuda-12 runtime", []), ("cuda.bindings", ["cuda.bindings"]), ("cupy", ["cupy"]),
            ("numba", ["numba.cuda"]), ("jax", ["jax"]))
    for number, (name, modules) in enumerate(rows):
        with machine.step(len(rows) - number):
            if not there(machine, name, modules):
                continue
        if machine.sim and name in ("cuda.bindings", "cupy", "numba", "jax"):
            machine.row(name, "skipped", "brings its own runtime or compiler, which want a real driver")
            continue
        if machine.sim and name == "torch" and not machine.tool.exists():
            machine.row(name, "skipped", "stand-ins for the vendor's libraries are made by `segalloc run`")
            continue
        with machine.step(len(rows) - number):
            results[name], found = follows(machine, name)
        problems += found
    return results, problems


def follows(machine, name):
    """The row of one framework."""
    def ask(mode, limit):
        return outcome(lambda: machine.client("untracked", mode, name, runtime_12(machine), timeout=limit), limit)

    native = ask("native", 60)
    if native.wrong() or not native["done"]:
        machine.row(name, "no time" if "late" in native else "native no" if native.wrong() else "skipped",
                    native.wrong() or native["note"])
        return native, []
    row = ask("preloaded", enough(Native(native)))
    wrong = row.wrong() or (f"order lost by {row['untracked_by']}" if row["untracked_by"] else "")
    machine.row(name, "no time" if "late" in row else "differs" if wrong else "ok", wrong or "order is followed")
    return row, [f"{name}: {wrong}"] if wrong and "late" not in row else []


def runtime_12(machine):
    """libcudart.so.12: the simulator's own, one from --cu12, or "" """
    if machine.sim:
        return str(machine.build / "src" / "sim" / "cudart" / "libcudart.so.12")
    if not machine.cu12:
        return ""
    return next((str(path) for path in sorted(machine.cu12.rglob("libcudart.so.12*"))), "")


ALL = ("default", "beneath", "direct", "torch")


def graphs(machine):
    """CUDA graphs of PyTorch's making, as its users make them, in every mode."""
    machine.need("torch")
    temporary, count = (8, 10) if machine.sim else (256, 40)
    small = "sim" if machine.sim else "gpu"
    same = ("wrong",)
    by_name = ("direct", "torch")  # they have no pools, in which PyTorch's compiler looks for what it captured
    rows = {  # those that compile come last: they take the longest
        "capture and replay": {"client": "graphs", "arguments": (), "modes": ALL, "same": same},
        f"{count} graphs in one pool": {"client": "one_pool", "arguments": (count, temporary), "modes": ALL,
                                        "same": same, "close": ("peak_bytes",), "noted": by_name},
        "backend cudagraphs": {"client": "compiled", "arguments": ("cudagraphs", small), "modes": ALL, "same": same,
                               "noted": by_name},
        "static cache": {"client": "static_cache", "arguments": (small,), "modes": ALL, "same": ("tokens",),
                         "noted": by_name, "timeout": 150},
        "reduce-overhead": {"client": "compiled", "arguments": ("reduce-overhead", small), "modes": ALL, "same": same,
                            "noted": by_name, "timeout": 150},
    }
    if not there(machine, "static cache", ["transformers"], "the interpreter has no transformers"):
        rows.pop("static cache")
    return all_of(machine, rows)


def statistics(machine):
    """What vLLM finds by its formula of a peak that is known."""
    machine.need("torch")
    peak = (256 if machine.sim else 2048) * MIB

    def judge(_mode, told, _native):
        found = f"{told['found'] // MIB} MiB found of {peak // MIB}"
        return ("", found) if abs(told["found"] - peak) <= peak // 10 else (found, "")

    return by_mode(machine, "vLLM's formula", ("default", "beneath", "torch"),
                   lambda mode, limit: machine.client("profile_run", mode, peak, timeout=limit), judge)


def sharing(machine):
    """Tensors sent to another process, and NCCL with and without its own mappings."""
    machine.need("torch")
    shared = f"{machine.sim},card=gpu-{os.getpid()}" if machine.sim else None  # two processes, one device
    rows = {"sent tensor": {"client": "sent", "arguments": (), "modes": ALL, "same": ("sum",), "sim": shared,
                            "noted": ("beneath", "direct", "torch")}}  # ipc:always is for these
    for cumem in ("1", "0"):
        rows[f"NCCL_CUMEM_ENABLE={cumem}"] = {"client": "nccl", "arguments": (), "modes": ("default", "beneath"),
                                              "same": ("sum",), "timeout": 60, "NCCL_CUMEM_ENABLE": cumem}
    return all_of(machine, rows)


def tune_size(machine):
    return (2, 128, 2, 128) if machine.sim else (12, 1024, 12, 1024)


def tuning(machine):
    """Fine-tuning natively, direct and pluggable: losses, step time, memory held. One after another, for the times."""
    machine.need("torch", "transformers", "peft")
    size = tune_size(machine)

    def judge(mode, told, native):
        if told["ended"] != "completed":
            return told["ended"], ""
        if others(told, native, ("losses",)):
            return "losses differ from the native ones", ""
        if mode != "native" and not told["allocations"]:
            return "nothing was served", ""
        unknown = "" if native["computes"] is not False else ", losses not compared: the device does no arithmetic"
        return "", f"{told['step_seconds'] * 1000:.1f} ms a step, {told['peak_reserved'] / MIB:.0f} MiB at the peak{unknown}"

    return by_mode(machine, "fine-tuning", ("direct", "torch"),
                   lambda mode, limit: machine.client("tune", mode, *size, timeout=limit), judge)


def smallest(machine, mode, size, low, high, rounds):
    """The least limit under which the loop completes, to within (high - low) / 2 ** rounds; low fails, high
    completes. Fewer rounds where the time is over before."""
    tried = []
    for _ in range(rounds):
        middle = (low + high) // 2 // (2 << 20) * (2 << 20)
        conf = "" if mode == "native" else f"limit:{middle}"
        told = outcome(lambda: machine.client("tune", mode, *size, middle, timeout=100, conf=conf))
        if told.wrong():
            return {"completes": high, "fails": low, "tried": tried, **told}
        tried.append({"limit": middle, "ended": told["ended"]})
        low, high = (low, middle) if told["ended"] == "completed" else (middle, high)
    return {"completes": high, "fails": low, "tried": tried}


def limits(machine, tuned):
    """The smallest limit that completes, found for each mode at once: they share the processors, so no times are
    taken."""
    tuned = {mode: row for mode, row in (tuned or {}).items() if row.get("ended") == "completed"}
    if not tuned:
        raise Skipped("the fine-tuning before it did not run, or ended otherwise")
    size = (2, *tune_size(machine)[1:]) if machine.sim else (6, *tune_size(machine)[1:])
    with concurrent.futures.ThreadPoolExecutor(min(machine.jobs, 3)) as pool:
        jobs = {mode: pool.submit(smallest, machine, mode, size, row["peak_reserved"] // 2,
                                  row["peak_reserved"] + (64 << 20), 1 if machine.sim else 5)
                for mode, row in tuned.items()}
        results = {mode: job.result() for mode, job in jobs.items()}
    problems = []
    for mode, row in results.items():
        error = row.get("error")
        status = "ok" if row["tried"] and not error else "native no" if error and mode == "native" else \
            "differs" if error else "no time"
        bounds = f"completes at {row['completes'] / MIB:.0f} MiB, fails at {row['fails'] / MIB:.0f}"
        machine.row(f"smallest limit, {mode}", status, error or f"{bounds} ({len(row['tried'])} rounds)")
        problems += [f"{mode}: {error}"] if status == "differs" else []
    return results, problems


def streams(machine):
    """The ABI by which the library learns the stream that PyTorch has current."""
    machine.need("torch")
    return by_mode(machine, "streams", ("direct", "torch"), lambda mode, limit: machine.client("streams", mode,
                                                                                              timeout=limit),
                   lambda _mode, told, _native: ("; ".join(told["wrong"]), ""))


def running_out(machine):
    """torch.OutOfMemoryError and going on; accelerate's finder."""
    machine.need("torch")

    def judge(_mode, told, _native):
        wrong = [] if told["text"].startswith("CUDA out of memory. Tried to allocate") else [told["text"]]
        return "; ".join(wrong + ([] if told.get("goes_on") else ["does not go on"])), ""

    return by_mode(machine, "running out", ("direct", "torch"),
                   lambda mode, limit: machine.client("runs_out", mode, timeout=limit,
                                                      conf="" if machine.sim or mode == "native" else "limit:8GiB"), judge)


def frameworks(machine):
    """CuPy, JAX and Triton: the same values natively and with the library."""
    results, problems = {}, []
    names = ("cupy", "jax", "triton")
    for number, name in enumerate(names):
        if machine.sim:
            machine.row(name, "skipped", "its own runtime library or compiler wants a real driver")
            continue
        with machine.step(len(names) - number):
            if not there(machine, name, [name]):
                continue
            results[name], found = in_modes(machine, name, "other", (name,), ("preloaded",), same=("value",), timeout=90)
        served = results[name].get("preloaded", {}).get("allocations", 1)
        problems += found if served else [f"{name}: nothing was served"]
    return results, problems
