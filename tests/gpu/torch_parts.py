"""The parts of tests/gpu/run that take PyTorch or another framework."""
import concurrent.futures
import os

from machine import Failed, Skipped

MIB = 1 << 20


def in_modes(machine, name, client, arguments, modes, same=(), timeout=120, sim_timeout=None, close=(),
             noted=("direct",), **more):
    """A row of one client: natively first, then in each mode at once. Facts named in `same` must be the native ones,
    those in `close` at most a tenth above. Of modes in `noted`, which only who asks for them by name gets, it is only
    noted what they cannot do."""
    timeout = (sim_timeout or timeout) if machine.sim else timeout
    results, problems = {}, []
    try:
        results["native"] = native = machine.client(client, "native", *arguments, timeout=timeout, **more)
    except Failed as why:
        machine.row(name, "native no", str(why).split(": ", 2)[-1])
        return {"native": {"error": str(why)}}, []

    def one(mode):
        try:
            return machine.client(client, mode, *arguments, timeout=timeout, **more)
        except Failed as why:
            return {"error": str(why)}

    with concurrent.futures.ThreadPoolExecutor(min(machine.jobs, 3)) as pool:
        results.update(zip(modes, pool.map(one, modes)))
    notes = []
    for mode in modes:
        row = results[mode]
        wrong = row.get("error") or ", ".join(
            [f"{key} {row[key]}, natively {native[key]}" for key in same if row[key] != native[key]] +
            [f"{key} {row[key]}, natively {native[key]}" for key in close if row[key] > native[key] * 1.1 + 64 * MIB])
        if wrong and mode not in noted:
            problems.append(f"{name}, {mode}: {wrong}")
        notes.append(f"{mode} {'no: ' + wrong if wrong else 'ok'}")
    machine.row(name, "differs" if problems else "ok", "; ".join(notes))
    return results, problems


def all_of(machine, rows):
    """Several rows, one after another: (results by name, problems)."""
    results, problems = {}, []
    for name, arguments in rows.items():
        results[name], found = in_modes(machine, name, **arguments)
        problems += found
    return results, problems


def order(machine):
    """Whether streams are still followed after what real programs load: the CUDA-12 runtime, bindings, frameworks."""
    results, problems = {}, []
    for name, modules in (("torch", ["torch"]), ("cuda-12 runtime", []), ("cuda.bindings", ["cuda.bindings"]),
                          ("cupy", ["cupy"]), ("numba", ["numba.cuda"]), ("jax", ["jax"])):
        if not machine.has(*modules):
            machine.row(name, "skipped", "not installed")
            continue
        if machine.sim and name in ("cuda.bindings", "cupy", "numba", "jax"):
            machine.row(name, "skipped", "brings its own runtime or compiler, which want a real driver")
            continue
        mode = "native"
        try:
            machine.client("untracked", mode, name, runtime_12(machine), timeout=60)
            mode = "preloaded"
            row = machine.client("untracked", mode, name, runtime_12(machine), timeout=60)
        except Failed as why:
            machine.row(name, "native no" if mode == "native" else "differs", str(why))
            problems += [f"{name}: {why}"] if mode != "native" else []
            continue
        results[name] = row
        lost = row["untracked_by"]
        machine.row(name, "differs" if lost else "ok" if row["done"] else "skipped",
                    f"order lost by {lost}" if lost else row.get("note", "order is followed"))
        problems += [f"{name}: order lost by {lost}"] if lost else []
    return results, problems


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
    same = () if machine.sim else ("wrong",)  # there, kernels compute next to nothing
    by_name = ("direct", "torch")  # they have no pools, in which PyTorch's compiler looks for what it captured
    rows = {
        "capture and replay": {"client": "graphs", "arguments": (), "modes": ALL, "same": same},
        "reduce-overhead": {"client": "compiled", "arguments": ("reduce-overhead", small), "modes": ALL, "same": same,
                            "noted": by_name, "timeout": 150},
        "backend cudagraphs": {"client": "compiled", "arguments": ("cudagraphs", small), "modes": ALL, "same": same,
                               "noted": by_name},
        f"{count} graphs in one pool": {"client": "one_pool", "arguments": (count, temporary), "modes": ALL,
                                        "same": same, "close": ("peak_bytes",), "noted": by_name},
        "static cache": {"client": "static_cache", "arguments": (small,), "modes": ALL, "same": ("tokens",),
                         "noted": by_name, "timeout": 150},
    }
    if not machine.has("transformers"):
        machine.row("static cache", "skipped", "the interpreter has no transformers")
        rows.pop("static cache")
    return all_of(machine, rows)


