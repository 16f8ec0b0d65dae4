"""How a program is run: on the real GPU or on the simulated one, natively or with the library in its modes."""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "GPU_TEST_MODE")
MODES = {  # name: (preloaded, with the Python module, configuration)
    "native": (False, False, ""),
    "preloaded": (True, False, ""),
    "direct": (True, False, ""),
    "beneath": (True, False, "pytorch:beneath"),
    "torch": (True, True, ""),
}


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
    listed = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    known = [os.path.dirname(path) for path in re.findall(r"=> (\S*libcuda\.so\.1|\S*libcudart\.so\.\d+)$", listed,
                                                          re.M)]
    cuda = sorted(glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/local/cuda*/targets/*/lib"))
    wheels = [folder for entry in sys.path if entry for folder in
              glob.glob(os.path.join(entry, "nvidia", "*", "lib"))]
    return [*known, *cuda, *wheels, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"]


class Machine:
    def __init__(self, sim, build, python, deadline):
        self.sim = sim
        self.build = pathlib.Path(build).resolve()
        self.python = python
        self.deadline = deadline
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="segalloc-gpu-"))
        self.library = self.build / "src" / "preload" / "libsegalloc.so"
        self.tool = self.build / "tools" / "segalloc" / "segalloc"
        self.paths = self._paths()

    def close(self):
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

    def environment(self, mode, conf=""):
        preload, module, own = MODES[mode]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        environment["GPU_TEST_MODE"] = mode
        environment.setdefault("PYTHONDONTWRITEBYTECODE", "1")
        conf = ",".join(filter(None, ["oom_report:never", own, conf]))
        if preload:
            environment["SEGALLOC_CONF"] = conf
        if not self.sim:
            environment["LD_LIBRARY_PATH"] = ":".join([*self.paths, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
            if preload:
                environment["LD_PRELOAD"] = str(self.library)
            if module:
                environment["PYTHONPATH"] = ":".join([str(ROOT / "tools" / "python"),
                                                      *filter(None, [os.environ.get("PYTHONPATH")])])
        return environment

    def command(self, mode, argv):
        preload, module, _ = MODES[mode]
        argv = [str(word) for word in argv]
        if not self.sim:
            return argv
        return [str(self.tool), "run", "--sim", self.sim, *(["--torch"] if module else []),
                *([] if preload else ["--no-preload"]), "--", *argv]

    def run(self, mode, argv, timeout=60, conf="", **more):
        """The finished process. A failure of the time to suffice is one of the part."""
        environment = {**self.environment(mode, conf), **more}
        try:
            return subprocess.run(self.command(mode, argv), env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                  timeout=self.timeout(timeout))
        except subprocess.TimeoutExpired:
            raise Failed(f"{pathlib.Path(argv[0]).name} in mode {mode} took longer than {timeout:.0f} s") from None

    def counted(self, mode, argv, **more):
        """The finished process, and the statistics of device 0 that the library wrote at its end ({} natively)."""
        path = self.work / "stats.json"
        path.unlink(missing_ok=True)
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

    def has(self, *modules):
        """Whether the interpreter that runs the clients has these modules; they are not imported."""
        script = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in {list(modules)!r}))"
        return subprocess.run([self.python, "-c", script], stderr=subprocess.DEVNULL).returncode == 0

    def need(self, *modules):
        if not self.has(*modules):
            raise Skipped(f"the interpreter has no {', '.join(modules)}")
