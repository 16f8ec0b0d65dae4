"""segalloc diff of random traces, against what a few lines of Python find in the same events: rows by site, phase and size that
sum exactly to the difference of the peaks; and what moved.

Usage: test_diff.py SEGALLOC SCHEMAS STREAMS"""
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from own_trace import MIB, define_site, define_text, record, trace

SEGALLOC, SCHEMAS, STREAMS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
PAIRS = 40
try:
    import jsonschema
except ImportError:
    jsonschema = None
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]


def segalloc(*arguments):
    return subprocess.run([SEGALLOC, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


class Random:
    """A trace of random requests on several devices, and what lives at the peaks of these by its own account."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        files, functions = [f"/x/{i}/f{i % 3}.py" for i in range(4)], [f"g{i}" for i in range(3)]
        self.records = [row for i, name in enumerate(files + functions) for row in define_text(i + 1, name)]
        self.devices = self.random.choice((1, 1, 2, 3))
        for device in range(1, self.devices):  # stream 1 is device 0's
            self.records.append(record(66, stream=device, id=2 * MIB, size=1 << 34))
            self.records.append(record(64, stream=device + 1, id=0x10 * (device + 1), size=device))
        self.sites, self.phases = {0: None}, {0: None}
        for number in range(1, self.random.randint(1, 9)):
            frames = [(self.random.randrange(len(files)) + 1, len(files) + 1 + self.random.randrange(3), self.random.randint(1, 3)) for _ in range(self.random.randint(1, 3))]
            self.records += define_site(number, *frames)
            file, function, line = frames[0]  # the innermost
            self.sites[number] = f"{files[file - 1].split('/')[-1]}:{line} in {functions[function - len(files) - 1]}"
        for number in range(1, self.random.randint(1, 5)):
            self.records.append(record(70, stream=number, size=len(files) + 1 + number % 3))
            self.phases[number] = functions[number % 3]
        self.alive, self.use, self.peak, self.rows = {}, collections.Counter(), collections.Counter(), {}
        for turn in range(self.random.randint(1, 300)):
            self.step(turn)

    def step(self, turn):
        device, site, phase = (self.random.randrange(n) for n in (self.devices, len(self.sites), len(self.phases)))
        action = self.random.random()
        if action < 0.45 and self.alive:
            address = self.random.choice(list(self.alive))
            owner, size, *_ = self.alive.pop(address)
            self.records.append(record(2, thread=1, stream=owner + 1, id=address, size=size, time=turn * 1000))
            self.use[owner] -= size
        elif action < 0.5:
            self.records.append(record(71, thread=1, id=site, size=phase))
            self.records.append(record(3, thread=1, stream=device + 1, size=1 << 40, time=turn * 1000))
        else:
            size = self.random.choice((0, 1, 512, self.random.randrange(1 << self.random.randint(1, 30))))
            address = (turn + 1) << 34
            self.records.append(record(71, thread=1, id=site, size=phase))
            self.records.append(record(1, thread=1, stream=device + 1, id=address, size=size, time=turn * 1000))
            self.alive[address] = device, size, self.sites[site], self.phases[phase]
            self.use[device] += size
            if self.use[device] > self.peak[device]:
                self.peak[device] = self.use[device]
                self.rows[device] = [block for block in self.alive.values() if block[0] == device]

    def expected(self):
        """{(site, phase, size class): (bytes, blocks)}"""
        found = collections.defaultdict(lambda: [0, 0])
        for rows in self.rows.values():
            for _, size, site, phase in rows:
                key = site, phase, 1 << size.bit_length() >> 1
                found[key][0] += size
                found[key][1] += 1
        return {key: tuple(value) for key, value in found.items()}


class Diff(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def told(self, *arguments):
        result = segalloc("diff", "--json", "--by", "size", *arguments)
        self.assertEqual(result.returncode, 0, result)
        told = json.loads(result.stdout)
        if jsonschema:
            jsonschema.validate(told, json.loads((SCHEMAS / "diff.json").read_text()))
        return told

    def test_random_pairs(self):
        for seed in range(PAIRS):
            sides = [Random(2 * seed), Random(2 * seed + 1)]
            paths = [self.folder / name for name in "ab"]
            for path, side in zip(paths, sides):
                path.write_bytes(trace(side.records))
            if not all(side.peak for side in sides):
                continue
            with self.subTest(seed=seed):
                told = self.told(*paths)
                peaks = [sum(side.peak.values()) for side in sides]
                self.assertEqual([told["a"]["bytes"], told["b"]["bytes"]], peaks)
                self.assertEqual(told["difference_bytes"], peaks[1] - peaks[0])
                self.assertEqual(sum(row["difference_bytes"] for row in told["rows"]), peaks[1] - peaks[0])
                for name, side in zip("ab", sides):
                    rows = {(row["site"], row["phase"], row["size_class"]): (row[f"{name}_bytes"], row[f"{name}_blocks"]) for row in told["rows"]}
                    self.assertEqual({key: value for key, value in rows.items() if value[1]}, side.expected())
                text = segalloc("diff", "--all", "--by", "size", *paths).stdout.split("\n\n")[0].splitlines()
                self.assertEqual(len(text), len(told["rows"]) + 2)

    def moved(self, path):
        told = json.loads(segalloc("replay", "--json", path).stdout)
        return told["pages_moved"], told["bytes_moved"]

    def test_what_moved(self):
        """The rows sum to what a replay moves, on each side."""
        paths = [self.folder / name for name in "ab"]
        for path, threads in zip(paths, ("1 1500 4 20000000", "3 700 3 12000000")):
            subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "-o", path, "--conf", "reserve_slack:1.0", "--", STREAMS, *threads.split()], check=True,
                           env=ENVIRONMENT, timeout=60)
        told = self.told(*paths)["moved"]
        for name, path in zip("ab", paths):
            self.assertEqual((told[name]["pages"], told[name]["bytes"]), self.moved(path))
            self.assertGreater(told[name]["pages"], 0)
            for unit in "pages", "bytes":
                self.assertEqual(sum(row[f"{name}_{unit}"] for row in told["rows"]), told[name][unit])
        keys = [(row["site"], row["phase"], row["size_class"]) for row in told["rows"]]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertIn(f"in all ({told['a']['pages']} and {told['b']['pages']} pages)", segalloc("diff", *paths).stdout)

    def test_by_which_site(self):
        """Pages moved for one request stand in the row of the line that asked for it."""
        grown = [record(34, thread=1, size=4 * MIB), record(35, thread=1, size=500), record(48, thread=1, id=5, size=2 << 30), record(35, thread=1)]
        site = define_text(1, "/x/a.py") + define_text(2, "f") + define_site(1, (1, 2, 7)) + [record(70, stream=1, size=2)]
        begin = [*grown, record(1, thread=1, id=512, size=4 * MIB), record(34, thread=1, size=2 * MIB), record(35, thread=1),
                 record(1, thread=1, id=1024, size=2 * MIB), record(2, thread=1, id=512, size=4 * MIB)]
        last = [record(71, thread=1, id=1, size=1), record(34, thread=1, size=6 * MIB), record(35, thread=1), record(1, thread=1, id=2048, size=6 * MIB)]
        path = self.folder / "t"
        path.write_bytes(trace(site + begin + last, conf=b"page_size_mb:2,reserve_slack:1.0"))
        told = self.told(path, path)["moved"]
        row, = told["rows"]
        self.assertEqual((row["site"], row["phase"], row["a_requests"], row["a_pages"], row["a_bytes"]), ("a.py:7 in f", "f", 1, 2, 4 * MIB))
        self.assertEqual(told["a"]["diverged_request"], 0)

    def test_where_it_is_not_known(self):
        rows = self.folder / "rows.csv"
        rows.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000000,allocate,0x200,1000,0\n")
        own = self.folder / "own"
        own.write_bytes(trace([record(1, thread=1, stream=1, id=512, size=MIB)]))
        self.assertEqual(self.told(rows, rows)["moved"], {"a": None, "b": None, "rows": []})
        self.assertNotIn("moved", segalloc("diff", rows, rows).stdout)
        told = self.told(own, rows)["moved"]
        self.assertEqual((told["a"]["pages"], told["b"]), (0, None))
        text = segalloc("diff", own, rows).stdout
        self.assertIn("What moved is not known of B.", text)
        self.assertIn("No page was moved.", text)


unittest.main(verbosity=2)
