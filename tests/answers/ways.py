"""NVIDIA's runtimes over NVIDIA's drivers, loaded in every way that a program has, with the library against without."""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLAIN = ("now", "lazy", "global", "deepbind", "namespace", "thread", "fork", "close", "driver")
# Name, how runtime.c loads, and what is set for it.
WAYS = [(how, how, {}) for how in PLAIN] + [
    ("bound", "now", {"LD_BIND_NOW": "1"}), ("bound-close", "close", {"LD_BIND_NOW": "1"}),
    ("audited", "now", {"LD_AUDIT": "audit"}), ("audited-thread", "thread", {"LD_AUDIT": "audit"})]
AUDIT = "#include <link.h>\nunsigned la_version(unsigned version) { return version; }\n"
ADDRESS = re.compile(r"0x[0-9a-f]+")


def runtimes():
    """Paths of NVIDIA's runtimes, from PyPI."""
    done = subprocess.run([ROOT / "tests/preload/vendor/runtimes.sh", ROOT / ".cache/cuda-runtimes"], capture_output=True, text=True)
    return [pathlib.Path(line) for line in done.stdout.split()] if done.returncode == 0 else []


def newer(work, library):
    """Over the newest driver two that only load it and say that they are 13.0, for runtimes that want that: one hands out its
    own functions, one those of the driver."""
    source = work / "jumps.c"
    subprocess.run([sys.executable, ROOT / "tests/preload/loader/jumps.py", "nm", library, source], check=True)
    for name, more in (("outer", []), ("inner", ["-DHANDS_OUT_INNER"])):
        (work / name).mkdir()
        (work / name).chmod(0o755)
        made = work / name / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-DSAYS_VERSION=13000", "-Wl,-soname,libcuda.so.1",
                        "-Wl,-Bsymbolic-functions", *more, f"-I{ROOT / 'tests/preload/loader'}", "-o", made, source, "-ldl"], check=True)
        yield name, made, {"INNER_DRIVER": str(library)}


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    text = ADDRESS.sub("ADDRESS", done.stdout + done.stderr)
    return text + f"status {done.returncode}\n"


def different_lines(native, found):
    a, b = native.splitlines(), found.splitlines()
    return [f"{one} | {other}" for one, other in zip(a, b) if one != other] + ([] if len(a) == len(b) else ["more or fewer lines"])


def check(report, work, found, preload, confined, environment, listed, difference):
    paths = runtimes()
    if not paths:
        report.say("runtimes of NVIDIA's from PyPI", ["none can be had: tests/preload/vendor/runtimes.sh says why"])
        return
    program, audit = work / "runtime", work / "audit.so"
    subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-o", program, HERE / "runtime.c", "-ldl", "-lpthread"], check=True)
    (work / "audit.c").write_text(AUDIT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", audit, work / "audit.c"], check=True)
    copies = report.copies(work, {f"runtime-{path.parents[-1 - len(ROOT.parts) - 2].name}": path for path in paths})
    cases = [(driver, library, {}) for driver, library in found.items()] + list(newer(work, found[max(found)]))
    for driver, library, settings in cases:
        wrong, known, count = [], 0, 0
        for name, runtime in copies.items():
            for way, how, more in WAYS:
                more = {key: str(audit) if value == "audit" else value for key, value in more.items()} | settings
                command = [*confined, str(program), str(runtime), how]
                native = run(command, environment(library, **more))
                other = run(command, environment(library, LD_PRELOAD=str(preload), **more))
                count += 1
                if native == other:
                    continue
                for line in different_lines(native, other):
                    if listed.reason("library", difference(driver, "ways", f"{way}: {line}", native, other)):
                        known += 1
                    else:
                        wrong.append(f"{name} {way}: {line[:300]}")
        report.say(f"driver {driver}: {count} ways to load a runtime", wrong, f", {known} differ as listed" if known else "")
