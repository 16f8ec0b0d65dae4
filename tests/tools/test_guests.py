"""Devices whose memory others limit: the host's on an integrated device, control groups, quotas, the driver's budget. The
files of the kernel are below a folder, and this test is the neighbour that grows.

Nobody may go beyond: the simulator ends who does, as a kernel would (src/sim/device/host.h).

Usage: test_guests.py SEGALLOC NEIGHBOUR"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SEGALLOC, NEIGHBOUR = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
MIB = 2**20
TOTAL = 1024
RESERVE = TOTAL * 0.05
FILES = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"  # files in memory; and a short name, for the simulator
PATIENCE = 60  # seconds; what is waited for comes within one


class Guest:
    """A program on a device of 1 GiB whose machine is in a folder."""

    def __init__(self, case, sim="integrated", conf="", library=True, trace=None, **files):
        self.case = case
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sg", dir=FILES))
        case.addCleanup(shutil.rmtree, self.folder)
        self.group = self.folder / "sys/fs/cgroup/job"
        self.group.mkdir(parents=True)
        self.set(**files)
        environment = dict(os.environ, SEGALLOC_CONF=conf)
        if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
            environment["LD_PRELOAD"] = os.environ["SANITIZER"]
        arguments = [SEGALLOC, "run", "-q", "--sim", f"{TOTAL}MiB,host={self.folder},{sim}",
                     *([] if library else ["--no-preload"]), *(["-o", trace] if trace else [])]
        self.process = subprocess.Popen([*arguments, "--", NEIGHBOUR], env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.addCleanup(self.end)

    def set(self, **files):
        """Numbers of MiB, or texts: neighbour=100, memory_max=300, dmem_max="nvidia/…"."""
        for name, value in files.items():
            path = {"memory_max": self.group / "memory.max", "dmem_max": self.group / "dmem.max", "dmem_min": self.group / "dmem.min",
                    "dmem_capacity": self.group.parent / "dmem.capacity"}.get(name, self.folder / name)
            written = path.with_name(path.name + ".new")
            written.write_text(f"{value * MIB if isinstance(value, int) else value}\n")
            written.rename(path)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().strip()

    def available(self):
        """MiB of the host that nobody has, as its kernel says."""
        lines = (self.folder / "proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) / 1024

    def held(self):
        return int(self.ask("hold"))

    def falls_to(self, most):
        """Waits until at most so many MiB are held."""
        end = time.monotonic() + PATIENCE
        while self.held() > most:
            self.case.assertLess(time.monotonic(), end, f"{self.held()} MiB are held, not {most}")
            time.sleep(0.02)

    def end(self):
        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
            self.process.wait(timeout=PATIENCE)
            self.errors = self.process.stderr.read()
            self.process.stderr.close()
            self.process.stdout.close()
        return self.process.returncode

    def killed(self):
        path = self.folder / "killed"
        return path.read_text().strip() if path.exists() else None


class Integrated(unittest.TestCase):
    def test_the_stand_in_kills(self):
        """Without the library the driver gives until the machine ends."""
        guest = Guest(self, library=False, neighbour=512)
        answers = [guest.ask("take 32") for _ in range(17)]
        self.assertNotIn("refused", answers)
        self.assertEqual(answers[-1], "")
        self.assertIn("the host has no memory left", guest.killed())

    def test_reserve_is_never_taken(self):
        for conf in ("", "expandable_segments:False", "page_size_mb:16", "host_reserve:0.2", "overflow:host=1GiB"):
            with self.subTest(conf=conf):
                reserve = TOTAL * 0.2 if "host_reserve" in conf else RESERVE
                guest = Guest(self, conf=conf, neighbour=300)
                grown, answer, taken = 300, "taken", 0
                while answer == "taken":
                    self.assertLess(taken, 64)
                    grown += 4
                    guest.set(neighbour=grown)
                    left = int(guest.ask("free"))
                    self.assertLessEqual(left, max(guest.available() - reserve, 0) + 32, "more than there is")
                    answer = guest.ask("take 24")
                    if answer == "taken":
                        taken += 1
                        self.assertGreaterEqual(guest.available(), reserve)
                self.assertEqual(answer, "refused")
                self.assertGreater(taken, 8)
                self.assertEqual(guest.end(), 0)
                self.assertIsNone(guest.killed())
                self.assertIn("the device's memory is the host's: 1.00 GiB", guest.errors)
                self.assertIn("kept back (host_reserve)", guest.errors)
                self.assertNotIn("as overflow:host allows", guest.errors)  # there is no other memory
                self.assertRegex(guest.errors, "cause +the host: .* of the memory that this device shares with it are in use otherwise")
                self.assertIn("stop what uses the host's memory", guest.errors)

    def test_other_calls_keep_the_reserve(self):
        """Memory that the program takes itself, by calls that say how much."""
        for how in "create", "pool", "own":
            with self.subTest(how=how):
                guest = Guest(self, neighbour=300)
                self.assertEqual([guest.ask(line) for line in ("take 100", "give")], ["taken", "given"])  # idle memory goes first
                grown, answer, taken = 300, "taken", 0
                while answer == "taken":
                    self.assertLess(taken, 64)
                    grown += 4
                    guest.set(neighbour=grown)
                    answer = guest.ask(f"{how} 24")
                    if answer == "taken":
                        taken += 1
                        self.assertGreaterEqual(guest.available(), RESERVE)
                self.assertEqual(answer, "refused")
                self.assertGreaterEqual(taken, (TOTAL - 300 - RESERVE) // (24 + 4) - 2)
                self.assertEqual(guest.end(), 0)
                self.assertIsNone(guest.killed())
                self.assertIn("host     the device's memory is the host's: 1.00 GiB", guest.errors)

    def test_a_pool_gives_what_it_holds(self):
        """Memory that a pool holds idle is taken already: no refusal, though the reserve is reached."""
        guest = Guest(self, neighbour=300)
        self.assertEqual(guest.ask("idle 200"), "taken")
        guest.set(neighbour=TOTAL - 200 - int(RESERVE) - 10)
        self.assertEqual([guest.ask("create 24"), guest.ask("captured 400"), guest.ask("pool 200"), guest.ask("pool 24")],
                         ["refused", "taken", "taken", "refused"])
        self.assertEqual(guest.end(), 0)
        self.assertIsNone(guest.killed())

    def test_switched_off(self):
        """The driver's own answers, as without the library."""
        guest = Guest(self, conf="backend:cudaMallocAsync", neighbour=TOTAL - 60)
        self.assertEqual(guest.ask("create 24"), "taken")
        self.assertEqual(guest.end(), 0)

    def test_caches_of_files_are_no_lack(self):
        """The driver's answer leaves them out. The kernel drops them, so pages are had all the same."""
        guest = Guest(self, neighbour=100, cache=800)
        self.assertLessEqual(int(guest.ask("free")), 124)
        self.assertEqual([guest.ask("take 100") for _ in range(8)], ["taken"] * 8)
        self.assertEqual(guest.ask("take 100"), "refused")
        self.assertEqual(guest.end(), 0)

    def test_idle_memory_goes_back(self):
        guest = Guest(self, neighbour=200)
        self.assertEqual(guest.ask("take 400"), "taken")
        self.assertEqual(guest.ask("give"), "given")
        self.assertGreaterEqual(guest.held(), 400)
        for grown in range(245, 900, 45):
            guest.set(neighbour=grown)
            guest.falls_to(max(TOTAL - grown - 2 * RESERVE, 2))
            self.assertGreaterEqual(guest.available(), min(2 * RESERVE, TOTAL - grown) - 2)
        self.assertEqual(guest.end(), 0)
        self.assertIsNone(guest.killed())

    def test_memory_in_use_stays(self):
        guest = Guest(self, neighbour=TOTAL - 480)
        for line in ("take 200", "take 200", "give"):
            guest.ask(line)
        for left in range(440, 200, -40):
            guest.set(neighbour=TOTAL - left)
            guest.falls_to(max(left - 2 * RESERVE, 204))
        guest.set(neighbour=TOTAL - 210)
        self.assertGreaterEqual(guest.held(), 200)
        self.assertEqual(guest.ask("take 10"), "refused")
        self.assertEqual(guest.end(), 0)

    def test_group(self):
        guest = Guest(self, memory_max=400, group_neighbour=100)
        self.assertEqual([guest.ask("take 40") for _ in range(8)], ["taken"] * 7 + ["refused"])
        for _ in range(7):
            guest.ask("give")
        for grown in range(115, 390, 15):
            guest.set(group_neighbour=grown)
            guest.falls_to(max(400 - grown - 2 * RESERVE, 2))
        self.assertEqual(guest.end(), 0)
        self.assertIsNone(guest.killed())
        self.assertIn("its control group may have 400.00 MiB and has", guest.errors)

    def test_replay_decides_the_same(self):
        trace = pathlib.Path(tempfile.mkdtemp()) / "run.trace"
        self.addCleanup(shutil.rmtree, trace.parent)
        guest = Guest(self, trace=trace, neighbour=300)
        for i in range(1, 40):
            guest.set(neighbour=300 + 5 * i)
            self.assertIn(guest.ask("take 30" if i % 4 else "give"), ("taken", "given", "refused"))
        self.assertEqual(guest.end(), 0, guest.errors)
        result = subprocess.run([SEGALLOC, "replay", "--json", trace], stdout=subprocess.PIPE, text=True, timeout=60)
        got = json.loads(result.stdout)
        self.assertEqual((got["as_recorded"], got["diverged_event"]), (True, None), got)
        self.assertGreater(got["ooms"] if "ooms" in got else 1, 0)


