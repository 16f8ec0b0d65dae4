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
import subprocess

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
             "nvcc": re.findall(r"release [\d.]+", output(nvcc(), "--version")),
             "gpu": [] if machine.sim else output("nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                                  "--format=csv,noheader").splitlines()}
    versions = ("import importlib.metadata as m, json\n"
                "def v(n):\n"
                "    try: return m.version(n)\n"
                "    except m.PackageNotFoundError: return None\n"
                "print(json.dumps({n: v(n) for n in ('torch', 'transformers', 'peft', 'accelerate', 'cupy-cuda13x',"
                " 'cupy-cuda12x', 'cupy', 'jax', 'triton', 'cuda-bindings', 'numba-cuda')}))")
    facts["modules"] = {name: version for name, version in json.loads(output(machine.python, "-c", versions)
                                                                      or "{}").items() if version}
    machine.row("machine", "ok", ", ".join([*facts["gpu"], *(f"{n} {v}" for n, v in facts["modules"].items())]))
    return facts


def nvcc():
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def configure(machine):
    """Sets the build folder up with what the machine has."""
    compiler = pathlib.Path(nvcc()).resolve()
    headers = [str(path) for path in (compiler.parent.parent / "include", pathlib.Path("/usr/local/cuda/include"))
               if (path / "cuda.h").exists()]
    options = ["-Dtools=" + ("enabled" if machine.sim else "disabled"), "-Dunit_tests=disabled", "-Dman=disabled"]
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "openblas"]).returncode:
        options.append("-Dplain_blas=true")
    if headers:
        options.append(f"-Dnvidia_headers={headers[0]}")
    done = subprocess.run([*machine.python_tool("meson", "mesonbuild"), "setup", str(machine.build), str(ROOT), *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(120))
    if done.returncode:
        raise Failed(f"meson: {done.stdout[-600:]}")


def build(machine):
    """The library and the programs, with what the machine has: no cmocka, no jansson needed."""
    targets = [] if machine.sim and machine.library.exists() and machine.tool.exists() else ["all"]
    if targets and not (machine.build / "build.ninja").exists():
        configure(machine)
    ninja = machine.python_tool("ninja", "ninja")
    listed = output(*ninja, "-C", str(machine.build), "-t", "targets", "all")
    strangers = sorted(set(re.findall(r"^(tests/preload/stranger/stranger_\w+): c_LINKER", listed, re.M)))
    targets += [*strangers, "tests/gpu/gpu_probe"]
    done = subprocess.run([*ninja, "-C", str(machine.build), *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(240))
    if done.returncode:
        raise Failed(f"{' '.join(ninja)}: {done.stdout[-600:]}")
    return {"library": machine.library.exists(), "programs": len(strangers), "probe": machine.probe.exists(),
            "trainer": (machine.build / "tools" / "train" / "segalloc-train").exists()}


# What the programs are run under, and which of them rely on streams being followed, as strict need not do.
POLICIES = ("auto", "strict")
ORDERED = ("ordered_frees",)
HELD_FREE = 4 * GIB  # of a real card, so that programs that fill it do it in seconds


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


def run_program(machine, name, path):
    """One program natively and under each policy. What is false or fails natively is no failure of the library."""
    sim = "256MiB,count=2" if machine.sim else None
    seconds = 120 if machine.sim else 20
    native = machine.run("native", [path], timeout=seconds, sim=sim)
    wrong = re.findall(r"^.*: no$|^[1-9]\d* wrong.*$", native.stdout, re.M)
    row = {"native": native.returncode == 0 and not wrong, "wrong": wrong[:5], "same": {}, "served": 0}
    for policy in POLICIES if name not in ORDERED else POLICIES[:1]:
        preloaded, statistics = machine.counted("preloaded", [path], timeout=seconds + 10, conf=f"free_sync:{policy}",
                                                 sim=sim)
        row["same"][policy] = (preloaded.returncode, preloaded.stdout) == (native.returncode, native.stdout)
        row["served"] = statistics.get("allocs", 0)
        if not row["same"][policy]:
            machine.heard(f"{name} under {policy}", difference(native.stdout, preloaded.stdout))
    return row


def difference(native, preloaded):
    ours = preloaded.splitlines()
    return "\n".join(f"natively: {line}" for line in native.splitlines() if line not in ours)[:1000] or "fewer or more lines"


def judge_program(machine, name, row):
    if not all(row["same"].values()):
        machine.row(name, "differs", "under " + ", ".join(p for p, same in row["same"].items() if not same))
    elif not row["native"]:
        machine.row(name, "native no", "; ".join(row["wrong"]) or "fails natively")
    return all(row["same"].values())


def programs(machine):
    """Programs as strangers write them: the same output with the library. Several at once, with little memory left."""
    found = of_the_newest_runtime(machine.build / "tests" / "preload" / "stranger")
    found.pop("across_no_p2p", None)  # the same program for a machine without peer access
    results, problems = {}, []
    if not machine.sim:
        machine.row("memory held", "ok", f"{machine.hold(HELD_FREE) >> 20} MiB left to the programs")

    def one(name):
        try:
            results[name] = run_program(machine, name, found[name])
            if not judge_program(machine, name, results[name]):
                problems.append(f"{name} differs with the library")
        except Failed as why:  # too long natively, or with the library
            native = "mode native" in str(why)
            machine.row(name, "native no" if native else "differs", str(why))
            if not native:
                problems.append(str(why))

    alone = [name for name in found if not machine.sim and asks_for_memory(name)]
    with concurrent.futures.ThreadPoolExecutor(machine.jobs) as pool:
        list(pool.map(one, [name for name in found if name not in alone]))
    for name in alone:
        one(name)
    machine.let_go()
    machine.row("programs", "ok" if not problems else "differs",
                f"{len(results)} ran, {sum(r['native'] for r in results.values())} true natively, {len(problems)} differ")
    return results, problems


def both(machine, program, **more):
    """A program natively and with the library; (native, preloaded, how many allocations were served)."""
    native = machine.run("native", program, **more)
    preloaded, statistics = machine.counted("preloaded", program, **more)
    return ([native.returncode, native.stdout.strip()], [preloaded.returncode, preloaded.stdout.strip()],
            statistics.get("allocs", 0))


def judge_both(machine, name, found):
    native, preloaded, served = found
    if native[0]:
        machine.row(name, "native no", f"exit status {native[0]}")
    elif native != preloaded:
        machine.row(name, "differs", f"native {native}, preloaded {preloaded}")
    else:
        machine.row(name, "ok" if served else "differs", f"{served} allocations served")
    return [] if native[0] or (native == preloaded and served) else [name]


def static_runtime(machine):
    """A program with the runtime within it."""
    if machine.sim:
        raise Skipped("NVIDIA's own runtime does not run on the simulator")
    program = machine.work / "static_runtime"
    done = subprocess.run([nvcc(), "-cudart", "static", "-o", str(program), str(HERE / "clients" / "static_runtime.cu")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=machine.timeout(100))
    if done.returncode:
        raise Skipped(f"nvcc: {done.stdout[-300:]}")
    found = both(machine, [program])
    return {"native": found[0], "preloaded": found[1], "served": found[2]}, judge_both(machine, "static runtime", found)


INJECTED = ("/usr/local/cuda*/nsight-compute*/target/*/libcuda-injection.so",
            "/opt/nvidia/nsight-compute/*/target/*/libcuda-injection.so")


def tools(machine):
    """A program under a tool that comes between: compute-sanitizer, and a library that is injected."""
    if machine.sim:
        raise Skipped("NVIDIA's tools do not run on the simulator")
    found = of_the_newest_runtime(machine.build / "tests" / "preload" / "stranger")
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    results, problems = {}, []
    if os.access(sanitizer, os.X_OK):
        results["memcheck"] = both(machine, [sanitizer, "--tool", "memcheck", "--error-exitcode", "9", "--log-file",
                                             os.devnull, found["blocks"]], timeout=60)
    else:
        machine.row("compute-sanitizer", "skipped", "not installed")
    for name, row in results.items():
        problems += judge_both(machine, name, row)
    for library in [path for pattern in INJECTED for path in sorted(glob.glob(pattern))][:1]:
        native, preloaded, _ = found_by = both(machine, [found["blocks"]], CUDA_INJECTION64_PATH=library)
        results["injection"] = found_by  # the library stands aside then, so nothing need be served
        machine.row("injection", "native no" if native[0] else "ok" if native == preloaded else "differs", library)
        problems += [] if native[0] or native == preloaded else ["injection"]
    return results, problems


def trainer(machine):
    """The trainer on cuBLAS against its own arithmetic on the CPU."""
    program = machine.build / "tools" / "train" / "segalloc-train"
    if not program.exists():
        raise Skipped("the trainer was not built")
    if machine.sim:
        raise Skipped("cuBLAS does not run on the simulator; the suite `train` compares on stand-ins for it")
    results, problems = {}, []
    for dtype in ("fp32", "bf16"):
        for mode in ("native", "preloaded"):
            done = machine.run(mode, [program, "--compare", "--json", "--dtype", dtype, "--steps", "8", "--max-len",
                                      "96", "--text", ROOT / "LICENSE"], timeout=100)
            if done.returncode not in (0, 1) or not done.stdout.strip():
                raise Failed(f"{mode}, {dtype}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
            results[f"{mode}, {dtype}"] = json.loads(done.stdout.splitlines()[-1])
        native, ours = results[f"native, {dtype}"], results[f"preloaded, {dtype}"]
        same = native["losses_gpu"] == ours["losses_gpu"]
        status = "differs" if not same else "ok" if native["equal"] else "native no"
        machine.row(f"trainer, {dtype}", status, f"largest difference {native['largest_relative_difference']}")
        problems += [] if same else [f"{dtype}: the GPU's losses are others with the library"]
    return results, problems
