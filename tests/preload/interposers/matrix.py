#!/usr/bin/env python3
"""matrix.py SEGALLOC PROGRAM NAME=LIBRARY...: a program with other preloaded libraries, natively and with ours in every
place among them. What it prints is equal, and so is what each library counts. All is served, or one line says which
library hides which, with the order that helps."""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, PROGRAM = sys.argv[1:3]
LIBRARY = dict(item.split("=", 1) for item in sys.argv[3:])
SANITIZER = SEGALLOC.split(":")[:-1]  # comes before all else
OURS = SEGALLOC.split(":")[-1]

# A library that answers dlsym and comes first keeps the driver's functions from us. One that has functions of the driver
# and comes later is not called by programs that are linked with the driver.
HIDES = {"quota", "closed_quota", "tracer"}
HIDDEN = {"driver", "quota"}


def play(names, stats=None):
    """Runs the program with those libraries, `ours` among them, and returns what it says."""
    environment = dict(os.environ, QUOTA_MIB="64", SEGALLOC_CONF="oom_report:never")
    audit = [LIBRARY[name] for name in names if name == "audit"]
    preload = SANITIZER + [OURS if name == "ours" else LIBRARY[name] for name in names if name != "audit"]
    if audit:
        environment["LD_AUDIT"] = audit[0]
    if preload:
        environment["LD_PRELOAD"] = ":".join(preload)
    if stats:
        environment["SEGALLOC_STATS"] = stats
    return subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=120)


def split(stderr):
    """What others say, and our own lines."""
    lines = stderr.splitlines()
    return sorted(line for line in lines if not line.startswith("segalloc:")), \
        [line for line in lines if line.startswith("segalloc:")]


class Matrix(unittest.TestCase):
    def place(self, names):
        natively = play([name for name in names if name != "ours"])
        self.assertEqual(natively.returncode, 0, natively.stderr)
        with tempfile.TemporaryDirectory() as folder:
            stats = os.path.join(folder, "stats")
            ours = play(names, stats)
            served = 0
            if os.path.exists(stats):
                with open(stats, encoding="utf-8") as file:
                    served = json.load(file)["devices"][0]["statistics"]["allocs"]
        at = names.index("ours")
        hiding = [name for name in names[:at] if name in HIDES]
        hidden = [name for name in names[at:] if name in HIDDEN]
        counts, said = split(ours.stderr)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        if "quota" not in hidden:
            self.assertEqual(ours.stdout, natively.stdout)
        if not hidden:
            self.assertEqual(counts, split(natively.stderr)[0])
        if not hiding and not hidden:
            self.assertEqual(said, [])
        else:
            self.assertEqual(len(said), 1, ours.stderr)
            culprit = os.path.basename(LIBRARY[(hiding or hidden)[0]])
            order = f"LD_PRELOAD=libsegalloc.so:{culprit}" if hiding else f"LD_PRELOAD={culprit}:libsegalloc.so"
            self.assertIn(culprit, said[0])
            self.assertTrue(said[0].endswith(order), said[0])
        if hiding:
            self.assertIn(served, (0, 10))  # what the program is linked with is found here
        else:
            blocks = int(re.search(r"blocks (\d+)", ours.stdout)[1])
            self.assertEqual(served, 30 + blocks)

    def test_one(self):
        for name in LIBRARY:
            for names in ([name, "ours"], ["ours", name]):
                with self.subTest(order=names):
                    self.place(names)

    def test_two_at_once(self):
        for pair in (("plain", "locked"), ("locked", "driver"), ("locked", "quota"), ("plain", "malloc"),
                     ("locked", "tracer"), ("audit", "locked"), ("quota", "malloc")):
            for names in itertools.permutations([*pair, "ours"]):
                with self.subTest(order=names):
                    self.place(list(names))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
