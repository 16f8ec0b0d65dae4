"""What the tools say of one run agrees: the report, the replay, the tuner, the rehearsal and the text of an
out-of-memory. Programs are ACTS with its arguments, on simulated GPUs.

Usage: test_agree.py SEGALLOC ACTS"""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

import shared

SEGALLOC, ACTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB, GIB = 1 << 20, 1 << 30


def segalloc(*arguments, **more):
    return subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **more)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "T")

    def record(self, sim, acts, conf=None, status=0):
        """Runs ACTS and returns its standard error."""
        if os.path.exists(self.path):
            os.unlink(self.path)
        options = ["--conf", conf] if conf else []
        result = segalloc("run", "--sim", sim, "-o", self.path, *options, "--", ACTS, *acts.split())
        self.assertEqual(result.returncode, status, result)
        return result.stderr

    def said(self, *arguments, status=0):
        result = segalloc(*arguments, "--json")
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout)

    def report(self):
        return self.said("report", self.path)

    def replay(self, *options, status=0):
        return self.said("replay", self.path, *options, status=status)

    def rehearse(self, sim, acts, *options, status=0):
        result = segalloc("rehearse", "--json", *options, "--card", sim, "--", ACTS, *acts.split())
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout)


# Seven GiB, and two more that an 8 GiB card has no room for.
SMALL = "a+1024 b+1024 c+1024 d+1024 e+1024 f+1024 g+1024 h?2048"


class Devices(Case):
    def test_device_1_alone(self):
        """Nothing is said of a device that nothing was asked of."""
        self.record("24GiB,count=2", "device=1 a+400 b+800 a-")
        report, replay = self.report(), self.replay("--min-limit")
        self.assertEqual([(device["device"], device["model"]) for device in report["devices"]], [(1, "segalloc simulated GPU")])
        self.assertIn("Device 1, segalloc simulated GPU, 24.00 GiB", segalloc("report", self.path).stdout)
        self.assertEqual([device["model"] for device in self.said("trace", "info", self.path)["devices"]], ["segalloc simulated GPU"])
        self.assertEqual(report["devices"][0]["total_bytes"], 24 * GIB)
        self.assertEqual((report["peak_requested_bytes"], report["peak_reserved_bytes"]), (1200 * MIB, 1200 * MIB))
        for key in ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
            self.assertEqual(replay[key], report[key], key)
        self.assertEqual((replay["as_recorded"], replay["limit_bytes"], replay["min_limit_bytes"]),
                         (True, 24 * GIB, 1200 * MIB))
        self.assertEqual(report["smallest_card_bytes"], replay["min_limit_bytes"])
        self.assertEqual(segalloc("report", self.path, "--fail-above", "frag=1%").returncode, 0)
        self.assertIn("largest      800.00 MiB", segalloc("trace", "info", self.path).stdout)
        tune = self.said("tune", self.path, "--budget", "4")
        self.assertEqual((tune["default"]["peak_reserved_bytes"], tune["traces"][0]["limit_bytes"]),
                         (1200 * MIB, 24 * GIB))
        both = segalloc("report", self.path, self.path)
        self.assertNotIn(" - ", both.stdout)

    def test_two_devices_are_two_cards(self):
        acts = "a+15258 device=1 b+15260"
        self.record("24GiB,count=2", acts)
        replay = self.replay("--min-limit")
        self.assertEqual((replay["ooms"], replay["min_limit_bytes"]), (0, 15260 * MIB))
        self.assertEqual([device["min_limit_bytes"] for device in replay["devices"]], [15258 * MIB, 15260 * MIB])
        self.assertEqual(self.report()["smallest_card_bytes"], 15260 * MIB)
        text = segalloc("replay", self.path).stdout
        self.assertIn("device 0 of 24.00 GiB, device 1 of 24.00 GiB", text.splitlines()[0])
        verdict = self.rehearse("24GiB", acts, "--devices", "2")
        self.assertEqual((verdict["smallest_card_bytes"], verdict["cards"][0]["headroom_bytes"]),
                         (15260 * MIB, 24 * GIB - 15260 * MIB))

    def test_the_larger_of_two(self):
        """One device's failure is not the other's."""
        self.record("8GiB,count=2", "a+1024 device=1 b+7000 c?2000")
        report = self.report()
        self.assertEqual([len(device["failures"]) for device in report["devices"]], [0, 1])
        self.assertEqual([device["smallest_card_bytes"] for device in report["devices"]], [GIB, 9000 * MIB])


