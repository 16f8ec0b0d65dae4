"""Traces with rows about work: they are read and written, the bound by the order of the work is right, and replays that
run ahead keep to both.

Usage: test_ahead.py SEGALLOC STREAMS"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # not into the source folder
import loads  # noqa: E402

SEGALLOC, STREAMS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
ENVIRONMENT = {**os.environ}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB = 1 << 20
LORA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "qwen25-7b-lora.csv.zst")


def segalloc(*arguments, status=0):
    result = subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert result.returncode == status, result
    return result.stdout if status == 0 else result.stderr


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, text):
        path = os.path.join(self.folder, "load.csv")
        with open(path, "w") as file:
            file.write(text)
        return path

    def bound(self, text, which="all_blocks"):
        bound = json.loads(segalloc("trace", "info", "--json", self.write(text)))["order_bound"]
        return bound and bound[which]["peak_held_bytes"]

    def replay(self, text, ahead, conf="", *more):
        return json.loads(segalloc("replay", self.write(text), "--json", "--run-ahead", str(ahead), "--conf", conf,
                                   *more))


class Bound(Case):
    def two_streams(self, between, uses=lambda p, block: None):
        """A block of one stream is freed after its work; another stream asks for as much after `between`."""
        p = loads.Program()
        block = p.allocate(8 * MIB, 1)
        p.launch(1)
        uses(p, block)
        recording = p.record(1)
        p.free(block, 1)
        between(p, recording)
        p.allocate(8 * MIB, 2)
        p.launch(2)
        return self.bound(p.text())

    def test_by_hand(self):
        self.assertEqual(self.two_streams(lambda p, e: None), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e, 2)), 8 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e, 3)), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: (p.wait(e, 3), p.wait(p.record(3), 2))), 8 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e + 1, 2)), 16 * MIB)  # there is no such recording
        self.assertEqual(self.two_streams(lambda p, e: p.query(e)), 8 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.event_sync(e)), 8 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.stream_sync(1)), 8 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.stream_sync(2)), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.device_sync()), 8 * MIB)

    def test_work_after_the_recording(self):
        def more_work(p, block):
            self.early = p.record(1)
            p.launch(1)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(self.early, 2), more_work), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e, 2), more_work), 8 * MIB)

    def test_used_on_another_stream(self):
        def used(p, block):
            p.launch(3)
            p.used_on(block, 3)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e, 2), used), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: (p.wait(e, 2), p.wait(p.record(3), 2)), used), 8 * MIB)

    def test_used_on_many_streams(self):
        def used(p, block):
            for stream in range(3, 20):
                p.launch(stream)
                p.used_on(block, stream)
        self.assertEqual(self.two_streams(lambda p, e: p.wait(e, 2), used), 16 * MIB)
        self.assertEqual(self.two_streams(lambda p, e: p.device_sync(), used), 8 * MIB)

    def test_own_memory_is_free_at_once_and_scarce_memory_goes_first(self):
        p = loads.Program()
        for stream in (1, 2):
            block = p.allocate(8 * MIB, stream)
            p.launch(stream)
            p.free(block, stream)
        p.wait(p.record(2), 1)  # stream 1 may use all, stream 2 only its own
        p.allocate(8 * MIB, 1)
        p.allocate(8 * MIB, 2)
        self.assertEqual(self.bound(p.text()), 16 * MIB)

    def test_only_large_blocks_and_one_stream(self):
        p = loads.Program()
        for size in (MIB - 512, MIB):
            p.allocate(size, 1)
            p.launch(1)
        self.assertIsNone(self.bound(p.text()))
        p.allocate(MIB, 2)
        self.assertEqual(self.bound(p.text(), "blocks_from_1MiB"), 2 * MIB)
        self.assertEqual(self.bound(p.text()), 3 * MIB - 512)


class Rows(Case):
    def test_they_come_back_the_same(self):
        for name, load in loads.LOADS.items():
            with self.subTest(load=name):
                text = load(1)
                path, own = self.write(text), os.path.join(self.folder, "load.trace")
                self.assertEqual(segalloc("trace", "cat", path), text)
                segalloc("trace", "import", "-f", path, "-o", own)
                self.assertEqual(segalloc("trace", "cat", own), text)


class RunAhead(Case):
    def churn(self, count=200, rows=False):
        p = loads.Program()
        for _ in range(count):
            block = p.allocate(4 * MIB)
            if rows:
                p.launch()
            p.free(block)
        return p.text()

    def test_an_event_passes_after_so_many_allocations(self):
        for rows in (False, True):
            for ahead in (0, 1, 5, 50):
                with self.subTest(rows=rows, ahead=ahead):
                    got = self.replay(self.churn(rows=rows), ahead, "free_sync:event,reserve_slack:1.0")
                    self.assertEqual(got["peak_reserved_bytes"], (ahead + 1) * 4 * MIB)
                    self.assertEqual((got["host_waits"], got["run_ahead"]), (0, ahead))

    def test_the_programs_own_waits_end_it_sooner(self):
        p = loads.Program()
        for _ in range(40):
            for _ in range(5):
                p.free(p.allocate(4 * MIB))
                p.launch()
            p.stream_sync()
        self.assertEqual(self.replay(p.text(), 1000, "free_sync:event,reserve_slack:1.0")["peak_reserved_bytes"],
                         20 * MIB)

    def test_a_card_that_is_too_small_is_waited_for(self):
        got = self.replay(self.churn(), 50, "free_sync:event", "--limit", "40MiB")
        self.assertEqual(got["ooms"], 0)
        self.assertGreater(got["host_waits"], 0)
        self.assertLessEqual(got["peak_reserved_bytes"], 40 * MIB)

    def test_pages_that_move_again_and_again_are_not_waited_for(self):
        p = loads.Program()
        kept = [p.allocate(4 * MIB) for _ in range(70)]
        for turn in range(30):  # between large blocks some of what stays is made anew in their place
            arena = p.allocate((120 + 23 * (turn % 4)) * MIB)
            for i in range(turn % 3, len(kept), 3):
                old, kept[i] = kept[i], p.allocate((4 + turn % 2) * MIB)
                p.free(old)
            p.free(arena)
        path = self.write(p.text())
        card = json.loads(segalloc("replay", path, "--json", "--run-ahead", "0", "--min-limit"))["min_limit_bytes"] + 8 * MIB
        for ahead in (0, 30, 300, 1000):
            with self.subTest(ahead=ahead):
                got = self.replay(p.text(), ahead, "free_sync:stream", "--limit", str(card))
                self.assertEqual((got["ooms"], got["host_waits"]), (0, 0))
                self.assertGreater(got["pages_moved"], 0)

    def test_what_is_pending_does_not_take_the_room_of_what_is_large(self):
        live = json.loads(segalloc("trace", "info", "--json", LORA))["peak_requested_bytes"]
        played = json.loads(segalloc("replay", LORA, "--json", "--run-ahead", "300", "--conf", "free_sync:event,page_size_mb:2",
                                     "--limit", str(live * 101 // 100)))
        self.assertEqual(played["ooms"], 0)
        self.assertGreater(played["host_waits"], 0)

    def test_strict_frees_wait(self):
        for ahead, waits in ((0, 0), (1, 200)):
            got = self.replay(self.churn(), ahead, "free_sync:strict,reserve_slack:1.0")
            self.assertEqual((got["peak_reserved_bytes"], got["strict_frees"], got["strict_waits"], got["host_waits"]),
                             (4 * MIB, 200, waits, 0))

    def test_generated_loads_stay_near_the_bound(self):
        for name, load in loads.LOADS.items():
            for seed in range(3):
                text = load(seed)
                live = json.loads(segalloc("trace", "info", "--json", self.write(text)))["peak_requested_bytes"]
                got = self.replay(text, 0, "reserve_slack:1.0")
                with self.subTest(load=name, seed=seed, got=got):
                    self.assertLess(got["peak_reserved_bytes"] / live, self.bound(text) / live + 0.02)
                    self.assertEqual((got["host_waits"], got["ooms"]), (0, 0))

    @staticmethod
    def used_on_another(p, size):
        """A block of the first stream that the second has used, freed."""
        block = p.allocate(size, 1)
        p.launch(1)
        p.wait(p.record(1), 2)
        p.launch(2)
        p.used_on(block, 2)
        p.free(block, 1)

    def passed_on(self, after):
        """Peak reserved where such a block is asked for by a third stream, which has come after both."""
        p = loads.Program()
        self.used_on_another(p, 8 * MIB)
        done = p.record(2)
        p.wait(done, 3)
        after(p, done)
        p.allocate(8 * MIB, 3)
        p.launch(3)
        return self.replay(p.text(), 1000, "reserve_slack:1.0")["peak_reserved_bytes"]

    def test_of_several_streams_each_has_its_own_time(self):
        self.assertEqual(self.passed_on(lambda p, done: None), 8 * MIB)

    def test_what_its_stream_comes_after_later_is_not_waited_for(self):
        def own_stream_first(p, done):
            p.wait(done, 1)
            p.launch(1)
            p.record(1)
            small = p.allocate(MIB, 1)  # looks for memory, so that the block becomes its own stream's again
            p.launch(1)
            p.free(small, 1)
        self.assertEqual(self.passed_on(own_stream_first), 10 * MIB)

    def test_what_waits_for_a_busy_stream_comes_back_soon_after_its_work(self):
        p = loads.Program()
        for _ in range(3000):
            self.used_on_another(p, 2 * MIB)
        for ahead in (100, 1000):
            got = self.replay(p.text(), ahead, "reserve_slack:1.0")
            with self.subTest(ahead=ahead):
                self.assertLess(got["peak_reserved_bytes"], (ahead + 1) * 1.05 * 2 * MIB)

    def test_streams_that_hand_memory_down_need_little_more_than_is_alive(self):
        for ahead, most in ((0, 1.01), (30, 1.03), (300, 1.15), (1000, 1.15)):
            got = self.replay(loads.chain(1), ahead, "reserve_slack:1.0")
            with self.subTest(ahead=ahead):
                self.assertLess(got["peak_reserved_bytes"], most * got["peak_requested_bytes"])

    def test_streams_of_a_recorded_program_are_told_apart(self):
        trace = os.path.join(self.folder, "recorded.trace")
        segalloc("run", "--sim", "1GiB", "-o", trace, "--", STREAMS, "1", "500", "1", str(4 * MIB))
        for ahead in (20, 1000):
            got = json.loads(segalloc("replay", trace, "--json", "--run-ahead", str(ahead), "--conf", "free_sync:stream"))
            with self.subTest(ahead=ahead):  # all is freed as a step of the one stream that asks for it
                self.assertEqual((got["allocs"], got["peak_pending_bytes"]), (500, 0))

    def test_usage(self):
        trace = self.write(self.churn())
        self.assertIn("--run-ahead", segalloc("replay", trace, "--run-ahead", "-1", status=2))
        self.assertIn("--run-ahead", segalloc("replay", trace, "--run-ahead", "9x", status=2))
        self.assertIn("--sees", segalloc("replay", trace, "--sees", "all", status=2))
        self.assertIn("pytorch", segalloc("replay", trace, "--run-ahead", "1", "--policy", "pytorch", status=2))


unittest.main(verbosity=2)
