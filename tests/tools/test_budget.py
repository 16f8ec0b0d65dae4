"""segalloc rehearse --budget: what a program needs, held against a file that says what it may.

Usage: test_budget.py SEGALLOC SCHEMAS"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, SCHEMAS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
KIB = 1 << 10
PARTS = 20

HEAD = '''
import ctypes, sys
cuda, own = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
kept = []

class Block:
    def __init__(self, kib):
        self.at = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(kib << 10)):
            sys.exit("out of memory")
    def __del__(self):
        cuda.cuMemFree_v2(self.at)
'''


def program(more=None, lines=0, last=""):
    """Each part is a function with blocks of its own; every third keeps its last. `more`: {part: KiB} that it takes besides. `lines`:
    so many lines of comment above each."""
    parts = "".join("# more text\n" * lines + f'''
def part{i}(step):
    block = Block({500 + 37 * i})
    other = Block({100 * i + 60})
    {f"wasted = Block({more[i]})" if more and i in more else "pass"}
    {"kept.append(block) if step == 1 else None" if i % 3 == 0 else "pass"}
''' for i in range(PARTS))
    calls = "".join(f"    part{i}(step)\n" for i in range(PARTS))
    return f'{HEAD}{parts}\nfor step in range(1, 4):\n    own.segalloc_mark(b"step %d" % step)\n{calls}{last}\n'


def part(i):
    """The name of a part, whose blocks are all made by one function."""
    return f"train.py in Block.__init__, called by train.py in part{i}"


class Budget(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(self.folder, "budget.json")

    def rehearse(self, status, script, *options):
        path = os.path.join(self.folder, "train.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        done = subprocess.run([SEGALLOC, "rehearse", "--no-torch", "--margin", "0", *options, "--", sys.executable, path], env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, status, done)
        return done

    def validate(self, told, name):
        try:
            import jsonschema
        except ImportError:
            return
        with open(os.path.join(SCHEMAS, f"{name}.json"), encoding="utf-8") as schema:
            jsonschema.validate(told, json.load(schema))

    def held(self, status, script, *options):
        told = json.loads(self.rehearse(status, script, "--json", "--budget", self.file, *options).stdout.splitlines()[-1])
        self.validate(told, "rehearse")
        return told["budget"]

    def budget(self, change=None):
        with open(self.file, encoding="utf-8") as file:
            budget = json.load(file)
        if change:
            change(budget)
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump(budget, file)
        return budget

    def write(self, script=program(), *options):
        return self.rehearse(0, script, "--write-budget", self.file, *options)

    def test_rows(self):
        """A function's peak is what it had at once, and what it keeps. A phase's is all that was in use. Runs have the same bytes."""
        self.write()
        budget = self.budget()
        self.validate(budget, "budget")
        peaks = budget["functions"]
        self.assertEqual(len(peaks), PARTS)
        self.assertEqual(peaks[part(1)], (537 + 160) * KIB)
        self.assertEqual(peaks[part(3)], (2 * 611 + 360) * KIB)  # one from the first step, and two of a later one
        self.assertEqual(list(budget["phases"]), ["step #"])
        self.assertEqual(budget["phases"]["step #"], budget["peak_bytes"])
        self.assertGreaterEqual(budget["smallest_card_bytes"], budget["peak_bytes"])
        for _ in range(3):
            self.write(program(), "-f")
            self.assertEqual(self.budget(), budget)
        self.assertEqual(self.held(0, program()), {"file": self.file, "known": True, "rows": PARTS + 3, "over": []})

    def test_blocks_of_unknown_lines(self):
        """They count by their size."""
        self.write(program(), "--conf", "sites:False")
        sizes = self.budget()["functions"]
        self.assertTrue(sizes and all(name.startswith("blocks of ") for name in sizes), sizes)
        over = self.held(3, program({3: 9000}), "--conf", "sites:False")["over"]
        self.assertEqual([row["name"] for row in over if row["row"] == "function"], ["blocks of 8.00 MiB to 16.00 MiB"])

    def test_what_grows_is_named(self):
        self.write()
        for i in range(0, PARTS, 5 if "SANITIZER" in os.environ else 1):
            more = 16 * 2 ** (i % 10)
            with self.subTest(part=i, more=more):
                over = self.held(3, program({i: more}))["over"]
                functions = [(row["name"], row["over_bytes"]) for row in over if row["row"] == "function"]
                self.assertEqual(functions, [(part(i), more * KIB)])
                self.assertEqual([row["over_bytes"] for row in over], sorted((row["over_bytes"] for row in over), reverse=True))
        over = self.held(3, program({5: 300, 11: 4000}))["over"]
        self.assertEqual([row["name"] for row in over if row["row"] == "function"], [part(11), part(5)])

    def test_what_is_moved_or_shrinks_is_not(self):
        self.write(program({7: 200, 8: 3000}))
        self.assertEqual(self.held(0, program({7: 200, 8: 3000}, lines=9))["over"], [])
        self.assertEqual(self.held(0, program())["over"], [])
        self.assertEqual(self.held(0, program({7: 200}))["rows"], PARTS + 3)

    def test_a_new_function(self):
        self.write()
        late = "def late():\n    return Block(640)\nlate()"
        over = self.held(3, program(last=late))["over"]
        self.assertEqual([(row["name"], row["bytes"], row["budget_bytes"]) for row in over if row["row"] == "function"],
                         [("train.py in Block.__init__, called by train.py in late", 640 * KIB, 0)])

    def test_slack_and_rows_that_are_taken_out(self):
        self.write()
        grown = program({2: 30})  # 574 + 260 KiB before
        self.held(3, grown)
        self.budget(lambda budget: budget.update(slack_percent=4))
        self.held(0, grown)
        self.held(3, program({2: 40}))
        self.write(program({2: 40}), "-f")
        self.assertEqual(self.budget()["slack_percent"], 4)
        self.budget(lambda budget: (budget.pop("functions"), budget.pop("peak_bytes"), budget.update(slack_percent=0)))
        self.assertEqual([row["row"] for row in self.held(3, program({2: 40000}))["over"]], ["smallest card", "phase"])

    def test_text(self):
        self.write()
        self.assertIn(f"Budget {self.file}: within, in all {PARTS + 3} rows.\n", self.rehearse(0, program(), "--budget", self.file).stdout)
        text = self.rehearse(3, program({4: 8192}), "--budget", self.file).stdout
        self.assertRegex(text, r"over in 4 of 23 rows\.\n\n\| over by \| what \| needs \| budget \|\n\|---:\|---\|---:\|---:\|\n")
        self.assertIn(f"| 8.00 MiB | function {part(4)} | 9.08 MiB | 1.08 MiB |\n", text)

    def test_cards_count_where_they_are_named(self):
        self.write()
        self.held(3, program(), "--card", "8MiB")
        self.held(0, program(), "--card", "64MiB")
        self.budget(lambda budget: budget.pop("smallest_card_bytes"))
        self.held(0, program())

    def test_a_run_without_a_verdict(self):
        self.write()
        stops = program(last="sys.exit(5)")
        self.assertFalse(self.held(1, stops)["known"])
        self.assertIn("what the program needs is not known", self.rehearse(1, stops, "--budget", self.file).stdout)
        other = os.path.join(self.folder, "other.json")
        self.assertIn("no budget is written", self.rehearse(1, stops, "--write-budget", other).stderr)
        self.assertFalse(os.path.exists(other))

    def test_files(self):
        self.write()
        before = self.budget()
        self.assertIn("is there already; -f replaces it", self.rehearse(1, program(), "--write-budget", self.file).stderr)
        self.assertIn("can't be written", self.rehearse(1, program(), "--write-budget", "/nowhere/budget").stderr)
        self.assertEqual(self.budget(), before)
        for text, words in (("{", "line 1"), ("{}", "it is no budget"), ('{"schema": "segalloc.budget/1", "peak_bytes": -1}', "no number"),
                            ('{"schema": "segalloc.budget/1", "functions": {"f": "x"}}', "no number"),
                            ('{"schema": "segalloc.budget/1", "slack_percent": "1"}', "slack_percent"), (None, "No such file")):
            os.unlink(self.file)
            if text is not None:
                with open(self.file, "w", encoding="utf-8") as file:
                    file.write(text)
            with self.subTest(text=text):
                self.assertIn(words, self.rehearse(1, program(), "--budget", self.file).stderr)
        self.assertIn("--try makes several", self.rehearse(2, program(), "--write-budget", self.file, "--try", "{}=1,2").stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["train.py"])


if __name__ == "__main__":
    unittest.main()