class Failures(Case):
    def test_everywhere(self):
        """An allocation that failed is one wherever the trace is looked at."""
        text = self.record("8GiB", SMALL)
        self.assertTrue(text.startswith("segalloc: out of memory on device 0: short by 1.00 GiB: 2.00 GiB asked for, "
                                        "1.00 GiB to be had (0 B idle + 1.00 GiB free)\n"), text)
        failure = {"event": 8, "bytes": 2 * GIB, "live_bytes": 7 * GIB, "short_by_bytes": GIB, "site": None,
                   "phase": None, "roles": []}
        report = self.report()
        live, = report["devices"][0]["failures"][0].pop("live")
        self.assertEqual((live["size_class"], live["blocks"], live["bytes"]), (GIB, 7, 7 * GIB))
        self.assertEqual(report["devices"][0]["failures"], [failure])
        self.assertTrue(report["at_least"])
        self.assertIn("short by 1.00 GiB", report["verdict"])
        replay = self.replay("--min-limit")
        self.assertEqual((replay["ooms"], replay["new_ooms"], replay["min_limit_bytes"], replay["at_least"]),
                         (1, 0, 9 * GIB, True))
        self.assertEqual((replay["devices"][0]["first_oom_event"], replay["devices"][0]["short_by_bytes"]), (8, GIB))
        self.assertEqual(report["smallest_card_bytes"], 9 * GIB)
        tune = self.said("tune", self.path)
        self.assertEqual({candidate["ooms"] for candidate in tune["candidates"]}, {1})
        self.assertEqual((tune["recommended"]["conf"], tune["recommended"]["ooms"]), ("", 1))
        self.assertIn("needs 9.00 GiB at once and the card has 8.00 GiB", tune["recommended"]["reason"])
        self.assertIn("short by 1.00 GiB", tune["recommended"]["reason"])
        torch = self.said("tune", self.path, "--for", "pytorch", "--budget", "3")
        self.assertEqual({candidate["ooms"] for candidate in torch["candidates"]}, {1})
        info = self.said("trace", "info", self.path)
        self.assertEqual((info["devices"][0]["failures"], info["devices"][0]["failed_largest_bytes"]), (1, 2 * GIB))
        self.assertIn("short by 1.00 GiB", segalloc("trace", "info", self.path).stdout)

    def test_advice_after_a_failure(self):
        """The trace shows no more than a lower bound, and no setting makes room for what is too much."""
        self.record("8GiB", SMALL)
        advice = "\n".join(self.report()["advice"])
        self.assertIn("segalloc rehearse -- ", advice)
        self.assertIn("lower bound", advice)
        self.assertNotIn("reserve_slack", advice)

    def test_the_lack_is_that_of_the_defaults(self):
        """Where other settings fail as often, what is said is of those that are kept, and is what a replay says."""
        self.record("256MiB", "a+7 b+101 c+5 d+3 e+5 f+5 a- g+1 h+1 i+7 j+33 k+1 l+7 m+5 x?200")
        lack = self.replay()["devices"][0]["short_by_bytes"]
        self.assertEqual(self.report()["devices"][0]["failures"][0]["short_by_bytes"], lack)
        reason = self.said("tune", self.path)["recommended"]["reason"]
        self.assertIn(f"short by {lack / MIB:.2f} MiB", reason)

    def test_the_failure_in_csv(self):
        """How much was lacking is no pointer."""
        self.record("8GiB", SMALL)
        row = next(row for row in segalloc("trace", "cat", self.path).stdout.splitlines() if "failure" in row)
        self.assertEqual(row.split(",")[3:5], ["0x0", str(2 * GIB)])

    def test_exit_status(self):
        """3 says that an allocation failed that had not failed when recorded."""
        self.record("8GiB", SMALL)
        self.assertEqual(self.replay("--limit", "6GiB", status=3)["new_ooms"], 1)
        self.assertEqual(self.replay("--limit", "16GiB")["ooms"], 0)
        self.assertEqual(segalloc("replay", self.path, "--limit", "10").returncode, 2)
        self.assertIn("unit", segalloc("replay", self.path, "--limit", "10").stderr)

    def test_a_limit_is_no_card(self):
        """What a limit kept from succeeding fits the card without it."""
        self.record("8GiB", "a+1024 b?2048", conf="limit:2GiB")
        self.assertEqual(self.replay("--min-limit")["min_limit_bytes"], 3 * GIB)


