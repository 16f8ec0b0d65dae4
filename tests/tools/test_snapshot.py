"""Memory snapshots of PyTorch's as input: what its own statistics and viewer say of them is what `trace info` and
`report` say, and nothing in a pickle is executed.

Usage: test_snapshot.py SEGALLOC DATA"""
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import unittest

SEGALLOC, DATA = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))


def run(*arguments, **more):
    return subprocess.run([SEGALLOC, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **more)


def report(path):
    done = run("report", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def event(action, address, size, time, stream=0, **more):
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: address, "size": size, "stream": stream, "time_us": time,
            "frames": [{"filename": "train.py", "name": "step", "line": 3}], **more}


def segment(address, total, blocks, device=0):
    at, rows = address, []
    for size, requested, state in blocks:
        rows.append({"address": at, "size": size, "requested_size": requested, "state": state, "frames": []})
        at += size
    return {"device": device, "address": address, "total_size": total, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "blocks": rows, "frames": []}


BASE = 0x7f0000000000
SMALL = {
    "segments": [segment(BASE, 4096, [(1024, 1000, "active_allocated"), (1024, 900, "active_pending_free"),
                                      (2048, 0, "inactive")]),
                 segment(BASE + (1 << 32), 8192, [(8192, 8000, "active_allocated")], device=1)],
    "device_traces": [
        [event("segment_alloc", BASE, 4096, 10), event("alloc", BASE, 1000, 11),
         event("segment_alloc", BASE + 65536, 16384, 12), event("alloc", BASE + 65536, 16000, 13, stream=5),
         event("free_requested", BASE + 65536, 16000, 14, stream=5), event("alloc", BASE + 1024, 900, 15),
         event("free_completed", BASE + 65536, 16000, 16, stream=5), event("segment_free", BASE + 65536, 16384, 17),
         event("free_requested", BASE + 1024, 900, 18), event("oom", 12345, 1 << 33, 19), event("snapshot", 0, 0, 20)],
        [event("free_requested", BASE + (1 << 33), 77, 12), event("free_completed", BASE + (1 << 33), 77, 12)]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.0, "expandable_segments": False},
    "external_annotations": [],
}


class Real(unittest.TestCase):
    """Snapshots that PyTorch 2.6 and 2.11 have made."""

    def test_statistics(self):
        names = sorted(DATA.glob("*.pickle"))
        self.assertGreaterEqual(len(names), 4)
        for path in names:
            with self.subTest(path.name):
                own = json.loads(path.with_suffix(".json").read_text())
                said = report(path)
                device = said["devices"][0]
                history = path.name.startswith("history")
                self.assertEqual(device["statistics"]["requested_bytes"], own["requested_bytes.all.current"])
                self.assertEqual(device["statistics"]["reserved_bytes"], own["reserved_bytes.all.current"])
                self.assertEqual(device["statistics"]["segments"], own["segment.all.current"])
                self.assertEqual(said["complete"], history)
                if history:
                    self.assertEqual(device["peak_requested_bytes"], own["requested_bytes.all.peak"])
                    self.assertEqual(device["peak_reserved_bytes"], own["reserved_bytes.all.peak"])
                    self.assertEqual(device["statistics"]["peak_segments"], own["segment.all.peak"])
                    self.assertEqual(device["statistics"]["allocs"], own["allocation.all.allocated"])
                    self.assertEqual([failure["bytes"] for failure in device["failures"]], [1 << 42])

    def test_what_can_be_done_with_it(self):
        path = DATA / "history-2.11.0.pickle"
        played = run("replay", "--json", path, "--limit", "8GiB")
        self.assertIn(played.returncode, (0, 3), played.stderr)
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "T")
            self.assertEqual(run("trace", "import", path, "-o", trace).returncode, 0)
            again = json.loads(run("replay", "--json", trace, "--limit", "8GiB").stdout)
            self.assertEqual(again["peak_reserved_bytes"], json.loads(played.stdout)["peak_reserved_bytes"])
            self.assertEqual(report(trace)["devices"][0]["peak_reserved_bytes"],
                             report(path)["devices"][0]["peak_reserved_bytes"])
        self.assertEqual(run("tune", "--json", DATA / "state-2.11.0.pickle").returncode, 0)


