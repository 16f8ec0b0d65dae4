"""Traces and statistics of real processes on the simulated GPU: report, replay and the statistics file agree, however
the process ended.

Usage: test_recorded.py SEGALLOC LOOP CROWD STREAMS WAITS CUDART"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from shared import sampled

SEGALLOC, LOOP, CROWD, STREAMS, WAITS, CUDART = (os.path.abspath(sys.argv.pop(1)) for _ in range(6))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
TICK_NS = 10 ** 7  # of the clock that waits are measured by, at most
PEAKS = ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes")


def segalloc(*arguments, status=0):
    result = subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert result.returncode == status, result
    return result.stdout


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace, self.stats = os.path.join(folder.name, "T"), os.path.join(folder.name, "S")
        self.use("free_sync:strict,reserve_slack:1.0")

    def use(self, conf):
        self.run_it = [SEGALLOC, "run", "--sim", "1GiB", "-o", self.trace, "--conf", f"stats:{self.stats},{conf}", "--",
                       LOOP]

    def report(self, path):
        return json.loads(segalloc("report", "--json", path))

    def whole(self, how):
        subprocess.run([*self.run_it, "20000", how], env=ENVIRONMENT, check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        report = self.report(self.trace)
        self.assertEqual((report["allocs"], report["served_share"], report["ooms"], report["dropped"]),
                         (20000, 1, 0, 0))
        return report

    def test_never_written(self):
        """That there is no trace is said where nobody has written one: not the command, and none of its children."""
        loop = f"'{LOOP}' 20 return >/dev/null; true"
        older = os.path.join(os.path.dirname(self.trace), "T3.1")
        open(older, "w").close()
        os.utime(older, (0, 0))
        for name, command, missing in (("T", ["true"], True), ("T.%p", ["true"], True), ("T", ["bash", "-c", loop], False),
                                       ("T2.%p", ["bash", "-c", loop], False), ("T3.%p", ["bash", "-c", "true; true"], True)):
            with self.subTest(name=name, command=command):
                path = os.path.join(os.path.dirname(self.trace), name)
                run = subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "-f", "-o", path, "--", *command], env=ENVIRONMENT,
                                     capture_output=True, text=True, timeout=60)
                self.assertEqual((run.returncode, run.stderr.count("\n")), (0, missing), run)
                self.assertEqual(f"segalloc: no trace in {path}: no device memory was asked for" in run.stderr, missing, run)

    def test_one_of_each(self):
        """What is counted is in the singular where it is one."""
        subprocess.run([*self.run_it, "1", "return"], env=ENVIRONMENT, check=True, timeout=60, stdout=subprocess.DEVNULL)
        texts = [segalloc(*words) for words in (["report", self.trace], ["replay", self.trace, "--min-limit"],
                                                ["replay", self.trace, "--policy", "pytorch"], ["trace", "info", self.trace],
                                                ["tune", "--budget", "1", self.trace],
                                                ["rehearse", "--", LOOP, "1", "return"], ["doctor", "--sim", "1GiB", "--", LOOP, "1"])]
        self.assertIn("the only allocation served", texts[0])
        for text in texts:
            self.assertNotRegex(text, r"(?<![\d.])1 (allocation|block|event|setting|page|segment|free|record|call|device|process)e?s\b")

    def test_a_bound(self):
        """The newest part, with what lived before it: the report says what is left out, and a replay goes through."""
        for allocs in (400000, 800000, 1600000):
            subprocess.run([SEGALLOC, "run", "--sim", "2GiB", "--sites", "--conf", "trace_mb:8", "-f", "-o", self.trace, "--", LOOP,
                            str(allocs), "return"], env=ENVIRONMENT, check=True, timeout=120, stdout=subprocess.DEVNULL)
            told = self.report(self.trace)
            # A machine with much other work: the disk was late, or the run was over before the helper had a processor.
            if not told["dropped"] and told["begin_text"]:
                break
        if told["dropped"]: # the text that is looked for may be among what was lost
            self.skipTest("events were lost")
        self.assertRegex(told["begin_text"], r"^the trace has a bound: [1-9]\d+ events before its first are left out, 0 failures")
        self.assertIn(told["begin_text"], segalloc("report", self.trace))
        self.assertEqual((told["at_least"], told["complete"], told["end_text"]), (True, False, None))
        self.assertEqual(told["allocs"], allocs)  # of the whole run
        self.assertLess(os.path.getsize(self.trace), allocs * 2 * 32)
        self.assertRegex(json.dumps(told["devices"][0]["live_at_peak"]), r"loop(\.c|\+)")
        left_out = int(re.search(r"\d+", told["begin_text"])[0])
        info = json.loads(segalloc("trace", "info", "--json", self.trace))
        self.assertEqual(left_out + info["allocs"] + info["frees"], 2 * allocs - 64)  # that many blocks are not freed
        self.assertEqual((info["unmatched_frees"], info["repeated_addresses"], info["kinds"]["left_out"]), (0, 0, 1))
        replay = json.loads(segalloc("replay", "--json", self.trace))
        self.assertEqual((replay["ooms"], replay["devices"][0]["peak_requested_bytes"]), (0, info["peak_requested_bytes"]))

    def test_return(self):
        report, statistics = self.whole("return"), self.report(self.stats)
        self.assertGreater(report["utilization"], 0.3)
        self.assertTrue(report["complete"])
        for key in ("allocs", "frees", "passed_on", "ooms", "served_share", *PEAKS):
            self.assertEqual(report[key], statistics[key], key)
        self.assertEqual(report["devices"][0]["statistics"], statistics["devices"][0]["statistics"])
        self.assertEqual(report["pid"], statistics["pid"])
        self.assertIn(LOOP, report["command"])
        self.assertIn("reserve_slack:1", report["conf"])

    def test_waits(self):
        """How often the library has waited, and whom for. By the schedule 5 work is done as soon as it may be, by 4 not
        before somebody waits for it."""
        counts = ("strict_frees", "host_waits", "waits_given_up")
        times = ("strict_wait_ns", "host_wait_ns")
        for free_sync, how, waited in (("strict", "strict", "strict_frees"), ("event", "later", "host_waits"),
                                       ("stream", "streams", "host_waits")):
            for schedule in (4, 5):
                with self.subTest(how=how, schedule=schedule):
                    self.run_it = [SEGALLOC, "run", "--sim", f"64MiB,schedule={schedule}", "-o", self.trace, "--conf",
                                   f"stats:{self.stats},free_sync:{free_sync}", "--", WAITS, how, "7"]
                    began = time.monotonic_ns()
                    subprocess.run(self.run_it, env=ENVIRONMENT, check=True, timeout=60)
                    took = time.monotonic_ns() - began
                    told = self.report(self.trace)["devices"][0]["statistics"]
                    self.assertEqual(told, self.report(self.stats)["devices"][0]["statistics"])
                    # strict frees count whether or not there was work to wait for
                    some = schedule == 4 or waited == "strict_frees"
                    self.assertEqual({key: told[key] for key in counts}, {**dict.fromkeys(counts, 0), waited: 7 * some})
                    for key in times:
                        most = took + 7 * TICK_NS if some and key[:6] == waited[:6] else 0
                        self.assertLessEqual(told[key], most, key)
                    os.unlink(self.trace)

    def test_tune_compares_with_what_was_recorded(self):
        report = self.whole("return")
        own = json.loads(segalloc("tune", "--json", "--budget", "6", self.trace))
        self.assertEqual(own["current"]["conf"], "free_sync:strict,reserve_slack:1")
        self.assertEqual(own["default"]["conf"], "free_sync:strict")
        self.assertEqual(own["current"]["peak_reserved_bytes"], report["peak_reserved_bytes"])
        self.assertEqual(own["traces"][0]["limit_bytes"], 1 << 30)
        torch = json.loads(segalloc("tune", "--json", "--budget", "6", "--for", "pytorch", self.trace))
        self.assertEqual(torch["default"]["conf"], "")

    def test_replay_agrees(self):
        for conf in ("free_sync:strict,reserve_slack:1.0", "free_sync:event,reserve_slack:1.0", "free_sync:strict"):
            with self.subTest(conf=conf):
                self.use(conf)
                report = self.whole("return")
                replay = json.loads(segalloc("replay", self.trace, "--json", "--conf", conf))
                self.assertEqual({key: replay[key] for key in PEAKS}, {key: report[key] for key in PEAKS})
                os.unlink(self.trace)

    def agree(self, sim, conf, program, keys=()):
        """Records a run and replays it. Its peaks, and the statistics named by `keys`, are the same, and at no event
        did the replay decide otherwise."""
        command = [SEGALLOC, "run", "--sim", sim, "-o", self.trace, "--conf", conf, "--", *program]
        subprocess.run(command, env=ENVIRONMENT, check=True, timeout=60, stderr=subprocess.DEVNULL)
        report = self.report(self.trace)
        self.assertEqual(report["dropped"], 0)
        replay = json.loads(segalloc("replay", self.trace, "--json", "--conf", conf))
        self.assertEqual((replay["as_recorded"], replay["diverged_event"]), (True, None))
        told = {key: sum(each["statistics"][key] for each in report["devices"]) for key in keys}
        self.assertEqual({key: replay[key] for key in (*PEAKS, *keys)}, {**{key: report[key] for key in PEAKS}, **told})
        return replay

    def test_replay_agrees_with_a_crowd(self):
        """Several threads: memory grows for one while others go on; and the card, or the limit, is too small for them.
        What meets differs from run to run, so each is recorded several times."""
        fixed = "free_sync:strict,expandable_segments:False"
        for sim, conf, crowd in sampled((
            ("1GiB", "free_sync:strict", "4 2000 1 6000000"),
            ("1GiB", "free_sync:event,reserve_slack:1.0", "4 2000 1 6000000"),
            ("1GiB", "free_sync:event,max_split_size_mb:20", "3 1000 1 40000000"),
            ("256MiB", "free_sync:strict", "4 1000 1 8000000"),
            ("256MiB", "free_sync:strict", "8 500 1 8000000"),
            ("256MiB", "free_sync:strict", "4 300 1 200000000"),
            ("256MiB", "free_sync:event,reserve_slack:1.0", "4 300 1 160000000 trim"),
            ("256MiB", "free_sync:event,page_size_mb:20", "3 1000 1 9000000"),
            ("256MiB", "free_sync:strict,garbage_collection_threshold:0.6", "4 1000 1 9000000"),
            ("1GiB", "free_sync:event,limit:200MiB", "3 1000 1 8000000"),
            ("512MiB,count=2", "free_sync:event", "4 1000 2 9000000"),
            ("1GiB", fixed, "4 2000 1 6000000"),
            ("256MiB", "free_sync:strict,ipc:always", "4 1000 1 9000000"),
            ("256MiB", fixed, "4 3000 1 9000000"),
            ("256MiB", f"{fixed},max_split_size_mb:20", "4 1000 1 40000000 trim"),
            ("512MiB,count=2", f"{fixed},garbage_collection_threshold:0.6,limit:220MiB", "4 1000 2 9000000"),
        ), 3):
            for repeat in range(3 if "256MiB" in sim else 1):
                with self.subTest(sim=sim, conf=conf, crowd=crowd, repeat=repeat):
                    self.agree(sim, conf, [CROWD, *crowd.split()], () if fixed in conf else ("pages_moved",))
                    os.unlink(self.trace)

    def test_replay_agrees_where_memory_becomes_shared(self):
        """Half way memory is asked for that a legacy handle can give away: devices go over to fixed segments, or keep
        them whole, while others allocate."""
        for sim, conf, crowd in (
            ("1GiB", "free_sync:strict", "4 2000 1 6000000"),
            ("1GiB", "free_sync:event,reserve_slack:1.0", "3 2000 1 6000000"),
            ("256MiB", "free_sync:strict", "4 600 1 9000000"),
            ("256MiB", "free_sync:event", "3 600 1 9000000"),
            ("512MiB,count=2", "free_sync:auto", "4 600 2 9000000"),
            ("256MiB", "free_sync:strict,expandable_segments:False", "3 600 1 9000000"),
            ("1GiB", "free_sync:strict,limit:200MiB", "3 600 1 9000000"),
        ):
            for repeat in range(3 if "256MiB" in sim else 1):
                with self.subTest(sim=sim, conf=conf, repeat=repeat):
                    self.agree(sim, conf, [CROWD, *crowd.split(), "handle"])
                    kinds = json.loads(segalloc("trace", "info", "--json", self.trace))["kinds"]
                    self.assertEqual(kinds["fixed"], 2 if "count" in sim else 1)
                    os.unlink(self.trace)

    def test_replay_agrees_where_memory_is_shared_from_the_start(self):
        """What the replay is asked for says nothing of that, as where ipc:auto settled it."""
        command = [SEGALLOC, "run", "--sim", "256MiB", "-o", self.trace, "--conf", "free_sync:strict,ipc:always", "--",
                   CROWD, "3", "1000", "1", "9000000"]
        subprocess.run(command, env=ENVIRONMENT, check=True, timeout=60)
        replay = json.loads(segalloc("replay", self.trace, "--json"))
        self.assertEqual((replay["as_recorded"], replay["diverged_event"]), (True, None))
        self.assertEqual({key: replay[key] for key in PEAKS}, {key: self.report(self.trace)[key] for key in PEAKS})

    def test_each_device_is_a_card_by_pytorchs_rules_too(self):
        """Two devices that together hold more than one of them could."""
        self.run_it = [SEGALLOC, "run", "--sim", "256MiB,count=2", "-o", self.trace, "--", CROWD, "2", "300", "2",
                       "9000000"]
        subprocess.run(self.run_it, env=ENVIRONMENT, check=True, timeout=60)
        ours, theirs = (json.loads(segalloc("replay", self.trace, "--json", "--policy", policy))
                        for policy in ("segalloc", "pytorch"))
        for key in ("peak_requested_bytes", "allocs", "frees"):
            self.assertEqual(ours[key], theirs[key], key)
        self.assertGreater(ours["peak_requested_bytes"], 0)
        self.assertLessEqual(theirs["peak_reserved_bytes"], 2 * 256 << 20)

    def test_pytorchs_rules_where_a_block_that_did_not_fit_was_freed_for_later(self):
        """Such a free takes effect with its event, which is nothing to PyTorch's rules, and there is no block to
        free."""
        self.run_it = [SEGALLOC, "run", "--sim", "256MiB", "-o", self.trace, "--conf", "free_sync:event", "--", CROWD,
                       "2", "300", "1", "9000000"]
        subprocess.run(self.run_it, env=ENVIRONMENT, check=True, timeout=60)
        replay = json.loads(segalloc("replay", self.trace, "--json", "--policy", "pytorch", "--limit", "24MiB",
                                     status=3))
        self.assertGreater(replay["ooms"], 0)
        self.assertEqual(replay["frees"], self.report(self.trace)["frees"])
        tune = json.loads(segalloc("tune", self.trace, "--json", "--for", "pytorch", "--limit", "24MiB", "--budget",
                                   "2"))
        self.assertEqual(tune["default"]["ooms"], replay["ooms"])

    def test_replay_agrees_with_a_driver_that_refuses(self):
        for fail in ("cuMemCreate:20+", "cuMemMap:60", "cuMemSetAccess:15", "cuMemUnmap:3", "cuMemAddressReserve:3",
                     "cuMemCreate:9:600", "cuMemMap:60:1", "cuMemSetAccess:15:999", "cuMemCreate:20+:800",
                     "cuMemMap:30+:101", "cuMemSetAccess:15+:999", "cuMemUnmap:3+:999", "cuMemAddressReserve:3+:600",
                     "cuMemRelease:2+:800", "cuMemSetAccess:40+", "cuMemSetAccess:40+:999"):
            with self.subTest(fail=fail):
                self.agree(f"256MiB,fail={fail}", "free_sync:strict,reserve_slack:1.0",
                           [CROWD, "3", "300", "1", "9000000"])
                os.unlink(self.trace)
        self.agree("256MiB,fail=cuMemAlloc:5", "free_sync:strict,expandable_segments:False",
                   [CROWD, "3", "300", "1", "9000000"])

    def test_replay_agrees_with_the_runtime(self):
        """cudaMalloc, which is answered without the runtime where it can be: nothing is asked twice, or its trace would
        say so."""
        for sim, conf, crowd in (
            ("1GiB", "free_sync:strict", "1 3000 1 6000000"),
            ("1GiB", "free_sync:event,reserve_slack:1.0", "3 3000 1 6000000"),
            ("256MiB", "free_sync:event", "1 2000 1 20000000"),
        ):
            with self.subTest(sim=sim, conf=conf):
                replay = self.agree(sim, conf, (CROWD, *crowd.split(), CUDART))
                kinds = json.loads(segalloc("trace", "info", "--json", self.trace))["kinds"]
                if sim == "256MiB":
                    self.assertGreater(replay["ooms"], 0)
                    self.assertEqual(kinds["allocate"] + kinds["allocate_failure"], 2000)  # each was asked for once
                self.assertLessEqual(kinds["slow_begin"], kinds["allocate"] + kinds.get("allocate_failure", 0))
                os.unlink(self.trace)

    def test_replay_agrees_with_streams(self):
        """Memory of several streams, which wait for one another, come and go; and threads that each have their own."""
        both = ("pages_moved", "aliased_pages")
        for sim, conf, streams, keys in (
            ("1GiB", "free_sync:auto", "1 1500 4 20000000", ("pages_moved",)),
            ("1GiB", "reserve_slack:1.0", "1 1500 4 20000000", (*both, "late_unmaps")),
            ("1GiB", "reserve_slack:1.0,alias:off", "1 1500 4 20000000", both),
            ("1GiB", "reserve_slack:1.0", "1 1000 1 60000000", (*both, "late_unmaps")),
            ("1GiB", "reserve_slack:1.0", "3 700 3 12000000", (*both, "late_unmaps")),
            ("256MiB", "free_sync:stream", "4 400 4 12000000", (*both, "late_unmaps")),
            ("1GiB", "free_sync:auto,pending_limit:64MiB", "3 500 3 40000000", both),
        ):
            with self.subTest(sim=sim, conf=conf, streams=streams):
                replay = self.agree(sim, conf, [STREAMS, *streams.split()], keys)
                kinds = json.loads(segalloc("trace", "info", "--json", self.trace))["kinds"]
                self.assertGreater(kinds["complete"], 0, kinds)  # it was by streams that memory was used again
                if streams == "1 1500 4 20000000" and conf == "reserve_slack:1.0":
                    self.assertGreater(replay["late_unmaps"], 0)  # some have had a second address
                os.unlink(self.trace)

    def test_replay_agrees_with_blocks_left_behind(self):
        """Freed as a step of another stream, when what their own came after was not seen and it is no more."""
        for streams in ("1 300 3 4000000 left", "3 200 2 4000000 left"):
            with self.subTest(streams=streams):
                self.agree("1GiB", "reserve_slack:1.0", [STREAMS, *streams.split()])
                os.unlink(self.trace)

    def test_exit_without_cleaning_up(self):
        report = self.whole("_exit")
        self.assertFalse(report["complete"])
        self.assertIn("without closing", report["end_text"])

    def test_killed(self):
        process = subprocess.Popen([*self.run_it, "0"], env=ENVIRONMENT, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        process.stdout.readline()  # it is at work
        while os.path.getsize(self.trace) < 4 << 20:  # it grows by 1 MiB as it fills
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(60), -signal.SIGKILL)
        report = self.report(self.trace)
        self.assertFalse(report["complete"])
        self.assertGreater(report["allocs"], 1000)
        self.assertEqual(report["served_share"], 1)
        self.assertGreater(report["peak_reserved_bytes"], report["peak_requested_bytes"] // 2)
        self.assertEqual(self.report(self.stats)["served_share"], 1)


unittest.main(verbosity=2)
