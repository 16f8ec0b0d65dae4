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
ALLOCATE, FREE, ALLOCATE_FAILURE, SLOW_BEGIN, SLOW_STEP = 1, 2, 3, 34, 35


def own_trace(records, device_bytes=GIB):
    """A trace as the library writes it, not closed: (kind, thread, id, size) each."""
    header = struct.pack("<QIIQQQIIIIQQQ", 0x3152544c41474553, 1, 80, 4096, 0, 0, 0, 0, 0, 1, 2 * MIB, device_bytes, 0)
    block = struct.pack("<IIQQQ", 0x4b4c4253, len(records), 0, 0, 0)
    rows = (struct.pack("<BBHIQQQ", kind, 0, thread, 0, id_, size, 0) for kind, thread, id_, size in records)
    return header.ljust(4096, b"\0") + block + b"".join(rows)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "T")

    def replay(self, content, *arguments, status=0):
        with open(self.path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        result = subprocess.run([SEGALLOC, "replay", self.path, "--json", *arguments], capture_output=True, text=True, timeout=20)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout) if status == 0 else result.stderr

    def test_nothing_to_play(self):
        good = own_trace([(ALLOCATE, 0, 512, MIB)])
        self.assertEqual(self.replay(good)["allocs"], 1)
        self.assertIn("no events", self.replay(good[:4096] + b"?" + good[4097:], status=1))
        self.assertIn("no events", self.replay(good[:4096], status=1))
        self.assertIn("no events", self.replay(HEADER, status=1))

    def test_recorded_failures(self):
        rows = (HEADER + "0,00:00:00:000000,allocate,0x200,8388608,0\n0,00:00:00:000001,allocate failure,0x0,33554432,0\n"
                "0,00:00:00:000002,free,0x200,8388608,0\n")
        for limit, ooms, policy in (("32MiB", 1, "segalloc"), ("64MiB", 0, "segalloc"), ("32MiB", 1, "pytorch"), ("64MiB", 0, "pytorch")):
            got = self.replay(rows, "--limit", limit, "--policy", policy)
            self.assertEqual((got["recorded_failures"], got["ooms"], got["allocs"]), (1, ooms, 1), (limit, policy))
        self.assertEqual(self.replay(rows, "--min-limit", "--limit", "1GiB")["min_limit_bytes"], 40 * MIB)
        own = own_trace([(SLOW_BEGIN, 0, 0, 3 * GIB), (ALLOCATE_FAILURE, 0, 0, 3 * GIB), (ALLOCATE, 0, 512, MIB)])
        got = self.replay(own)
        self.assertEqual((got["recorded_failures"], got["ooms"], got["allocs"]), (1, 1, 1))
        self.assertEqual(self.replay(own, "--limit", "8GiB")["ooms"], 0)

    def test_a_huge_block_is_freed_while_another_thread_grows(self):
        got = self.replay(own_trace([
            (SLOW_BEGIN, 1, 0, 600 * MIB), (SLOW_STEP, 1, 0, 0), (ALLOCATE, 1, 512, 600 * MIB),
            (SLOW_BEGIN, 2, 0, 10 * MIB), (SLOW_STEP, 2, 0, 0),
            (FREE, 1, 512, 600 * MIB),
            (ALLOCATE, 2, 1024, 10 * MIB), (FREE, 2, 1024, 10 * MIB),
        ]))
        self.assertEqual((got["allocs"], got["frees"], got["ooms"]), (2, 2, 0))


unittest.main(verbosity=2)