class Cards(unittest.TestCase):
    def test_other_cards_are_as_before(self):
        """A host that is full is nothing to a card with memory of its own."""
        answers = []
        for library in (False, True):
            guest = Guest(self, sim="count=1", library=library, memory_max=10)
            (guest.folder / "proc").mkdir(exist_ok=True)
            answers.append([int(guest.ask("free")), *[guest.ask("take 128") for _ in range(9)], guest.ask("give"), int(guest.ask("free"))])
            self.assertEqual(guest.end(), 0)
            self.assertIsNone(guest.killed())
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0][1:10], ["taken"] * 8 + ["refused"])

    def test_integrated_without_a_host(self):
        """A rehearsal of a GB10 has the memory that the card is said to have, whatever machine plays it."""
        environment = dict(os.environ)
        if "SANITIZER" in os.environ:
            environment["LD_PRELOAD"] = os.environ["SANITIZER"]
        result = subprocess.run([SEGALLOC, "run", "-q", "--sim", "64GiB,integrated", "--", NEIGHBOUR], input="take 60000\nfree\n",
                                stdout=subprocess.PIPE, text=True, env=environment, timeout=60)
        self.assertEqual(result.stdout.split(), ["taken", str(65536 - 60000)])


class Quotas(unittest.TestCase):
    NAME = "nvidia/0000:01:00.0/vidmem "

    def quota(self, **limits):
        limits = {name: self.NAME + str(value * MIB) for name, value in limits.items()}
        return Guest(self, sim="count=1", dmem_capacity=self.NAME + str(TOTAL * MIB), **limits)

    def test_hard(self):
        guest = self.quota(dmem_max=400)
        self.assertEqual(int(guest.ask("free")), 400)
        self.assertEqual([guest.ask("take 100") for _ in range(5)], ["taken"] * 4 + ["refused"])
        self.assertEqual(guest.end(), 0)

    def test_soft(self):
        """Idle memory above it is gone before a neighbour wants the card; what is in use may stay above."""
        guest = self.quota(dmem_min=100)
        for line in ("take 300", "take 300", "give"):
            guest.ask(line)
        guest.falls_to(304)
        self.assertEqual(guest.ask("give"), "given")
        guest.falls_to(100)
        guest.set(neighbour=TOTAL - 100)
        guest.ask("free")
        self.assertEqual(guest.end(), 0)
        self.assertIsNone(guest.killed())

    def test_soft_without_the_helper(self):
        """The stand-in ends who stays above: trim_on_request:False has nobody who would give back."""
        limits = {"dmem_min": self.NAME + str(100 * MIB), "dmem_capacity": self.NAME + str(TOTAL * MIB)}
        guest = Guest(self, sim="count=1", conf="trim_on_request:False", **limits)
        guest.ask("take 300")
        guest.ask("give")
        guest.set(neighbour=TOTAL - 100)
        guest.ask("free")
        self.assertIn("above dmem.min", guest.killed())


class Budget(unittest.TestCase):
    def test_driver_says_that_it_is_over(self):
        guest = Guest(self, sim="notifies")
        for line in ("take 200", "take 400", "give"):
            guest.ask(line)
        self.assertGreaterEqual(guest.held(), 600)
        self.assertEqual(guest.ask("budget 100"), "told")
        guest.falls_to(504)
        self.assertGreaterEqual(guest.held(), 490)
        self.assertEqual(guest.ask("budget 1000"), "told")
        guest.falls_to(204)
        self.assertGreaterEqual(guest.held(), 200)
        self.assertEqual(guest.end(), 0)


if __name__ == "__main__":
    unittest.main()
