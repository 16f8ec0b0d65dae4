"""How a program is run: on the real GPU or on the simulated one, natively or with the library in its modes."""
import contextlib
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

from processes import Done, Processes, Slow, lines_of, written

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
SIM_PATIENCE = 4  # a simulated GPU computes on the processors, of which there may be two
LINE = 118  # characters of a row's line: of what a run prints, 12,000 may be all that comes back


class Skipped(Exception):
    """A part that this machine has no means for; the text says which."""


class Failed(Exception):
    """A program, or a part, that ended otherwise than it should have."""


class NoTime(Exception):
    """The time of the run, of its part or of one step of that was over before anything was found."""


def first_library(pattern, folders):
    for folder in folders:
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if found:
            return found[0]
    return None


# Libraries that programs of this folder are linked with or open, with the newest first: all of one line go together.
LIBRARIES = (("libcuda.so.1",), ("libcudart.so.13", "libnvrtc.so.13", "libcublas.so.13"),
             ("libcudart.so.12", "libnvrtc.so.12", "libcublas.so.12"))


def listed_libraries():
    """What the loader's cache lists. ldconfig is often in a folder that is on no user's path."""
    command = shutil.which("ldconfig", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if not command:
        return ""
    try:
        return subprocess.run([command, "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def library_folders(python):
    """Where the driver, the runtime and its companions may lie: what the user has named, what the loader knows, CUDA's
    own folders, wheels of the interpreter that has PyTorch."""
    named = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    known = [os.path.dirname(path) for path in re.findall(r"=> (\S*/lib(?:cuda|cudart|nvrtc|cublas)\.so\.\d+)$",
                                                          listed_libraries(), re.M)]
    cuda = sorted(glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/local/cuda*/targets/*/lib"))
    return [*named, *dict.fromkeys(known), *cuda, *wheel_folders(python, "lib"), "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
            "/usr/lib/wsl/lib"]


def wheel_folders(python, kind):
    """Folders of NVIDIA's wheels beside an interpreter: lib or include."""
    try:
        asked = subprocess.run([python, "-c", "import sys; print('\\n'.join(sys.path))"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        asked = []
    return [folder for entry in asked if entry for folder in sorted(glob.glob(os.path.join(entry, "nvidia", "*", kind)))]


def row_of(text):
    """The object that a line of gpu_probe is; None for what others wrote between."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "row" in found else None


class Machine:
    """Programs of any number of threads at once."""

    def __init__(self, sim, build, python, deadline, cu12=None, jobs=None, chosen=()):
        self.sim = sim
        self.build = pathlib.Path(build).resolve()
        self.python = python
        self.deadline = deadline
        self.cu12 = cu12
        self.chosen = chosen  # parts that are to run
        self.jobs = jobs or max(1, min(6, os.cpu_count() or 1))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="segalloc-gpu-"))
        self.library = self.build / "src" / "preload" / "libsegalloc.so"
        self.tool = self.build / "tools" / "segalloc" / "segalloc"
        self.probe = self.build / "tests" / "gpu" / "gpu_probe"
        self.paths = self._paths()
        self.rows = []     # of the part that is running
        self.lines = []    # all that the driver said, of all parts
        self.kernels = None  # arguments that name the compiled kernels, once nvcc was asked
        self.said = []     # what programs that went wrong wrote to stderr
        self.held = []     # processes that hold memory
        self.patience = SIM_PATIENCE if sim else 1
        self.processes = Processes()
        self._until = []   # ends of the part and of the step that are running, innermost last
        self._number = itertools.count()
        self._lock = threading.Lock()

    def close(self):
        self.processes.end_all()
        shutil.rmtree(self.work, ignore_errors=True)

    def _paths(self):
        """LD_LIBRARY_PATH for programs that are linked with libcuda and libcudart: the build folder's own come last."""
        if self.sim:
            return [str(self.build / "src" / "sim" / "cudart"), str(self.build / "src" / "sim")]
        folders = library_folders(self.python)
        found = []
        for together in LIBRARIES:
            first = first_library(together[0], folders)
            if first:  # the companions of a runtime lie beside it, or where any are
                folder = os.path.dirname(first)
                found += [first, *(path for name in together[1:] if (path := first_library(name, [folder, *folders])))]
        return list(dict.fromkeys(os.path.dirname(path) for path in found))

    def left(self):
        """Seconds that the run, its part and the step of it have left, whichever ends first."""
        return min([self.deadline, *self._until]) - time.monotonic()

    @contextlib.contextmanager
    def at_most(self, seconds):
        """What is done inside takes no longer."""
        self._until.append(time.monotonic() + seconds)
        try:
            yield
        finally:
            self._until.pop()

    def step(self, steps_left):
        """One of so many steps: it may take twice its share of what is left to all of them."""
        return self.at_most(max(self.left(), 0) * min(1, 2 / (steps_left + 1)))

    def timeout(self, wanted):
        """At most `wanted` seconds, and no more than are left."""
        left = self.left()
        if left < 2:
            raise NoTime("its time was over")
        return min(wanted * self.patience, left)

    def row(self, name, status, note="", most=None, **facts):
        """Keeps a row of the part that is running, and prints it as a line at once. `status`: ok; native no, where it
        fails without the library; differs, where only with it; no time, where neither is known; not tried, where the
        machine has not what it takes; skipped. `most`: rows of this status that are printed, of the part."""
        with self._lock:
            self.rows.append({"row": name, "status": status, **({"note": note} if note else {}), **facts})
            line = f"  {status:9} {name}" + (f": {note}" if note else "")
            if most is None or sum(row["status"] == status for row in self.rows) <= most:
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
            if self.asks(python, f"import {module}"):
                return [python, "-m", "mesonbuild.mesonmain" if name == "meson" else module]
        raise Failed(f"no {name}: neither on the path nor as a module of {self.python}")

    def environment(self, mode, conf="", sim=None, linked=False):
        """`linked`: the program is linked with the driver or the runtime, or opens them by name. Frameworks find their
        own, which other folders must not hide."""
        preload, module, own = MODES[mode]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        environment["GPU_TEST_MODE"] = mode
        environment.setdefault("PYTHONDONTWRITEBYTECODE", "1")
        conf = ",".join(filter(None, ["oom_report:never", own, conf]))
        if preload:
            environment["SEGALLOC_CONF"] = conf
        if sim or self.sim:  # it obeys that too, and the list is of this machine's GPUs
            environment.pop("CUDA_VISIBLE_DEVICES", None)
        if self.sim and self.tool.exists():
            return environment
        if linked or self.sim:
            environment["LD_LIBRARY_PATH"] = ":".join([*self.paths, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        if self.sim:
            environment["SEGALLOC_SIM"] = sim or self.sim
        else:
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
        if not self.sim or not self.tool.exists():  # without jansson there is no `segalloc run`
            return argv
        return [str(self.tool), "run", "--sim", sim or self.sim, *(["--torch"] if module else []),
                *([] if preload else ["--no-preload"]), "--", *argv]

    def run(self, mode, argv, timeout=60, conf="", sim=None, linked=False, **more):
        """A program to its end, as Done; Slow where it takes longer, NoTime where none is left for it."""
        try:
            done = self.processes.run(self.command(mode, argv, sim), {**self.environment(mode, conf, sim, linked), **more},
                                      self.timeout(timeout))
        except OSError as why:  # no such interpreter, say
            return Done(127, "", str(why), 0)
        except Slow as why:
            self.heard(f"{' '.join(map(str, argv))[-90:]} ({mode})", f"{why}; it had written:\n{why.output[-1500:]}")
            raise
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
        return {**json.loads(told[-1]), "seconds": round(done.seconds, 2)}

    def asked(self, mode, *arguments, timeout=60, sim=None, conf=""):
        """The lines that the probe printed, as objects, natively or preloaded; on the simulator without `segalloc run`,
        which a machine with a GPU need not have built."""
        what, given = f"gpu_probe {' '.join(map(str, arguments))}", self.timeout(timeout)
        process = self._probe(mode, ["--patience", str(round(self.patience)), *arguments], sim, conf, subprocess.DEVNULL)
        try:
            for line in lines_of(written(process, given, what)):
                found = row_of(line)
                if found:
                    yield found
                else:
                    self.heard(f"{what}, amid its rows", line)
        finally:
            self._end_probe(process)
            with open(process.errors, encoding="utf-8", errors="replace") as file:
                self.heard(what, file.read())

    def _probe(self, mode, arguments, sim, conf, stdin):
        """gpu_probe, started. Its stderr goes to a file: nobody reads that while the lines come."""
        environment = self.environment(mode, conf, sim, linked=True)
        if sim or self.sim:
            environment["LD_LIBRARY_PATH"] = str(self.build / "src" / "sim")
            environment["SEGALLOC_SIM"] = sim or self.sim
            if MODES[mode][0]:
                environment["LD_PRELOAD"] = str(self.library)
        errors = self.work / f"probe-{next(self._number)}.txt"
        with open(errors, "w", encoding="utf-8") as file:
            process = self.processes.start([self.probe, *arguments], environment, stdin=stdin, stdout=subprocess.PIPE,
                                           stderr=file)
        process.errors = errors
        return process

    def _end_probe(self, process):
        self.processes.end(process)
        process.stdout.close()

    def hold(self, leave, sim=None):
        """Takes memory in a process of its own until `leave` bytes are free; kept until the end. Returns what is free
        then by the driver's word."""
        given = self.timeout(60)
        process = self._probe("native", ["--hold", leave], sim, "", subprocess.PIPE)
        self.held.append(process)
        told = b""
        with contextlib.suppress(Slow):
            for piece in written(process, given, "gpu_probe --hold"):
                told += piece
                if told.splitlines()[-1] == b"r":
                    return self.free_bytes(sim)[0]
        raise Failed("no process can hold memory")

    def free_bytes(self, sim=None):
        """(what is free on the device by the driver's word, why nobody can say): one of them is None, and both where no
        answer came in time or none that is a number. It is the last line: a driver may write others before it."""
        given = self.timeout(30)
        process = self._probe("native", ["--free"], sim, "", subprocess.DEVNULL)
        try:
            told = list(lines_of(written(process, given, "gpu_probe --free")))
        except Slow:
            return None, None
        finally:
            self._end_probe(process)
        last = next((line.strip() for line in reversed(told) if line.strip()), "")
        if process.returncode:
            return None, last[-200:] or f"gpu_probe ended with status {process.returncode}"
        if re.fullmatch(r"r?\d+", last):
            return int(last.lstrip("r")), None
        self.heard("gpu_probe --free", "\n".join(told))
        return None, None

    def let_go(self):
        """Ends what holds memory: by its own will, so that the driver is left in order, else by force."""
        while self.held:
            process = self.held.pop()
            process.stdin.close()
            try:
                process.wait(timeout=min(20, max(self.left(), 0)))
            except subprocess.TimeoutExpired:
                pass
            self._end_probe(process)

    def asks(self, python, script):
        """Whether a script of an interpreter ends well; Slow where that is not known in time."""
        try:
            return self.processes.run([python, "-c", script], dict(os.environ), self.timeout(30)).returncode == 0
        except OSError:
            return False

    def has(self, *modules):
        """Whether the interpreter that runs the clients has these modules; they are not imported."""
        script = ("import importlib.util as u, sys\n"
                  "def there(m):\n"
                  "    try: return u.find_spec(m) is not None\n"
                  "    except ModuleNotFoundError: return False\n"
                  f"sys.exit(not all(there(m) for m in {list(modules)!r}))")
        return self.asks(self.python, script)

    def need(self, *modules):
        if not self.has(*modules):
            raise Skipped(f"the interpreter has no {', '.join(modules)}")
        if self.sim and not self.tool.exists():
            raise Skipped("stand-ins for the vendor's libraries are made by `segalloc run`, which was not built (jansson?)")
