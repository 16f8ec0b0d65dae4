#!/usr/bin/env python3
"""PyTorch's pools, a script's own allocators, graphs, snapshots, observers and statistics: in each mode as natively, or a line
says what is otherwise.

Usage: test_pools.py SEGALLOC PYTHON [--short] [TEST]…     (--short: in the default mode only)"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SEGALLOC, PYTHON = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
SHORT = "--short" in sys.argv
if SHORT:
    sys.argv.remove("--short")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
ENVIRONMENT.update(OMP_NUM_THREADS="2", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
MODES = {"native": ["--no-preload"], "auto": [], "torch": ["--torch"], "beneath": ["--conf", "pytorch:beneath"],
         "direct": ["--conf", "pytorch:direct"]}
BYPASSED = "pytorch:direct bypasses it"
HISTORY = "PyTorch records its memory history"


def run(mode, script, *arguments, sim="4GiB", extra={}, options=()):
    return subprocess.run([SEGALLOC, "run", "-q", "--sim", sim, "--conf", "oom_report:never", *MODES[mode], *options, "--", PYTHON,
                           HERE / "pools" / script, *arguments],
                          env=ENVIRONMENT | extra, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=300)


def rehearse(card, script, *arguments, extra={}, margin="600MiB"):
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([SEGALLOC, "rehearse", "--margin", margin, "--card", card, "--", PYTHON, HERE / "pools" / script, *arguments],
                              env=ENVIRONMENT | extra, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)


class Pools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.library = os.path.join(cls.folder.name, "own.so")
        cls.sleeping = os.path.join(cls.folder.name, "sleeping.so")
        cls.outside = os.path.join(cls.folder.name, "outside.so")
        driver = os.path.join(cls.folder.name, "libcuda.so.1")  # for its name alone
        subprocess.run(["cc", "-shared", "-o", driver, "-Wl,-soname,libcuda.so.1", "-xc", os.devnull], check=True)
        for library, source, *more in ((cls.library, "allocator.c"),
                                       (cls.sleeping, "sleeping.c", "-Wl,--no-as-needed", driver),
                                       (cls.outside, "outside.c", "-Wl,--no-as-needed", driver)):
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "pools" / source, *more], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def modes(self, *others):
        return ("auto",) if SHORT else ("auto", "torch", "beneath", *others)

    def as_natively(self, script, *arguments, modes, sim="4GiB", extra={}):
        """What it says on standard error, by mode."""
        native = run("native", script, *arguments, sim=sim, extra=extra)
        self.assertEqual(native.returncode, 0, native.stderr)
        lines = {}
        for mode in modes:
            done = run(mode, script, *arguments, sim=sim, extra=extra)
            with self.subTest(script=script, arguments=arguments, mode=mode, **extra):
                self.assertEqual((done.returncode, done.stdout), (0, native.stdout), done.stderr)
            lines[mode] = done.stderr
        return lines

    def test_first_memory_of_the_process(self):
        """The default mode is the one in which PyTorch has decided nothing yet."""
        for how in ("plain", "thread", "capture", "warm"):
            self.as_natively("first.py", how, modes=("auto",) if how in ("plain", "warm") else self.modes())

    @unittest.skipIf(SHORT, "short")
    def test_direct_mode_says_that_it_bypasses_pools(self):
        for how in ("plain", "warm"):
            done = run("direct", "first.py", how)
            self.assertEqual(done.stderr.count(BYPASSED), 1, done.stderr)
            self.assertIn(f"{how} [False, False, False, False] False 0 True", done.stdout)

    def test_own_allocator(self):
        self.as_natively("own_allocator.py", self.library, modes=self.modes("direct"))
        self.assertIn("110 55000 pluggable", run("auto", "own_allocator.py", self.library).stdout)

    def test_pools_with_allocators_and_within_pools(self):
        for mode, said in self.as_natively("pool_allocator.py", self.library, modes=self.modes()).items():
            self.assertEqual(said, "", mode)

    def test_own_allocator_by_other_calls(self):
        """Memory by calls that are not served: the script's words are as natively; traces and verdicts have it to the byte."""
        calls = {"create": "cuMemCreate", "async": "cudaMallocAsync", "managed": None}
        for by in ("create",) if SHORT else calls:
            for how, all_of_it in (("all", 600), ("pool", 700)):
                with self.subTest(by=by, how=how):
                    own = {"OWN_BY": by}
                    modes = self.modes(*(("direct",) if how == "all" else ())) if by == "create" else ("auto",)
                    self.as_natively("outside.py", self.outside, how, "0", sim="1GiB", extra=own, modes=modes)
                    done = rehearse("1GiB", "outside.py", self.outside, how, "0", extra=own, margin="0")
                    self.assertEqual(done.returncode, 0, done.stdout)
                    if by == "managed":
                        self.assertIn("It needs 600.00 MiB of managed memory beside that", done.stdout)
                        continue
                    self.assertRegex(done.stdout, rf"(?m)^1\.00 GiB: fits, {1024 - all_of_it}\.00 MiB to spare")
                    for card, status in ((all_of_it, 0), (all_of_it - 2, 3)):
                        done = rehearse(f"{card}MiB", "outside.py", self.outside, how, "0", extra=own, margin="0")
                        self.assertEqual(done.returncode, status, done.stdout)
                    self.assertIn(f"600.00 MiB by {calls[by]}", done.stdout)

    def test_own_allocator_is_refused(self):
        """600 MiB more than the card has, by a call that is not served: PyTorch's error or the script's own, and a failure by that
        call in the trace."""
        for how in ("all", "pool"):
            natively = run("native", "outside.py", self.outside, how, "600", sim="1GiB", extra={"OWN_BY": "create"})
            self.assertEqual(natively.returncode, 1, natively.stderr)
            for mode in self.modes(*(("direct",) if how == "all" else ())):
                with self.subTest(how=how, mode=mode), tempfile.TemporaryDirectory() as folder:
                    trace = os.path.join(folder, "own.trace")
                    done = run(mode, "outside.py", self.outside, how, "600", sim="1GiB", extra={"OWN_BY": "create"}, options=("-o", trace))
                    self.assertEqual((done.returncode, done.stdout), (1, natively.stdout), done.stderr)
                    self.assertEqual("OutOfMemoryError" in done.stderr, "OutOfMemoryError" in natively.stderr, done.stderr)
                    said = subprocess.run([SEGALLOC, "report", trace], stdout=subprocess.PIPE, check=True, text=True).stdout
                    self.assertIn("largest of 600.00 MiB asked for by cuMemCreate, refused", said)
            done = rehearse("1GiB", "outside.py", self.outside, how, "600", extra={"OWN_BY": "create"})
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertRegex(done.stdout, rf"(?m)^1\.00 GiB: does not fit: .* has {1.17 if how == 'all' else 1.27} GiB")

    def test_sleeping_pool(self):
        """2 GiB of weights leave the card for 2.5 GiB of a trainer: of 4 GiB there are 0.5 for what stays."""
        self.as_natively("sleeps.py", self.sleeping, "2560", modes=self.modes())
        for card, verdict in (("2992MiB", ": does not fit"), ("3GiB", ": too close to call")):
            self.assertIn(verdict, rehearse(card, "sleeps.py", self.sleeping, "2560").stdout)

    @unittest.skipIf(SHORT, "short")
    def test_direct_mode_keeps_a_sleeping_pool_awake(self):
        done = run("direct", "sleeps.py", self.sleeping, "1024")
        self.assertEqual((done.returncode, done.stderr.count(BYPASSED)), (0, 1), done.stderr)

    def test_memory_beside_pytorch(self):
        done = rehearse("6GiB,8GiB", "beside.py")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^6\.00 GiB: does not fit: .* 7\.00 GiB")
        self.assertRegex(done.stdout, r"(?m)^8\.00 GiB: fits, 1\.00 GiB to spare")
        self.assertIn("3.00 GiB by cudaMallocAsync", done.stdout)

    def test_rehearsal_falls_back(self):
        """Before PyTorch 2.9 --torch is a pluggable allocator, which has no pools: the rehearsal runs once more without, and says so."""
        major, minor = subprocess.run([PYTHON, "-c", "import importlib.metadata as m; print(m.version('torch'))"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout.split(".")[:2]
        if (int(major), int(minor)) >= (2, 9):
            self.skipTest("--torch has pools")
        for card, verdict in (("1GiB", ": fits, 524.00 MiB to spare"), ("450MiB", ": does not fit: the smallest card that does has 500.00 MiB")):
            done = rehearse(card, "two_tensors.py", margin="0")
            self.assertIn(verdict, done.stdout)
            self.assertEqual(done.stdout.count("torch.cuda.MemPool needs PyTorch's own allocator: running it once more with that"), 1, done.stdout)
            self.assertEqual(done.stdout.count("allocated 500"), 1, done.stdout)

    def test_beyond_the_card(self):
        """PyTorch has addresses for 9/8 of its card: where the rehearsal's card gave more, it faulted."""
        conf = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        done = rehearse("800MiB", "beyond.py", extra=conf)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^800\.00 MiB: does not fit: the smallest card that does has at least 802\.00 MiB")

    def test_spare_pool(self):
        """use_on_oom is PyTorch's cache's own affair."""
        if run("native", "spare_pool.py").returncode == 77:
            self.skipTest("no such option")
        self.as_natively("spare_pool.py", modes=self.modes())

    def test_words(self):
        """With --torch history begins before the first allocation, or a warning says that it is too late."""
        said = self.as_natively("words.py", modes=("auto",) if SHORT else ("auto", "beneath"))
        self.assertEqual(said["auto"].count(HISTORY), 1, said["auto"])
        if not SHORT:
            native = run("native", "words.py").stdout.splitlines()
            for mode in ("torch", "direct"):
                lines = run(mode, "words.py").stdout.splitlines()
                self.assertEqual([line for line in lines if not line.startswith(("history", "dumped"))][:7], native[:7], mode)

        for mode in (() if SHORT else ("direct",)):
            self.assertEqual(run(mode, "words.py").stderr.count(HISTORY), 1, mode)

    def test_counts_of_running_out(self):
        """Failures and retries as PyTorch counts them; direct mode says that it bypasses pools, and counts as if there were none."""
        self.as_natively("counts.py", modes=self.modes())

    def test_history_before_the_first_allocation(self):
        """In direct mode there is none, as a line says, whether it was asked for before or after the first allocation."""
        for script in ("import torch; torch.cuda.memory._record_memory_history(); torch.empty(9, device='cuda')",
                       "import torch; torch.empty(9, device='cuda'); torch.cuda.memory._record_memory_history()"):
            done = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--conf", "pytorch:direct", "--", PYTHON, "-c", script],
                                  env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
            self.assertEqual((done.returncode, done.stderr.count(HISTORY)), (0, 1), done.stderr)
            self.assertIn("nothing is in it without its own cache", done.stderr)

    def test_peaks(self):
        """Segments of PyTorch's cache are blocks of ours, or expandable ones that the core does not have."""
        for conf in ("", "expandable_segments:True"):
            for sim in ("4GiB", "4GiB,run_ahead=1000"):
                self.as_natively("peaks.py", modes=self.modes(), sim=sim, extra={"PYTORCH_CUDA_ALLOC_CONF": conf})

    def test_memory_of_a_launch_that_may_still_run(self):
        """PyTorch waits for the stream of an expandable segment alone before it unmaps it. Work runs as late as it may here."""
        for how, left in (("empty", 60), ("out", 460)):
            for mode in ("auto",) if SHORT else ("auto", "torch"):
                with self.subTest(how=how, mode=mode):
                    done = run(mode, "launched.py", how, sim="512MiB,run_ahead=1000",
                               extra={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
                    self.assertEqual((done.returncode, done.stdout), (0, f"{left}\nended {left}\n"), done.stderr)

    def test_near_the_limit(self):
        """Pools, graphs and the rest on a card that they fill nearly: what ends natively or beneath ends in the default mode."""
        for seed in range(2 if SHORT else 8):
            if any(run(mode, "near_limit.py", str(seed), sim="512MiB").returncode == 0 for mode in ("native", "beneath")):
                done = run("auto", "near_limit.py", str(seed), sim="512MiB")
                self.assertEqual(done.returncode, 0, f"seed {seed}: {done.stderr[-600:]}")

    def test_rehearsals(self):
        """3.00 GiB in steps of other sizes, after a pool: nothing is held twice."""
        done = rehearse("4GiB", "steps.py")
        self.assertEqual(done.returncode, 0, done.stdout)
        found = re.search(r"^Smallest card: +(\S+) GiB|^ +segalloc +(\S+) GiB", done.stdout, re.M)
        self.assertIsNotNone(found, done.stdout)
        self.assertLess(float(found.group(1) or found.group(2)), 3.1, done.stdout)
        if not SHORT:
            for script, arguments in (("own_allocator.py", (self.library,)), ("pool_allocator.py", (self.library,)),
                                      ("first.py", ("plain",)), ("first.py", ("capture",))):
                done = rehearse("4GiB", script, *arguments)
                self.assertIn(": fits", done.stdout, script)
                for line in run("native", script, *arguments).stdout.splitlines():
                    self.assertIn(line, done.stdout, script)


if __name__ == "__main__":
    unittest.main(verbosity=2)
