"""Every way in which a program uses devices, with every way in which it ends, under several settings: what the tools say
of its trace agrees with what the program did, and with one another.

Usage: test_matrix.py SEGALLOC ACTS TRAINER (empty: it was not built) [--short]. ACTS may be a program with arguments.
--short: under the defaults only"""
import glob
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

from shared import sampled

SEGALLOC, ACTS = os.path.abspath(sys.argv.pop(1)), shlex.split(sys.argv.pop(1))
ACTS[0] = os.path.abspath(ACTS[0])
TRAINER = sys.argv.pop(1)
TRAINER = TRAINER and os.path.abspath(TRAINER)
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB = 1 << 20
CARD = 1000  # MiB, of each device
# What is alive on a device at its peak before the end, MiB, and what is asked for after it. Sizes are whole pages.
BEFORE, PEAK, LATER, TOO_MUCH = "a+400 b+300 a- c+100", 700, 240, 800

DEVICES = {  # the acts that come before those on each device
    "device 0": ["device=0"], "device 1 only": ["device=1"], "two in one process": ["device=0", "device=1"],
    "two ranks": 2, "four ranks": 4,
}
ENDINGS = {  # acts, exit status of the program, whether the trace is closed
    "completes": (f"d+{LATER}", 0, True), "failure caught": (f"f?{TOO_MUCH} d+{LATER}", 0, True),
    "out of memory": (f"f+{TOO_MUCH}", 1, True), "killed": (f"d+{LATER} kill", -9, False),
    "_exit": (f"d+{LATER} _exit", 0, False), "fork": (f"d+{LATER} fork", 0, True),
}
SETTINGS = ("", "page_size_mb:4,reserve_slack:1", "expandable_segments:False")
if "--short" in sys.argv:
    sys.argv.remove("--short")
    SETTINGS = SETTINGS[:1]


def segalloc(*arguments, status=0):
    result = subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert status is None or result.returncode == status, result
    return result


def said(*arguments, status=0):
    return json.loads(segalloc(*arguments, "--json", status=status).stdout)


