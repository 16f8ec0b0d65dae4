"""The parts of tests/gpu/run that take no framework: the machine, the build, programs, the trainer. Each prints its rows
as they come and returns what goes into results.json; Skipped and Failed say why not."""
import concurrent.futures
import glob
import json
import os
import pathlib
import platform
import re
import shutil

from machine import HERE, ROOT, Failed, NoTime, Skipped, Slow, wheel_folders

GIB = 1 << 30


def output(machine, *command):
    """What a command writes to stdout; "" where there is none, or no answer."""
    try:
        return machine.processes.run(command, dict(os.environ), machine.timeout(20)).stdout.strip()
    except (OSError, Slow, NoTime):
        return ""


def what(machine):
    """The machine and the versions, and that it is the GPU that was meant."""
    facts = {"python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count(),
             "load": os.getloadavg()[0],
             "commit": output(machine, "git", "-C", str(ROOT), "rev-parse", "HEAD"),
             "compiler": output(machine, "cc", "--version").splitlines()[:1],
             "nvcc": re.findall(r"release [\d.]+", output(machine, nvcc(), "--version")),
             "gpu": [] if machine.sim else output(machine, "nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                                  "--format=csv,noheader").splitlines()}
    versions = ("import importlib.metadata as m, json\n"
                "def v(n):\n"
                "    try: return m.version(n)\n"
                "    except m.PackageNotFoundError: return None\n"
                "print(json.dumps({n: v(n) for n in ('torch', 'transformers', 'peft', 'accelerate', 'cupy-cuda13x',"
                " 'cupy-cuda12x', 'cupy', 'jax', 'triton', 'cuda-bindings', 'numba-cuda')}))")
    facts["modules"] = {name: version for name, version in json.loads(output(machine, machine.python, "-c", versions)
                                                                      or "{}").items() if version}
    machine.row("machine", "ok", ", ".join([*facts["gpu"], *(f"{n} {v}" for n, v in facts["modules"].items())]))
    return facts


def nvcc():
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def header_folder(machine):
    """A folder with the runtime's headers, complete enough to compile against: nvcc's own, CUDA's, or a wheel's."""
    folders = [str(pathlib.Path(nvcc()).resolve().parent.parent / "include"), "/usr/local/cuda/include",
               *wheel_folders(machine.python, "include")]
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "cuda.h"))
                 and os.path.exists(os.path.join(folder, "crt", "host_config.h"))), None)


def configure(machine):
    """Sets the build folder up with what the machine has."""
    options = ["-Dtools=" + ("auto" if machine.sim else "disabled"), "-Dunit_tests=disabled", "-Dman=disabled"]
    if not output(machine, "pkg-config", "--modversion", "openblas"):
        options.append("-Dplain_blas=true")
    headers = header_folder(machine)
    if headers:
        options.append(f"-Dnvidia_headers={headers}")
    done = machine.processes.run([*machine.python_tool("meson", "mesonbuild"), "setup", machine.build, ROOT, *options],
                                 dict(os.environ), machine.timeout(120))
    if done.returncode:
        raise Failed(f"meson: {(done.stdout + done.stderr)[-600:]}")


# What is built after the library and gpu_probe, which all parts need: (what it is called, the parts that use it, targets).
EXTRAS = (
    ("the simulator", ("probe", "alias", "costs"), r"^(src/sim/libcuda\.so\.1|src/sim/cudart/libcudart\.so\.\d+): c_LINKER"),
    ("the trainer", ("trainer",), r"^(tools/train/segalloc-train): c_LINKER"),
    ("the programs", ("programs", "tools"), r"^(tests/preload/stranger/stranger_\w+): c_LINKER"),
)
TOOL = (("the command", (), r"^(tools/segalloc/segalloc|src/sim/\S+\.so(?:\.\d+)?): c_LINKER|^(tools/python/\S+\.py): "),)


def can_probe(machine):
    return machine.library.exists() and machine.probe.exists()


def ninja(machine, targets, *options):
    """("", or what was wrong; whether that is the time alone). What is built before the time is over stays."""
    command = [*machine.python_tool("ninja", "ninja"), "-C", str(machine.build), *options, *targets]
    try:
        done = machine.processes.run(command, dict(os.environ), machine.timeout(600))
        wrong = last_words(done.stdout + done.stderr) or f"status {done.returncode}"
        return "" if done.returncode == 0 else wrong, False
    except Slow as why:
        return f"not within {why.given:.0f} s: {last_words(why.output)}", True
    except NoTime as why:
        return str(why), True


