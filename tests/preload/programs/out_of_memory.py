#!/usr/bin/env python3
"""Programs that run out of memory are told why: out_of_memory.c, under the preloaded library on the simulator.

Usage: out_of_memory.py LIBRARY PROGRAM"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

LIBRARY, PROGRAM = sys.argv[1:3]
CARD = f"out-of-memory-{os.getpid()}"
SHARED = f"256MiB,card={CARD}"
ROWS = re.compile(r"([0-9.]+) ([KMGT]iB|B)")
OTHERWISE = "other calls: this process holds"
GRAPHS = "held for graphs: {}.00 MiB that are freed stay with the graphs that were captured with them"
QUOTA = "quota: the driver lets {}.00 MiB of the device's 256.00 MiB be used"
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

# name of the program, simulated card, settings, what the line of the cause begins with, what the next command begins with
PROGRAMS = [
    ("one_tensor", "256MiB", "", "too big: with the 100.00 MiB in use that is 500.00 MiB", "segalloc rehearse --card 256MiB -- "),
    ("grows", "256MiB", "", "too big: ", "segalloc rehearse --card 256MiB -- "),
    ("comb_of_pages", "256MiB", "", "fragmented: ", "segalloc run --sites -o run.trace -- "),
    ("comb_of_segments", "256MiB", "expandable_segments:False", "fragmented: ", "segalloc run --sites -o run.trace -- "),
    ("above_limit", "256MiB", "limit:128MiB", "limit: 128.00 MiB may be held of the device's 256.00 MiB",
     "segalloc run --conf limit:160MiB -- "),
    ("above_limit", "256MiB", "per_process_memory_fraction:0.5", "limit: 128.00 MiB may be held", "segalloc run --conf per_process_memory_fraction:0.63 -- "),
    ("above_limit", "256MiB", "limit:128MiB,per_process_memory_fraction:0.6", "limit: 128.00 MiB may be held",
     "segalloc run --conf limit:160MiB,per_process_memory_fraction:0.63 -- "),
    ("above_limit", "256MiB", "limit:0.5,per_process_memory_fraction:0.7", "limit: 128.00 MiB may be held",
     "segalloc run --conf limit:160MiB -- "),
    ("above_own_limit", "256MiB", "", "limit: 128.00 MiB may be held",
     "in the program: torch.cuda.set_per_process_memory_fraction(0.63), or segalloc.set_limit(167772160)"),
    ("beside_one", SHARED, "", "other processes hold 120.00 MiB of this device", "ps -fp "),
    ("first_by_one_physical", SHARED, "", "other processes hold 200.00 MiB of this device", "ps -fp "),
    ("beside_two", SHARED, "", "other processes hold 100.00 MiB of this device", "ps -fp "),
    ("behind_a_kernel", "256MiB", "free_sync:event,wait_limit:0.1", "work still queued: it uses 150.00 MiB", "segalloc run --conf wait_limit:"),
    ("in_a_capture", "256MiB", "wait_limit:0.1", "work still queued: it uses 150.00 MiB", "segalloc run -o run.trace -- "),
    ("beside_and_fragmented", SHARED, "", "fragmented: ", "segalloc run --sites -o run.trace -- "),
    ("beside_and_too_big", SHARED, "", "too big: ", "segalloc rehearse --card 256MiB -- "),
    ("beside_own_physical", "256MiB", "", f"{OTHERWISE} 150.00 MiB of this device by other calls than cudaMalloc", "segalloc rehearse "),
    ("beside_own_physical_first", "256MiB", "", f"{OTHERWISE} 150.00 MiB of this device", "segalloc rehearse "),
    ("beside_own_pool", "256MiB", "", f"{OTHERWISE} 150.00 MiB of this device", "segalloc rehearse "),
    ("beside_own_idle_pool", "256MiB", "", "idle pools: this process keeps 150.00 MiB idle in pools of the driver", "segalloc rehearse "),
    ("own_in_pool_and_physical", "256MiB", "", f"{OTHERWISE} 150.00 MiB of this device", "segalloc rehearse "),
    ("own_and_too_big", "256MiB", "", "too big: ", "segalloc rehearse "),
    ("own_and_fragmented", "256MiB", "", "fragmented: ", "segalloc run --sites -o run.trace -- "),
    ("own_and_one", SHARED, "", f"{OTHERWISE} 90.00 MiB of this device by other calls than cudaMalloc\n", "segalloc rehearse "),
    ("one_and_own", SHARED, "", "other processes hold 120.00 MiB of this device\n", "ps -fp "),
    ("one_and_own_together", SHARED, "", "other processes hold 104.00 MiB of this device, and this process holds 60.00 MiB of it by other "
     "calls than cudaMalloc", "ps -fp "),
    ("idle_pool_and_one", SHARED, "", "idle pools: this process keeps 150.00 MiB idle", "segalloc rehearse "),
    ("own_and_limit", "256MiB", "limit:100MiB", f"{OTHERWISE} 200.00 MiB of this device by other calls than cudaMalloc, and 100.00 MiB may be held "
     "at most", "segalloc rehearse "),
    ("own_and_limit", "256MiB", "limit:200MiB", f"{OTHERWISE} 200.00 MiB of this device", "segalloc rehearse "),
    ("above_limit", SHARED, "limit:128MiB", "limit: 128.00 MiB may be held", "segalloc run --conf limit:160MiB -- "),
    ("limit_and_own", "256MiB", "limit:125MiB", "limit: 125.00 MiB may be held of the device's 256.00 MiB, and 175.00 MiB are needed; without "
     "the limit 35.00 MiB are short, and this process holds 116.00 MiB of the device by other calls than cudaMalloc\n", "segalloc rehearse "),
    ("limit_and_one", SHARED, "limit:125MiB", "limit: 125.00 MiB may be held of the device's 256.00 MiB, and 175.00 MiB are needed; without "
     "the limit 35.00 MiB are short, and other processes hold 116.00 MiB of the device\n", "segalloc rehearse "),
    ("graph", "256MiB", "", f"{GRAPHS.format(150)}\n", "segalloc rehearse "),
    ("graph_and_own", "256MiB", "", f"{GRAPHS.format(100)}, and this process holds 90.00 MiB of the device by other calls than "
     "cudaMalloc\n", "segalloc rehearse "),
    ("graph_and_one", SHARED, "", f"{GRAPHS.format(100)}, and other processes hold 90.00 MiB of the device\n", "segalloc rehearse "),
    ("graph_and_limit", "256MiB", "limit:180MiB", f"{GRAPHS.format(100)}, and 180.00 MiB may be held at most\n", "segalloc rehearse "),
    ("above_limit", "256MiB,quota_mb=128", "", f"{QUOTA.format(128)}, and 160.00 MiB are needed\n", "segalloc rehearse --card 128MiB -- "),
    ("above_limit", "256MiB,quota_mb=128", "expandable_segments:False", f"{QUOTA.format(128)}, and 160.00 MiB are needed\n", "segalloc rehearse "),
    ("grows", "256MiB,quota_mb=150", "", f"{QUOTA.format(150)}, and 156.00 MiB are needed\n", "segalloc rehearse "),
    ("takes_first", "256MiB,quota_mb=90", "", f"{QUOTA.format(90)}, and 100.00 MiB are needed\n", "segalloc rehearse "),
    ("one_tensor", "256MiB,quota_mb=150", "", "too big: with the 100.00 MiB in use that is 500.00 MiB, of 150.00 MiB at most\n", "segalloc rehearse "),
    ("own_and_fragmented", "256MiB,quota_mb=230", "", "fragmented: ", "segalloc run --sites -o run.trace -- "),
    ("beside_own_idle_pool", "256MiB,quota_mb=200", "", "idle pools: this process keeps 150.00 MiB idle in pools of the driver\n", "segalloc rehearse "),
    ("limit_and_own", "256MiB,quota_mb=150", "", f"{OTHERWISE} 116.00 MiB of this device by other calls than cudaMalloc, and the driver lets "
     "150.00 MiB of it be used\n", "segalloc rehearse "),
    ("limit_and_one", f"{SHARED},quota_mb=150", "", "other processes hold 116.00 MiB of this device, and the driver lets 150.00 MiB of it be "
     "used\n", "ps -fp "),
    ("graph_and_limit", "256MiB,quota_mb=180", "", f"{GRAPHS.format(100)}, and the driver lets 180.00 MiB of the device be used\n", "segalloc rehearse "),
    ("graph_and_limit", "256MiB,quota_mb=120", "", f"{QUOTA.format(120)}, and 300.00 MiB are needed, and graphs keep 100.00 MiB that are freed\n",
     "segalloc rehearse "),
    ("above_limit", "256MiB,quota_mb=120", "limit:110MiB", "limit: 110.00 MiB may be held of the device's 256.00 MiB, and 160.00 MiB are needed; without "
     "the limit 40.00 MiB are short, and the driver lets 120.00 MiB of the device be used\n", "segalloc rehearse "),
    ("above_limit", "256MiB,quota_mb=120", "limit:125MiB", f"{QUOTA.format(120)}, and 160.00 MiB are needed, and 125.00 MiB may be held at most\n",
     "segalloc rehearse "),
    ("pool_beside_one", SHARED, "", "other processes hold 120.00 MiB of this device\n", "ps -fp "),
]
HELPS = [ # a part of a cause, of the help for it
    ("limit:", "raise `limit`"), ("may be held at most", "raise `limit`"), ("other calls than", "other calls hold|they hold"),
    ("other processes hold", "stop "), ("held for graphs", "destroy the graphs"),
    ("the driver lets", "raise that quota"),
]


def size(text):
    number, unit = ROWS.search(text).groups()
    return float(number) * UNITS[unit]


class Case(unittest.TestCase):
    def told(self, name, sim, conf, **more):
        environment = dict(os.environ, SEGALLOC_SIM=sim, SEGALLOC_CONF=conf, LD_PRELOAD=LIBRARY, **more)
        done = subprocess.run([PROGRAM, name], env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("segalloc: out of memory on device 0: short by "), 1, done.stderr)
        lines = {}
        for line in done.stderr.splitlines()[1:]:
            lines.setdefault(line[2:11].strip(), []).append(line[11:])
        return done.stderr, lines

    def check(self, row):
        name, sim, conf, cause, following = row
        text, lines = self.told(name, sim, conf)
        self.assertTrue((lines["cause"][0] + "\n").startswith(cause), text)
        helps = "\n".join(lines["help"])
        for part, way_out in HELPS:
            if part in cause and ("raise" not in way_out or conf.startswith("limit:") and "fraction" not in conf):
                self.assertRegex(helps, way_out)
        if "other processes" not in cause:
            self.assertNotIn("nvidia-smi", text)
            self.assertNotIn("use another device", text)
        self.assertTrue(lines["next"][0].startswith(following), text)
        first = text.splitlines()[0]
        short, asked, had, idle, free = (float(number) * UNITS[unit] for number, unit in
                                         ROWS.findall(re.sub(" in a segment of [^,]*", "", first)))
        slack = 0.02 * 2**20
        self.assertAlmostEqual(had, idle + free, delta=slack, msg=first)
        if had < asked and "segment" not in first:
            self.assertAlmostEqual(short, asked - had, delta=slack, msg=first)
        total, *parts = (float(number) * UNITS[unit] for number, unit in ROWS.findall(lines["device"][0]))
        self.assertAlmostEqual(total, sum(parts), delta=2 * slack, msg=text)
        held, *parts = (float(number) * UNITS[unit] for number, unit in ROWS.findall(lines["segalloc"][0]))
        self.assertAlmostEqual(held, sum(parts), delta=2 * slack, msg=text)
        groups = lines.get("holds", [])
        self.assertLessEqual(len(groups), 5, text)
        self.assertEqual(list(map(size, groups)), sorted(map(size, groups), reverse=True), text)
        if groups: # without sites: what to run to have them
            self.assertIn("the next command names" if "too big" in cause or "fragmented" in cause
                          else "segalloc run --sites -- ",
                          lines["lines"][0])
        if lines["next"][0].startswith("segalloc run --conf limit:") or "--conf per_process" in lines["next"][0]:
            self.check_limit(row, lines["next"][0].split()[3])
        if cause.startswith("other processes"):
            self.check_processes(cause, text, lines)

    def check_limit(self, row, following):
        """The next command is one that works: the allocation is served, which the program does not expect."""
        name, sim, conf = row[:3]
        environment = dict(os.environ, SEGALLOC_SIM=sim, SEGALLOC_CONF=f"{conf},{following}", LD_PRELOAD=LIBRARY)
        done = subprocess.run([PROGRAM, name], env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("out of memory on", done.stderr)

    def check_processes(self, cause, text, lines):
        named = re.findall(r"(\d+) \((\w+)\) holds [0-9.]+ MiB", "\n".join(lines["process"]))
        self.assertEqual(len(named), 2 if "100.00" in cause else 1, text)
        self.assertTrue(all(os.path.basename(PROGRAM).startswith(name) for _, name in named), text)
        self.assertEqual(lines["next"][0], "ps -fp " + ",".join(pid for pid, _ in named))


class OutOfMemory(Case):
    def test_refusals_of_threads(self):
        """What one thread is served neither makes the refusal of another good, nor shows that it was a failure."""
        environment = dict(os.environ, SEGALLOC_SIM="256MiB", SEGALLOC_CONF="", LD_PRELOAD=LIBRARY)
        done = subprocess.run([PROGRAM, "refused_thread_makes_do"], env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text, _ = self.told("refused_thread_fails", "256MiB", "")
        self.assertIn("400.00 MiB asked for", text.splitlines()[0])


class WithoutNvml(Case):
    """Processes that segalloc serves are in its own table."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "libnvidia-ml.so.1"), "w"):
            pass  # no library at all
        self.path = folder.name + ":" + os.environ["LD_LIBRARY_PATH"]

    def told(self, name, sim, conf):
        return super().told(name, sim, conf, LD_LIBRARY_PATH=self.path)


for number, row in enumerate(PROGRAMS):
    for case in (OutOfMemory,) + (WithoutNvml,) * ("beside" in row[0]):
        setattr(case, f"test_{number:02}_{row[0]}", lambda self, row=row: self.check(row))


class Card(unittest.TestCase):
    def test_its_file_goes_with_the_last_process(self):
        subprocess.run([PROGRAM, "beside_two"], env=dict(os.environ, SEGALLOC_SIM=SHARED, SEGALLOC_CONF="oom_report:never", LD_PRELOAD=LIBRARY),
                       check=True, timeout=120)
        self.assertFalse(os.path.exists(f"/dev/shm/segalloc-sim-{os.geteuid()}-{CARD}"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