class Rehearsed(Case):
    def test_a_failure_that_is_caught(self):
        """What fails on a card does not fit it, whatever the program makes of it; other cards do not change that."""
        for cards in ("8GiB", "8GiB,16GiB"):
            verdict = self.rehearse(cards, SMALL, status=3)
            self.assertEqual((verdict["smallest_card_bytes"], verdict["cards"][0]["verdict"]),
                             (9 * GIB, "does_not_fit"))
            self.assertEqual(verdict["short_by_bytes"], GIB if cards == "8GiB" else 0)
        self.record("8GiB", SMALL)
        self.assertEqual(self.replay("--min-limit")["min_limit_bytes"], verdict["smallest_card_bytes"])

    def test_a_program_that_dies(self):
        """The smallest card is known although the trace of a card that is too small ends there."""
        acts = "a+700 b+600 a- c+900 d+300"
        self.record("1GiB", acts, status=1)
        self.assertEqual(self.report()["smallest_card_bytes"], 1300 * MIB)
        self.assertEqual(self.replay("--min-limit")["at_least"], True)
        verdict = self.rehearse("1GiB", acts, status=3)
        self.assertEqual((verdict["smallest_card_bytes"], verdict["at_least"]), (1800 * MIB, False))
        card, = verdict["cards"]
        self.assertEqual([card[key] for key in ("ends_at_event", "of_events", "asked_bytes", "live_bytes")],
                         [2, 5, 600 * MIB, 700 * MIB])

    def test_what_depends_on_the_card(self):
        """The card without end is not the one that the program plans with."""
        verdict = self.rehearse("10GiB", "a+1000 b%50")
        self.assertEqual(verdict["peak_requested_bytes"] // MIB, 1000 + 10 * 1024 // 2 - 1)
        self.assertEqual(verdict["cards"][0]["verdict"], "fits")

    def test_the_verdict_is_what_a_run_does(self):
        for acts in ("a+100 b+60 a- c+70 d+20 b- e+150", "a+3 b+5 c+7 d+9 a- c- e+13 b- f+6 d- g+40"):
            smallest = self.rehearse("1GiB", acts)["smallest_card_bytes"] // MIB
            for size, fits in ((smallest, True), (smallest - 2, False)):
                self.record(f"{size}MiB", acts, status=0 if fits else 1)
                self.assertEqual(self.rehearse(f"{size}MiB", acts, status=0 if fits else 3)["cards"][0]["fits"], fits)


class Recorded(Case):
    ACTS = "a+100 b+60 a- c+70 d+20 b- e+150"

    def test_the_recorded_settings_are_played(self):
        for conf in (None, "page_size_mb:20", "page_size_mb:4,reserve_slack:1", "expandable_segments:False"):
            with self.subTest(conf=conf):
                self.record("1GiB", self.ACTS, conf)
                report, replay = self.report(), self.replay()
                self.assertTrue(replay["as_recorded"])
                for key in ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
                    self.assertEqual(replay[key], report[key], key)
                said = segalloc("replay", self.path).stdout.splitlines()[0]
                self.assertIn("as recorded", said)
                self.assertIn(conf.split(",")[0] if conf else "the defaults", said)
                other = segalloc("replay", self.path, "--conf", "page_size_mb:8").stdout.splitlines()[0]
                self.assertIn("under page_size_mb:8 (recorded under ", other)

    def test_odd_names(self):
        """A comma or the end of a line in the trace's name hides none of the settings that it was recorded under."""
        for name in "a,b.trace", "two\nlines", " spaces ", "sharp#":
            with self.subTest(name=name):
                self.path = os.path.join(self.folder, name)
                self.record("1GiB", self.ACTS, "page_size_mb:20")
                self.assertTrue(self.replay()["as_recorded"])
                self.assertIn("under page_size_mb:20, as recorded", segalloc("replay", self.path).stdout)
                self.assertEqual(self.report()["peak_reserved_bytes"], self.replay()["peak_reserved_bytes"])
                self.assertEqual(segalloc("tune", self.path, "--budget", "3").stderr, "")

    def test_a_full_disk(self):
        self.record("1GiB", self.ACTS)
        for options in (["--html", "/dev/full", "-f"], ["-o", "/dev/full", "-f"], ["--json", "-o", "/dev/full", "-f"]):
            result = segalloc("report", self.path, *options)
            self.assertEqual(result.returncode, 1, options)
            self.assertIn("No space left on device", result.stderr)

    def test_a_small_program_is_not_fragmented(self):
        """What is idle costs nothing on a card that is nearly empty."""
        self.record("24GiB", "a+3 b+2 b- c+1")
        self.assertTrue(self.report()["verdict"].startswith("Good: the smallest card is "), self.report()["verdict"])

    def test_by_pytorchs_rules(self):
        """There are no pages to count, and what is said of failures is of those that failed."""
        self.record("8GiB", SMALL)
        text = segalloc("replay", self.path, "--policy", "pytorch").stdout
        self.assertNotIn("pages", text)
        self.assertIn("the largest asks for 2.00 GiB", text)
        self.assertIn("1 of 8 allocations does not fit", text)

    def test_no_trace_can_be_written(self):
        result = segalloc("run", "--sim", "1GiB", "--conf", "trace:/proc/x.trace", "--", ACTS, "a+1")
        self.assertEqual(result.returncode, 0)
        self.assertIn("/proc/x.trace: no such file or folder; no trace is written", result.stderr)

    def test_what_was_stranded(self):
        """A program that ends by the book leaves all of its memory to nobody: that is not what is meant."""
        self.record("1GiB", "a+500 b+100 a- b-")
        table = self.report()["devices"][0]["statistics"]
        self.assertEqual((table["stranded_bytes"], table["peak_stranded_bytes"]), (600 * MIB, 0))
        self.assertEqual(segalloc("report", self.path, "--fail-above", "stranded=1MiB").returncode, 0)

    def test_the_largest_free_range(self):
        """What one stream has freed could be served too."""
        self.record("8GiB", "a+400 b+1200 b-")
        table = self.report()["devices"][0]["statistics"]
        self.assertEqual((table["largest_free_bytes"], table["peak_largest_free_bytes"]), (1200 * MIB, 1200 * MIB))

    def test_live_at_the_peak(self):
        self.record("8GiB", "x+1 a+400 b+600 c+100 d+100 b- e+300")
        device, = self.report()["devices"]
        self.assertEqual([(row["size_class"], row["blocks"], row["bytes"], row["age_allocations"])
                          for row in device["live_at_peak"]],
                         [(512 * MIB, 1, 600 * MIB, 2), (256 * MIB, 1, 400 * MIB, 3), (64 * MIB, 2, 200 * MIB, 1),
                          (MIB, 1, MIB, 4)])
        text = segalloc("report", "--all", self.path).stdout
        self.assertIn("600.00 MiB        1   600.00 MiB            2\n", text)

    def test_live_when_most_was_reserved(self):
        """What was freed stays reserved: the two peaks are of different moments."""
        self.record("8GiB", "a+400 b+600 b- c+100 d+700")
        device, = self.report()["devices"]
        self.assertEqual(sorted(row["bytes"] for row in device["live_at_peak"]), [100 * MIB, 400 * MIB, 700 * MIB])
        self.assertEqual(device["at_peak_reserved"]["reserved_bytes"], device["peak_reserved_bytes"])
        self.assertEqual(sum(row["bytes"] for row in device["live_at_peak_reserved"]), 1200 * MIB)
        self.assertEqual(max(device["requested_over_time"]), device["peak_requested_bytes"])
        self.assertEqual(max(device["reserved_over_time"]), device["peak_reserved_bytes"])
        self.assertEqual(device["requested_over_time"], [size * MIB for size in (400, 1000, 400, 500, 1200)])

    def test_a_long_run_over_time(self):
        """Steps become longer with the trace, and none of the levels is lost."""
        self.record("8GiB", "a+1 a- " * 300 + "b+5 b- " + "a+1 a- " * 300)
        device, = self.report()["devices"]
        self.assertEqual(device["events_of_a_step"], 16)
        series = device["requested_over_time"]
        self.assertEqual((len(series), max(series), series.index(5 * MIB)), (76, 5 * MIB, 600 // 16))
        self.assertEqual(set(series), {MIB, 5 * MIB})

    def test_pages_that_are_used_in_part(self):
        """Of four blocks of three half pages every other one goes: two pages are half empty."""
        self.record("64MiB", "a+3 b+3 c+3 d+3 a- c- z?200", conf="oom_report:never")
        device, = self.report()["devices"]
        moment = device["at_failure"]
        self.assertEqual((moment["event"], moment["partly_used_pages"], moment["partly_used_idle_bytes"]), (7, 2, 2 * MIB))
        self.assertEqual(moment["map"], ".5#.5#")
        kept, = moment["kept_by"]
        self.assertEqual((kept["size_class"], kept["blocks"], kept["bytes"], kept["pages"], kept["back_bytes"]),
                         (2 * MIB, 2, 2 * MIB, 2, 4 * MIB))
        failure, = device["failures"]
        self.assertEqual([(row["blocks"], row["bytes"]) for row in failure["live"]], [(2, 6 * MIB)])
        text = segalloc("report", "--all", self.path).stdout
        self.assertIn("Pages at that failure (event 7): 12.00 MiB reserved, a mark is 2.00 MiB\n  .5#.5#\n", text)
        self.assertIn("      4.00 MiB in 2 pages: 2 blocks from 2.00 MiB, 2.00 MiB of them in use\n", text)
        for line in text[text.index("Pages at"):text.index("Advice")].splitlines():
            self.assertLessEqual(len(line), 80, line)


class Endings(Case):
    def test_a_trace_without_an_end(self):
        """The last statistics are older than the last events: the peaks are those of the events."""
        for end in ("_exit", "kill"):
            with self.subTest(end=end):
                self.record("24GiB", f"a+400 b+1200 b- c+37 {end}", status=0 if end == "_exit" else -9)
                report = self.report()
                self.assertFalse(report["complete"])
                self.assertTrue(report["at_least"])
                self.assertEqual([report[key] for key in ("peak_requested_bytes", "peak_allocated_bytes",
                                                          "peak_reserved_bytes")], [1600 * MIB] * 3)
                self.assertEqual(self.replay()["peak_reserved_bytes"], 1600 * MIB)
                self.assertEqual(report["devices"][0]["statistics"]["requested_bytes"], 437 * MIB)


    def test_running(self):
        """Of a program that runs, what is said of the end is of now, and its number stands for its live page."""
        environment = dict(ENVIRONMENT)
        process = subprocess.Popen([SEGALLOC, "run", "--sim", "1GiB", "-o", self.path, "--conf", "live:True", "--", ACTS,
                                    "a+100", "b+50", "b-", "say=there", "wait"], env=environment,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "there\n")
        page, trace = segalloc("report", str(process.pid)), segalloc("report", "--all", self.path)
        for said in page.stdout, trace.stdout:
            self.assertIn(" now ", said)
            self.assertNotIn("at the end", said)
        self.assertIn("the program is still running", trace.stdout)
        self.assertIn("the program is still running", segalloc("trace", "info", self.path).stdout)
        self.assertEqual(self.report()["peak_requested_bytes"], 150 * MIB)
        told = self.said("doctor", str(process.pid))
        self.assertEqual((told["answer"], told["served"], told["processes"][0]["library"]), ("served", 2, True))
        process.kill()
        process.wait(60)
        self.assertIn("without closing", segalloc("trace", "info", self.path).stdout)
        pathlib.Path(f"/dev/shm/segalloc-live-{process.pid}").unlink(missing_ok=True)  # the next process removes it too
        self.assertIn(f"there is no process {process.pid}", segalloc("report", str(process.pid)).stderr)

    def test_what_a_killed_process_has_left(self):
        """It is said that the process has ended; and the page is not taken for that of another of its number."""
        process = subprocess.Popen([SEGALLOC, "run", "--sim", "1GiB", "--conf", "live:True", "--", ACTS, "a+100",
                                    "say=there", "wait"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "there\n")
        page = shared.LeftPage(self, process.pid)
        process.kill()
        process.wait(60)
        told = page.seen(lambda: segalloc("report", str(process.pid)))
        self.assertEqual(told.returncode, 0)
        self.assertIn(f"process {process.pid} has ended", told.stderr)
        self.assertIn("100.00 MiB", told.stdout)
        other = f"/dev/shm/segalloc-live-{os.getpid()}"
        page.put_as(other)
        self.addCleanup(lambda: pathlib.Path(other).unlink(missing_ok=True))
        told = segalloc("report", str(os.getpid()))
        self.assertEqual((told.returncode, told.stdout), (1, ""))
        self.assertIn("keeps no live statistics", told.stderr)
        self.assertNotEqual(self.said("doctor", str(os.getpid()), status=1)["answer"], "served")

    def test_a_process_without_the_library(self):
        process = subprocess.Popen(["sleep", "60"], env={})
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)
        told = self.said("doctor", str(process.pid), status=1)
        self.assertEqual((told["answer"], told["processes"][0]["library"]), ("not_loaded", False))
        self.assertIn("there is no process 2147483647", segalloc("doctor", "2147483647").stderr)

    def test_a_snapshot_that_ends_at_the_failure(self):
        """What was alive then, not when the program had let go of it; and what could have been had."""
        self.record("1GiB", "a+700 b?500 a-")
        held = {}
        for to in (["--to", "end"], ["--to", "failure"], []):
            snapshot = os.path.join(self.folder, "S" + "".join(to))
            self.assertEqual(segalloc("trace", "export", self.path, *to, "-o", snapshot).returncode, 0)
            with open(snapshot, "rb") as file:
                told = pickle.load(file)
            held["".join(to)] = sum(segment["allocated_size"] for segment in told["segments"])
            oom = next(event for event in told["device_traces"][0] if event["action"] == "oom")
            self.assertEqual((oom["size"], oom["device_free"]), (500 * MIB, (1024 - 700) * MIB))
        self.assertEqual(held, {"--toend": 0, "--tofailure": 700 * MIB, "": 700 * MIB})

    def test_a_snapshot_adds_up_at_the_failure(self):
        """What is idle lies in segments, and is not free beside them."""
        self.record("1GiB", "a+700 b+200 b- c?500")
        snapshot = os.path.join(self.folder, "S")
        self.assertEqual(segalloc("trace", "export", self.path, "-o", snapshot).returncode, 0)
        with open(snapshot, "rb") as file:
            told = pickle.load(file)
        oom = next(event for event in told["device_traces"][0] if event["action"] == "oom")
        self.assertEqual(sum(segment["total_size"] for segment in told["segments"]) + oom["device_free"], GIB)
        self.assertEqual(oom["device_free"], 124 * MIB)


unittest.main(verbosity=2)