def last_words(text):
    """The first error in what a build wrote, or its last lines; without the commands, which are long."""
    lines = [line[:200] for line in text.splitlines() if line.strip() and not line.startswith(("FAILED: ", "cc ", "gcc "))]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line)]
    return "; ".join(errors[:2] or lines[-2:])


def build(machine):
    """The library and gpu_probe, which must be; then what the chosen parts use, whatever of it can be built."""
    built = machine.sim and machine.library.exists() and machine.tool.exists()
    if not (machine.build / "build.ninja").exists():
        configure(machine)
    listed = output(machine, *machine.python_tool("ninja", "ninja"), "-C", str(machine.build), "-t", "targets", "all")
    library = re.findall(r"^(src/preload/libsegalloc\.so\.[\d.]+): c_LINKER", listed, re.M)
    wrong, _ = ninja(machine, [*([] if built else library), "tests/gpu/gpu_probe"])
    if wrong:
        raise Failed(f"the library and gpu_probe: {wrong}")
    if not can_probe(machine):
        raise Failed("the library and gpu_probe: not there, though ninja " +
                     ("says that all is well" if listed else "was content: it listed no targets"))
    machine.row("library, gpu_probe", "ok")
    found, problems = {"library": True, "probe": True}, []
    for name, users, pattern in (*EXTRAS, *(TOOL if machine.sim and not built else ())):
        if users and not set(users) & set(machine.chosen):
            continue
        targets = sorted({next(filter(None, match.groups())) for match in re.finditer(pattern, listed, re.M)})
        wrong, late = ninja(machine, targets, "-k", "0") if targets else ("", False)
        found[name] = sum((machine.build / target).exists() for target in targets)
        note = f"{found[name]} of {len(targets)}" + (f": {wrong}" if wrong else "")
        machine.row(name, "no time" if late else "ok" if targets and not wrong else "missing",
                    note if targets else "no such target here")
        problems += [f"{name}: {note}"] if wrong and not late else []
    return found, problems


# What the programs are run under, and which of them rely on streams being followed, as strict need not do.
POLICIES = ("auto", "strict")
ORDERED = ("ordered_frees",)
HELD_FREE = 4 * GIB  # of a real card, so that programs that fill it do it in seconds
EACH_FREE = GIB  # besides, for each that runs at once: its context alone takes about half of that
MOST_FALSE = 10  # rows of programs that fail natively, of those that are printed: with a wrong library all do


def of_the_newest_runtime(folder):
    """{name: path} of the programs for the newest runtime that they were built with."""
    found = sorted(path for path in folder.glob("stranger_*") if path.is_file() and os.access(path, os.X_OK))
    majors = {path.name.rsplit("_", 1)[1] for path in found} & {"12", "13"}
    if not majors:
        raise Skipped("no NVIDIA headers, so the programs were not built")
    major = max(majors)
    return {path.name[len("stranger_"):-len(major) - 1]: path for path in found if path.name.endswith("_" + major)}


def asks_for_memory(name):
    """Whether a program looks at how much is free, or takes all: then it runs by itself."""
    source = ROOT / "tests" / "preload" / "stranger" / f"{re.sub('_per_thread$', '', name)}.c"
    return source.exists() and "MemGetInfo" in source.read_text()


def enough(native):
    """Seconds within which what ended natively must end with the library too."""
    return 20 + 5 * native.seconds


def not_tried(done):
    """Why a program did nothing, by its own word."""
    told = re.search(r"^not tried: (.*)$", done.stdout, re.M)
    return told.group(1) if told else None


