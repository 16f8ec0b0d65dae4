"""The parts of tests/gpu/run that ask the driver itself, by gpu_probe, and what their rows come to in a line each."""
import os

import facts
from machine import Failed, NoTime, Skipped, Slow
from parts import nvcc

MIB = 1 << 20


def kernels(machine):
    """The kernels, compiled for the device at hand: [] where there is no compiler. On the simulator they are functions
    of the host."""
    if machine.sim:
        return []
    if machine.kernels is None:
        target, source = machine.work / "kernels.cubin", facts.ROOT / "tools" / "probe" / "kernels.cu"
        try:
            given, machine.kernels = machine.timeout(40), []  # one that fails or is slow is not asked again
            done = machine.processes.run([nvcc(), "-cubin", "-arch=native", "-o", target, source], dict(os.environ), given)
            machine.heard("nvcc kernels.cu", done.stdout + done.stderr if done.returncode else "")
            machine.kernels = ["--kernels", str(target)] if done.returncode == 0 and target.exists() else []
        except (OSError, Slow, NoTime) as why:
            machine.heard("nvcc kernels.cu", str(why))
    return machine.kernels or []


def groups(lines):
    """Consecutive lines of one row together, as soon as the next begins."""
    current = []
    for line in lines:
        if current and line["row"] != current[0]["row"]:
            yield current
            current = []
        current.append(line)
    if current:
        yield current


def kept(machine, lines):
    """The same lines, of which the machine has each as soon as it has come."""
    for line in lines:
        machine.lines.append(line)
        yield line


def ask(machine, group, timeout, rounds):
    """All rows of a group, printed as they come: (lines, problems). What the driver refuses is said, and no failure."""
    arguments = [*(["--quick"] if machine.sim else ["--rounds", str(rounds)]), *kernels(machine), "--group", group]
    everything, problems = [], []
    sim = f"{machine.sim},kernel_us=100,drop_mb=1" if machine.sim else None
    for lines in in_time(machine, groups(kept(machine, machine.asked("native", *arguments, timeout=timeout, sim=sim)))):
        everything += lines
        name = lines[0]["row"]
        error = next((line for line in lines if "error" in line), None)
        skipped = next((line for line in lines if "skipped" in line), None)
        if error:
            machine.row(name, "no time" if error["error"].startswith("no answer") else "native no", error["error"] + (f": {error['code']}" if "code" in error else ""))
        elif skipped and len(lines) == 1:
            machine.row(name, "skipped", skipped["skipped"])
        else:
            wrong = facts.wrong(name, lines)
            machine.row(name, "native no" if wrong else "ok", wrong or facts.line(name, lines))
            problems += [f"{name}: {wrong}"] if wrong else []
    if not everything and not any(row["status"] == "no time" for row in machine.rows):
        raise Failed("the probe said nothing")
    return everything, problems


def in_time(machine, items):
    """Those that come before the time is over; a row says that others did not."""
    try:
        yield from items
    except (Slow, NoTime) as why:
        machine.row("the other rows", "no time", str(why))


def probe(machine):
    """What the allocator and the simulator take for granted."""
    lines, _ = ask(machine, "probe", 240, 10)
    more, _ = ask(machine, "selftest", 120, 10)
    lines += more
    if lines and lines[0].get("simulated", False) != bool(machine.sim):
        raise Failed(f"measured on {lines[0].get('device')}, which is not what was meant: see LD_LIBRARY_PATH")
    return lines


def alias(machine):
    """Whether two addresses of a page are coherent, in every way to read."""
    if not machine.sim and not kernels(machine):
        raise Skipped("needs nvcc (kernels.cu): there is none, or it compiles nothing for this device")
    return ask(machine, "alias", 150, 1)


def costs(machine):
    """What each call of the driver costs."""
    lines, _ = ask(machine, "costs", 150, 30)
    return lines


def managed(machine):
    """Managed memory beside what the library keeps of freed memory. It never asks for more than is free."""
    sim = f"{machine.sim},card=gpu-{os.getpid()}" if machine.sim else None
    quick = ["--quick"] if machine.sim else []
    found = {}
    for mode in ("native", "preloaded"):
        with machine.step(2 if mode == "native" else 1):
            try:
                lines = list(machine.asked(mode, *quick, "managed", timeout=40, sim=sim))
            except (Slow, NoTime) as why:
                machine.row(f"managed, {mode}", "no time", str(why))
                break
        found[mode] = line = lines[-1] if lines else {"error": "the probe said nothing"}
        if "skipped" in line or "error" in line:
            status = "skipped" if "skipped" in line else "native no" if mode == "native" else "differs"
            machine.row(f"managed, {mode}", status, line.get("skipped") or line["error"])
        else:
            machine.row(f"managed, {mode}", "ok", facts.line("managed", lines))
        if "error" in line:
            break
    return found, [f"managed, {mode}: {line['error']}" for mode, line in found.items()
                   if mode == "preloaded" and "error" in line]
