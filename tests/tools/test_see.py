"""`diff`, `top`, the line at the end of `run`, and what is printed with --json by the schemas that are installed.

Usage: test_see.py SEGALLOC ACTS DATA SCHEMAS"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import shared

SEGALLOC, ACTS, DATA, SCHEMAS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(4))
MIB = 1 << 20
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if key not in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
try:
    import jsonschema
except ImportError:
    jsonschema = None
    print("jsonschema is not here: what is printed is not checked by the schemas")


def segalloc(*arguments, **more):
    return subprocess.run([SEGALLOC, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, **more)


def screen(*pids):
    """What `top` shows, without the age of pages: a busy machine writes one some seconds late."""
    return re.sub(r"(?m)^ +\(\d+ s ago\)\n", "", segalloc("top", "--once", *pids).stdout)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def record(self, name, *acts, options=(), sim="1GiB"):
        path = self.folder / name
        subprocess.run([SEGALLOC, "run", "--sim", sim, *options, "-o", path, "--conf", "oom_report:never", "--", ACTS, *acts],
                       env=ENVIRONMENT, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        self.assertTrue(path.exists())
        return path

    def start(self, *acts, sim="1GiB", **environment):
        return shared.start(self, SEGALLOC, ACTS, *acts, environment=dict(ENVIRONMENT, **environment), sim=sim)

    def told(self, schema, *arguments, status=0):
        """What a command prints with --json, by its schema."""
        result = segalloc(*arguments)
        self.assertEqual((result.returncode, result.stdout.count("\n")), (status, 1), result)
        told = json.loads(result.stdout)
        if jsonschema:
            jsonschema.validate(told, json.loads((SCHEMAS / f"{schema}.json").read_text()))
        return told


class Diff(Case):
    def check(self, a, b, *options):
        told = self.told("diff", "diff", "--json", a, b, *options)
        for side in "ab":
            self.assertEqual(sum(row[f"{side}_bytes"] for row in told["rows"]), told[side]["bytes"])
        self.assertTrue(all(row["difference_bytes"] == row["b_bytes"] - row["a_bytes"] for row in told["rows"]))
        self.assertEqual(sum(row["difference_bytes"] for row in told["rows"]), told["difference_bytes"])
        self.assertEqual(told["difference_bytes"], told["b"]["bytes"] - told["a"]["bytes"])
        keys = [(row["site"], row["phase"], row["size_class"]) for row in told["rows"]]
        self.assertEqual(len(keys), len(set(keys)))
        return told

    def test_of_long_traces(self):
        names = [shared.beginning(SEGALLOC, DATA / f"{name}.csv.zst", self.folder / name)
                 for name in ("qwen25-7b-lora", "lmcleaner-3b-zero3")]
        peaks = [json.loads(segalloc("trace", "info", "--json", name).stdout)["peak_requested_bytes"] for name in names]
        told = self.check(*names)
        self.assertEqual([told["a"]["bytes"], told["b"]["bytes"]], peaks)
        self.assertEqual(self.check(names[0], names[0])["difference_bytes"], 0)
        text = segalloc("diff", *names).stdout.splitlines()
        self.assertTrue(text[-1].endswith("in all"), text)

    def test_the_short_report(self):
        """The verdict and a row for each line, however many sizes and phases it has; the rest by --all."""
        path = self.folder / "lines"
        acts = [f"{chr(ord('A') + i)}+{1 << i}" for i in range(9)]
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--sites", "-o", path, "--", ACTS, *acts], env=ENVIRONMENT, check=True)
        short, whole = (segalloc("report", *options, path).stdout for options in ((), ("--all",)))
        self.assertLess(len(short.splitlines()), 20, short)
        self.assertGreater(len(whole.splitlines()), 40)
        self.assertEqual(short.splitlines()[0], whole.splitlines()[0])
        self.assertEqual(len(re.findall(r"in \d+ blocks?, .*acts", short)), 1, short)
        self.assertIn("511.00 MiB in 9 blocks, acts.c:", short)
        self.assertTrue(short.endswith("--all\n"))
        self.assertNotIn("--all\n", whole)
        # what has no line has a row for each size: ten of them, and the rest in one
        path = self.record("sizes", *(f"{chr(ord('A') + i)}+{1 << i % 6}" for i in range(12)), "Z+100")
        self.assertIn("64.00 MiB in 2 blocks, 32.00 MiB on average", segalloc("report", path).stdout)

    def test_one_row_a_line(self):
        """Two sizes of batch share the row of their line; by size they share none."""
        paths = []
        for batch in ("96", "48"):
            path = self.folder / f"batch-{batch}"
            subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--sites", "-o", path, "--", ACTS, f"a+{batch}", f"b+{batch}"],
                           env=ENVIRONMENT, check=True)
            paths.append(path)
        told = self.told("diff", "diff", "--json", *paths)
        self.assertEqual([(row["phase"], row["size_class"], row["a_bytes"], row["b_bytes"], row["a_blocks"], row["b_blocks"])
                          for row in told["rows"]], [(None, None, 192 * MIB, 96 * MIB, 2, 2)])
        self.assertIn("acts", told["rows"][0]["site"])
        told = self.told("diff", "diff", "--json", "--by", "size", *paths)
        self.assertEqual(sorted((row["a_bytes"], row["b_bytes"]) for row in told["rows"]), [(0, 96 * MIB), (192 * MIB, 0)])
        self.assertIn(" (2 and 2 blocks)", segalloc("diff", *paths).stdout)
        self.assertEqual(segalloc("diff", "--by", "x", *paths).returncode, 2)

    def test_of_devices_and_failures(self):
        a = self.record("a", "a+100", "device=1", "b+50", "b-", "c?2000", sim="1GiB,count=2")
        b = self.record("b", "a+100", "a-", "d+30")
        told = self.check(a, b)
        self.assertEqual((told["a"]["bytes"], told["b"]["bytes"]), (150 * MIB, 100 * MIB))
        self.assertEqual(self.check(a, b, "--at", "end")["a"]["bytes"], 100 * MIB)
        failed = segalloc("diff", a, b, "--at", "failure")
        self.assertEqual((failed.returncode, failed.stderr.count("\n")), (1, 1))
        self.assertIn("no allocation failed", failed.stderr)
        self.assertTrue(self.check(a, a, "--at", "failure")["a"]["failed"])

    def test_sites(self):
        """What was asked for by other lines stands in rows of its own."""
        program = self.folder / "program.py"
        program.write_text("""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def take(mib):
    assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib << 20)) == 0
