"""How a program is run: on the real GPU or on the simulated one, natively or with the library in its modes."""
import glob
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "GPU_TEST_MODE", "STRANGER_")
MODES = {  # name: (preloaded, with the Python module, configuration)
    "native": (False, False, ""),
    "preloaded": (True, False, ""),
    "default": (True, False, ""),
    "direct": (True, False, "pytorch:direct"),
    "beneath": (True, False, "pytorch:beneath"),
    "torch": (True, True, ""),
}
LINE = 118  # characters of a row's line: of what a run prints, 12,000 may be all that comes back


class Skipped(Exception):
    """A part that this machine has no means for; the text says which."""


class Failed(Exception):
    """A part that ended otherwise than it should have."""


def first_library(pattern, folders):
    for folder in folders:
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if found:
            return found[0]
    return None


def library_folders():
    """Where the driver and the runtime may lie: what the loader knows, CUDA's own folders, wheels of the
    interpreter."""
    try:
        listed = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except OSError:
        listed = ""
    known = [os.path.dirname(path) for path in re.findall(r"=> (\S*libcuda\.so\.1|\S*libcudart\.so\.\d+)$", listed,
                                                          re.M)]
    cuda = sorted(glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/local/cuda*/targets/*/lib"))
    wheels = [folder for entry in sys.path if entry for folder in
              glob.glob(os.path.join(entry, "nvidia", "*", "lib"))]
    return [*known, *cuda, *wheels, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"]


class Machine:
    """Programs of any number of threads at once."""

    def __init__(self, sim, build, python, deadline, cu12=None, jobs=None):
        self.sim = sim
        self.build = pathlib.Path(build).resolve()
        self.python = python
        self.deadline = deadline
        self.cu12 = cu12
        self.jobs = jobs or max(1, min(6, os.cpu_count() or 1))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="segalloc-gpu-"))
        self.library = self.build / "src" / "preload" / "libsegalloc.so"
        self.tool = self.build / "tools" / "segalloc" / "segalloc"
        self.probe = self.build / "tests" / "gpu" / "gpu_probe"
        self.paths = self._paths()
        self.rows = []     # of the part that is running
        self.said = []     # what programs that went wrong wrote to stderr
        self.held = []     # processes that hold memory
        self._number = itertools.count()
        self._lock = threading.Lock()

    def close(self):
        for process in self.held:
            process.stdin.close()
            process.wait()
        shutil.rmtree(self.work, ignore_errors=True)

    def _paths(self):
        """LD_LIBRARY_PATH for programs that are linked with libcuda and libcudart: the build folder's own come last."""
        if self.sim:
            return [str(self.build / "src" / "sim" / "cudart"), str(self.build / "src" / "sim")]
        folders = library_folders()
        found = [first_library(name, folders) for name in ("libcuda.so.1", "libcudart.so.13", "libcudart.so.12")]
        return list(dict.fromkeys(os.path.dirname(path) for path in found if path))

    def left(self):
        return self.deadline - time.monotonic()

    def timeout(self, wanted):
        """At most `wanted` seconds, and no more than are left."""
        left = self.left()
        if left < 5:
            raise Skipped("the time was over")
        return min(wanted, left)

    def row(self, name, status, note="", **facts):
        """Keeps a row of the part that is running, and prints it as a line at once. `status`: ok; native no, where it
        fails without the library; differs, where only with it; skipped."""
        with self._lock:
            self.rows.append({"row": name, "status": status, **({"note": note} if note else {}), **facts})
            line = f"  {status:9} {name}" + (f": {note}" if note else "")
            print(line if len(line) <= LINE else line[:LINE - 1] + "…", flush=True)

    def heard(self, what, text):
        """Keeps the end of what a program that went wrong said."""
        if text.strip():
            with self._lock:
                self.said.append(f"== {what}\n{text.strip()[-2000:]}\n")

    def python_tool(self, name, module):
        """The command for meson or ninja: on the path, or a wheel of one of the interpreters."""
        if shutil.which(name):
            return [name]
        for python in dict.fromkeys((sys.executable, self.python)):
            if subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode == 0:
                return [python, "-m", "mesonbuild.mesonmain" if name == "meson" else module]
        raise Failed(f"no {name}: neither on the path nor as a module of {self.python}")

    def environment(self, mode, conf="", sim=None):
        preload, module, own = MODES[mode]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        environment["GPU_TEST_MODE"] = mode
        environment.setdefault("PYTHONDONTWRITEBYTECODE", "1")
        conf = ",".join(filter(None, ["oom_report:never", own, conf]))
        if preload:
            environment["SEGALLOC_CONF"] = conf
        if not self.sim:
            environment["LD_LIBRARY_PATH"] = ":".join([*self.paths, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
            environment["STRANGER_FEW"] = "1"
            if preload:
                environment["LD_PRELOAD"] = str(self.library)
            if module:
                environment["PYTHONPATH"] = ":".join([str(ROOT / "tools" / "python"),
                                                      *filter(None, [os.environ.get("PYTHONPATH")])])
        return environment

    def command(self, mode, argv, sim=None):
        preload, module, _ = MODES[mode]
        argv = [str(word) for word in argv]
        if not self.sim:
            return argv
        return [str(self.tool), "run", "--sim", sim or self.sim, *(["--torch"] if module else []),
                *([] if preload else ["--no-preload"]), "--", *argv]

    def run(self, mode, argv, timeout=60, conf="", sim=None, **more):
        """The finished process. A failure of the time to suffice is one of the part."""
        environment = {**self.environment(mode, conf), **more}
        try:
            done = subprocess.run(self.command(mode, argv, sim), env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                  timeout=self.timeout(timeout))
        except subprocess.TimeoutExpired:
            raise Failed(f"{pathlib.Path(argv[0]).name} in mode {mode} took longer than {timeout:.0f} s") from None
        if done.returncode:
            self.heard(f"{' '.join(map(str, argv))[-90:]} ({mode})", done.stderr)
        return done

    def counted(self, mode, argv, **more):
        """The finished process, and the statistics of device 0 that the library wrote at its end ({} natively)."""
        path = self.work / f"stats-{next(self._number)}.json"
        done = self.run(mode, argv, SEGALLOC_STATS=str(path), **more)
        if not path.exists():
            return done, {}
        devices = json.loads(path.read_text())["devices"]
        return done, devices[0]["statistics"] if devices else {}

    def client(self, name, mode, *arguments, timeout=120, conf="", **more):
        """What a client of tests/gpu/clients told."""
        done = self.run(mode, [self.python, HERE / "clients" / f"{name}.py", *arguments], timeout=timeout, conf=conf,
                        **more)
        told = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if done.returncode or not told:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1][:300]
            raise Failed(f"{name} in mode {mode}: exit status {done.returncode}: {last}")
        return json.loads(told[-1])

    def asked(self, mode, *arguments, timeout=60, sim=None, conf=""):
        """The lines that the probe printed, as objects, natively or preloaded; on the simulator without `segalloc run`,
        which a machine with a GPU need not have built."""
        environment = self.environment(mode, conf)
        if sim or self.sim:
            environment["LD_LIBRARY_PATH"] = str(self.build / "src" / "sim")
            environment["SEGALLOC_SIM"] = sim or self.sim
            if MODES[mode][0]:
                environment["LD_PRELOAD"] = str(self.library)
        process = subprocess.Popen([str(self.probe), *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(self.timeout(timeout), process.kill)
        timer.start()
        try:
            for line in process.stdout:
                yield json.loads(line)
            self.heard(f"gpu_probe {' '.join(map(str, arguments))}", process.stderr.read())
        finally:
            timer.cancel()
            process.kill()
            process.wait()

    def hold(self, leave, sim=None):
        """Takes memory in a process of its own until `leave` bytes are free; kept until the end. Returns what is free
        then by the driver's word."""
        environment = self.environment("native")
        if sim or self.sim:
            environment["LD_LIBRARY_PATH"] = str(self.build / "src" / "sim")
            environment["SEGALLOC_SIM"] = sim or self.sim
        process = subprocess.Popen([str(self.probe), "--hold", str(leave)], env=environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.held.append(process)
        if process.stdout.read(1) != "r":
            raise Failed("no process can hold memory")
        told = subprocess.run([str(self.probe), "--free"], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, timeout=30).stdout
        return int(told.lstrip("r") or 0)

    def let_go(self):
        while self.held:
            process = self.held.pop()
            process.stdin.close()
            process.wait(timeout=30)

    def has(self, *modules):
        """Whether the interpreter that runs the clients has these modules; they are not imported."""
        script = ("import importlib.util as u, sys\n"
                  "def there(m):\n"
                  "    try: return u.find_spec(m) is not None\n"
                  "    except ModuleNotFoundError: return False\n"
                  f"sys.exit(not all(there(m) for m in {list(modules)!r}))")
        return subprocess.run([self.python, "-c", script], stderr=subprocess.DEVNULL).returncode == 0

    def need(self, *modules):
        if not self.has(*modules):
            raise Skipped(f"the interpreter has no {', '.join(modules)}")
