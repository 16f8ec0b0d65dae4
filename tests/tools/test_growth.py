"""usage: test_growth.py SEGALLOC. Lines that keep more with each step are named, with how much and since when; lines whose memory
only varies, fills up or comes back are not."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = sys.argv.pop(1)
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]

# A line each, which the names of its kind stand in. `leaks`: keeps N KiB in each step from one on, or in one step of some.
HEAD = '''
import ctypes, random
cuda, own = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

class Block:
    def __init__(self, kib):
        self.at = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(int(kib * 1024))) == 0
    def __del__(self):
        cuda.cuMemFree_v2(self.at)
'''
LEAKS = [(kib, since, every) for kib, since, every in (
    (100, 1, 1), (103, 5, 1), (128, 10, 1), (200, 1, 2), (256, 12, 1), (300, 3, 3), (333, 1, 1), (400, 8, 2), (512, 1, 1),
    (700, 2, 1), (777, 1, 3), (1000, 6, 1), (1024, 15, 1), (1229, 1, 1), (2000, 4, 2), (3000, 1, 1), (4096, 9, 1), (5000, 1, 1),
    (8192, 1, 2), (10240, 11, 1))]
CLEAN = ["a = Block(random.randint(1, 4000))", "b = [Block(random.randint(1, 900)) for _ in range(random.randint(1, 9))]",
         "kept.setdefault(step % 7, Block(700))", "kept[step] = step < 4 and Block(2000)", "c = Block(100 * step); c = None",
         "kept['d', step] = Block(900); kept.pop(('d', step - 5), 0)", "kept['e', step % 10] = Block(400 + step % 10)",
         "kept.setdefault('f', Block(30000))", "kept['g', min(step, 12)] = Block(1000)", "h = Block(max(1, 5000 - 100 * step))",
         "kept['i', random.randrange(6)] = Block(random.randint(100, 2000))", "kept['j'] = step % 20 > 3 and Block(1500)",
         "k = [Block(50)] * step", "kept['l'] = Block(300 + 200 * (step % 2))", "kept['m', step] = Block(0.5)",
         "kept.update({('n', i): Block(64) for i in range(step % 5)})", "kept['o'] = step % 8 and Block(2500)",
         "p = Block(random.choice((10, 10000)))", "kept['q', step] = Block(600) if step < 10 else kept.pop(('q', step - 10), 0)",
         "kept['r'] = kept.get('r') if random.random() < 0.5 else Block(random.randint(1000, 3000))"]


def program(lines, steps, name="step %d"):
    body = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}\nkept = {{}}\nrandom.seed(4)\nfor step in range(1, {steps} + 1):\n    own.segalloc_mark(b\"{name}\" % step)\n{body}"


def leak(number, kib, since, every):
    return f"if step >= {since} and step % {every} == 0: kept[{number}, step] = Block({kib})"


class Growth(unittest.TestCase):
    def report(self, text, *options, sim="64GiB"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script, trace = os.path.join(folder.name, "train.py"), os.path.join(folder.name, "trace")
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([SEGALLOC, "run", "-q", "--sim", sim, "--sites", "-f", "-o", trace, "--", sys.executable, script], check=True,
                       env=ENVIRONMENT)
        done = subprocess.run([SEGALLOC, "report", *options, trace], check=True, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)["growth"] if "--json" in options else done.stdout

    def test_each_leak_is_named(self):
        """By the 30th step, each with what it keeps a step and since when."""
        for steps in (30, 200, 1000):
            text = program([leak(number, *rest) for number, rest in enumerate(LEAKS)], steps)
            place = {number: LEAKS[int(line.split("kept[")[1].split(",")[0])]
                     for number, line in enumerate(text.splitlines(), 1) if "kept[" in line}
            found = {place[int(re.search(r":(\d+)", row["called_from"])[1])]: row for row in self.report(text, "--json")}
            self.assertEqual(set(found), set(LEAKS), steps)
            points = 1 if steps < 128 else steps // 64
            for (kib, since, every), row in found.items():
                with self.subTest(steps=steps, kib=kib, since=since, every=every):
                    self.assertAlmostEqual(row["bytes_a_step"], kib * 1024 / every, delta=kib * 1024 / every * 0.25)
                    self.assertLessEqual(abs(row["since_step"] - since), every + 2 * points)
                    self.assertGreater(row["out_of_memory_at_step"], steps)

    def test_what_only_varies_is_not(self):
        for steps in (30, 47, 300):
            text = program(CLEAN, steps)
            self.assertEqual(self.report(text, "--json"), [], steps)

    def test_leak_among_what_varies(self):
        rows = self.report(program([*CLEAN, leak("'leak'", 1229, 1, 1)], 40), "--json")
        self.assertEqual([(row["bytes_a_step"], row["since_step"], row["device"]) for row in rows], [(1229 * 1024, 1, 0)])

    def test_when_it_is_full(self):
        """1 MiB a step, of 1 GiB: the step that the row names is the one that fails, to a step or two."""
        rows = self.report(program(["a = Block(100 << 10)", leak("'leak'", 1024, 1, 1)], 40), "--json", sim="1GiB")
        full = rows[0]["out_of_memory_at_step"]
        for steps, ends in ((full - 3, 0), (full + 3, 1)):
            done = subprocess.run([SEGALLOC, "run", "-q", "--sim", "1GiB", "--", sys.executable, "-c",
                                   program(["a = Block(100 << 10)", leak("'leak'", 1024, 1, 1)], steps)], stderr=subprocess.PIPE, env=ENVIRONMENT)
            self.assertEqual(done.returncode, ends, (steps, full))

    def test_names_of_steps(self):
        """Any name with a number at its end; a part within a step has the step's number."""
        text = program(["own.segalloc_phase_push(b'part 7')", leak("'leak'", 512, 1, 1), "own.segalloc_phase_pop()"], 30, "iteration#%d")
        self.assertEqual([row["bytes_a_step"] for row in self.report(text, "--json")], [512 << 10])
        text = program([leak("'leak'", 512, 1, 1)], 30, "training")
        self.assertEqual(self.report(text.replace("% step)", ")"), "--json"), [])

    def test_text(self):
        told = self.report(program([leak("'leak'", 1024, 1, 1)], 30), sim="1GiB")
        self.assertRegex(told, r"Memory that grows with each step, to step 30\n +1\.00 MiB a step since step 1, 2[0-9]\.00 MiB so far: train\.py:11 in Block\.__init__, called at "
                               r"train\.py:\d+\n"
                               r"  So 1\.00 GiB of device 0 are full at about step \d+\.\n")


unittest.main()
