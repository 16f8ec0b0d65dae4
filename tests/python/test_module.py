"""The Python module for PyTorch, with a stand-in for PyTorch, on the simulated GPU.

Usage: test_module.py SEGALLOC   (PYTORCH: folders that hold a torch package, to compare its functions with the list)"""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FAKE = HERE / "fake"
MIB = 1 << 20


def run(*command, path=FAKE, options=("--torch",), conf="oom_report:never", **more):
    environment = dict(os.environ, PYTHONPATH=str(path), SEGALLOC_CONF=conf, PYTHONDONTWRITEBYTECODE="1", **more)
    return subprocess.run([SEGALLOC, "run", "--sim", "4GiB", *options, "--", sys.executable, *map(str, command)],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


class Client(unittest.TestCase):
    def test_words(self):
        done = run(HERE / "client.py")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["backend"], "pluggable")
        self.assertGreaterEqual(said["allocated"], 600 * MIB)
        self.assertEqual(said["accelerator"], said["allocated"])
        self.assertTrue(said["pools"] and said["flow"] and said["tiled"] and said["source"])
        self.assertEqual(said["snapshot"], 0)
        self.assertGreaterEqual(said["peak"], 600 * MIB)
        self.assertLess(said["new_peak"], 302 * MIB)
        self.assertEqual(said["reset"], [0, 0])
        self.assertGreaterEqual(said["reserved"], 600 * MIB)
        self.assertLess(said["emptied"], 320 * MIB)
        self.assertEqual(said["fraction"], 0.25)
        self.assertLessEqual(said["room"], 1024 * MIB)
        self.assertEqual(said["total"], 4096 * MIB)
        self.assertEqual(len(said["warned"]), 1)
        self.assertIn("pytorch:beneath", said["pool"])

    def test_history(self):
        """Begun before the first allocation: events with their stacks, of which the last so many are shown."""
        script = ("import json, sys, torch\n"
                  "torch.cuda.memory._record_memory_history()\n"
                  "def take(size):\n"
                  "    return torch._C.current.malloc(size << 20, 0, None)\n"
                  "torch.cuda.init()\n"
                  "a, b = take(100), take(200)\n"
                  "torch._C.current.free(a, 0, 0, None)\n"
                  "told = torch._C._cuda_memorySnapshot(None)\n"
                  "events = [(e['action'], e['size'] >> 20, e['frames'][0]['name'] if e['frames'] else '')\n"
                  "          for e in told['device_traces'][0] if 'segment' not in e['action']]\n"
                  "blocks = [block['frames'][0]['name'] for each in told['segments'] for block in each['blocks'] if block['frames']]\n"
                  "torch._C._cuda_record_memory_history('all', 'all', 'python', 2)\n"
                  "last = [e['action'] for e in torch._C._cuda_memorySnapshot(None)['device_traces'][0]]\n"
                  "torch._C._cuda_record_memory_history(None)\n"
                  "json.dump([events, blocks, last, torch._C._cuda_memorySnapshot(None)['device_traces'][0]], sys.stdout)\n")
        with tempfile.TemporaryDirectory() as folder:
            done = run("-c", script, TMPDIR=folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
            self.assertEqual(os.listdir(folder), [])
        events, blocks, last, nothing = json.loads(done.stdout)
        self.assertEqual(events, [["alloc", 100, "take"], ["alloc", 200, "take"], ["free_requested", 100, ""],
                                  ["free_completed", 100, ""]])
        self.assertEqual((blocks, last, nothing), (["take"], ["free_requested", "free_completed"], []))

    def test_steps_are_phases_with_places_alone(self):
        """With --sites alone optimizers' steps are phases, and PyTorch's memory functions stay PyTorch's."""
        optimizer = ("before, after = [], []\n"
                     "register_optimizer_step_pre_hook, register_optimizer_step_post_hook = before.append, after.append\n"
                     "class Optimizer:\n"
                     "    def step(self):\n"
                     "        for each in before: each(self)\n"
                     "        take(1)\n"
                     "        for each in after: each(self)\n")
        script = ("import ctypes, sys, torch.optim.optimizer as optim\n"
                  "cuda, context = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()\n"
                  "cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)\n"
                  "def take(gib):\n"
                  "    cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(gib << 30))\n"
                  "optim.take = take\n"
                  "adam = optim.Optimizer()\n"
                  "take(5); adam.step(); take(6); adam.step(); take(7)\n"
                  "print(*(name for name in sys.modules if name.startswith('torch.cuda')))\n")
        for options in (["--sites"], ["--sites", "--torch"]):
            with self.subTest(options=options), tempfile.TemporaryDirectory() as folder:
                package, trace = pathlib.Path(folder, "torch", "optim"), os.path.join(folder, "T")
                package.mkdir(parents=True)
                (package.parent / "__init__.py").touch()
                (package / "__init__.py").touch()
                (package / "optimizer.py").write_text(optimizer)
                done = run("-c", script, path=folder, options=[*options, "-o", trace])
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "\n", ""))
                told = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], check=True, capture_output=True).stdout)
                phases = [(each["bytes"] >> 30, each["phase"]) for each in told["devices"][0]["failures"]]
                self.assertEqual(phases, [(5, "step 1"), (6, "step 2"), (7, "step 3")])
                self.assertEqual({row["phase"] for row in told["devices"][0]["live_at_peak"]},
                                 {"step 1, optimizer", "step 2, optimizer"})

    def test_beneath_leaves_the_allocator(self):
        done = run("-c", "import torch; print(torch.cuda.get_allocator_backend())", conf="pytorch:beneath")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "native\n", ""))

    def test_passed_on_leaves_the_allocator(self):
        done = run("-c", "import torch; print(torch.cuda.get_allocator_backend())", conf="backend:cudaMallocAsync")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "native\n", ""))

    def test_own_allocator_of_a_script(self):
        script = ("import torch\n"
                  "class Other:\n"
                  "    def allocator(self): return self\n"
                  "torch.cuda.change_current_allocator(Other())\n"
                  "try:\n"
                  "    torch.cuda.memory_allocated()\n"
                  "except RuntimeError as error:\n"
                  "    print(error)\n")
        done = run("-c", script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("does not yet support", done.stdout)

    def test_without_torch(self):
        done = run("-c", "print('fine')", path="")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "fine\n", ""))

    def test_api(self):
        script = ("import ctypes, segalloc\n"
                  "r = ctypes.CDLL('libcudart.so.13'); p = ctypes.c_void_p()\n"
                  "assert r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(64 << 20)) == 0\n"
                  "assert segalloc.loaded() and segalloc.version() == '0.1.0'\n"
                  "assert segalloc.stats(0).allocated_bytes == 64 << 20\n"
                  "assert segalloc.stats(3) == segalloc.Stats()\n"
                  "assert r.cudaFree(p) == 0 and segalloc.trim() == 64 << 20 and segalloc.trim(0) == 0\n"
                  "segalloc.reset_peaks(); assert segalloc.stats(0).peak_allocated_bytes == 0\n"
                  "assert segalloc.set_limit(1 << 30) == 1 << 30\n")
        done = run("-c", script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Start(unittest.TestCase):
    """Python's start stays what it was."""

    def test_chains_to_the_other_sitecustomize(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text("import sys; sys.marked = __file__\n")
            done = run("-c", "import sys, sitecustomize; print(sys.marked, sitecustomize.__file__)", path=folder)
            expected = str(pathlib.Path(folder, "sitecustomize.py"))
            self.assertEqual((done.stdout.split(), done.stderr), ([expected, expected], ""))

    def test_two_copies_of_this_one(self):
        """As of a wheel and a build folder: each gives way to the other once, and then to the program's."""
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
            for path in ours, theirs:
                path.mkdir()
            (ours / "sitecustomize.py").write_text((ROOT / "tools" / "python" / "sitecustomize.py").read_text())
            (theirs / "sitecustomize.py").write_text("import sys; sys.marked = __file__\n")
            done = run("-c", "import sys; print(sys.marked)", path=f"{ours}:{theirs}")
            self.assertEqual((done.stdout, done.stderr), (f"{theirs / 'sitecustomize.py'}\n", ""))

    def test_errors_of_the_other_sitecustomize(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text("raise ValueError('theirs')\n")
            done = run("-c", "print('on')", path=folder)
            self.assertEqual(done.stdout, "on\n")
            self.assertIn("theirs", done.stderr)

    def test_inert_without_the_library(self):
        script = "import segalloc, torch; print(segalloc.loaded(), torch.cuda.get_allocator_backend(), segalloc.trim())"
        environment = dict(os.environ, PYTHONPATH=f"{SEGALLOC.parent.parent / 'python'}:{FAKE}", PYTHONDONTWRITEBYTECODE="1")
        environment.pop("LD_PRELOAD", None)
        done = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.stdout, done.stderr), ("False native 0\n", ""))

    def test_path(self):
        script = "import os; print(os.environ['PYTHONPATH'])"
        first, *rest = run("-c", script, path="/a::/b").stdout.strip().split(":")
        self.assertTrue(pathlib.Path(first, "sitecustomize.py").exists())
        self.assertEqual(rest, ["/a", "", "/b"])
        self.assertEqual(run("-c", script, path=f"{first}:/a").stdout, f"{first}:/a\n")
        self.assertEqual(run("-c", script, path="/a", options=("--torch", "--no-preload")).stdout, "/a\n")


class Table(unittest.TestCase):
    """Every function of torch.cuda.memory is in the documentation, as one that works or one that does not."""

    def listed(self):
        text = (ROOT / "docs" / "torch-module.md").read_text()
        return {name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}

    def test_lists_all(self):
        folders = [FAKE, *filter(None, os.environ.get("PYTORCH", "").split(":"))]
        for folder in folders:
            source = pathlib.Path(folder, "torch", "cuda", "memory.py").read_text()
            names = next(ast.literal_eval(node.value) for node in ast.parse(source).body
                         if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
            with self.subTest(folder=str(folder)):
                self.assertEqual(set(names) - self.listed(), set())


if __name__ == "__main__":
    unittest.main()
