"""segalloc.stats() and segalloc.watch(), on the simulated GPU, with every Python that is here.

Usage: test_watch.py SEGALLOC"""
import ast
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGE = SEGALLOC.parent.parent / "python"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20

PRELUDE = """
import ctypes, json, sys, threading, warnings
import segalloc
r = ctypes.CDLL('libcudart.so.13')
def take(size):
    p = ctypes.c_void_p()
    return p if r.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size << 20)) == 0 else None
def free(p):
    assert r.cudaFree(p) == 0
def say(*what):
    json.dump(what, sys.stdout)
"""


def pythons():
    """Those that are here, each version once; this one first."""
    seen = {"%d.%d" % sys.version_info[:2]: sys.executable}
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for minor in range(9, 15):
        for path in filter(None, [shutil.which(f"python3.{minor}"), *glob.glob(f"{pyenv}/versions/3.{minor}.*/bin/python3")]):
            if subprocess.run([path, "-c", "import ctypes"], capture_output=True).returncode == 0:
                seen.setdefault(f"3.{minor}", path)
    return seen


class Case(unittest.TestCase):
    def run_python(self, script, *options, sim="4GiB", python=sys.executable, conf="oom_report:never"):
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE), SEGALLOC_CONF=conf, PYTHONDONTWRITEBYTECODE="1",
                           SEGALLOC_TOOL=str(SEGALLOC))
        done = subprocess.run([SEGALLOC, "run", "--sim", sim, *options, "--", python, "-c", PRELUDE + script],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        return json.loads(done.stdout)


class Stats(Case):
    def test_fields(self):
        said = self.run_python("a = take(64); b = take(32); free(b); s = segalloc.stats()\n"
                               "say(s._asdict(), segalloc.stats(0) == s, segalloc.stats(1) == segalloc.Stats())")
        fields, same, unused = said
        self.assertEqual((fields["allocated_bytes"], fields["peak_allocated_bytes"]), (64 * MIB, 96 * MIB))
        self.assertEqual((fields["allocs"], fields["frees"], fields["ooms"]), (2, 1, 0))
        self.assertTrue(same and unused)

    def test_fields_are_those_of_the_table(self):
        """Each statistic is a field, with its peak where it has one, and the units are in the names."""
        table = re.findall(r"^(STAT|GAUGE|TOTAL)\((\w+), (\w+), (\w+),", (ROOT / "src/base/stats.def").read_text(), re.M)
        expected = [name for row, stat, kind, _ in table
                    for name in ([stat, "peak_" + stat] if row == "GAUGE" or kind == "LEVEL" else [stat])]
        module = ast.parse((PACKAGE / "segalloc" / "_fields.py").read_text())
        stats, = (node for node in module.body if isinstance(node, ast.ClassDef))
        fields = [node.target.id for node in stats.body if isinstance(node, ast.AnnAssign)]
        self.assertEqual(fields, expected)
        texts = [node for node in stats.body[1:] if isinstance(node, ast.Expr)]
        self.assertEqual(len(texts), len(fields))  # each has a docstring
        for _, name, _, unit in table:
            self.assertEqual(unit, "BYTES" if name.endswith("_bytes") or name == "bytes_moved" else
                             "NS" if name.endswith("_ns") else "COUNT", name)

    def test_the_present_device(self):
        said = self.run_python("assert r.cudaSetDevice(1) == 0; a = take(10)\n"
                               "say(segalloc.stats().requested_bytes, segalloc.stats(0).requested_bytes)", sim="1GiB,count=2")
        self.assertEqual(said, [10 * MIB, 0])

    def test_names_of_devices(self):
        """As PyTorch names them; what has no device takes that of the calling thread."""
        said = self.run_python(
            "import types\n"
            "class Device(types.SimpleNamespace): pass\n"
            "assert r.cudaSetDevice(1) == 0; a = take(10); b = take(10); free(b)\n"
            "names = 1, 'cuda:1', 'cuda', None, Device(type='cuda', index=1), Device(type='cuda', index=None)\n"
            "held = [segalloc.stats(name).requested_bytes >> 20 for name in names]\n"
            "wrong = []\n"
            "for name in 'cpu', '1', 'cuda:x', 1.5, Device(type='cpu', index=1):\n"
            "    try: segalloc.stats(name)\n"
            "    except (TypeError, ValueError) as error: wrong.append(str(error))\n"
            "segalloc.reset_peaks()\n"
            "say(held, wrong, segalloc.stats(1).peak_requested_bytes >> 20, segalloc.set_limit(1 << 29, 'cuda:1') >> 20,\n"
            "    segalloc.__version__ == segalloc.version())", sim="1GiB,count=2")
        held, wrong, peak, limit, same = said
        self.assertEqual((held, len(wrong), peak, limit, same), ([10] * 6, 5, 10, 512, True))
        self.assertTrue(all(text.startswith("segalloc: ") for text in wrong), wrong)


class Watch(Case):
    def test_peaks(self):
        said = self.run_python(
            "a = take(300); free(a); held = take(100)\n"
            "with segalloc.watch() as w:\n"
            "    b = take(200); inside = w.peak_requested_bytes; free(b)\n"
            "c = take(800); free(c)\n"
            "d, = w.devices.values()\n"
            "say(inside, d._asdict(), w.peak_requested_bytes, w.peak_allocated_bytes, w.peak_reserved_bytes, w.failures,\n"
            "    segalloc.stats().peak_requested_bytes, repr(w))")
        inside, device, requested, allocated, reserved, failures, peak, text = said
        self.assertEqual(inside, 300 * MIB)
        self.assertEqual((requested, allocated, failures), (300 * MIB, 300 * MIB, 0))
        self.assertEqual(device, {"device": 0, "peak_requested_bytes": 300 * MIB, "peak_allocated_bytes": 300 * MIB,
                                  "peak_reserved_bytes": reserved, "begin_requested_bytes": 100 * MIB,
                                  "end_requested_bytes": 100 * MIB, "allocations": 1, "failures": 0})
        self.assertGreaterEqual(reserved, 300 * MIB)
        self.assertLess(reserved, 800 * MIB)
        self.assertEqual(peak, 900 * MIB)  # a block takes no peak from others
        self.assertIn(f"device 0: peak {300 * MIB:,} B requested", text)

    def test_nested(self):
        said = self.run_python(
            "with segalloc.watch() as outer:\n"
            "    a = take(500); free(a)\n"
            "    with segalloc.watch() as inner:\n"
            "        b = take(200)\n"
            "        with segalloc.watch() as empty: pass\n"
            "        segalloc.reset_peaks()\n"
            "    free(b); c = take(50)\n"
            "    with segalloc.watch() as last: free(c)\n"
            "say([w.peak_requested_bytes >> 20 for w in (outer, inner, empty, last)], segalloc.stats().peak_requested_bytes >> 20)")
        self.assertEqual(said, [[500, 200, 200, 50], 200])

    def test_overlapping_threads(self):
        said = self.run_python(
            "begun, done = threading.Event(), threading.Event(); seen = []\n"
            "def other():\n"
            "    with segalloc.watch() as w:\n"
            "        begun.set(); done.wait()\n"
            "    seen.append(w.peak_requested_bytes >> 20)\n"
            "a = take(300); free(a)\n"
            "t = threading.Thread(target=other); t.start(); begun.wait()\n"
            "with segalloc.watch() as w:\n"
            "    b = take(100)\n"
            "free(b); c = take(40); done.set(); t.join()\n"
            "say(w.peak_requested_bytes >> 20, seen)")
        self.assertEqual(said, [100, [100]])

    def test_devices(self):
        said = self.run_python(
            "a = take(100)\n"
            "with segalloc.watch() as w:\n"
            "    assert r.cudaSetDevice(1) == 0; b = take(300); free(b); too_much = take(5000)\n"
            "say({d: (x.peak_requested_bytes >> 20, x.allocations, x.failures) for d, x in w.devices.items()}, too_much,\n"
            "    w.peak_requested_bytes >> 20, w.failures)", sim="1GiB,count=2")
        self.assertEqual(said, [{"0": [100, 0, 0], "1": [300, 1, 1]}, None, 300, 1])

    def test_an_error_in_the_block(self):
        said = self.run_python(
            "try:\n"
            "    with segalloc.watch() as w:\n"
            "        a = take(10); raise ValueError()\n"
            "except ValueError: pass\n"
            "b = take(500); say(w.peak_requested_bytes >> 20)")
        self.assertEqual(said, [10])

    def test_sites(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_python(
                "def model(): return take(300)\n"
                "def step():\n"
                "    with segalloc.phase('forward'): a = take(200)\n"
                "    free(a)\n"
                "before = take(700); free(before); held = model()\n"
                "with segalloc.watch() as w: step()\n"
                "with segalloc.watch() as nothing: pass\n"
                "after = take(900)\n"
                "say([s._asdict() for s in w.sites()], w.peak_requested_bytes, [s.bytes for s in nothing.sites(0)], w.sites(3))",
                "--sites", "-o", f"{folder}/t")
        sites, peak, nothing, none = said
        self.assertEqual([(s["bytes"] // MIB, s["blocks"], s["phase"], s["device"]) for s in sites],
                         [(300, 1, None, 0), (200, 1, "forward", 0)])
        self.assertRegex(sites[0]["site"], r"<string>:\d+ in ")
        self.assertEqual(peak, 500 * MIB)
        self.assertEqual((nothing, none), ([300 * MIB], []))

    def test_sites_need_a_trace(self):
        said = self.run_python(
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            "    with segalloc.watch() as w: take(1)\n"
            "    say(w.sites(), [str(each.message) for each in caught])")
        self.assertEqual(said[0], [])
        self.assertIn("segalloc run --sites -o TRACE", *said[1])


class Pythons(Case):
    def test_each_version(self):
        here = pythons()
        print("Pythons here:", ", ".join(here))
        for version, path in here.items():
            with self.subTest(version), tempfile.TemporaryDirectory() as folder:
                said = self.run_python(
                    "with segalloc.watch() as w:\n"
                    "    a = take(100)\n"
                    "say(segalloc.stats().peak_requested_bytes, w.peak_requested_bytes, [s.bytes for s in w.sites()])",
                    "--sites", "-o", f"{folder}/t", python=path)
                self.assertEqual(said, [100 * MIB, 100 * MIB, [100 * MIB]])
                with self.subTest("python -m segalloc"):
                    environment = dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1",
                                       PATH=f"{SEGALLOC.parent}:{os.environ['PATH']}")
                    done = subprocess.run([path, "-m", "segalloc", "run", "--sim", "1GiB", "--", path, "-c",
                                           "import segalloc; print(segalloc.loaded())"],
                                          env=environment, capture_output=True, text=True, timeout=60)
                    self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n", ""))


class Absent(unittest.TestCase):
    """Without the library: one message, and figures of 0."""

    def test_not_loaded(self):
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1")
        environment.pop("LD_PRELOAD", None)
        script = ("import segalloc\n"
                  "with segalloc.watch() as w: pass\n"
                  "with segalloc.watch() as v: print(segalloc.stats() == segalloc.Stats(), w.devices, w.sites(), w.failures)\n")
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "True {} [] 0\n"))
        self.assertEqual(done.stderr.count("segalloc run -- python"), 1, done.stderr)

    def test_types(self):
        """The package's own types, where mypy is here."""
        if subprocess.run([sys.executable, "-c", "import mypy"], capture_output=True).returncode:
            self.skipTest("mypy is not here")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "user.py")
            path.write_text("import segalloc\n"
                            "x: int = segalloc.stats().peak_reserved_bytes\n"
                            "with segalloc.watch() as w:\n"
                            "    y: str = w.sites()[0].bytes  # wrong\n")
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, str(path)],
                                  env=dict(os.environ, MYPYPATH=str(PACKAGE)), capture_output=True, text=True, timeout=300)
        self.assertEqual(len(re.findall(r"user\.py:4: error", done.stdout)), 1, done.stdout)
        self.assertNotIn("user.py:2", done.stdout)


if __name__ == "__main__":
    unittest.main()
