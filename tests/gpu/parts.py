"""The parts of tests/gpu/run, in their order. Each returns what goes into results.json; Skipped and Failed say why
not."""
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

from machine import HERE, ROOT, Failed, Skipped

GIB = 1 << 30


def output(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def what(machine):
    """The machine and the versions, and that it is the GPU that was meant."""
    facts = {"python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count(),
             "commit": output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
             "compiler": output("cc", "--version").splitlines()[:1],
             "nvcc": re.findall(r"release [\d.]+", output("nvcc", "--version")),
             "gpu": output("nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                           "--format=csv,noheader").splitlines()}
    versions = ("import importlib.metadata as m, json\n"
                "def v(n):\n"
                "    try: return m.version(n)\n"
                "    except m.PackageNotFoundError: return None\n"
                "print(json.dumps({n: v(n) for n in ('torch', 'transformers', 'peft', 'accelerate', 'cupy-cuda13x',"
                " 'cupy-cuda12x', 'cupy', 'jax', 'triton')}))")
    facts["modules"] = {name: version for name, version in json.loads(output(machine.python, "-c", versions)
                                                                      or "{}").items() if version}
    return facts


def build(machine):
    """The library and the programs, with what the machine has: no cmocka, no jansson needed."""
    if machine.sim and machine.library.exists() and machine.tool.exists():
        targets = []
    else:
        if not shutil.which("meson"):
            raise Failed("no meson")
        nvcc = pathlib.Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve()
        headers = [str(path) for path in (nvcc.parent.parent / "include", pathlib.Path("/usr/local/cuda/include"))
                   if (path / "cuda.h").exists()]
        options = ["-Dtools=" + ("enabled" if machine.sim else "disabled"), "-Dunit_tests=disabled", "-Dman=disabled"]
        if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "openblas"]).returncode:
            options.append("-Dplain_blas=true")
        if headers:
            options.append(f"-Dnvidia_headers={headers[0]}")
        if not (machine.build / "build.ninja").exists():
            done = subprocess.run(["meson", "setup", str(machine.build), str(ROOT), *options], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(120))
            if done.returncode:
                raise Failed(f"meson: {done.stdout[-600:]}")
        targets = ["all"]
    listed = output("ninja", "-C", str(machine.build), "-t", "targets", "all")
    strangers = sorted(set(re.findall(r"^(tests/preload/stranger/stranger_\w+): c_LINKER", listed, re.M)))
    targets += [*strangers, "tests/gpu/gpu_costs"]
    done = subprocess.run(["ninja", "-C", str(machine.build), *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(240))
    if done.returncode:
        raise Failed(f"ninja: {done.stdout[-600:]}")
    return {"library": machine.library.exists(), "programs": len(strangers),
            "trainer": (machine.build / "tools" / "train" / "segalloc-train").exists()}


def costs(machine):
    """What each call of the driver costs."""
    program = machine.build / "tests" / "gpu" / "gpu_costs"
    done = machine.run("native", [program, "1" if machine.sim else "30"], timeout=150)
    if done.returncode:
        raise Failed(done.stderr.strip()[-300:] or f"exit status {done.returncode}")
    table = json.loads(done.stdout)
    if ("simulated" in table["device"]) != bool(machine.sim):
        raise Failed(f"measured on {table['device']}, which is not what was meant: see LD_LIBRARY_PATH")
    return table


POLICIES = ("auto", "strict")
ORDERED = ("ordered_frees",)  # these rely on streams being followed, which strict need not do


def programs(machine):
    """Programs as strangers write them: every fact true natively, and the same output with the library."""
    folder = machine.build / "tests" / "preload" / "stranger"
    found = sorted(path for path in folder.glob("stranger_*") if path.is_file() and os.access(path, os.X_OK))
    if not found:
        raise Skipped("no NVIDIA headers, so the programs were not built")
    majors = {path.name.rsplit("_", 1)[1] for path in found}
    major = "13" if "13" in majors else sorted(majors)[-1]
    results = {}
    if machine.sim:
        machine.sim = "256MiB,count=2"
    for path in (path for path in found if path.name.endswith("_" + major)):
        name = path.name[len("stranger_"):-len(major) - 1]
        if name == "across_no_p2p":
            continue  # the same program for a machine without peer access
        native = machine.run("native", [path], timeout=60)
        wrong = re.findall(r"^.*: no$|^[1-9]\d* wrong.*$", native.stdout, re.M)
        row = {"native": native.returncode == 0 and not wrong, "wrong": wrong[:5], "same": {}}
        for policy in POLICIES if name not in ORDERED else POLICIES[:1]:
            preloaded, statistics = machine.counted("preloaded", [path], timeout=60, conf=f"free_sync:{policy}")
            row["same"][policy] = (preloaded.returncode, preloaded.stdout) == (native.returncode, native.stdout)
            row["served"] = statistics.get("allocs", 0)
        results[name] = row
    return results


def judge_programs(results):
    return [f"{name}: {'not what the program expects natively' if not row['native'] else 'differs with the library'}"
            for name, row in results.items() if not row["native"] or not all(row["same"].values())]


def tune_size(machine):
    return (2, 128, 2, 128) if machine.sim else (12, 1024, 12, 1024)


def tuning(machine):
    """Fine-tuning natively, direct and pluggable: losses, step time, memory held."""
    machine.need("torch", "transformers", "peft")
    size = tune_size(machine)
    return {mode: machine.client("tune", mode, *size, timeout=150) for mode in ("native", "direct", "torch")}


def judge_tuning(results, machine):
    problems = [f"{mode}: {row['ended']}" for mode, row in results.items() if row["ended"] != "completed"]
    if not machine.sim:  # there, kernels compute nothing
        problems += [f"{mode}: losses differ from the native ones" for mode, row in results.items()
                     if row["losses"] != results["native"]["losses"]]
    return problems + [f"{mode}: nothing was served" for mode, row in results.items()
                       if mode != "native" and not row["allocations"]]


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
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        jobs = {mode: pool.submit(smallest, machine, mode, size, row["peak_reserved"] // 2,
                                  row["peak_reserved"] + (64 << 20), 2 if machine.sim else 5)
                for mode, row in tuned.items()}
        return {mode: job.result() for mode, job in jobs.items()}


def streams(machine):
    """The ABI by which the library learns the stream that PyTorch has current."""
    machine.need("torch")
    return {mode: machine.client("streams", mode) for mode in ("native", "direct", "torch")}


def judge_streams(results):
    return [f"{mode}: {problem}" for mode, row in results.items() for problem in row["wrong"]]


def graphs(machine):
    """CUDA graphs of PyTorch's making, in every mode. Without kernels there is nothing to compare."""
    machine.need("torch")
    results = {}
    for mode in ("native", "beneath", "direct", "torch"):
        try:
            results[mode] = machine.client("graphs", mode)
        except Failed as error:
            results[mode] = {"wrong": None, "error": str(error)}
    return results


def judge_graphs(results, machine):
    return [f"{mode}: {row.get('error') or str(row['wrong']) + ' wrong'}" for mode, row in results.items()
            if row["wrong"] is None or (row["wrong"] and not machine.sim)]


def running_out(machine):
    """torch.OutOfMemoryError and going on; accelerate's finder."""
    machine.need("torch")
    return {mode: machine.client("runs_out", mode, conf="" if machine.sim or mode == "native" else "limit:8GiB")
            for mode in ("direct", "torch")}


def judge_running_out(results):
    problems = []
    for mode, row in results.items():
        if not row["text"].startswith("CUDA out of memory. Tried to allocate"):
            problems.append(f"{mode}: {row['text']}")
        if not row.get("goes_on"):
            problems.append(f"{mode}: does not go on")
    return problems


def frameworks(machine):
    """CuPy, JAX and Triton: the same values natively and with the library."""
    results = {}
    for name in ("cupy", "jax", "triton"):
        if not machine.has(name):
            results[name] = {"skipped": "not installed"}
            continue
        if machine.sim:
            results[name] = {"skipped": "not on the simulator: its own runtime library or compiler wants a real driver"}
            continue
        row = {}
        for mode in ("native", "preloaded"):
            try:
                row[mode] = machine.client("other", mode, name, timeout=90)
            except Failed as error:
                row[mode] = {"error": str(error)}
        results[name] = row
    return results


def judge_frameworks(results):
    problems = []
    for name, row in results.items():
        if "skipped" in row or "error" in row["native"]:
            continue  # what doesn't run natively says nothing
        if row["preloaded"].get("value") != row["native"]["value"]:
            problems.append(f"{name}: {row['preloaded'].get('error') or 'another value'}")
        elif not row["preloaded"]["allocations"]:
            problems.append(f"{name}: nothing was served")
    return problems


def static_runtime(machine):
    """A program with the runtime within it."""
    if machine.sim:
        raise Skipped("NVIDIA's own runtime does not run on the simulator")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    program = machine.work / "static_runtime"
    done = subprocess.run([nvcc, "-cudart", "static", "-o", str(program), str(HERE / "clients" / "static_runtime.cu")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(100))
    if done.returncode:
        raise Failed(f"nvcc: {done.stdout[-300:]}")
    native = machine.run("native", [program])
    preloaded, statistics = machine.counted("preloaded", [program])
    return {"native": [native.returncode, native.stdout.strip()],
            "preloaded": [preloaded.returncode, preloaded.stdout.strip()], "served": statistics.get("allocs", 0)}


def judge_static_runtime(results):
    if results["native"] != results["preloaded"]:
        return [f"native {results['native']}, preloaded {results['preloaded']}"]
    return [] if results["served"] else ["nothing was served"]


def trainer(machine):
    """The trainer on cuBLAS against its own arithmetic on the CPU."""
    program = machine.build / "tools" / "train" / "segalloc-train"
    if not program.exists():
        raise Skipped("the trainer was not built")
    if machine.sim:
        raise Skipped("cuBLAS does not run on the simulator; the suite `train` compares on stand-ins for it")
    results = {}
    for mode in ("native", "preloaded"):
        for dtype in ("fp32", "bf16"):
            done = machine.run(mode, [program, "--compare", "--json", "--dtype", dtype, "--steps", "8", "--max-len",
                                      "96", "--text", ROOT / "LICENSE"], timeout=100)
            if done.returncode not in (0, 1) or not done.stdout.strip():
                raise Failed(f"{mode}, {dtype}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
            results[f"{mode}, {dtype}"] = json.loads(done.stdout.splitlines()[-1])
    return results


def judge_trainer(results):
    problems = [f"{name}: differs by {row['largest_relative_difference']}" for name, row in results.items()
                if not row["equal"]]
    for dtype in ("fp32", "bf16"):
        if results[f"native, {dtype}"]["losses_gpu"] != results[f"preloaded, {dtype}"]["losses_gpu"]:
            problems.append(f"{dtype}: the GPU's losses are others with the library")
    return problems
