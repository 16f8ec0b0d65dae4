"""usage: test_sites.py SEGALLOC. For each Python that is here: the lines that ask for memory are in the trace,
with and without the interpreter's lock, from threads and where the interpreter ends; none are where that is off."""
import glob
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile

segalloc = sys.argv[1]

PROGRAM = '''
import ctypes, sys, threading
holding = sys.argv[1] == "holding"
cuda = (ctypes.PyDLL if holding else ctypes.CDLL)("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

def take(size):
    address = ctypes.c_uint64()
    result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) # TAKE
    return address if result == 0 else None

class Größe:
    def method(self):
        return [cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(2 << 30)) for _ in range(1)] # METHOD

def thread():
    cuda.cuCtxSetCurrent(context)
    take(3 << 30)

class Last:
    def __del__(self):
        cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4 << 30))

kept = take(1 << 20)
Größe().method()
other = threading.Thread(target=thread)
other.start()
other.join()
generator = (take(5 << 30) for _ in range(1))
list(generator)
own = ctypes.CDLL(None)
own.segalloc_mark(b"step 3")
own.segalloc_phase_push(b"eval")
exec(compile("take(6 << 30)", "<string>", "exec"))
own.segalloc_phase_pop()
take(7 << 30)
sys.last = Last()
'''


def pythons():
    """Those that are here, each version once; this one first."""
    seen = {"%d.%d" % sys.version_info[:2]: sys.executable}
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for minor in range(9, 15):
        paths = [shutil.which("python3.%d" % minor), *glob.glob("%s/versions/3.%d.*/bin/python3" % (pyenv, minor))]
        for path in filter(None, paths):
            if subprocess.run([path, "-c", "import ctypes"], capture_output=True).returncode == 0:
                seen.setdefault("3.%d" % minor, path)
    return seen


def line_of(mark):
    return next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if "# " + mark in text)


def exported(trace):
    """Every format with stacks has the lines, and the phase around them."""
    out = trace + ".out"
    def export(form):
        subprocess.run([segalloc, "trace", "export", trace, "--format", form, "-f", "-o", out, "--to", "end"], check=True)
    export("torch")
    with open(out, "rb") as file:
        told = pickle.load(file)
    last, = (event for event in told["device_traces"][0] if event["action"] == "oom" and event["size"] == 7 << 30)
    frames = [(os.path.basename(frame["filename"]), frame["line"], frame["name"]) for frame in last["frames"]]
    assert frames[0] == ("program.py", line_of("TAKE"), "take") and frames[-1] == ("phase", 0, "step 3"), frames
    block, = (block for segment in told["segments"] for block in segment["blocks"] if block["requested_size"] == 1 << 20)
    assert block["frames"][0]["line"] == line_of("TAKE") and block["frames"][-1]["filename"] != "phase", block
    for form in "folded", "speedscope":
        export(form)
        with open(out, encoding="utf-8") as file:
            assert "program.py:%d" % line_of("TAKE") in file.read(), form


def failures(python, folder, how, *options):
    script, trace = os.path.join(folder, "program.py"), os.path.join(folder, "trace")
    with open(script, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    environment = dict(os.environ, SEGALLOC_CONF="oom_report:never")
    subprocess.run([segalloc, "run", "--sim", "64MiB", *options, "-f", "-o", trace, "--", python, script, how],
                   check=True, env=environment)
    text = subprocess.run([segalloc, "report", "--json", trace], check=True, capture_output=True).stdout
    info = subprocess.run([segalloc, "trace", "info", "--json", trace], check=True, capture_output=True).stdout
    if options:
        exported(trace)
    found = {failure["bytes"]: failure["site"] for device in json.loads(text)["devices"]
             for failure in device["failures"]}
    phases = {failure["bytes"] >> 30: failure["phase"] for device in json.loads(text)["devices"]
              for failure in device["failures"]}
    assert not options or (phases[5], phases[6], phases[7]) == (None, "step 3, eval", "step 3"), phases
    assert options or not any(phases.values()), phases
    return found, json.loads(info)["kinds"]


def check(python, version, folder, how):
    found, kinds = failures(python, folder, how, "--sites")
    assert kinds["site"] >= 4 and kinds["define_site"] >= 8, kinds
    take = "program.py:%d in take" % line_of("TAKE")
    assert found[3 << 30] == take and found[5 << 30] == take and found[6 << 30] == take, found
    assert re.match(r"program\.py:%d in (Größe\.)?method|program\.py:%d in .*<listcomp>" % ((line_of("METHOD"),) * 2),
                    found[2 << 30]), found
    print("Python", version, how, found)


with tempfile.TemporaryDirectory() as folder:
    for version, python in pythons().items():
        check(python, version, folder, "released")
    check(sys.executable, "this one", folder, "holding")
    found, kinds = failures(sys.executable, folder, "released")
    assert not any(found.values()) and "site" not in kinds and "define_site" not in kinds, (found, kinds)