def run_program(machine, name, path):
    """One program natively and under each policy. What is false or fails natively is no failure of the library."""
    sim = "256MiB,count=2" if machine.sim else None
    native = machine.run("native", [path], timeout=30, sim=sim, linked=True)
    if not_tried(native):
        return {"not_tried": not_tried(native)}
    wrong = re.findall(r"^.*: no$|^[1-9]\d* wrong.*$", native.stdout, re.M)
    row = {"native": native.returncode == 0 and not wrong, "wrong": wrong[:5] or [f"exit status {native.returncode}"],
           "same": {}, "served": 0}
    for policy in POLICIES if name not in ORDERED else POLICIES[:1]:
        try:
            preloaded, statistics = machine.counted("preloaded", [path], timeout=enough(native), conf=f"free_sync:{policy}",
                                                     sim=sim, linked=True)
        except Slow as why:
            if why.given < enough(native):
                raise
            row["same"][policy] = False
            continue
        row["same"][policy] = (preloaded.returncode, preloaded.stdout) == (native.returncode, native.stdout)
        row["served"] = statistics.get("allocs", 0)
        if not row["same"][policy]:
            machine.heard(f"{name} under {policy}", difference(native.stdout, preloaded.stdout))
    if row["native"] and not all(row["same"].values()):
        again = machine.run("native", [path], timeout=enough(native), sim=sim, linked=True)
        if (again.returncode, again.stdout) != (native.returncode, native.stdout):
            row.update(native=False, wrong=["natively it prints something else each time"])
    return row


def difference(native, preloaded):
    ours = preloaded.splitlines()
    return "\n".join(f"natively: {line}" for line in native.splitlines() if line not in ours)[:1000] or "fewer or more lines"


def judge_program(machine, name, row):
    """False where the library is at fault."""
    if "not_tried" in row:
        machine.row(name, "not tried", row["not_tried"])
    elif not row["native"]:
        machine.row(name, "native no", "; ".join(row["wrong"]), most=MOST_FALSE)
    elif not all(row["same"].values()):
        machine.row(name, "differs", "under " + ", ".join(p for p, same in row["same"].items() if not same))
        return False
    return True


def programs(machine):
    """Programs as strangers write them: the same output with the library. Several at once, with little memory left."""
    found = of_the_newest_runtime(machine.build / "tests" / "preload" / "stranger")
    # the same programs once more, for machines without peer access or with older drivers
    found = {name: path for name, path in found.items() if not re.search(r"_no_p2p$|_\d+_\d+$", name)}
    results, problems, late = {}, [], []
    if not machine.sim:
        free = machine.hold(HELD_FREE + machine.jobs * EACH_FREE)
        machine.row("memory held", "ok" if free else "native no", f"{(free or 0) >> 20} MiB left to the programs")

    def one(name):
        try:
            row = run_program(machine, name, found[name])
        except (Slow, NoTime):
            late.append(name)
            return
        results[name] = row
        if not judge_program(machine, name, row):
            problems.append(f"{name} differs with the library")

    alone = [name for name in found if not machine.sim and asks_for_memory(name)]
    with concurrent.futures.ThreadPoolExecutor(machine.jobs) as pool:
        list(pool.map(one, [name for name in found if name not in alone]))
    for name in alone:
        one(name)
    machine.let_go()
    tried = [row for row in results.values() if "not_tried" not in row]
    true = sum(row["native"] for row in tried)
    if len(tried) - true > MOST_FALSE:
        print(f"  and {len(tried) - true - MOST_FALSE} more that fail natively", flush=True)
    if late:
        machine.row("in time", "no time", f"{len(late)} programs: {', '.join(sorted(late))}")
    if true * 2 < len(tried) or not results and not late:
        problems.append(f"{true} of {len(tried)} are true natively: wrong libraries, or a device that does not work?")
    machine.row("programs", "ok" if not problems else "differs",
                f"{len(tried)} ran, {true} true natively, {len(results) - len(tried)} not tried, "
                f"{sum(row['native'] and not all(row['same'].values()) for row in tried)} differ")
    return results, problems


def both(machine, program, **more):
    """A program natively and with the library; (native, preloaded, how many allocations were served). Without the second
    where the first fails."""
    native = machine.run("native", program, linked=True, **more)
    if native.returncode:
        return [native.returncode, native.stdout.strip()], None, 0
    preloaded, statistics = machine.counted("preloaded", program, linked=True, **more)
    return ([native.returncode, native.stdout.strip()], [preloaded.returncode, preloaded.stdout.strip()],
            statistics.get("allocs", 0))


def judge_both(machine, name, found, must_serve=True):
    native, preloaded, served = found
    wrong = [] if native[0] or (native == preloaded and (served or not must_serve)) else [name]
    if native[0]:
        machine.row(name, "native no", f"exit status {native[0]}: {native[1][-80:]}")
    elif native != preloaded:
        machine.row(name, "differs", f"native {native}, preloaded {preloaded}")
    else:
        machine.row(name, "differs" if wrong else "ok", f"{served} allocations served")
    return wrong


