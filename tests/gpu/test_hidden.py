"""What tests/gpu/run does on a real GPU: its path without --sim, over a driver that hides the simulator (hidden/).

Usage: test_hidden.py BUILD   (PYTORCH_PYTHON: an interpreter with PyTorch, for the parts that need it)"""
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON = os.environ.get("PYTORCH_PYTHON", sys.executable)
# They are looked for, not imported: NVIDIA's libraries that PyTorch wants may be the stand-ins that are made below.
HAS_TORCH = subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, "
                            "('torch', 'transformers', 'peft'))))"], check=False).returncode == 0
CARD = f"hidden-{os.getpid()}"

# Rows that nothing but a real GPU can make true, each with the reason.
ONLY_REAL = {
    ("alias", "control"): "kernels that nvcc has compiled do nothing here",
    ("probe", "addresses of a handle"): "a process of Linux has 65,530 mappings, and the simulator takes one for each",
    ("static_runtime", "static runtime"): "NVIDIA's runtime asks for tables that the simulator has not",
    ("order", "cuda-12 runtime"): "NVIDIA's runtime asks for tables that the simulator has not",
    ("trainer", "trainer, fp32"): "cuBLAS is a stand-in that computes nothing",
    ("trainer", "trainer, bf16"): "cuBLAS is a stand-in that computes nothing",
}
DRIVER_PARTS = ("probe", "managed", "costs", "programs")
# What of the command line of its programs tells that a part is running.
COMMANDS = {"probe": "--group probe", "costs": "--group costs", "managed": "gpu_probe managed",
            "programs": "stranger_blocks_", "graphs": "clients/graphs.py", "statistics": "clients/profile_run.py",
            "sharing": "clients/sent.py", "tuning": "clients/tune.py", "streams": "clients/streams.py",
            "running_out": "clients/runs_out.py", "order": "clients/untracked.py", "alias": "--group alias",
            "tools": "stranger_blocks_", "static_runtime": "static_runtime", "trainer": "segalloc-train",
            "frameworks": "clients/other.py"}
FRAMEWORK_PARTS = ("order", "graphs", "statistics", "sharing", "tuning", "streams", "running_out", "frameworks")
# Parts of one program, which a machine without nvcc, compute-sanitizer or the trainer skips.
TOOL_PARTS = ("alias", "static_runtime", "tools", "trainer")


