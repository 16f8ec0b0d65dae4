"""segalloc tune: what it recommends on traces whose best setting is known, its JSON, its errors.

Usage: test_tune.py SEGALLOC DATA"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DATA = os.path.abspath(sys.argv.pop())
SEGALLOC = os.path.abspath(sys.argv.pop())
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD")
MIB = 1 << 20
LAST_OF_RECOMMENDED = ("lagging_reserved_bytes", "lag_decides", "reason", "line")


def start(*arguments, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    clean.update(env or {})
    return subprocess.Popen([SEGALLOC, *arguments], env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def catches(pid, number):
    """Whether a process has a handler for the signal: a program that has only just been started has none."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


class Trace:
    """Rows of RMM's CSV. Sizes are in MiB."""

    def __init__(self, folder, name):
        self.rows, self.size, self.path = [], {}, os.path.join(folder, name + ".csv")

    def alloc(self, mib, stream=0):
        block = 0x7f0000000000 + (len(self.size) + 1 << 9)
        self.size[block] = int(mib * MIB)
        self.rows.append(f"0,00:00:00:{len(self.rows):06},allocate,{block:#x},{self.size[block]},{stream}")
        return block

    def free(self, *blocks, stream=0):
        for block in blocks:
            self.rows.append(f"0,00:00:00:{len(self.rows):06},free,{block:#x},{self.size[block]},{stream}")

    def work(self, action, stream, number=0):
        self.rows.append(f"0,00:00:00:{len(self.rows):06},{action},{number:#x},1,{stream}")

    def fail(self, mib):
        self.rows.append(f"0,00:00:00:{len(self.rows):06},allocate failure,0x0,{int(mib * MIB)},0")

    def save(self):
        with open(self.path, "w") as file:
            file.write("\n".join(["Thread,Time,Action,Pointer,Size,Stream", *self.rows, ""]))
        return self.path


