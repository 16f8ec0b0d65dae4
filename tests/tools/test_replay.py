"""Replays of traces that are damaged, that hold failures, or in which threads met in an awkward way.

Usage: test_replay.py SEGALLOC"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = os.path.abspath(sys.argv.pop(1))
MIB, GIB = 1 << 20, 1 << 30
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
# Kinds of include/segalloc/trace_format.h.
ALLOCATE, FREE, ALLOCATE_FAILURE, EMPTY_CACHE, SLOW_BEGIN, SLOW_STEP = 1, 2, 3, 12, 34, 35
TURN, PIN, FIX, DEFINE_STREAM = 48, 49, 51, 64
LATE_UNMAP, UNMAPPED, REUSE, REGION, GARBAGE, CUT, GIVEN, RETIRE = range(2, 10)
NOT_FOUND, RAN_OUT = 500, 2
FIXED = "expandable_segments:False"


def own_trace(records, device_bytes=GIB, conf="", granularity=2 * MIB):
    """A trace as the library writes it, not closed: (kind, thread, id, size) each, and a stream if it is not 0."""
    header = struct.pack("<QIIQQQIIIIQQQ", 0x3152544c41474553, 1, 80, 4096, 0, 0, len(conf), 0, 0, 1, granularity,
                         device_bytes, 0)
    block = struct.pack("<IIQQQ", 0x4b4c4253, len(records), 0, 0, 0)
    rows = (struct.pack("<BBHIQQQ", kind, 0, thread, *(stream or [0]), id_, size, 0)
            for kind, thread, id_, size, *stream in records)
    return (header + conf.encode()).ljust(4096, b"\0") + block + b"".join(rows)


def grown(thread, id_, size, region=0):
    """An allocation that gets new pages, without any other thread in between; `region`: bytes of one that it needs."""
    first = [(SLOW_STEP, thread, 0, NOT_FOUND), (TURN, thread, REGION, region)] if region else []
    return [(SLOW_BEGIN, thread, 0, size), *first, (SLOW_STEP, thread, 0, 0), (ALLOCATE, thread, id_, size)]


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "T")

    def replay(self, content, *arguments, status=0):
        with open(self.path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        result = subprocess.run([SEGALLOC, "replay", self.path, "--json", *arguments], capture_output=True, text=True,
                                timeout=20)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout) if status in (0, 3) else result.stderr

    def test_nothing_to_play(self):
        good = own_trace([(ALLOCATE, 0, 512, MIB)])
        self.assertEqual(self.replay(good)["allocs"], 1)
        self.assertIn("no events", self.replay(good[:4096] + b"?" + good[4097:], status=1))
        self.assertIn("no events", self.replay(good[:4096], status=1))
        self.assertIn("no events", self.replay(HEADER, status=1))

    def test_pages_of_a_card_that_nothing_says_the_size_of(self):
        """Those of one that the trace fills, which is known at its end; or of the card that is given."""
        rows = HEADER + "".join(f"0,00:00:00:{i:06},allocate,{(i + 1) << 9:#x},{GIB},0\n" for i in range(22))
        pages = {option: self.replay(rows, *option.split())["handle_calls"]["create"] for option in
                 ("", "--min-limit", "--limit 48GiB", "--limit 48GiB --min-limit", "--conf page_size_mb:2")}
        self.assertEqual(pages, {"": 22 * 256, "--min-limit": 22 * 256, "--limit 48GiB": 22 * 128,
                                 "--limit 48GiB --min-limit": 22 * 128, "--conf page_size_mb:2": 22 * 512})

    def test_card_larger_than_any(self):
        rows = HEADER + f"0,00:00:00:000000,allocate,0x1000,{1 << 45},0\n"
        for policy in ("segalloc", "pytorch"):
            ooms = int(policy == "segalloc")
            self.assertEqual(self.replay(rows, "--limit", "64TiB", "--policy", policy, status=3 * ooms)["ooms"], ooms)
            self.assertIn("64 TiB or less", self.replay(rows, "--limit", "65TiB", "--policy", policy, status=2))

    def test_a_page_given_up_for_smaller_ones_is_larger_than_what_is_wanted(self):
        """A huge block's page goes back to the driver, which leaves more room than the pages that are made anew need:
        no other pages are taken then."""
        steps = (("allocate", 1, 6331415293), ("free", 1, 6331415293), ("device_sync", 0, 0), ("allocate", 2, 5638543650),
                 ("free", 2, 5638543650), ("allocate", 3, 1978588032), ("allocate", 4, 1263691467), ("launch", 0, 3),
                 ("free", 3, 1978588032), ("allocate", 5, 3522366811))
        rows = HEADER + "".join(f"1,00:00:00:{i:06},{action},{block << 9:#x},{size},0\n"
                                for i, (action, block, size) in enumerate(steps))
        got = self.replay(rows, "-l", "11899MiB", "-r", "10")
        self.assertEqual((got["allocs"], got["ooms"]), (5, 0))
        self.assertLessEqual(got["peak_reserved_bytes"], 11899 * MIB)

    def test_recorded_failures(self):
        rows = (HEADER + "0,00:00:00:000000,allocate,0x200,8388608,0\n0,00:00:00:000001,allocate "
                         "failure,0x0,33554432,0\n"
                "0,00:00:00:000002,free,0x200,8388608,0\n")
        for limit, ooms, policy in (("32MiB", 1, "segalloc"), ("64MiB", 0, "segalloc"), ("32MiB", 1, "pytorch"),
                                    ("64MiB", 0, "pytorch")):
            got = self.replay(rows, "--limit", limit, "--policy", policy)
            self.assertEqual((got["recorded_failures"], got["ooms"], got["allocs"]), (1, ooms, 1), (limit, policy))
        self.assertEqual(self.replay(rows, "--min-limit", "--limit", "1GiB")["min_limit_bytes"], 40 * MIB)
        own = own_trace([(SLOW_BEGIN, 0, 0, 3 * GIB), (ALLOCATE_FAILURE, 0, 0, 3 * GIB), (ALLOCATE, 0, 512, MIB)])
        got = self.replay(own)
        self.assertEqual((got["recorded_failures"], got["ooms"], got["allocs"]), (1, 1, 1))
        self.assertEqual(self.replay(own, "--limit", "8GiB")["ooms"], 0)

    def exact(self, records, conf="", **more):
        got = self.replay(own_trace(records, conf=conf, granularity=0 if conf == FIXED else 2 * MIB, **more), "--conf",
                          conf)
        self.assertEqual((got["as_recorded"], got["diverged_event"]), (True, None))
        return got

    def test_a_huge_block_is_freed_while_another_thread_grows(self):
        """Its page goes back only when the other thread is done growing, and has what it grew for."""
        got = self.exact([
            *grown(1, 512, 600 * MIB, region=GIB), *grown(2, 1024, 2 * MIB, region=2 * GIB),
            (SLOW_BEGIN, 2, 0, 10 * MIB), (SLOW_STEP, 2, 0, 0),
            (FREE, 1, 512, 600 * MIB),
            (ALLOCATE, 2, 2048, 10 * MIB),
            (TURN, 1, RETIRE, 1), (TURN, 1, CUT, 1), (TURN, 1, GIVEN, 1),
        ])
        self.assertEqual((got["allocs"], got["frees"], got["peak_reserved_bytes"], got["end_reserved_bytes"]),
                         (3, 1, 612 * MIB, 12 * MIB))

    def test_the_addresses_of_a_huge_block_serve_the_next_one(self):
        retired = [(FREE, 1, 512, 600 * MIB), (TURN, 1, RETIRE, 1), (TURN, 1, CUT, 1), (TURN, 1, GIVEN, 1)]
        got = self.exact([
            *grown(1, 512, 600 * MIB, region=GIB), *retired,
            (SLOW_BEGIN, 1, 0, 700 * MIB), (SLOW_STEP, 1, 0, NOT_FOUND), (TURN, 1, REUSE, 700 * MIB),
            (SLOW_STEP, 1, 0, 0), (ALLOCATE, 1, 512, 700 * MIB),
        ])
        self.assertEqual((got["peak_reserved_bytes"], got["driver_calls"]["reserve"]), (700 * MIB, 1))

    def test_two_threads_grow(self):
        """The second begins while the first has new pages made, and gets its turn afterwards."""
        got = self.exact([
            *grown(1, 512, 6 * MIB, region=2 * GIB),
            (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0), (SLOW_BEGIN, 2, 0, 4 * MIB), (FREE, 3, 512, 6 * MIB),
            (ALLOCATE, 1, 1024, 8 * MIB), (ALLOCATE, 2, 512, 4 * MIB),
        ])
        self.assertEqual((got["peak_reserved_bytes"], got["driver_calls"]["create"]), (14 * MIB, 7))

    def test_one_runs_out_while_another_grows(self):
        """What the driver refuses is in the trace, and so is who was refused."""
        got = self.exact([
            *grown(1, 512, 30 * MIB, region=128 * MIB),
            (SLOW_BEGIN, 1, 0, 20 * MIB), (SLOW_BEGIN, 2, 0, 24 * MIB), (SLOW_STEP, 1, 0, 0),
            (ALLOCATE, 1, 1024, 20 * MIB), (SLOW_STEP, 2, 0, RAN_OUT), (FREE, 1, 1024, 20 * MIB),
            (SLOW_BEGIN, 1, 0, 22 * MIB), (ALLOCATE_FAILURE, 2, 0, 24 * MIB), (SLOW_STEP, 1, 0, 0),
            *[(SLOW_STEP, 1, 0, result) for result in (RAN_OUT, RAN_OUT, 0, RAN_OUT, RAN_OUT)],  # of another place too
            (ALLOCATE_FAILURE, 1, 0, 22 * MIB),
        ], device_bytes=64 * MIB)
        self.assertEqual((got["ooms"], got["peak_reserved_bytes"], got["allocs"]), (2, 50 * MIB, 2))

    def test_pinned_pages_do_not_move(self):
        conf = "reserve_slack:1.0"
        begin = [*grown(1, 512, 4 * MIB, region=2 * GIB), *grown(1, 1024, 2 * MIB), (FREE, 1, 512, 4 * MIB)]
        self.assertEqual(self.exact([*begin, *grown(1, 2048, 6 * MIB)], conf)["pages_moved"], 2)
        got = self.exact([*begin, (PIN, 1, 0, 2), *grown(1, 2048, 6 * MIB)], conf)
        self.assertEqual((got["pages_moved"], got["peak_reserved_bytes"]), (0, 12 * MIB))

    def test_a_trim_while_another_thread_allocates(self):
        got = self.exact([
            *grown(1, 512, 6 * MIB, region=2 * GIB), *grown(1, 1024, 4 * MIB), (FREE, 1, 512, 6 * MIB),
            (FREE, 1, 1024, 4 * MIB), (EMPTY_CACHE, 2, 0, 0), (ALLOCATE, 1, 512, 4 * MIB), (TURN, 2, CUT, 3),
            (FREE, 1, 512, 4 * MIB), (TURN, 2, GIVEN, 1), (TURN, 2, CUT, 2), (TURN, 2, GIVEN, 1), (TURN, 2, CUT, 0),
        ])
        self.assertEqual(got["end_reserved_bytes"], 0)

    def test_fixed_segments_given_back_for_one_that_fails(self):
        """An allocation beyond the card asks the driver nothing, but what was cached went back for it."""
        got = self.exact([
            (SLOW_BEGIN, 1, 0, 10 * MIB), (ALLOCATE, 1, 10 * GIB, 10 * MIB), (SLOW_BEGIN, 1, 0, 30 * MIB),
            (ALLOCATE, 1, 20 * GIB, 30 * MIB), (FREE, 1, 20 * GIB, 30 * MIB),
            (SLOW_BEGIN, 1, 0, 60 * MIB), (SLOW_BEGIN, 2, 0, 20 * MIB), (ALLOCATE, 2, 20 * GIB, 20 * MIB),
            (ALLOCATE_FAILURE, 1, 0, 60 * MIB),
        ], FIXED, device_bytes=64 * MIB)
        self.assertEqual((got["ooms"], got["end_reserved_bytes"], got["driver_calls"]["alloc"]), (1, 30 * MIB, 3))

    def test_fixed_segments_are_where_they_were(self):
        """Of two free ranges of a size the one at the lower address is taken, so where the driver puts segments
        matters."""
        for second, left in ((30 * GIB, 30), (10 * GIB, 50)):
            got = self.exact([
                (SLOW_BEGIN, 1, 0, 30 * MIB), (ALLOCATE, 1, 20 * GIB, 30 * MIB), (SLOW_BEGIN, 1, 0, 20 * MIB),
                (ALLOCATE, 1, second, 20 * MIB), (FREE, 1, 20 * GIB, 30 * MIB), (ALLOCATE, 1, 20 * GIB, 10 * MIB),
                (FREE, 1, second, 20 * MIB), (ALLOCATE, 1, min(second, 20 * GIB + 10 * MIB), 20 * MIB),
                (EMPTY_CACHE, 1, 0, 0),
            ], FIXED)
            self.assertEqual(got["end_reserved_bytes"], left * MIB)

    def test_fixed_segments_lie_in_no_range_of_the_replay(self):
        """What the replay reserves itself is where no process has an address."""
        for low in (0x7f00 << 32, 0x7f01 << 32, 1 << 46, (1 << 47) - GIB, 1 << 48, 1 << 52, (1 << 56) - GIB):
            with self.subTest(address=hex(low)):
                high = low + 64 * MIB
                got = self.exact([
                    *grown(1, 512, 2 * MIB, region=GIB), (FIX, 1, 0, 0), (SLOW_BEGIN, 1, 0, 30 * MIB),
                    (ALLOCATE, 1, high, 30 * MIB), (FREE, 1, high, 30 * MIB), (FREE, 1, 512, 2 * MIB),
                ])
                self.assertEqual((got["allocs"], got["frees"], got["peak_requested_bytes"]), (2, 2, 32 * MIB))

    def test_fixed_segments_of_two_contexts(self):
        """What one has freed does not serve the other."""
        got = self.exact([
            (SLOW_BEGIN, 1, 0, 30 * MIB), (ALLOCATE, 1, 20 * GIB, 30 * MIB), (FREE, 1, 20 * GIB, 30 * MIB),
            (DEFINE_STREAM, 1, 0, 1 << 32, 1), (SLOW_BEGIN, 1, 0, 30 * MIB, 1), (ALLOCATE, 1, 30 * GIB, 30 * MIB, 1),
            (ALLOCATE, 1, 20 * GIB, 30 * MIB),
        ], FIXED)
        self.assertEqual((got["end_reserved_bytes"], got["driver_calls"]["alloc"]), (60 * MIB, 2))

    def test_what_counts_as_recorded(self):
        """Settings that decide nothing here may differ; whether segments were fixed the trace says."""
        records = [(SLOW_BEGIN, 1, 0, 30 * MIB), (ALLOCATE, 1, 20 * GIB, 30 * MIB)]
        for recorded, conf, granularity, same in (
            ("oom_report:never,trim_idle_s:3", "wait_limit:5", 2 * MIB, True),
            ("reserve_slack:1.0", "", 2 * MIB, False), ("ipc:always", "ipc:always", 0, True),
            ("ipc:always", "", 0, True), ("", "ipc:always", 2 * MIB, False),
        ):
            first = grown(1, 512, 30 * MIB, region=2 * GIB) if granularity else records
            got = self.replay(own_trace(first, conf=recorded, granularity=granularity), "--conf", conf)
            self.assertEqual((got["as_recorded"], got["diverged_event"]), (same, None), (recorded, conf))
            self.assertEqual(got["driver_calls"]["alloc"], 1 if "always" in recorded + conf else 0)

    def test_traces_that_no_allocator_has_written(self):
        """They are played to their end, at once from where they can't be followed: nothing waits for a record that does
        not come."""
        begin = grown(1, 512, 6 * MIB, region=2 * GIB)
        for records, event in (
            ([*begin, (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0), (SLOW_BEGIN, 2, 0, 4 * MIB),
              (SLOW_STEP, 2, 0, 0), (ALLOCATE_FAILURE, 2, 0, 4 * MIB), (ALLOCATE, 1, 1024, 8 * MIB)], 2),  # two at a time have pages made
            ([*begin, (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0), (EMPTY_CACHE, 2, 0, 0),
              (FREE, 3, 512, 6 * MIB)], 2),
            ([*begin, (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0), (ALLOCATE, 2, 1024, 4 * MIB),
              (FREE, 2, 1024, 4 * MIB)], 2),
            ([*begin, (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_BEGIN, 1, 0, 8 * MIB), (FREE, 2, 512, 6 * MIB)], 1),
            ([*begin, (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0), (FREE, 1, 512, 6 * MIB),
              (ALLOCATE, 1, 512, 6 * MIB)], 3),
            ([(ALLOCATE, 1, 512, 6 * MIB), (FREE, 1, 512, 6 * MIB)], 1),
        ):
            got = self.replay(own_trace(records))
            self.assertEqual((got["as_recorded"], got["diverged_event"]), (True, event), records)

    def test_addresses_that_a_region_cannot_have(self):
        """What the trace says of a region is followed only where it can be so: whole pages, enough, and no more than a
        region can have."""
        for region in (1, 2 * GIB + 1, 2 * MIB, 1 << 50, (1 << 64) - 1):
            got = self.replay(own_trace(grown(1, 512, 6 * MIB, region=region)))
            self.assertEqual((got["allocs"], got["diverged_event"]), (1, 1), region)

    def test_more_operations_under_way_than_there_may_be(self):
        """Each of 5000 threads has an allocation under way, which would be a thread of the replay."""
        got = self.replay(own_trace([*grown(0, 512, 6 * MIB, region=2 * GIB),
                                     *((SLOW_BEGIN, thread, 0, 8 * MIB) for thread in range(1, 5000))]))
        self.assertEqual((got["allocs"], got["diverged_event"]), (1, 1))

    def test_no_smallest_card_beyond_any(self):
        """More is alive than any card has: none is looked for beyond 4 TiB."""
        rows = HEADER + "".join(f"0,00:00:00:{i:06},allocate,{(i + 1) << 9:#x},{1000 * GIB},0\n" for i in range(5))
        self.assertIsNone(self.replay(rows, "--min-limit", status=3)["min_limit_bytes"])

    def test_where_it_is_damaged(self):
        """Of a trace of ours the byte is named at which the record stands, or the block."""
        twice = own_trace([(ALLOCATE, 0, 512, MIB), (FREE, 0, 512, MIB), (ALLOCATE, 0, 512, MIB), (ALLOCATE, 0, 512, 1)])
        said = self.replay(twice, status=1)
        self.assertEqual(said, f"segalloc replay: {self.path}: byte {4128 + 3 * 32}: event 4 allocates what is alive "
                               "already: 0x200\n")
        self.assertIn(f"{self.path}: byte 56: ", self.replay(own_trace([(ALLOCATE, 0, 512, 1)], granularity=512), status=1))
        bad = bytearray(own_trace([(ALLOCATE, 0, 512, MIB)]).ljust(4096 + (1 << 20), b"\0") + b"?" * 64)
        bad[4096 + 16:4096 + 24] = 0xe36d8bf49e4f7e5b.to_bytes(8, "little")
        self.assertIn("byte 4112: the checksum", self.replay(bytes(bad), status=1))

    def test_a_trace_that_ends_in_the_middle(self):
        got = self.exact([*grown(1, 512, 6 * MIB, region=2 * GIB), (SLOW_BEGIN, 1, 0, 8 * MIB), (SLOW_STEP, 1, 0, 0),
                          (SLOW_BEGIN, 2, 0, 4 * MIB)])
        self.assertEqual((got["allocs"], got["peak_requested_bytes"]), (1, 6 * MIB))


unittest.main(verbosity=2)