def try_both(machine, name, program, must_serve=True, **more):
    """(what was found, problems) of such a program as a row."""
    try:
        found = both(machine, program, **more)
    except (Slow, NoTime) as why:
        machine.row(name, "no time", str(why))
        return {"why": str(why)}, []
    return ({"native": found[0], "preloaded": found[1], "served": found[2]},
            judge_both(machine, name, found, must_serve))


def static_runtime(machine):
    """A program with the runtime within it."""
    if machine.sim:
        raise Skipped("NVIDIA's own runtime does not run on the simulator")
    program = machine.work / "static_runtime"
    try:
        done = machine.processes.run([nvcc(), "-cudart", "static", "-o", program, HERE / "clients" / "static_runtime.cu"],
                                     dict(os.environ), machine.timeout(60))
    except OSError as why:
        raise Skipped(f"needs nvcc: {why}") from None
    if done.returncode:
        raise Skipped(f"nvcc: {(done.stdout + done.stderr)[-300:]}")
    return try_both(machine, "static runtime", [program])


INJECTED = ("/usr/local/cuda*/nsight-compute*/target/*/libcuda-injection.so",
            "/opt/nvidia/nsight-compute/*/target/*/libcuda-injection.so")


def tools(machine):
    """A program under a tool that comes between: compute-sanitizer, and a library that is injected."""
    if machine.sim:
        raise Skipped("NVIDIA's tools do not run on the simulator")
    found = of_the_newest_runtime(machine.build / "tests" / "preload" / "stranger")
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    results, problems = {}, []
    with machine.step(2):
        if os.access(sanitizer, os.X_OK):
            results["memcheck"], problems = try_both(machine, "memcheck", [
                sanitizer, "--tool", "memcheck", "--error-exitcode", "9", "--log-file", os.devnull, found["blocks"]])
        else:
            machine.row("compute-sanitizer", "skipped", "not installed")
    for library in [path for pattern in INJECTED for path in sorted(glob.glob(pattern))][:1]:
        # the library stands aside then, so nothing need be served
        results["injection"], wrong = try_both(machine, "injection", [found["blocks"]], must_serve=False,
                                               CUDA_INJECTION64_PATH=library)
        problems += wrong
    return results, problems


def trainer(machine):
    """The trainer on cuBLAS against its own arithmetic on the CPU."""
    program = machine.build / "tools" / "train" / "segalloc-train"
    if machine.sim:
        raise Skipped("cuBLAS does not run on the simulator; the suite `train` compares on stand-ins for it")
    if not program.exists():  # the time for building may have been over before it
        wrong, _ = ninja(machine, ["tools/train/segalloc-train"])
        if wrong:
            raise Skipped(f"the trainer was not built: {wrong}")
    results, problems = {}, []
    for steps_left, dtype in ((2, "fp32"), (1, "bf16")):
        with machine.step(steps_left):
            try:
                found = {mode: compare_trainer(machine, program, mode, dtype) for mode in ("native", "preloaded")}
            except (Slow, NoTime) as why:
                machine.row(f"trainer, {dtype}", "no time", str(why))
                continue
            except Failed as why:
                machine.row(f"trainer, {dtype}", "native no" if "native" in str(why) else "differs", str(why))
                problems += [] if "native" in str(why) else [f"{dtype}: {why}"]
                continue
        results.update({f"{mode}, {dtype}": row for mode, row in found.items()})
        native, ours = found["native"], found["preloaded"]
        same = native["losses_gpu"] == ours["losses_gpu"]
        status = "differs" if not same else "ok" if native["equal"] else "native no"
        machine.row(f"trainer, {dtype}", status, f"largest difference {native['largest_relative_difference']}")
        problems += [] if same else [f"{dtype}: the GPU's losses are others with the library"]
    return results, problems


def compare_trainer(machine, program, mode, dtype):
    """What the trainer says of itself on the GPU beside the CPU."""
    done = machine.run(mode, [program, "--compare", "--json", "--dtype", dtype, "--steps", "8", "--max-len", "96", "--text",
                              ROOT / "LICENSE"], timeout=60, linked=True)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise Failed(f"{mode}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])