def statistics(machine):
    """What vLLM finds by its formula of a peak that is known."""
    machine.need("torch")
    peak = (256 if machine.sim else 2048) * MIB
    results, problems = {}, []
    for mode in ("native", "default", "beneath", "torch"):
        try:
            results[mode] = row = machine.client("profile_run", mode, peak)
        except Failed as why:
            results[mode] = {"error": str(why)}
            machine.row(f"vLLM's formula, {mode}", "native no" if mode == "native" else "differs", str(why))
            if mode == "native":
                break
            problems.append(f"vLLM's formula, {mode}: {why}")
            continue
        near = abs(row["found"] - peak) <= peak // 10
        machine.row(f"vLLM's formula, {mode}", "ok" if near else "native no" if mode == "native" else "differs",
                    f"{row['found'] // MIB} MiB found of {peak // MIB}")
        problems += [] if near or mode == "native" else [f"vLLM's formula, {mode}: {row['found']} of {peak} bytes"]
    return results, problems


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
    results, problems = {}, []
    for mode in ("native", "direct", "torch"):
        results[mode] = row = machine.client("tune", mode, *size, timeout=150)
        wrong = row["ended"] if row["ended"] != "completed" else ""
        if not machine.sim and row["losses"] != results["native"]["losses"]:
            wrong = "losses differ from the native ones"
        if mode != "native" and not row["allocations"]:
            wrong = "nothing was served"
        machine.row(f"fine-tuning, {mode}", "ok" if not wrong else "native no" if mode == "native" else "differs",
                    wrong or f"{row['step_seconds'] * 1000:.1f} ms a step, {row['peak_reserved'] / MIB:.0f} MiB at the peak")
        problems += [f"{mode}: {wrong}"] if wrong and mode != "native" else []
    return results, problems


def smallest(machine, mode, size, low, high, rounds):
    """The least limit under which the loop completes, to within (high - low) / 2 ** rounds; low fails, high
    completes."""
    tried = []
    for _ in range(rounds):
        middle = (low + high) // 2 // (2 << 20) * (2 << 20)
        conf = "" if mode == "native" else f"limit:{middle}"
        told = machine.client("tune", mode, *size, middle, timeout=300 if machine.sim else 100, conf=conf)
        tried.append({"limit": middle, "ended": told["ended"]})
        low, high = (low, middle) if told["ended"] == "completed" else (middle, high)
    return {"completes": high, "fails": low, "tried": tried}


def limits(machine, tuned):
    """The smallest limit that completes, found for each mode at once: they share the processors, so no times are
    taken."""
    if not tuned:
        raise Skipped("the fine-tuning before it did not run")
    size = (2, *tune_size(machine)[1:]) if machine.sim else (6, *tune_size(machine)[1:])
    with concurrent.futures.ThreadPoolExecutor(min(machine.jobs, 3)) as pool:
        jobs = {mode: pool.submit(smallest, machine, mode, size, row["peak_reserved"] // 2,
                                  row["peak_reserved"] + (64 << 20), 1 if machine.sim else 5)
                for mode, row in tuned.items()}
        results = {mode: job.result() for mode, job in jobs.items()}
    for mode, row in results.items():
        machine.row(f"smallest limit, {mode}", "ok",
                    f"completes at {row['completes'] / MIB:.0f} MiB, fails at {row['fails'] / MIB:.0f}")
    return results


def streams(machine):
    """The ABI by which the library learns the stream that PyTorch has current."""
    machine.need("torch")
    results, problems = {}, []
    for mode in ("native", "direct", "torch"):
        results[mode] = row = machine.client("streams", mode)
        machine.row(f"streams, {mode}", "ok" if not row["wrong"] else "native no" if mode == "native" else "differs",
                    "; ".join(row["wrong"]))
        problems += [f"{mode}: {problem}" for problem in row["wrong"] if mode != "native"]
    return results, problems


def running_out(machine):
    """torch.OutOfMemoryError and going on; accelerate's finder."""
    machine.need("torch")
    results, problems = {}, []
    for mode in ("direct", "torch"):
        results[mode] = row = machine.client("runs_out", mode, conf="" if machine.sim else "limit:8GiB")
        wrong = [] if row["text"].startswith("CUDA out of memory. Tried to allocate") else [row["text"]]
        wrong += [] if row.get("goes_on") else ["does not go on"]
        machine.row(f"running out, {mode}", "differs" if wrong else "ok", "; ".join(wrong))
        problems += [f"{mode}: {problem}" for problem in wrong]
    return results, problems


def frameworks(machine):
    """CuPy, JAX and Triton: the same values natively and with the library."""
    results, problems = {}, []
    for name in ("cupy", "jax", "triton"):
        if not machine.has(name) or machine.sim:
            machine.row(name, "skipped", "its own runtime library or compiler wants a real driver" if machine.sim
                        else "not installed")
            continue
        results[name], found = in_modes(machine, name, "other", (name,), ("preloaded",), same=("value",), timeout=90)
        served = results[name].get("preloaded", {}).get("allocations", 1)
        problems += found if served else [f"{name}: nothing was served"]
    return results, problems
