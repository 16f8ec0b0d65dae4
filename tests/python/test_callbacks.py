"""Callbacks for trainers and the magic for notebooks, on the simulated GPU. Trainers are stand-ins here: tests/pytorch has the real ones.

Usage: test_callbacks.py SEGALLOC"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGE = SEGALLOC.parent.parent / "python"
MIB = 1 << 20
NAMES = {f"segalloc_{name}" for name in ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "failures")}

PRELUDE = """
import ctypes, json, sys, types
r = ctypes.CDLL('libcudart.so.13')
def take(size):
    p = ctypes.c_void_p()
    return p if r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size << 20)) == 0 else None
def free(p):
    assert r.cudaFree(p) == 0
def say(*what):
    json.dump(what, sys.stdout)
def module(name, **content):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)
"""
TRANSFORMERS = PRELUDE + """
module('transformers', TrainerCallback=type('TrainerCallback', (), {}))
from segalloc.huggingface import SegallocCallback
state = types.SimpleNamespace(log_history=[])
def log(callback, **logs):
    state.log_history.append(dict(logs, step=1))
    callback.on_log(None, state, None, logs=logs)
    return logs
"""
LIGHTNING = PRELUDE + """
module('pytorch_lightning', Callback=type('Callback', (), {}))
from segalloc.lightning import SegallocCallback
sent = []
logger = types.SimpleNamespace(log_metrics=lambda figures, step: sent.append((step, figures)))
trainer = types.SimpleNamespace(loggers=[logger], global_step=0, log_every_n_steps=2)
def step(callback, size):
    p = take(size)
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, None, None, None, 0)
    if p:
        free(p)
