"""Traces whose names are hostile, through every reader of them: what is printed is text that a terminal obeys in nothing, and what
others read is what their formats allow. The page has a test of its own, and so has top.

Usage: test_hostile.py SEGALLOC ACTS"""
import csv
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import tempfile
import unittest

from own_trace import GIB, MIB, define_site, define_text, record, trace

SEGALLOC, ACTS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
HOSTILE = "</script><script>alert(1)</script>\x1b]0;owned\x07\x1b[2J\r\n\u009b31m\u202eevil;a\tb,\"'\\{}$(id)`id`%s%n <img src=x onerror=alert(2)>"
RAW = b"\xff\xfe\x80\x9b31m\xc3<b>\x1b[31m\xed\xa0\x80"
TEXTS = [HOSTILE, HOSTILE[::-1], "/" + "d" * 10240 + "/x.py", RAW, "line\nbreak;semi,comma 7", "é" * 300, b"\xe2\x82"]
TEXT_READERS = ["report"], ["trace", "info"], ["trace", "cat"], ["replay"], ["tune"], ["diff", "--all"], ["report", "--help"]
JSON_READERS = ["report", "--json"], ["trace", "info", "--json"], ["replay", "--json"], ["diff", "--json"], ["tune", "--json"]
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]


def segalloc(*arguments):
    return subprocess.run([SEGALLOC, *arguments], capture_output=True, timeout=120, check=False)


def hostile_trace(texts=TEXTS, command=b"cmd " + HOSTILE.encode() + RAW + b"x" * 9000, conf=b"limit:1GiB," + HOSTILE.encode() + RAW):
    records = [row for i, name in enumerate(texts) for row in define_text(i + 1, name)]
    count = len(texts)
    for number in range(1, count + 1):
        records += define_site(number, (number, number % count + 1, 3), ((number + 2) % count + 1, (number + 4) % count + 1, 2 ** 31))
        records.append(record(70, stream=number, id=number - 1, size=number))
    for i in range(40):
        records.append(record(71, thread=1, id=i % count + 1, size=(i * 3) % count + 1))
        records.append(record(1, thread=1, stream=1, id=(i + 1) << 21, size=MIB + i, time=i * 10 ** 7))
    records.append(record(3, thread=1, stream=1, size=30 * GIB, time=10 ** 9))
    return trace(records, command, conf)


class Hostile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "a\x1b[31m<script>\n\u009b.trace"

    def plain(self, data, allowed="\n"):
        """Text in UTF-8 without anything that a terminal obeys."""
        text = data.decode()
        self.assertEqual([repr(c) for c in text if (ord(c) < 32 and c not in allowed) or 0x7f <= ord(c) < 0xa0 or c in "\u2028\u2029\u202e"], [])
        return text

    def read(self, arguments):
        paths = [self.path] * (2 if arguments[0] == "diff" else 1)
        done = segalloc(*arguments, *paths)
        self.assertIn(done.returncode, (0, 1, 3), (arguments, done.stderr))
        self.plain(done.stderr)
        return done.stdout

    def exported(self, name):
        done = segalloc("trace", "export", self.path, "--format", name, "-o", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.plain(done.stderr)
        return done.stdout

    def exports(self):
        rows = list(csv.reader(io.StringIO(self.plain(self.exported("csv")))))
        self.assertEqual({len(row) for row in rows}, {len(rows[0])})
        for name in "chrome", "speedscope", "json":
            json.loads(self.exported(name))
        stacks = self.plain(self.exported("folded")).splitlines()
        self.assertTrue(stacks and all(re.fullmatch(r".+ \d+", line) for line in stacks), stacks)
        told = pickle.loads(self.exported("torch"))
        self.assertTrue(told["segments"])

    def everything(self):
        for arguments in TEXT_READERS:
            with self.subTest(arguments):
                self.plain(self.read(arguments))
        for arguments in JSON_READERS:
            with self.subTest(arguments):
                json.loads(self.read(arguments))
        with self.subTest("exports"):
            self.exports()

    def test_names(self):
        self.path.write_bytes(hostile_trace())
        self.everything()
        self.assertIn("<script>alert(1)", self.read(["report"]).decode())

    def test_options_and_command(self):
        """Without any name of the program's own, but with a command and options that are nothing else."""
        self.path.write_bytes(hostile_trace([b"a"], RAW * 300, RAW * 300))
        self.everything()

    def test_mutated(self):
        """Bytes of a good trace changed at random: it is read or refused, in plain words."""
        good = hostile_trace()
        for seed in range(30):
            chance = random.Random(seed)
            data = bytearray(good)
            for _ in range(chance.choice((1, 4, 40))):
                data[chance.randrange(16384 if chance.random() < 0.3 else len(data))] = chance.choice((0, 0x1b, 0x0a, 0x9b, 0xff, chance.randrange(256)))
            self.path.write_bytes(data)
            for arguments in ["report"], ["trace", "info"], ["diff", "--all"]:
                with self.subTest(seed=seed, arguments=arguments):
                    self.plain(self.read(arguments))
            with self.subTest(seed=seed):
                out = self.read(["diff", "--json"])
                self.assertTrue(not out or json.loads(out))

    def test_live_page(self):
        """What a running process says of itself: its page, read by metrics and report."""
        process = subprocess.Popen([SEGALLOC, "run", "--sim", "1GiB", "--conf", "live:True", "--", ACTS, b"a+1" + HOSTILE.replace("+", "").encode() + RAW, "say=there", "wait"],
                                   stdout=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"there\n")
        for arguments in ["report"], ["metrics"], ["top", "--once"]:
            with self.subTest(arguments):
                done = segalloc(*arguments, str(process.pid))
                self.assertEqual(done.returncode, 0, done.stderr)
                text = self.plain(done.stdout)
                if arguments == ["metrics"]:
                    self.assertEqual([line for line in text.splitlines() if not re.fullmatch(r"#.*|[a-z_]+(\{.*\})? [\d.e+-]+", line)], [])


unittest.main(verbosity=2)