def library_path():
    """The hidden driver, the simulator's runtime, and the stand-ins that `segalloc run` makes for the vendor's libraries."""
    script = "import os; print(os.environ['LD_LIBRARY_PATH'])"
    told = subprocess.run([BUILD / "tools" / "segalloc" / "segalloc", "run", "-q", "--sim", "8GiB", "--no-preload", "--", PYTHON,
                           "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.strip()
    simulator = BUILD / "src" / "sim"
    return ":".join([str(BUILD / "tests" / "gpu" / "hidden"),
                     *(folder for folder in told.split(":") if pathlib.Path(folder) not in (simulator, simulator / "nvml"))])


def left_behind():
    """Processes that a run of this test has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            if CARD.encode() in environment and b"GPU_TEST_PROCESS=" in environment:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass
    return found


class Hidden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.libraries = library_path()

    def run_parts(self, *parts, seconds=560, patience=1, **more):
        """(results.json, what was printed, exit status)."""
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries,
                       "HIDDEN_SIM": f"4GiB,device=h100,card={CARD}", **more} # programs fill it
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, HERE / "run", "--build", BUILD, "--python", PYTHON, "--out", folder,
                                   "--seconds", str(seconds), "--patience", str(patience), "--only", ",".join(parts)], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds + 60)
            self.assertEqual(done.stderr, "", done.stdout)
            results = json.loads(pathlib.Path(folder, "results.json").read_text())
        self.assertEqual(left_behind(), [])
        return results["parts"], done.stdout, done.returncode

    def check_well(self, name, part, told):
        self.assertIn(part["status"], ("ok", "skipped"), f"{name}: {part.get('problems', part.get('why'))}\n{told}")
        for row in part["rows"]:
            fine = ("ok", "skipped", "not tried", *(["native no"] if (name, row["row"]) in ONLY_REAL else []))
            self.assertIn(row["status"], fine, f"{name}: {row}")

    def check_parts(self, *parts, seconds=1400):
        """All end well, however busy this machine is; part alias, whose control is false here, is failed by that where there is an nvcc."""
        found, told, status = self.run_parts(*parts, seconds=seconds, patience=8)
        for name in parts:
            if name == "alias" and found[name]["status"] == "failed":
                self.assertEqual([problem.split(":")[0] for problem in found[name]["problems"]], ["control"], told)
                status = 0
                continue
            self.check_well(name, found[name], told)
        self.assertEqual(status, 0, told)
        return found

    def test_driver_parts(self):
        """The parts without a framework: all that a driver is asked is asked of one that says it is an H100."""
        found = self.check_parts(*DRIVER_PARTS, "alias", "static_runtime", "tools")
        device = found["probe"]["data"][0]
        self.assertEqual((device["device"], device["capability"], device["simulated"]), ("NVIDIA H100 80GB HBM3", 90, False))
        if found["programs"]["status"] == "ok":
            rows = found["programs"]["data"].values()
            self.assertGreater(sum(row.get("native", False) for row in rows), len(rows) * 3 // 4)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch, transformers and peft")
    def test_framework_parts(self):
        self.check_parts("order", "statistics", "sharing", "tuning", "streams", "running_out", "graphs", "limits", seconds=1400)

    def check_fault(self, fault, name, others):
        """A part whose program is faulty: the others run as if nothing was, and nothing is left."""
        found, told, _ = self.run_parts(name, *others, seconds=150, HIDDEN_FAULT=f"{fault}:{COMMANDS[name]}")
        for other in others:  # a loaded machine may cut them short, which is no fault
            states = [row["status"] for row in found[other]["rows"]]
            self.assertIn("ok", states, f"{other}: {told}")
            self.assertFalse(set(states) & {"differs", "native no"}, f"{other}: {told}")
        return found[name], told

    def test_hanging(self):
        for name in DRIVER_PARTS:
            with self.subTest(part=name):
                part, told = self.check_fault("hang", name, [other for other in ("managed", "costs") if other != name])
                states = {part["status"], *(row["status"] for row in part["rows"])}
                self.assertTrue(states & {"no time", "native no"}, told)

    def test_crashing(self):
        for name in DRIVER_PARTS:
            with self.subTest(part=name):
                part, told = self.check_fault("crash", name, [other for other in ("managed", "costs") if other != name])
                self.assertTrue(part["status"] == "failed" or "native no" in [row["status"] for row in part["rows"]], told)

    def test_slow(self):
        part, told = self.check_fault("slow", "managed", ["costs"])
        self.assertEqual({row["status"] for row in part["rows"]} - {"ok", "no time"}, set(), told)

    def check_hang(self, names):
        for name in names:
            with self.subTest(part=name):
                part, told = self.check_fault("hang", name, ["managed", "costs"])
                rows = {row["status"] for row in part["rows"]}
                nothing_to_ask = part["status"] == "skipped" or part["status"] == "ok" and rows <= {"skipped"}
                self.assertTrue(part["status"] == "no time" or nothing_to_ask, told)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch, transformers and peft")
    def test_hanging_frameworks(self):
        self.check_hang(FRAMEWORK_PARTS)

    def test_hanging_tools(self):
        self.check_hang(TOOL_PARTS)

    def test_each_part_hangs(self):
        """Each part that runs programs on the device is among those whose programs hang in turn."""
        order = runpy.run_path(str(HERE / "run"))["ORDER"]
        self.assertEqual({*DRIVER_PARTS, *FRAMEWORK_PARTS, *TOOL_PARTS}, set(COMMANDS))
        # The machine and the build ask no device; limits goes on with what tuning has found.
        self.assertEqual(set(COMMANDS), set(order) - {"what", "build", "limits"})

    def test_no_device(self):
        found, told, status = self.run_parts("probe", "managed", "programs", HIDDEN_SIM=f"device=h100,count=0,card={CARD}")
        self.assertEqual(list(found), ["what", "build", "probe"], told)
        self.assertEqual(status, 1)
        self.assertIn("without a device that can be opened", told)

    def test_ended_by_signal(self):
        """SIGTERM before the end, as timeout(1) sends it: what was found is kept, and nothing goes on."""
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries, "HIDDEN_FAULT": "hang:--group costs",
                       "HIDDEN_SIM": f"device=h100,card={CARD}", "PYTHONUNBUFFERED": "1"}
        with tempfile.TemporaryDirectory() as folder:
            told = ""
            with subprocess.Popen([sys.executable, HERE / "run", "--build", BUILD, "--out", folder, "--only", "managed,costs"],
                                  env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
                for line in run.stdout:
                    told += line
                    if re.match(r"\S.* managed \(", line):
                        run.terminate()
            results = json.loads(pathlib.Path(folder, "results.json").read_text())
        self.assertEqual(left_behind(), [])
        self.assertEqual(results["parts"]["managed"]["status"], "ok", told)
        self.assertIn("signal 15", results["ended"])


if __name__ == "__main__":
    unittest.main()