class Matrix(unittest.TestCase):
    def record(self, folder, devices, ending, conf):
        """The paths of the traces: one a process."""
        acts, status, _ = ENDINGS[ending]
        options = ["--conf", conf] if conf else []
        ranks = devices if isinstance(devices, int) else 0
        running = []
        for rank in range(ranks or 1):
            on = [f"device={rank}"] if ranks else devices
            life = " ".join(f"{device} {BEFORE}" for device in on) + f" {on[0]} {acts}"
            path = os.path.join(folder, f"{rank}.trace")
            running.append(subprocess.Popen(
                [SEGALLOC, "run", "--sim", f"{CARD}MiB,count={max(ranks, 2)}", *options, "-o", path, "--", *ACTS,
                 *life.split()], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        for process in running:
            said = process.communicate(timeout=120)[1]
            self.assertEqual(process.returncode, status, said)
            self.assertEqual("short by" in said, "f" in acts.split("+")[0].split("?")[0], said)
        return sorted(glob.glob(os.path.join(folder, "*.trace")))

    def check(self, path, ending, conf, devices):
        report, replay = said("report", path), said("replay", path, "--min-limit")
        failed, closed = "failure" in ending or "memory" in ending, ENDINGS[ending][2]
        later = not ending.startswith("out of")
        peaks = [max(PEAK, 400 + LATER) * MIB] * devices
        self.assertEqual([device["peak_requested_bytes"] for device in report["devices"]], peaks)
        self.assertEqual(report["complete"], closed)
        self.assertEqual(report["at_least"], failed or not closed)
        self.assertEqual(report["served_share"], 1)
        # the same figures, whoever says them
        for key in ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
            self.assertEqual(replay[key], report[key], key)
            self.assertEqual(sum(device[key] for device in report["devices"]), report[key], key)
        self.assertLessEqual(report["peak_requested_bytes"], report["peak_allocated_bytes"])
        self.assertLessEqual(report["peak_allocated_bytes"], report["peak_reserved_bytes"])
        self.assertEqual((replay["as_recorded"], replay["diverged_event"]), (True, None))
        self.assertEqual(sum(row["bytes"] for row in report["devices"][0]["live_at_peak"]), peaks[0])
        info = said("trace", "info", path)
        self.assertEqual(info["peak_requested_bytes"], report["peak_requested_bytes"])
        # a failure is one everywhere, with its size
        failures = [failure for device in report["devices"] for failure in device["failures"]]
        self.assertEqual([(failure["bytes"], failure["live_bytes"]) for failure in failures],
                         [(TOO_MUCH * MIB, 400 * MIB)] * failed)
        self.assertEqual((report["ooms"], replay["ooms"], replay["new_ooms"]), (failed, failed, 0))
        self.assertEqual(sum(device["failures"] for device in info["devices"]), failed)
        tune = said("tune", path, "--budget", "3")
        self.assertEqual({candidate["ooms"] for candidate in tune["candidates"]}, {int(failed)})
        if failed:
            self.assertGreater(failures[0]["short_by_bytes"], 0)
            self.assertEqual(replay["devices"][0]["short_by_bytes"], failures[0]["short_by_bytes"])
            self.assertEqual(tune["recommended"]["conf"], tune["default"]["conf"])
        # what would have been enough
        self.assertEqual(report["smallest_card_bytes"], replay["min_limit_bytes"])
        self.assertEqual(replay["at_least"], failed or not closed)
        least = (400 + TOO_MUCH) * MIB if failed else peaks[0]
        self.assertGreaterEqual(report["smallest_card_bytes"], least)
        smallest = [device["min_limit_bytes"] for device in replay["devices"]]
        self.assertEqual(max(smallest), replay["min_limit_bytes"])
        if not conf and later:
            self.assertEqual(smallest[0], least)
            self.assertEqual(smallest[1:], [PEAK * MIB] * (devices - 1))

    def test_all(self):
        for (name, devices), ending, conf in sampled(itertools.product(DEVICES.items(), ENDINGS, SETTINGS), 7):
            with self.subTest(devices=name, ending=ending, conf=conf), tempfile.TemporaryDirectory() as folder:
                traces = self.record(folder, devices, ending, conf)
                ranks = devices if isinstance(devices, int) else 0
                self.assertEqual(len(traces), ranks or 1)
                for path in {traces[0], traces[-1]}:
                    self.check(path, ending, conf, 1 if ranks else len(devices))
                self.check_ranks(traces)

    def check_ranks(self, traces):
        if len(traces) < 2:
            return
        table = segalloc("report", *traces).stdout.splitlines()
        self.assertEqual(len(table), 1 + len(traces))
        self.assertFalse(any(" - " in line for line in table[1:]), table)

    def test_rehearsed(self):
        """The verdict is that of a run on the card: one that goes on without what failed fits. The smallest card is known but
        where the program makes do with less."""
        for name, devices in ((name, on) for name, on in DEVICES.items() if isinstance(on, list)):
            for ending in ("completes", "failure caught", "out of memory"):
                with self.subTest(devices=name, ending=ending), tempfile.TemporaryDirectory() as folder:
                    failed, adapts = ending != "completes", ending == "failure caught"
                    acts = " ".join(f"{device} {BEFORE}" for device in devices) + f" {devices[0]} {ENDINGS[ending][0]}"
                    verdict = json.loads(segalloc("rehearse", "--json", "--card", f"{CARD}MiB", "--devices", "2",
                                                  "--margin", "0", "--", *ACTS, *acts.split(),
                                                  status=3 if failed and not adapts else 0).stdout)
                    report = said("report", self.record(folder, devices, ending, "")[0])
                    self.assertEqual(verdict["cards"][0]["fits"], report["ooms"] == 0 or report["survived"])
                    self.assertEqual((verdict["adapts"], verdict["smallest_card_bytes"] is None), (adapts, adapts))
                    if not adapts:
                        self.assertGreaterEqual(verdict["smallest_card_bytes"], report["smallest_card_bytes"])
                    failure = report["devices"][0]["failures"][0]["event"] if failed else None
                    self.assertEqual(verdict["cards"][0]["ends_at_event"], failure)


@unittest.skipUnless(TRAINER, "no trainer")
class Trainer(unittest.TestCase):
    def test_all(self):
        """A real program of some thousands of allocations."""
        for conf in SETTINGS[:2]:
            for card, status in ("400MiB", 0), ("4MiB", 1):
                with self.subTest(conf=conf, card=card), tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "T")
                    run = segalloc("run", "--sim", card, *(["--conf", conf] if conf else []), "-o", path, "--", TRAINER,
                                   "--preset", "tiny", "--dry", "--steps", "2", "--json", status=status)
                    ran = json.loads(run.stdout.splitlines()[-1])
                    report, replay = said("report", path), said("replay", path, "--min-limit")
                    self.assertEqual(ran["outcome"] == "completed", report["ooms"] == 0)
                    for key in ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes"):
                        self.assertEqual(replay[key], report[key], key)
                    self.assertEqual(report["smallest_card_bytes"], replay["min_limit_bytes"])
                    self.assertEqual(replay["diverged_event"], None)
                    if status == 0:
                        self.assertEqual(report["peak_requested_bytes"], ran["peak_bytes"])
                    else:
                        self.assertGreater(report["smallest_card_bytes"], 4 * MIB)
                    size = f"{report['smallest_card_bytes'] // MIB}MiB"
                    if status == 0 and not conf:  # that card is one, and two pages less are not
                        segalloc("run", "--sim", size, "--", TRAINER, "--preset", "tiny", "--dry", "--steps", "2")


unittest.main(verbosity=2)
