"""Memory that network cards are to register: a stand-in for libibverbs refuses ranges over several handles, as nvidia_peermem
does. By default blocks of several pages are refused, with `contiguous` and beside each known module they are not; and
`doctor` says which way it goes, and what to set.

Usage: test_registration.py SEGALLOC REGISTERS IBVERBS LIBRARY MODULES_DEF"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, REGISTERS, IBVERBS, LIBRARY, MODULES = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(5))
SIZES = ["1", "3", "100", "20", "5"]
SHARERS = re.findall(r'^MODULE\("([^"]+)", \w+, SHARES, (?:NULL|"([^"]+)")\)', MODULES.read_text(), re.M)


def run(*words, conf="", modules=(), sizes=SIZES, sim="1GiB", verb="run"):
    environment = dict(os.environ, SEGALLOC_CONF=conf)
    if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
        environment["LD_PRELOAD"] = os.environ["SANITIZER"]
    return subprocess.run([SEGALLOC, verb, *(["-q"] if verb == "run" else []), "--sim", sim, *words, "--", REGISTERS, IBVERBS, *modules,
                           "--", *sizes], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


class Registration(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def module(self, prefix):
        """A library whose file has that name."""
        path = self.folder / (prefix if ".so" in prefix else prefix + "cpython-311-x86_64-linux-gnu.so" if prefix.endswith(".") else prefix + ".so")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LIBRARY, path)
        return path

    def doctor(self, **how):
        text = run(verb="doctor", **how)
        told = json.loads(run("--json", verb="doctor", **how).stdout)["registration"]
        return told, text.stdout

    def registered(self, **how):
        ran = run(**how)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return [line == "registered" for line in ran.stdout.split("\n")[:-1]]

    def test_natively(self):
        self.assertEqual(self.registered(conf="backend:cudaMallocAsync"), [True] * 5)

    def test_default(self):
        self.assertEqual(self.registered(), [True, False, False, False, False])
        told, text = self.doctor()
        self.assertEqual(told, {"way": "pages", "module": None, "verbs": True, "set": "contiguous:1MiB"})
        self.assertRegex(text, "network +libibverbs is loaded, by nobody who is known here: .*contiguous:1MiB")

    def test_contiguous(self):
        self.assertEqual(self.registered(conf="contiguous:1MiB"), [True] * 5)
        self.assertEqual(self.registered(conf="contiguous:20MiB"), [True, False, True, True, False])
        told, text = self.doctor(conf="contiguous:1MiB")
        self.assertEqual((told["way"], told["set"]), ("contiguous", None))
        self.assertIn("blocks of 1.00 MiB and more are one allocation of the driver's each (contiguous)", text)

    def test_fixed_segments(self):
        told, _ = self.doctor(conf="expandable_segments:False")
        self.assertEqual(told["way"], "segments")
        self.assertEqual(self.registered(conf="expandable_segments:False"), [True] * 5)

    def test_known_modules(self):
        self.assertGreater(len(SHARERS), 6)
        for prefix, unless in SHARERS:
            with self.subTest(module=prefix):
                module = self.module(prefix)
                self.assertEqual(self.registered(modules=[module]), [True] * 5)
                told, text = self.doctor(modules=[module])
                self.assertEqual(told, {"way": "each_block", "module": prefix, "verbs": True, "set": None})
                self.assertIn(f"{prefix} is known: each block is one allocation of the driver's", text)
                told, text = self.doctor(modules=[module], conf="ipc:never")
                self.assertEqual((told["way"], told["module"], told["set"]), ("pages", prefix, "ipc:auto"))
                self.assertEqual(self.registered(modules=[module], conf="ipc:never")[2], False)
                if unless:
                    told, _ = self.doctor(modules=[module, self.module(unless)])
                    self.assertEqual(told["module"], None)

    def test_without_network(self):
        ran = run(verb="doctor")
        self.assertIn("network", ran.stdout)
        environment = {name: value for name, value in os.environ.items() if name != "SEGALLOC_CONF"}
        if "SANITIZER" in os.environ:
            environment["LD_PRELOAD"] = os.environ["SANITIZER"]
        plain = subprocess.run([SEGALLOC, "doctor", "--sim", "1GiB", "--json", "--", "true"], stdout=subprocess.PIPE, text=True,
                               env=environment, timeout=60)
        self.assertIsNone(json.loads(plain.stdout)["registration"])


class Contiguous(unittest.TestCase):
    def test_memory_goes_both_ways(self):
        """What segments keep idle serves pages, and the other way round."""
        for conf in ("contiguous:50MiB", "contiguous:50MiB,reserve_slack:1.0"):
            for first, second in (("30", "900"), ("900", "40")):
                ran = run(conf=conf + ",oom_report:never", sizes=[first] * (20 if first == "30" else 1))
                self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "run.trace"
            ran = run("-o", trace, conf="contiguous:20MiB", sizes=["5", "100", "20", "3", "400", "19", "21"])
            self.assertEqual(ran.returncode, 0, ran.stderr)
            told = json.loads(subprocess.run([SEGALLOC, "replay", "--json", trace], stdout=subprocess.PIPE, text=True, timeout=60).stdout)
            self.assertEqual((told["as_recorded"], told["diverged_event"]), (True, None), told)


if __name__ == "__main__":
    unittest.main()