def logits(mib):
    take(mib)
def optimizer(mib):
    take(mib)
logits(int(sys.argv[1]))
optimizer(60)
""")
        paths = []
        for mib in 40, 300:
            paths.append(self.folder / f"t{mib}")
            subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--sites", "-o", paths[-1], "--", sys.executable, program, str(mib)],
                           env=ENVIRONMENT, check=True, timeout=60)
        told = self.check(*paths)
        self.assertEqual(told["difference_bytes"], 260 * MIB)
        self.assertTrue(all("program.py:" in row["site"] for row in told["rows"]), told["rows"])
        stacks = segalloc("trace", "export", paths[1], "--format", "folded", "-o", "-").stdout.splitlines()
        self.assertRegex(stacks[0], rf"^device 0;.*program\.py:\d+;program\.py:\d+ in logits;program\.py:\d+ in take;.* {300 * MIB}$")

    def test_usage(self):
        for arguments, word in ((["a"], "two traces"), (["a", "b", "--at", "noon"], '"noon"'), (["--jsn", "a", "b"], "--json")):
            result = segalloc("diff", *arguments)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
            self.assertIn(word, result.stderr)
        self.assertEqual(segalloc("diff", "/nonexistent", "/nonexistent").returncode, 1)


class Summary(Case):
    """The line at the end of a run: on a terminal, or asked for."""
    LINE = "segalloc: 100.00 MiB reserved at the peak for 100.00 MiB allocated. To see what "

    def run_it(self, *arguments, **more):
        return subprocess.run([SEGALLOC, "run", "--sim", "1GiB,count=2", *arguments], env=ENVIRONMENT, cwd=self.folder, timeout=60, check=False,
                              **(more or dict(capture_output=True, text=True)))

    def on_terminal(self, *arguments):
        ours, theirs = pty.openpty()
        self.run_it(*arguments, stderr=theirs, stdout=subprocess.DEVNULL)
        os.close(theirs)
        said = b""
        try:
            while more := os.read(ours, 4096):
                said += more
        except OSError:  # all was read
            pass
        os.close(ours)
        return said.decode().replace("\r\n", "\n")

    @shared.needs_terminal
    def test_on_a_terminal(self):
        self.assertEqual(self.on_terminal("-o", "run.trace", "--", ACTS, "a+100"), f"{self.LINE}held it: segalloc report run.trace\n")
        self.assertEqual(self.on_terminal("--", ACTS, "a+100"), f"{self.LINE}holds it: segalloc run --sites -o run.trace -- CMD\n")
        for arguments in ("-q", "--", ACTS, "a+100"), ("--", "true"), ("--no-preload", "--", ACTS, "a+100"), \
                ("--", "sh", "-c", f"'{ACTS}' a+100 2>/dev/null"), ("--", ACTS, "a+100", "kill"):
            self.assertEqual(self.on_terminal(*arguments), "", arguments)

    def test_elsewhere_only_if_asked_for(self):
        self.assertEqual(self.run_it("--", ACTS, "a+100").stderr, "")
        self.assertIn(self.LINE, self.run_it("--summary", "--", ACTS, "a+100").stderr)

    def test_children_say_who_they_are(self):
        said = self.run_it("--summary", "--", "sh", "-c", f"'{ACTS}' a+100 & echo $!; wait; '{ACTS}' a+100; exit")
        self.assertEqual(said.stderr.count("\n"), 2)
        self.assertTrue(said.stderr.startswith(self.LINE.replace("allocated.", f"allocated, in process {said.stdout.strip()}.")), said)

    def test_devices_and_failures(self):
        said = self.run_it("--summary", "--conf", "oom_report:never", "--", ACTS, "a+100", "device=1", "b+30", "b-", "c?2000", "d?4000").stderr
        self.assertTrue(said.startswith("segalloc: device 0: 100.00 MiB reserved at the peak for 100.00 MiB allocated; device 1: 30.00 MiB reserved "
                                        "at the peak for 30.00 MiB allocated; 2 allocations failed. "), said)

    def test_it_is_one_line(self):
        """However many devices; with a trace that lies elsewhere, and where there is no working folder."""
        acts = [act for device in range(16) for act in (f"device={device}", f"{chr(97 + device)}+2")]
        said = self.run_it("--sim", "1GiB,count=16", "--summary", "--", ACTS, *acts).stderr
        self.assertEqual((said.count("\n"), said.startswith("segalloc: device 0: 2.00 MiB reserved")), (1, True), said)
        self.assertIn("device 7: 2.00 MiB", said)
        self.assertTrue(said.endswith("-- CMD\n") and len(said) < 1000, said)
        with tempfile.TemporaryDirectory() as elsewhere:
            said = self.run_it("--summary", "-o", f"{elsewhere}/t", "--", ACTS, "a+100").stderr
            self.assertEqual(said, f"{self.LINE}held it: segalloc report {elsewhere}/t\n")
            said = self.run_it("--summary", "-o", f"{elsewhere}/u", "--", "sh", "-c", f"mkdir gone; cd gone; rmdir ../gone; exec '{ACTS}' a+100").stderr
            self.assertEqual(said, f"{self.LINE}held it: segalloc report {elsewhere}/u\n")

    def test_what_it_does_not_know(self):
        for where in "", "always", "terminal@", "somewhere@1", "always@x":
            self.assertEqual(self.run_it("-q", "--", "env", f"SEGALLOC_SUMMARY={where}", ACTS, "a+100").stderr, "", where)

    def test_a_verdict_stands_alone(self):
        """A rehearsal within a run says what it has to say."""
        said = self.run_it("--summary", "--", SEGALLOC, "rehearse", "--card", "1GiB", "--", ACTS, "a+100")
        self.assertEqual((said.returncode, self.LINE in said.stderr), (0, False), said)


class Terminal:
    """A terminal of 80 × 24 on which `top` runs; what it shows is kept as it came."""

    def __init__(self, *arguments, term="xterm", columns=80):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, LC_ALL="C.UTF-8")
            os.execv(SEGALLOC, [str(SEGALLOC), "top", *arguments])
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.shown = ""

    def wait_for(self, word):
        until = time.monotonic() + 60
        while word not in self.shown and time.monotonic() < until:
            if select.select([self.file], [], [], 0.5)[0]:
                try:
                    self.shown += os.read(self.file, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return word in self.shown

    def press(self, keys):
        os.write(self.file, keys)

    def end(self):
        """Its exit status, once it has ended by itself."""
        status = None
        until = time.monotonic() + 60
        while status is None and time.monotonic() < until:
            if select.select([self.file], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.file, 65536).decode("utf-8", "replace")
                except OSError:
                    pass
            pid, state = os.waitpid(self.pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(state) if pid else None
        os.close(self.file)
        return status


class Top(Case):
    def test_values(self):
        process = self.start("a+100", "b+50", "b-", "c+10", RANK="3")
        told = self.told("top", "top", "--json", process.pid)
        one, = told["processes"]
        self.assertEqual((one["pid"], one["rank"]), (process.pid, 3))
        device, = one["devices"]
        self.assertEqual((device["requested_bytes"], device["peak_requested_bytes"]), (110 * MIB, 150 * MIB))
        self.assertEqual(device["idle_bytes"], device["reserved_bytes"] - device["allocated_bytes"] - device["pending_bytes"])
        text = segalloc("top", "--once", process.pid).stdout
        self.assertRegex(text, rf"(?m)^ +3 +{process.pid} +0 +\d+ MiB +110 MiB")
        self.assertIn("card 1.00 GiB", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertIn(process.pid, [one["pid"] for one in self.told("top", "top", "--json")["processes"]])
        looks = segalloc("top", "--batch", "--json", "-n", "3", "-d", "0.05", process.pid).stdout.splitlines()
        self.assertEqual([len(json.loads(line)["processes"]) for line in looks], [1, 1, 1])

    def test_it_asks_nothing(self):
        """It shows a process that is stopped, and none that was killed, whose page goes."""
        process = self.start("a+100")
        process.send_signal(signal.SIGSTOP)
        self.assertEqual(len(self.told("top", "top", "--json", process.pid)["processes"]), 1)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        self.assertNotIn(process.pid, [one["pid"] for one in self.told("top", "top", "--json")["processes"]])
        process.wait(60)
        self.assertFalse(os.path.exists(f"/dev/shm/segalloc-live-{process.pid}"))
        gone = segalloc("top", "--once", process.pid)
        self.assertEqual((gone.returncode, gone.stderr.count("\n")), (1, 1))
        self.assertNotIn(process.pid, [one["pid"] for one in self.told("top", "top", "--json")["processes"]])

    def test_the_next_process_removes_what_a_killed_one_left(self):
        """Also where nobody looks; what is of a process that runs stays."""
        running, killed = self.start("a+10"), self.start("a+100")
        killed.kill()
        killed.wait(60)
        later = self.start("a+1")
        pages = [os.path.exists(f"/dev/shm/segalloc-live-{one.pid}") for one in (running, killed, later)]
        self.assertEqual(pages, [True, False, True])

    def test_ranks_side_by_side(self):
        """Eight ranks of one command and what sets one apart, on a screen of 80 × 24."""
        ranks = [self.start("a+100", RANK=str(rank)) for rank in reversed(range(8))]
        text = screen(*(one.pid for one in ranks)).splitlines()
        self.assertLessEqual(max(map(len, text)), 80)
        self.assertEqual(len(text), 12)
        self.assertIn("8 processes", text[0])
        self.assertEqual(sum("acts" in line for line in text), 1)
        rows = [line.split()[:2] for line in text[4:]]
        self.assertEqual(rows, [[str(rank), str(one.pid)] for rank, one in enumerate(reversed(ranks))])
        other = self.start("a+100", "b+1")
        text = screen(other.pid, *(one.pid for one in ranks)).splitlines()
        self.assertEqual(sum("acts" in line for line in text), 2)

    def test_ranks_that_see_one_device_each(self):
        """Each has its card as device 0. `top` says which it is, and a failure names who holds memory of that card."""
        sim = f"1GiB,count=2,card=see-{os.getpid()}"
        self.addCleanup(lambda: pathlib.Path(f"/dev/shm/segalloc-sim-{os.geteuid()}-see-{os.getpid()}").unlink(missing_ok=True))
        one, zero, also = (self.start(f"a+{mib}", sim=sim, CUDA_VISIBLE_DEVICES=visible)
                           for visible, mib in (("1", 700), ("0", 500), ("1,0", 30)))
        told = {each["pid"]: each["devices"][0] for each in self.told("top", "top", "--json", one.pid, zero.pid, also.pid)["processes"]}
        self.assertEqual([told[each.pid]["device"] for each in (one, zero, also)], [0, 0, 0])
        self.assertEqual(told[one.pid]["uuid"], told[also.pid]["uuid"])
        self.assertNotEqual(told[one.pid]["uuid"][:12], told[zero.pid]["uuid"][:12])
        text = screen(one.pid, zero.pid, also.pid)
        cards = re.findall(r"^ *- +(\d+) +0 .*\n +device 0 is (GPU-[0-9a-f]{8})$", text, re.MULTILINE)
        self.assertEqual(dict(cards), {str(pid): device["uuid"][:12] for pid, device in told.items()}, text)
        self.assertNotIn(" is GPU-", segalloc("top", "--once", one.pid, also.pid).stdout)
        for visible, missing, holders in (("1", 306, {one.pid: 700, also.pid: 30}), ("0,1", 76, {zero.pid: 500})):
            result = segalloc("run", "--sim", sim, "--", ACTS, "b+600", env=dict(ENVIRONMENT, CUDA_VISIBLE_DEVICES=visible))
            self.assertIn(f"short by {missing}.00 MiB", result.stderr)
            told = {int(pid): int(mib) for pid, mib in re.findall(r"process +(\d+) \(acts\) holds (\d+)\.00 MiB", result.stderr)}
            self.assertEqual(told, holders, result.stderr)

    def test_tags(self):
        """The phase of each rank, on the line of the command or on its own."""
        script = self.folder / "phases.py"
        script.write_text("""