"""


class Case(unittest.TestCase):
    def run_python(self, script, *options, loaded=True, warned=""):
        environment = dict(os.environ, PYTHONPATH=f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}", SEGALLOC_CONF="oom_report:never",
                           PYTHONDONTWRITEBYTECODE="1", SEGALLOC_TOOL=str(SEGALLOC))
        command = [SEGALLOC, "run", "--sim", "1GiB", *options, "--"] if loaded else []
        done = subprocess.run([*command, sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        if warned:
            self.assertEqual(done.stderr.count(warned), 1, done.stderr)
        else:
            self.assertEqual(done.stderr, "")
        return done.stdout


class HuggingFace(Case):
    def test_logs(self):
        """Peaks belong to what came since the last log."""
        said = json.loads(self.run_python(TRANSFORMERS +
            "c = SegallocCallback(); before = log(c, loss=9); held = take(20); c.on_train_begin(None, state, None)\n"
            "free(take(100)); take(2000); first = log(c, loss=1); free(take(50)); second = log(c, loss=2)\n"
            "c.on_log(None, state, None); c.on_train_end(None, state, None); after = log(c, loss=3)\n"
            "say(before, first, second, after, state.log_history)"))
        before, first, second, after, history = said
        self.assertEqual((before, after), ({"loss": 9}, {"loss": 3}))
        self.assertEqual((first["loss"], set(first) - {"loss"}), (1, NAMES))
        self.assertEqual([(row["segalloc_peak_requested_bytes"] // MIB, row["segalloc_failures"]) for row in (first, second)],
                         [(120, 1), (70, 0)])
        self.assertEqual(history[1], dict(first, step=1))

    def test_add_to(self):
        said = json.loads(self.run_python(TRANSFORMERS +
            "handler = types.SimpleNamespace(callbacks=[1, 2]); c = SegallocCallback()\n"
            "c.add_to(types.SimpleNamespace(callback_handler=handler)); say(handler.callbacks[0] is c, handler.callbacks[1:])"))
        self.assertEqual(said, [True, [1, 2]])

    def test_without_the_library(self):
        said = self.run_python(TRANSFORMERS.replace("r = ctypes.CDLL('libcudart.so.13')", "") +
                               "c = SegallocCallback(); c.on_train_begin(None, state, None); say(log(c, loss=1), log(c, loss=2))",
                               loaded=False, warned="segalloc run -- python")
        self.assertEqual(json.loads(said), [{"loss": 1}, {"loss": 2}])


class Lightning(Case):
    def test_logs(self):
        said = json.loads(self.run_python(LIGHTNING +
            "c = SegallocCallback(); c.on_train_start(trainer, None)\n"
            "for size in (100, 300, 50, 60, 700): step(c, size)\n"
            "c.on_train_batch_end(trainer, None, None, None, 0)  # of a step in several parts\n"
            "c.on_train_end(trainer, None); say(*sent)"))
        self.assertEqual([(step, figures["segalloc_peak_requested_bytes"] // MIB) for step, figures in said],
                         [(2, 300), (4, 300), (5, 700)])  # the block of step 2 is freed after its log
        self.assertEqual({name for _, figures in said for name in figures}, NAMES)

    def test_the_end_at_a_log(self):
        said = json.loads(self.run_python(LIGHTNING +
            "c = SegallocCallback(); c.on_train_start(trainer, None); step(c, 1); step(c, 2); c.on_train_end(trainer, None)\n"
            "say(*(step for step, _ in sent))"))
        self.assertEqual(said, [2])

    def test_a_failure(self):
        said = json.loads(self.run_python(LIGHTNING +
            "c = SegallocCallback(); c.on_train_start(trainer, None); step(c, 2000); c.on_exception(trainer, None, MemoryError())\n"
            "say(*sent)"))
        self.assertEqual([(step, figures["segalloc_failures"]) for step, figures in said], [(1, 1)])


@unittest.skipUnless(importlib.util.find_spec("IPython"), "no IPython")
class Notebook(Case):
    SHELL = ("from IPython.core.interactiveshell import InteractiveShell\n"
             "shell = InteractiveShell.instance(); shell.history_manager.enabled = False\n"
             "shell.run_cell('%colors NoColor'); shell.run_cell('%load_ext segalloc'); shell.user_ns.update(globals())\n")

    def cell(self, text, *options, loaded=True):
        prelude = PRELUDE if loaded else ""
        return self.run_python(f"{prelude}{self.SHELL}shell.run_cell({text!r})", *options, loaded=loaded)

    def test_a_cell(self):
        said = self.cell("%%segalloc\na = take(300); free(a); b = take(100)\n6 * 7")
        self.assertRegex(said, r"Out\[\d+\]: 42\n")
        self.assertIn("device 0: peak 300.00 MiB requested, 300.00 MiB reserved; 100.00 MiB more held after it; 2 allocations\n", said)

    def test_places(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.cell("%%segalloc -n 1\na = take(300); b = r.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20))",
                             "--sites", "-o", f"{folder}/t")
        self.assertRegex(said, r"held at the peak, by place:\n +300\.00 MiB  <string>:\d+ in take\n$")

    def test_failures_and_errors(self):
        said = self.cell("%%segalloc\nassert take(5000)")
        self.assertIn("AssertionError", said)
        self.assertIn("device 0: peak 0 B requested, 0 B reserved; as much held after it as before; 0 allocations, "
                      "1 failed for want of memory\n", said)

    def test_a_line_and_a_variable(self):
        said = self.cell("%segalloc -o w a = take(30)\nprint(w.peak_requested_bytes)")
        self.assertIn("30.00 MiB more held", said)
        self.assertIn(f"\n{30 * MIB}\n", said)
        self.assertIn("no device memory was used\n", self.cell("%%segalloc\n1"))

    def test_without_the_library(self):
        self.assertEqual(self.cell("%%segalloc\nprint(3)", loaded=False).splitlines()[-2:],
                         ["3", "segalloc is not in this kernel: start it with `segalloc run -- jupyter lab`"])


class Types(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy")
    def test_the_whole_package(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, str(PACKAGE / "segalloc")],
                                  env=dict(os.environ, MYPYPATH=str(PACKAGE)), capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_docstrings(self):
        """Of each public name of the package's public modules."""
        for path in (PACKAGE / "segalloc").glob("[!_]*.py"):
            text = path.read_text()
            for name in re.findall(r"^class ([A-Z]\w+)|^def ([a-z]\w+)", text, re.M):
                name = "".join(name)
                self.assertRegex(text, rf'(?ms)^(class|def) {name}\b.*?:\n    """', f"{path.name}: {name}")


if __name__ == "__main__":
    unittest.main()