class Made(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "snapshot.pickle")
        self.addCleanup(self.folder.cleanup)

    def write(self, data):
        self.path.write_bytes(data)
        return self.path

    def test_protocols(self):
        want = None
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with self.subTest(protocol):
                self.write(pickle.dumps(SMALL, protocol))
                rows = run("trace", "cat", self.path).stdout.splitlines()[1:]
                want = want or rows
                self.assertEqual(rows, want)
        actions = [(row.split(",")[2], int(row.split(",")[4]), row.split(",")[5]) for row in want]
        self.assertEqual(actions, [
            ("allocate", 77, "0x0"), ("allocate", 8000, "0x0"),  # of device 1, whose history is cut off
            ("allocate", 1000, "0x0"), ("free", 77, "0x0"), ("allocate", 16000, "0x5"), ("allocate", 900, "0x0"),
            ("free", 16000, "0x5"), ("allocate failure", 1 << 33, "0x0")])

    def test_devices(self):
        said = report(self.write(pickle.dumps(SMALL)))
        first, second = said["devices"]
        self.assertEqual((first["peak_requested_bytes"], first["peak_reserved_bytes"]), (1000 + 16000 + 900, 4096 + 16384))
        self.assertEqual((first["statistics"]["requested_bytes"], first["statistics"]["reserved_bytes"]), (1900, 4096))
        self.assertEqual((second["peak_requested_bytes"], second["peak_reserved_bytes"]), (8077, 8192))
        self.assertFalse(said["complete"])
        self.assertIn("begins after 2 of its blocks", said["begin_text"])

    def test_old_forms(self):
        # the list of segments alone, as of PyTorch 1, and blocks that have neither addresses nor requested sizes
        segments = [{"device": 0, "address": BASE, "total_size": 4096, "stream": 0,
                     "blocks": [{"size": 512, "state": "inactive"}, {"size": 1024, "state": "active_allocated"}]}]
        for data in (segments, {"segments": segments, "device_traces": []}):
            said = report(self.write(pickle.dumps(data)))
            self.assertEqual(said["devices"][0]["peak_requested_bytes"], 1024)
        rows = run("trace", "cat", self.path).stdout.splitlines()
        self.assertIn(f"{BASE + 512:x}", rows[1])
        # as short as a block can be: 13 bytes
        segments[0]["blocks"] = [{"size": 512, "state": "active_allocated"} for _ in range(20_000)]
        self.assertEqual(report(self.write(pickle.dumps(segments)))["devices"][0]["peak_requested_bytes"], 20_000 * 512)

    def test_nothing_is_executed(self):
        mark = pathlib.Path(self.folder.name, "executed")

        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)

        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            done = run("report", self.write(pickle.dumps({"segments": [Evil()]}, protocol)))
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, r"byte \d+: opcode 0x[0-9a-f]{2} imports or calls something")
            self.assertIn(str(self.path), done.stderr)
        self.assertFalse(mark.exists())

    def test_damaged(self):
        whole = pickle.dumps(SMALL)
        for end in range(2, len(whole), 7):
            done = run("trace", "info", self.write(whole[:end]))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"byte \d+: the pickle is cut off")
        for at in range(2, len(whole), 11):
            damaged = bytearray(whole)
            damaged[at] ^= 0x55
            done = run("trace", "info", self.write(bytes(damaged)))
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertEqual(bool(done.stderr), done.returncode == 1)

    def test_other_pickles(self):
        for data in ({"a": 1}, 7, None, "text", {"segments": 3}):
            done = run("report", self.write(pickle.dumps(data)))
            self.assertEqual(done.returncode, 1)
            self.assertIn("no memory snapshot of PyTorch", done.stderr)

    def test_claims_cost_nothing(self):
        for data in (b"\x80\x04" + b"]\x94" * 40_000_000 + b".",  # lists that take more than two bytes each
                     b"\x80\x02]r" + struct.pack("<I", 0xfffffff0) + b".",  # a place among kept values that cannot be
                     b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"abc"):  # a text longer than the file
            limit = "unlimited" if b"__asan_init" in SEGALLOC.read_bytes() else 700000  # KiB; ASan takes terabytes
            done = subprocess.run(["/bin/sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh", SEGALLOC, "report",
                                   self.write(data)], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"byte \d+: ")

    def test_named_again_and_again(self):
        # few bytes that name the same lists from many places: 10^10 blocks, and as many events
        block = {"size": 512, "requested_size": 500, "state": "active_allocated"}
        one = {"device": 0, "address": BASE, "total_size": 4096, "stream": 0, "blocks": [block] * 100_000}
        done = run("report", self.write(pickle.dumps({"segments": [one] * 100_000, "device_traces": []})))
        self.assertEqual(done.returncode, 1)
        self.assertIn("in several places", done.stderr)
        history = [event("alloc", BASE, 1000, 1)] * 100_000
        done = run("report", self.write(pickle.dumps({"segments": [], "device_traces": [history] * 64})))
        self.assertEqual(done.returncode, 1)
        self.assertIn("in several places", done.stderr)

    def test_keys_set_again_and_again(self):
        # a dictionary whose key is set 300,000 times, looked up 100,000 times; the last value counts
        data = b"\x80\x02}U\x08segments](}q\x05(U\x06blocks](}U\x04sizeK\x07seu" + b"U\x0atotal_sizeK\x01s" * 300_000 + \
            b"U\x0atotal_sizeM\x00\x02sU\x06statusK\x05s" + b"h\x05" * 100_000 + b"es."
        done = run("trace", "info", "--json", self.write(data))
        self.assertEqual(done.returncode, 0, done.stderr)
        data = data.replace(b"h\x05" * 100_000, b"")
        self.assertEqual(report(self.write(data))["devices"][0]["statistics"]["reserved_bytes"], 512)

    def test_levels_far_apart(self):
        high, low = event("segment_map", 0, 1 << 52, 5), event("segment_unmap", 0, 1 << 52, 6)
        done = run("trace", "info", self.write(pickle.dumps(
            {"segments": [], "device_traces": [[event("alloc", BASE, 1, 1)] + [dict(high) for _ in range(2040)] + [dict(low) for _ in range(4080)]]})))
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