import ctypes, os, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
library = ctypes.CDLL(None)
for name in "step 6", os.environ["PHASE"]:
    library.segalloc_phase_push(name.encode("utf-8", "surrogateescape"))
assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20)) == 0
print("there", flush=True)
sys.stdin.read()
""")
        started = []
        for rank, phase in enumerate(("forward", "forward", "\x1b[2J</script>\n" + "y" * 300)):
            one = subprocess.Popen([SEGALLOC, "run", "--sim", "1GiB", "--conf", "live:True,sites:True", "--", sys.executable, script], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env=dict(ENVIRONMENT, RANK=str(rank), PHASE=phase))
            self.addCleanup(one.stdout.close)
            self.addCleanup(one.wait, 60)
            self.addCleanup(one.stdin.close)
            self.assertEqual(one.stdout.readline(), "there\n")
            started.append(one.pid)
        told = self.told("top", "top", "--json", *started)
        self.assertEqual([one["phase"] for one in sorted(told["processes"], key=lambda one: one["rank"])][:2], ["step 6, forward"] * 2)
        text = segalloc("top", "--once", *started).stdout
        self.assertEqual(text.count("in step 6, forward"), 1)
        self.assertIn("in step 6, ?[2J</script>?yyy", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_number_of_another(self):
        """A page under the number of a process that began after it was written."""
        other = subprocess.Popen(["sleep", "60"])
        self.addCleanup(other.wait, 60)
        self.addCleanup(other.kill)
        process = self.start("a+100")
        page = pathlib.Path(f"/dev/shm/segalloc-live-{process.pid}").read_text()
        forged = pathlib.Path(f"/dev/shm/segalloc-live-{other.pid}")
        self.addCleanup(forged.unlink, missing_ok=True)
        start = json.loads(page)["start_realtime_ns"]
        forged.write_text(page.replace(f'"pid":{process.pid}', f'"pid":{other.pid}').replace(str(start), str(start - 3600 * 10 ** 9)))
        self.assertEqual(segalloc("top", "--once", other.pid).returncode, 1)
        self.assertFalse(forged.exists())
        forged.write_text("{")
        self.assertEqual(segalloc("top", "--once", other.pid).returncode, 1)
        self.assertEqual(segalloc("top", "--once").returncode, 0)

    @shared.needs_terminal
    def test_on_a_screen(self):
        process = self.start("a+100", "device=1", "b+50", sim="1GiB,count=2")
        screen = Terminal("-d", "0.1", str(process.pid))
        self.assertTrue(screen.wait_for("reserved"), screen.shown)
        self.assertTrue(screen.wait_for("100 MiB"), screen.shown)
        self.assertTrue(screen.wait_for("█"), screen.shown)
        process.kill()
        process.wait(60)
        self.assertTrue(screen.wait_for("No process"), screen.shown)
        screen.press(b"q")
        self.assertEqual(screen.end(), 0)

    @shared.needs_terminal
    def test_ends(self):
        for how in b"q", signal.SIGTERM, signal.SIGINT:
            screen = Terminal()
            self.assertTrue(screen.wait_for("segalloc top"))
            screen.press(how) if isinstance(how, bytes) else os.kill(screen.pid, how)
            self.assertEqual(screen.end(), 0)
        unknown = Terminal(term="no-such-terminal")
        unknown.wait_for("TERM")
        self.assertEqual(unknown.end(), 1)

    def test_hostile_command(self):
        """Nothing that a terminal would obey comes from a name."""
        name = "\x1b]0;owned\x07\x1b[2J\n</script>" + "x" * 300
        process = self.start("a+1" + name)
        text = segalloc("top", "--once", process.pid).stdout
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.told("top", "top", "--json", process.pid)

    def test_usage(self):
        for arguments, word in ((["x"], '"x"'), (["-n", "0"], "--count"), (["-d", "0"], "--delay"), (["--once", "--batch"], "either")):
            result = segalloc("top", *arguments)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
            self.assertIn(word, result.stderr)


class Schemas(Case):
    def test_all(self):
        stats = self.folder / "stats.json"
        traces = [self.record("a", "a+100", "b+50", "b-"),
                  self.record("b", "a+100", "b?2000", "c+3", options=["--sites"]),
                  self.record("c", "a+100", "device=1", "b+50", "kill", sim="1GiB,count=2"),
                  DATA / "snapshots" / "history-2.6.0.pickle"]
        rows = self.folder / "rows.csv"
        rows.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000000,allocate,0x200,1000,0\n")
        for trace in (*traces, rows):
            self.told("report", "report", "--json", trace)
            self.told("trace-info", "trace", "info", "--json", trace)
            for how in [], ["--policy", "pytorch"], ["--min-limit"], ["--run-ahead", "64"], ["--bench"]:
                self.told("replay", "replay", "--json", *how, trace)
        self.told("report", "report", "--json", *traces)
        self.told("conf", "conf", "--json")
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--conf", f"stats:{stats}", "--", ACTS, "a+100", "b+1"], check=True,
                       env=ENVIRONMENT, timeout=60)
        if jsonschema:
            jsonschema.validate(json.loads(stats.read_text()), json.loads((SCHEMAS / "stats.json").read_text()))
        self.told("report", "report", "--json", stats)
        for acts, status in ((["a+100"], 0), (["a+2000"], 3)):
            result = subprocess.run([SEGALLOC, "rehearse", "--json", "--card", "1GiB", "--", ACTS, *acts], env=ENVIRONMENT,
                                    capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, status, result)
            if jsonschema:
                jsonschema.validate(json.loads(result.stdout), json.loads((SCHEMAS / "rehearse.json").read_text()))

    def test_they_are_schemas(self):
        for path in SCHEMAS.glob("*.json"):
            told = json.loads(path.read_text())
            self.assertEqual(told["$id"], f"segalloc.{path.stem}/1")
            if jsonschema:
                jsonschema.Draft202012Validator.check_schema(told)
        listed = set(re.findall(r"'([\w.-]+\.json)'", (SCHEMAS / "meson.build").read_text()))
        self.assertEqual(listed, {path.name for path in SCHEMAS.glob("*.json")})


if __name__ == "__main__":
    unittest.main(verbosity=2)
