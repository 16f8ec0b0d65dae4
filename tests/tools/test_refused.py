"""Allocations that are refused: what is made good is no failure, for whoever speaks of it.

Usage: test_refused.py SEGALLOC ACTS"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, ACTS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB = 1 << 20

# On a card of 1 GiB: what a program does; MiB of the allocation that is reported on stderr, 0: none is; failures, refusals, MiB
# that all of it needs.
WAYS = {
    "asks again": ("a+600 c?600 a- c+600", 0, 0, 1, 600),
    "asks for more": ("a+600 c?600 a- c+700", 0, 0, 1, 700),
    "asks for half": ("a+600 c?800 c+400", 0, 0, 1, 1000),
    "asks for less step by step": ("a+600 c?800 c?640 c?512 c+410", 0, 0, 3, 1010),
    "goes elsewhere": ("a+600 c?600 device=1 c+600", 0, 0, 1, 600),
    "goes to the host": ("a+600 c/600", 0, 0, 1, 600),
    "goes to its own memory": ("a+600 c&600", 0, 0, 1, 600),
    "goes on with the host": ("a+600 c/600 d+20", 0, 0, 1, 620),
    "is refused for good": ("a+600 c?800 c?600 a-", 600, 1, 2, 1200),
    "is refused and ends": ("a+600 c+600", 600, 1, 1, 1200),
    "is refused and aborts": ("a+600 c?600 abort", 600, 1, 1, 1200),
    "goes on without": ("a+600 c?600 d+20", 600, 1, 1, 1200),
    "two in vain": ("a+600 c?500 d?900 e?20", 500, 2, 2, 1500),
    "the failure after a retry": ("a+600 c?600 a- c+600 d?500 e+20", 500, 1, 2, 1100),
}


def run(*arguments):
    return subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


class Refused(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.trace = os.path.join(self.folder.name, "run.trace")

    def test_ways(self):
        """stderr, report, its gate, replay, tune and statistics say the same of each way to go on."""
        for way, (acts, reported, failures, refusals, needed) in WAYS.items():
            with self.subTest(way):
                said = run("run", "-q", "-f", "-o", self.trace, "--sim", "1GiB,count=2", "--", ACTS, *acts.split()).stderr
                sizes = [float(size) for size in re.findall(r"short by [^:]*: ([\d.]+) MiB asked for", said)]
                self.assertEqual(sizes, [reported] if reported else [], said)
                report = json.loads(run("report", "--json", self.trace).stdout)
                self.assertEqual((report["ooms"], report["refused"]), (failures, refusals))
                self.assertEqual(report["smallest_card_bytes"], needed * MIB)
                self.assertEqual(run("report", "--fail-above", "ooms=0", self.trace).returncode, 3 if failures else 0)
                self.assertEqual("refused and made good" in report["verdict"], not failures, report["verdict"])
                replay = json.loads(run("replay", "--json", "--min-limit", self.trace).stdout)
                self.assertEqual((replay["ooms"], replay["recorded_failures"], replay["min_limit_bytes"]), (failures, failures, needed * MIB))
                tune = json.loads(run("tune", "--json", self.trace).stdout)
                self.assertEqual(tune["recommended"]["ooms"], failures)

    def test_other_calls(self):
        """A call that segalloc does not serve, and that stays refused, is a failure by its name."""
        ways = {  # acts: reported MiB, failures, refusals, whether the program went on
            "a+600 b!600": (600, 1, 1, False), "a+600 b#600": (600, 1, 1, False), "b#1200 a+500": (1200, 1, 1, True),
            "a+600 b#600 a- b#600": (0, 0, 1, False), "a+600 b#800 b#400": (0, 0, 1, False), "b#1200 c/1200 d+1": (0, 0, 2, False),
            "a+600 b#500 a?900 b#20": (500, 2, 2, True),
        }
        for acts, (reported, failures, refusals, survived) in ways.items():
            with self.subTest(acts):
                said = run("run", "-q", "-f", "-o", self.trace, "--sim", "1GiB", "--", ACTS, *acts.split()).stderr
                sizes = [(float(size), unit) for size, unit in
                         re.findall(r"short by [^:]*: ([\d.]+) (\w+) asked for by cuMemCreate, refused", said)]
                mib = [size * (1024 if unit == "GiB" else 1) for size, unit in sizes]
                self.assertEqual([round(size / 10) for size in mib], [reported // 10] if reported else [], said)
                report = json.loads(run("report", "--json", self.trace).stdout)
                self.assertEqual((report["ooms"], report["refused"], report["survived"]), (failures, refusals, survived))
                self.assertEqual(run("report", "--fail-above", "ooms=0", self.trace).returncode, 3 if failures else 0)
                doctor = json.loads(run("doctor", "--json", "--sim", "1GiB", "--", ACTS, *acts.split()).stdout.splitlines()[-1])
                self.assertEqual(doctor["failures"], failures)
                if doctor["answer"] == "served":  # its sentence tells of both
                    self.assertEqual("failed for want of memory" in doctor["because"], failures > 0, doctor["because"])
                tune = json.loads(run("tune", "--json", self.trace).stdout)
                self.assertEqual(sum(trace["failures"] for trace in tune["traces"]), failures)
                if not failures:
                    self.assertIn("refused and made good", report["verdict"])
                    continue
                failure = next(f for f in report["devices"][0]["failures"] if f.get("by"))
                self.assertEqual((failure["by"], round(failure["bytes"] / MIB)), ("physical", reported))
                self.assertGreater(report["smallest_card_bytes"], 1024 * MIB)
                self.assertRegex(run("report", self.trace).stdout, r"event \d+: [^\n]* asked for by cuMemCreate, refused")
                self.assertIn("by cuMemCreate", run("tune", self.trace).stdout)

    def test_survived(self):
        for acts, survived in ("a+600 c?600 d+20", True), ("a+600 c?600", False), ("a+600 c?600 a- c+600", False):
            with self.subTest(acts):
                run("run", "-q", "-f", "-o", self.trace, "--sim", "1GiB", "--", ACTS, *acts.split())
                report = json.loads(run("report", "--json", self.trace).stdout)
                self.assertEqual((report["survived"], "went on without it" in report["verdict"]), (survived, survived))

    def test_imported(self):
        """Another program's trace has refusals too, by thread: another's success makes nothing good."""
        path = os.path.join(self.folder.name, "log.csv")
        for other, failures in ("1", 0), ("2", 1):
            rows = [("1", "allocate", 0x1000000, 600), ("1", "allocate failure", 0, 600), ("1", "free", 0x1000000, 600),
                    (other, "allocate", 0x1000000, 600), (other, "free", 0x1000000, 600)]
            with open(path, "w", encoding="ascii") as file:
                file.write(HEADER + "".join(f"{thread},00:00:00.00000{i},{action},{hex(at)},{size * MIB},0x0\n"
                                            for i, (thread, action, at, size) in enumerate(rows)))
            with self.subTest(other):
                self.assertEqual(json.loads(run("report", "--json", path).stdout)["ooms"], failures)
                replay = json.loads(run("replay", "--json", "--limit", "1GiB", path).stdout)
                self.assertEqual((replay["ooms"], replay["peak_reserved_bytes"]), (failures, 600 * MIB))


class Pools(unittest.TestCase):
    def test_one_block_of_most_of_the_card(self):
        """It is said to be somebody's pool, with what leaves it out; a few arrays, and many blocks, are not."""
        many = [f"{chr(97 + i % 26)}{sign}1" for i in range(70) for sign in "+-"]
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.trace")
            for acts, said in ((["a+920"], True), (["a+500", "b+10"], True), (["a+300", "b+300"], False), (["a+400"], False),
                               ([*many, "a+920"], False)):
                with self.subTest(acts[-2:]):
                    run("run", "-q", "-f", "-o", trace, "--sim", "1GiB", "--", ACTS, *acts)
                    advice = json.loads(run("report", "--json", trace).stdout)["advice"]
                    self.assertEqual(["XLA_PYTHON_CLIENT_ALLOCATOR=platform" in line for line in advice if "a pool of" in line], [True] * said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
