#!/usr/bin/env python3
"""`segalloc run --torch` with an unmodified PyTorch on the simulated GPU: PyTorch's own words are the library's.

Usage: test_module.py SEGALLOC PYTHON"""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "torch-module.md"
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
ENVIRONMENT.update(OMP_NUM_THREADS="2", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
MIB = 1 << 20
CARD = f"module-{os.getpid()}"


def run(script, *options, sim="4GiB"):
    done = subprocess.run([SEGALLOC, "run", "--sim", sim, *options, "--conf", "oom_report:never", "--", PYTHON,
                           HERE / "words" / script],
                          env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(f"{script}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Words(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = run("words.py", "--torch", sim=f"4GiB,card={CARD}")

    @classmethod
    def tearDownClass(cls):
        pathlib.Path(f"/dev/shm/segalloc-sim-{os.geteuid()}-{CARD}").unlink(missing_ok=True)

    def test_statistics(self):
        self.assertGreaterEqual(self.said["allocated"], 600 * MIB)
        self.assertIn(self.said["accelerator"], (self.said["allocated"], None))
        self.assertLess(self.said["new_peak"], 50 * MIB)
        self.assertIn("Allocated memory", self.said["summary"])
        self.assertEqual(self.said["snapshot"], self.said["snapshot_reserved"])
        self.assertTrue(self.said["viz"])

    def test_empty_cache_gives_pages_back(self):
        self.assertEqual(self.said["kept_until_then"], 0)
        self.assertGreaterEqual(self.said["given_back"], 580 * MIB)
        self.assertLess(self.said["reserved"], 60 * MIB)

    def test_running_out(self):
        for text in (self.said["huge"], self.said["text"], self.said["limited"]):
            self.assertTrue(text.startswith("CUDA out of memory. Tried to allocate "), text)
        self.assertIn("Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which",
                      self.said["text"])
        self.assertIn("2.00 GiB allowed", self.said["limited"])
        self.assertGreaterEqual(self.said["filled"], 14)
        self.assertTrue(self.said["trained"])
        self.assertEqual(self.said["ooms"], 2)
        self.assertIn(self.said["batch"], (None, *range(8, 16)))

    def test_every_function_as_the_document_says(self):
        rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|$", DOCUMENT.read_text().split("## `torch.accelerator`")[0], re.M)
        works = {name: "does not work" not in text for names, text in rows for name in re.findall(r"`(\w+)`", names)}
        for name, answer in self.said["answers"].items():
            with self.subTest(name=name):
                self.assertIn(name, works, "it is not in docs/torch-module.md")
                if name == "MemPool" and self.said["version"].startswith(("2.5.", "2.6.", "2.7.", "2.8.")):
                    self.assertIn("pytorch:beneath", answer)
                else:
                    self.assertEqual(answer == "works", works[name], answer)


class Report(unittest.TestCase):
    def test_agrees(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace")
            said = run("peaks.py", "--torch", "-o", trace)
            report = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], check=True,
                                               stdout=subprocess.PIPE).stdout)
        for name in ("requested_bytes", "allocated_bytes", "reserved_bytes"):
            self.assertEqual(said[name], report[f"peak_{name}"], name)
        self.assertEqual(said["allocations"], report["allocs"])

    def test_direct_mode_has_the_error_too(self):
        script = ("import torch\ntry:\n    torch.empty(1 << 40, dtype=torch.uint8, device='cuda')\n"
                  "except torch.cuda.OutOfMemoryError as error:\n    print(str(error)[:38])\n"
                  "torch.ones(10, device='cuda').sum().item()\n")
        for options in ((), ("--torch",)):
            done = subprocess.run([SEGALLOC, "run", "--sim", "4GiB", *options, "--conf", "oom_report:never", "--",
                                   PYTHON, "-c", script],
                                  env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=120)
            self.assertEqual((done.returncode, done.stdout), (0, "CUDA out of memory. Tried to allocate \n"),
                             done.stderr)


class Table(unittest.TestCase):
    def test_lists_what_this_version_has(self):
        found = subprocess.run([PYTHON, "-c",
                                "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
                               check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        source = pathlib.Path(found, "cuda", "memory.py").read_text()
        names = next(ast.literal_eval(node.value) for node in ast.parse(source).body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
        listed = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
        self.assertEqual(set(names) - listed, set())


def has(package):
    return subprocess.run([PYTHON, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"],
                          check=False).returncode == 0


class Callbacks(unittest.TestCase):
    """segalloc.huggingface and segalloc.lightning with the trainers that they are for."""

    def told(self, name):
        package = pathlib.Path(SEGALLOC).parent.parent / "python"
        environment = dict(ENVIRONMENT, PYTHONPATH=f"{package}:{ENVIRONMENT.get('PYTHONPATH', '')}")
        done = subprocess.run([SEGALLOC, "run", "--sim", "4GiB", "--", PYTHON, HERE / "words" / "callbacks.py", name], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check(self, rows, peak):
        peaks = [row["segalloc_peak_requested_bytes"] for row in rows]
        self.assertEqual(max(peaks), peak)
        self.assertGreater(peak, (16 + 64) * MIB)
        for row in rows:
            self.assertEqual(row["segalloc_failures"], 0)
            self.assertLessEqual(row["segalloc_peak_requested_bytes"], row["segalloc_peak_reserved_bytes"])

    @unittest.skipUnless(has("transformers"), "no transformers")
    def test_huggingface(self):
        told = self.told("huggingface")
        history, seen = told["huggingface"]
        self.check(history, told["peak"])
        self.assertEqual([{key: value for key, value in row.items() if key != "step"} for row in history], seen)
        self.assertEqual([row["step"] for row in history], [2, 4])

    @unittest.skipUnless(has("lightning"), "no Lightning")
    def test_lightning(self):
        told = self.told("lightning")
        self.check([figures for _, figures in told["lightning"]], told["peak"])
        self.assertEqual([step for step, _ in told["lightning"]], [2, 4])


if __name__ == "__main__":
    unittest.main()