class Tune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.same, cls.growing, cls.pinned, cls.single, cls.oversize = (
            Trace(cls.folder.name, name) for name in ("same", "growing", "pinned", "single", "oversize"))
        for _ in range(50):  # one buffer again and again: nothing to gain
            cls.same.free(cls.same.alloc(40))
        for mib in range(100, 300, 20):  # each larger than any before: fixed segments can't serve it again
            cls.growing.free(cls.growing.alloc(mib))
        held = []
        for _ in range(4):  # a survivor of 30 in each of four segments of 100, then 140 at once
            cls.pinned.free(cls.pinned.alloc(100))
            cls.pinned.alloc(30)
            held.append(cls.pinned.alloc(70))
        cls.pinned.free(*held)
        cls.pinned.free(cls.pinned.alloc(140))
        cls.single.alloc(12)  # expandable segments take a chunk of 20 MiB
        cls.oversize.free(cls.oversize.alloc(64))
        cls.oversize.free(cls.oversize.alloc(24), cls.oversize.alloc(24))
        for trace in (cls.same, cls.growing, cls.pinned, cls.single, cls.oversize):
            trace.save()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_it(self, *arguments, env=None, status=0):
        process = start(*arguments, env=env)
        out, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, status, errors)
        return out, errors

    def tune(self, *arguments, env=None):
        """The parsed object, after the checks that hold for every one."""
        out, errors = self.run_it("tune", "--json", *arguments, env=env)
        self.assertEqual((out.count("\n"), errors), (1, ""))
        found = json.loads(out)
        self.assertEqual(found["schema"], "segalloc.tune/1")
        candidates, pareto, best = found["candidates"], found["pareto"], found["recommended"]
        self.assertEqual(len({c["conf"] for c in candidates}), len(candidates))
        self.assertIn(found["default"], candidates)
        self.assertIn({k: v for k, v in best.items() if k not in LAST_OF_RECOMMENDED}, candidates)
        self.assertTrue(best["reason"].endswith("."))
        self.assertGreater(len(pareto), 0)
        least_ooms = min(c["ooms"] for c in candidates)
        for member in pareto:
            self.assertIn(member, candidates)
            self.assertEqual(member["ooms"], least_ooms)
            for other in candidates:
                if other["ooms"] == least_ooms:
                    better = [other[k] - member[k] for k in ("peak_reserved_bytes", "driver_calls")]
                    self.assertFalse(max(better) <= 0 and min(better) < 0, (member, other))
        for mine, standard in zip(best["traces"], found["default"]["traces"]):
            self.assertLessEqual(mine["ooms"], standard["ooms"])
            if not standard["ooms"]:
                self.assertLessEqual(mine["peak_reserved_bytes"], standard["peak_reserved_bytes"])
        return found

    def test_defaults_stay_where_nothing_is_gained(self):
        for arguments in ((), ("--for", "pytorch")):
            found = self.tune(*arguments, self.same.path)
            self.assertEqual(found["recommended"]["conf"], "")
            self.assertEqual(found["recommended"]["line"], "")
            self.assertIn("Keep to the defaults", found["recommended"]["reason"])
            self.assertIsNone(found["current"])
            self.assertTrue(found["complete"])

    def test_expandable_segments_for_growing_sizes(self):
        found = self.tune("--for", "pytorch", self.growing.path)
        self.assertEqual(found["recommended"]["conf"], "expandable_segments:True")
        self.assertEqual(found["recommended"]["line"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        self.assertEqual(found["default"]["peak_reserved_bytes"], sum(range(100, 300, 20)) * MIB)
        self.assertEqual(found["recommended"]["peak_reserved_bytes"], 280 * MIB)
        self.assertIn("1.58 GiB", found["recommended"]["reason"])

    def test_setting_in_use_that_costs(self):
        conf = "max_split_size_mb:20"
        for option, env in (((), {"PYTORCH_CUDA_ALLOC_CONF": conf}), ((), {"PYTORCH_ALLOC_CONF": conf}),
                            (("--current", conf), {})):
            found = self.tune("--for", "pytorch", *option, self.oversize.path, env=env)
            self.assertEqual(found["current"]["conf"], "max_split_size_mb:20")
            self.assertEqual(found["current"]["peak_reserved_bytes"], 112 * MIB)
            self.assertEqual(found["recommended"]["conf"], "")
            self.assertEqual(found["recommended"]["line"], "unset PYTORCH_CUDA_ALLOC_CONF")
            self.assertIn("Unset max_split_size_mb: it costs you 48.00 MiB.", found["recommended"]["reason"])

    def test_setting_in_use_that_is_good(self):
        found = self.tune("--for", "pytorch", "--current", "expandable_segments:True", self.growing.path)
        self.assertEqual(found["recommended"]["conf"], "expandable_segments:True")
        self.assertIn("Keep what you have", found["recommended"]["reason"])

    def test_other_keys_of_the_setting_in_use_are_kept(self):
        base = "large_segment_size_mb:32,per_process_memory_fraction:0.9"
        found = self.tune("--for", "pytorch", "--current", base + ",garbage_collection_threshold:0.7",
                          "--limit", "1GiB", self.growing.path)
        for candidate in found["candidates"]:
            self.assertTrue(candidate["conf"].startswith(base), candidate)
        self.assertTrue(any("garbage_collection_threshold:0.8" in c["conf"] for c in found["candidates"]))
        without = self.tune("--for", "pytorch", self.growing.path)
        self.assertFalse(any("garbage" in c["conf"] for c in without["candidates"]))
        found = self.tune("--current", "limit:1GiB,reserve_slack:1.05", self.pinned.path)
        self.assertEqual(found["default"]["conf"], "limit:1GiB")
        self.assertEqual(found["current"]["conf"], "limit:1GiB,reserve_slack:1.05")

    def test_what_is_written_where_is_left_out(self):
        found = self.tune("--budget", "2", self.pinned.path, env={"SEGALLOC_CONF": "sites:True,live:True,limit:1GiB"})
        self.assertEqual({candidate["conf"].split(",")[0] for candidate in found["candidates"]}, {"limit:1GiB"})

    def test_lists_are_quoted(self):
        current = "max_split_size_mb: 20, roundup_power2_divisions:[256:1,512:2,>:4]"
        found = self.tune("--for", "pytorch", "--current", current, "--param", "max_split_size_mb=32",
                          self.oversize.path)
        self.assertEqual(found["default"]["conf"], "roundup_power2_divisions:[256:1,512:2,>:4]")
        self.assertEqual(found["recommended"]["line"],
                         "PYTORCH_CUDA_ALLOC_CONF='roundup_power2_divisions:[256:1,512:2,>:4]'")
        text, _ = self.run_it("tune", "--for", "pytorch", "--current", current, "--param", "max_split_size_mb=32",
                              self.oversize.path)
        self.assertIn(found["recommended"]["line"], text)

    def test_card_that_is_too_small_for_the_defaults(self):
        found = self.tune("--for", "pytorch", "--limit", "420MiB", self.pinned.path)
        self.assertEqual(found["default"]["ooms"], 1)
        self.assertEqual(found["recommended"]["ooms"], 0)
        self.assertTrue(found["recommended"]["conf"])
        self.assertIn("It fits", found["recommended"]["reason"])
        text, _ = self.run_it("tune", "--for", "pytorch", "--limit", "420MiB", self.pinned.path)
        self.assertIn("1 allocation fails", text)

    def test_card_that_is_too_small_for_anything(self):
        for arguments in ((), ("--for", "pytorch")):
            found = self.tune(*arguments, "--limit", "200MiB", self.pinned.path)
            self.assertGreater(found["recommended"]["ooms"], 0)
            self.assertIn("No setting makes this fit", found["recommended"]["reason"])
            self.assertIn("400.00 MiB at once and the card has 200.00 MiB", found["recommended"]["reason"])

    def test_slack_for_survivors(self):
        found = self.tune(self.pinned.path)
        self.assertIn("reserve_slack:1", found["recommended"]["conf"])
        self.assertLess(found["recommended"]["peak_reserved_bytes"], found["default"]["peak_reserved_bytes"])
        self.assertTrue(found["recommended"]["line"].startswith("SEGALLOC_CONF="))
        self.assertIn("--limit", found["recommended"]["reason"])

    def test_pages_are_small_beside_what_lives(self):
        """One page more or less is no more than what two runs differ by: 1/400, or the smallest page."""
        trace = Trace(self.folder.name, "pages")
        blocks = [trace.alloc(100) for _ in range(20)]
        trace.free(*blocks)
        pages = [2, 4]  # of 2000 MiB
        found = self.tune(trace.save(), "--limit", "80GiB")
        confs = ",".join(candidate["conf"] for candidate in found["candidates"])
        self.assertEqual(sorted({int(page) for page in re.findall(r"page_size_mb:(\d+)", confs)}), pages)
        found = self.tune(trace.path, "--limit", "80GiB", "--param", "page_size_mb=2,64")  # unless they are named
        self.assertIn("page_size_mb:64", [candidate["conf"] for candidate in found["candidates"]])

    def test_several_traces(self):
        alone = self.tune("--for", "pytorch", self.growing.path)
        found = self.tune("--for", "pytorch", self.growing.path, self.single.path)
        self.assertEqual([t["path"] for t in found["traces"]], [self.growing.path, self.single.path])
        expandable, = (c for c in found["candidates"] if c["conf"] == "expandable_segments:True")
        self.assertEqual([t["peak_reserved_bytes"] for t in expandable["traces"]], [280 * MIB, 20 * MIB])
        self.assertEqual(expandable["peak_reserved_bytes"], 300 * MIB)
        self.assertLess(expandable["peak_reserved_bytes"], found["default"]["peak_reserved_bytes"])
        self.assertIn("expandable_segments:True", alone["recommended"]["conf"])
        self.assertNotIn("expandable_segments:True", found["recommended"]["conf"])

    def test_figures_are_those_of_replay(self):
        for policy in ("segalloc", "pytorch"):
            found = self.tune("--for", policy, "--limit", "450MiB", self.pinned.path)
            for candidate in found["candidates"][:12]:
                out, _ = self.run_it("replay", "--json", "--policy", policy, "--limit", "450MiB",
                                     "--conf", candidate["conf"], self.pinned.path,
                                     status=3 if candidate["ooms"] else 0)
                played = json.loads(out)
                for key in ("peak_reserved_bytes", "ooms", "pages_moved", "bytes_moved"):
                    self.assertEqual(candidate[key], played[key], (candidate["conf"], key))
                self.assertEqual(candidate["driver_calls"], sum(played["driver_calls"].values()), candidate["conf"])

    def divided(self, name, first, rest):
        """A trace of steps: `first` of them with survivors that only moving pages helps with, `rest` as the function makes them."""
        trace = Trace(self.folder.name, name)
        kept = [trace.alloc(2) for _ in range(4)]
        for _ in range(first):
            blocks = [trace.alloc(mib) for mib in (100, 30, 70, 100, 30, 70)]
            trace.free(*blocks[::2])
            trace.free(trace.alloc(140))
            trace.free(*blocks[1::2])
        rest(trace)
        trace.free(*kept)
        trace.save()
        return trace

    def test_chosen_on_the_first_part(self):
        """The first part's figures are those of a trace that ends there, and nothing behind it decides what is recommended."""
        def again(trace):
            for _ in range(30):
                trace.free(*[trace.alloc(mib) for mib in (90, 20, 60)])

        def other(trace):
            for mib in range(30):
                trace.free(*[trace.alloc(20 + mib), trace.alloc(60)])
        options = "--limit", "8GiB", "--param", "page_size_mb=2,64", "--param", "reserve_slack=1,1.1"
        found = []
        for name, rest in ("again", again), ("other", other):
            trace = self.divided("divided-" + name, 60, rest)
            told = self.tune(*options, trace.path)
            found.append(told)
            self.assertEqual(told["chosen_on"], "first_parts")
            cut = Trace(self.folder.name, "cut-" + name)
            cut.rows = trace.rows[:told["traces"][0]["first_part_events"]]
            alone = {c["conf"]: c for c in self.tune(*options, cut.save())["candidates"]}
            for candidate in told["candidates"]:
                if candidate["conf"] in alone:
                    self.assertEqual(candidate["first"]["peak_reserved_bytes"], alone[candidate["conf"]]["peak_reserved_bytes"])
                    self.assertEqual(candidate["first"]["driver_calls"], alone[candidate["conf"]]["driver_calls"])
                self.assertEqual(candidate["driver_calls"], candidate["first"]["driver_calls"] + candidate["rest"]["driver_calls"])
                self.assertEqual(candidate["peak_reserved_bytes"], max(candidate[part]["peak_reserved_bytes"] for part in ("first", "rest")))
        if found[0]["traces"][0]["first_part_events"] == found[1]["traces"][0]["first_part_events"]:
            self.assertEqual(found[0]["recommended"]["conf"], found[1]["recommended"]["conf"])

    def test_the_rest_refutes_or_runs_out(self):
        """A later part that only another setting serves: where memory runs out in it, all of the trace is chosen on."""
        def survivors(trace):
            for _ in range(4):
                trace.free(trace.alloc(100))
                trace.alloc(30)
                trace.free(trace.alloc(70))
            trace.free(trace.alloc(140))
        plain = self.divided("runs-out", 0, lambda trace: [trace.free(*[trace.alloc(100) for _ in range(4)]) for _ in range(40)] and survivors(trace))
        told = self.tune("--for", "pytorch", plain.path)
        self.assertEqual(told["chosen_on"], "first_parts")
        self.assertEqual(told["recommended"]["conf"], "")  # on the first part nothing is gained
        tight = str(told["default"]["peak_reserved_bytes"] // MIB - 1) + "MiB"
        if self.tune("--for", "pytorch", "--limit", tight, plain.path)["default"]["ooms"]:
            self.assertEqual(self.tune("--for", "pytorch", "--limit", tight, plain.path)["chosen_on"], "runs_out")
        self.assertEqual(self.tune(self.pinned.path)["chosen_on"], "undivided")

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_ranks_of_mpirun(self):
        """However many ranks share the replays, the answer is that of one, printed once."""
        paths = [self.pinned.path, self.growing.path]
        alone = self.tune(*paths)
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        done = subprocess.run([*launcher, SEGALLOC, "tune", "--json", *paths], env=clean, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode and "libmpi" in done.stderr:
            self.skipTest("there is no Open MPI to load")
        self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 1), done.stderr)
        together = json.loads(done.stdout)
        for found in (alone, together):
            del found["seconds"], found["threads"]
        self.assertEqual(alone, together)
        failed = subprocess.run([*launcher, SEGALLOC, "tune", "/nowhere.csv"], env=clean, capture_output=True, text=True, timeout=120, check=False)
        self.assertNotEqual(failed.returncode, 0)
        self.assertEqual(failed.stderr.count("/nowhere.csv: No such file"), 1)

    def test_a_page(self):
        out = os.path.join(self.folder.name, "page.html")
        self.run_it("tune", "--html", out, self.pinned.path)
        with open(out) as file:
            text = file.read()
        self.assertIn(json.dumps(self.tune(self.pinned.path)["recommended"]["reason"]), text)
        self.run_it("tune", "--html", out, self.pinned.path, status=1)
        self.run_it("tune", "--html", out, "--force", self.pinned.path)
        self.run_it("tune", "--html", self.pinned.path, "--force", self.pinned.path, status=1)
        self.run_it("tune", "--force", self.pinned.path, status=2)

    def test_threads_do_not_change_the_answer(self):
        one, three = (self.tune("-J", n, self.pinned.path) for n in "13")
        for found in (one, three):
            del found["seconds"], found["threads"]
        self.assertEqual(one, three)

    def test_narrowed(self):
        found = self.tune("--for", "pytorch", "--param", "max_split_size_mb=20..2048", self.oversize.path)
        values = {c["conf"] for c in found["candidates"]}
        self.assertEqual(len(values), 13)
        self.assertTrue({"", "max_split_size_mb:20", "max_split_size_mb:2048"} <= values)
        self.assertTrue(all(v == "" or v.startswith("max_split_size_mb:") and "," not in v for v in values))
        found = self.tune("--param", "page_size_mb=4,8", "--param", "roundup_power2_divisions=1..8", "--budget", "7",
                          self.pinned.path)
        self.assertEqual(len(found["candidates"]), 7)
        self.assertFalse(any("slack" in c["conf"] or "split" in c["conf"] for c in found["candidates"]))

    def test_lag(self):
        """What streams in turn need depends on how far the GPU is behind; what one needs does not."""
        turns = Trace(self.folder.name, "turns")
        for i in range(100):
            turns.free(turns.alloc(16, stream=1 + i % 8), stream=1 + i % 8)
        best = self.tune(turns.save(), "--limit", "8GiB")["recommended"]
        self.assertEqual((best["peak_reserved_bytes"], best["lagging_reserved_bytes"], best["lag_decides"]),
                         (16 * MIB, 128 * MIB, True))
        self.assertIn("\nWith it the lag of the GPU decides: 16.00 MiB where work is done at once, 128.00 MiB where ",
                      self.run_it("tune", turns.path, "--limit", "8GiB")[0])
        best = self.tune(self.same.path, "--limit", "8GiB")["recommended"]
        self.assertEqual((best["lagging_reserved_bytes"], best["lag_decides"]), (best["peak_reserved_bytes"], False))
        self.assertNotIn("lag", self.run_it("tune", self.same.path, "--limit", "8GiB")[0])

    def test_lag_of_rows_of_work(self):
        """Where the host waits before each free, by any kind of row, nothing lags; where it does not, it does."""
        waits = {"stream_sync": lambda trace, stream, i: trace.work("stream_sync", stream),
                 "device_sync": lambda trace, stream, i: trace.work("device_sync", 0),
                 "event_sync": lambda trace, stream, i: (trace.work("record", stream, 1 + i), trace.work("event_sync", 0, 1 + i)),
                 "": lambda trace, stream, i: None}
        for name, wait in waits.items():
            turns = Trace(self.folder.name, "waits_" + name)
            for i in range(100):
                stream = 1 + i % 8
                block = turns.alloc(16, stream=stream)
                turns.work("launch", stream)
                turns.work("launch", stream)
                wait(turns, stream, i)
                turns.free(block, stream=stream)
            best = self.tune(turns.save(), "--limit", "8GiB")["recommended"]
            self.assertEqual((best["lagging_reserved_bytes"], best["lag_decides"]),
                             (16 * MIB, False) if name else (128 * MIB, True), name)
            self.assertEqual("lag of the GPU" in self.run_it("tune", turns.path, "--limit", "8GiB")[0], not name)

    def test_what_failed_fits(self):
        """Shares are of what is live here, what had failed included; that it fits is said."""
        failed = Trace(self.folder.name, "failed")
        first = failed.alloc(1024)
        failed.free(failed.alloc(4096))
        rest = [failed.alloc(1024), failed.alloc(1024)]
        failed.fail(4096)
        failed.free(first, *rest)
        text = self.run_it("tune", failed.save(), "--limit", "8GiB")[0]
        self.assertRegex(text, r"\(the defaults\) +7\.00 GiB +1\.000 x")
        self.assertIn("It fits, 7.00 of 8.00 GiB: 1 allocation failed when this was recorded and is served here;", text)
        self.assertNotIn("It fits", self.run_it("tune", failed.path, "--limit", "6GiB")[0])

    def test_time_budget(self):
        found = self.tune("--budget", "0.0001s", self.pinned.path)
        self.assertLess(len(found["candidates"]), 20)
        self.assertFalse(found["complete"])

    def test_interrupt(self):
        trace = Trace(self.folder.name, "long")
        for i in range(400000):
            trace.free(trace.alloc(1 + i % 37))
        trace.save()
        for wait in (0.2, 1):
            process = start("tune", "--json", "-J", "1", "--budget", "1h", *[trace.path] * 4)
            while not catches(process.pid, signal.SIGINT):
                time.sleep(0.01)
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=20)
            if process.returncode:
                self.assertEqual((process.returncode, out), (1, ""))
                self.assertIn("nothing is known yet", errors)
            else:
                self.assertFalse(json.loads(out)["complete"])

    def test_nothing_but_empty_requests(self):
        """There is nothing that reserved memory could be a multiple of."""
        path = os.path.join(self.folder.name, "empty.csv")
        with open(path, "w") as file:
            file.write("Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00:000000,allocate,0x200,0,0\n0,00:00:00:000001,free,0x200,0,0\n")
        for policy in "segalloc", "pytorch":
            out, _ = self.run_it("tune", "--for", policy, "--budget", "3", path)
            self.assertNotIn("nan", out)
            self.assertRegex(out, r"\(the defaults\) +0 B +- ")

    def test_errors(self):
        def fails(status, *words, arguments):
            out, errors = self.run_it("tune", *arguments, status=status)
            self.assertEqual((out, errors.count("\n")), ("", 1), errors)
            for word in words:
                self.assertIn(word, errors)
        path = self.same.path
        fails(2, "which trace?", arguments=())
        fails(2, '"jax"', arguments=("--for", "jax", path))
        fails(2, "--limit", "lots", arguments=("--limit", "lots", path))
        for words, arguments in ((("--param: max_split_size_mb:5: must be 0 for off, or 20 to ", "--help"),
                                  ("--param", "max_split_size_mb=5", path)),
                                 (('--current: there is no option "nonsense"', "segalloc conf"),
                                  ("--current", "nonsense:1", path))):
            fails(2, *words, arguments=arguments)
            errors = self.run_it("tune", *arguments, status=2)[1]
            for untrue in ("stays in force", "ignored", "--conf"):  # nothing was done
                self.assertNotIn(untrue, errors)
        fails(2, "--budget", "soon", arguments=("--budget", "soon", path))
        fails(2, "--threads", '"0"', arguments=("-J", "0", path))
        fails(2, "max_split_size_mb", "did you mean", arguments=("--param", "max_splitsize_mb=1", path))
        fails(2, "LOW..HIGH", arguments=("--param", "page_size_mb=64..2", path))
        fails(2, "LOW..HIGH", arguments=("--param", "page_size_mb=..", path))
        fails(2, "which values", arguments=("--param", "page_size_mb", path))
        fails(2, "page_size_mb:1", arguments=("--param", "page_size_mb=1", path))
        fails(2, "max_split_size_mb:3", arguments=("--for", "pytorch", "--param", "max_split_size_mb=3", path))
        fails(2, "--current", "reserve_slack", arguments=("--current", "reserve_slack:0.5", path))
        fails(1, "nowhere.csv", arguments=(path, "nowhere.csv"))
        fails(1, "512 B", "--memory", "trace cat", arguments=("--memory", "512B", path))
        empty = os.path.join(self.folder.name, "empty.csv")
        with open(empty, "w") as file:
            file.write("Thread,Time,Action,Pointer,Size,Stream\n")
        fails(1, "no allocation", arguments=(empty,))
        twice = os.path.join(self.folder.name, "twice.csv")
        with open(twice, "w") as file:
            file.write("Thread,Time,Action,Pointer,Size,Stream\n" + 2 * "0,0,allocate,0x200,512,0\n")
        self.run_it("tune", twice, status=1)

    def test_setting_in_use_that_is_wrong_is_only_mentioned(self):
        process = start("tune", "--json", "--for", "pytorch", self.same.path,
                        env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:3"})
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors.count("\n")), (0, 1))
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF is not compared with", errors)
        self.assertIsNone(json.loads(out)["current"])

    def test_recorded_loops(self):
        with open(os.path.join(DATA, "baselines.json")) as file:
            baselines = json.load(file)
        loops = {b["trace"] for b in baselines}
        self.assertTrue(loops)
        for loop in loops:
            measured = {b["config"]: b for b in baselines if b["trace"] == loop and b.get("peak_reserved")}
            found = self.tune("--for", "pytorch", os.path.join(DATA, loop + ".csv.zst"))
            least = min(b["peak_reserved"] for b in measured.values())
            self.assertLessEqual(found["recommended"]["peak_reserved_bytes"], least)
            by_conf = {c["conf"]: c["peak_reserved_bytes"] for c in found["candidates"]}
            self.assertEqual(by_conf[""], measured["default"]["peak_reserved"])
            self.assertEqual(by_conf["expandable_segments:True"], measured["expandable_segments:True"]["peak_reserved"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
