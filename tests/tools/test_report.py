"""trace info, cat, import and report, on traces that this file writes byte by byte from the description of the format.

Usage: test_report.py SEGALLOC"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SEGALLOC = os.path.abspath(sys.argv.pop(1))
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB, GIB = 1 << 20, 1 << 30
ALLOCATE, FREE, FAILURE, PASSED_ON, STATISTIC, END, DEFINE_STREAM, DEFINE_DEVICE = 1, 2, 3, 36, 37, 38, 64, 66
PEAK, LAST = 64, 128


def segalloc(*arguments, stdin=None, binary=False):
    return subprocess.run([SEGALLOC, *arguments], input=stdin, capture_output=True, text=not binary, timeout=60)


def fnv(data, width):
    total = 0xCBF29CE484222325
    for at in range(0, len(data), width):
        total = (total ^ int.from_bytes(data[at:at + width], "little")) * 0x100000001B3 % (1 << 64)
    return total


def record(kind, flags=0, stream=1, id=0, size=0, time=0):
    return struct.pack("<BBHIQQQ", kind, flags, 0, stream, id, size, time)


def statistics(device, **values):
    """A snapshot: NAME sets a value, peak_NAME a peak."""
    rows = [(PEAK if name.startswith("peak_") else 0, name.removeprefix("peak_"), value)
            for name, value in values.items()]
    return [record(STATISTIC, flags | (LAST if i == len(rows) - 1 else 0), device, fnv(name.encode(), 1), value)
            for i, (flags, name, value) in enumerate(rows)]


def trace(records, conf="", command="", closed=True, limit=0):
    conf, command = conf.encode(), command.encode()
    if closed:
        records = records + [record(END, id=len(records))]
    body = b"".join(records)
    header = struct.pack("<QIIQQQIIIIQQQ", 0x3152544C41474553, 1, 80, 4096, 10 ** 18, 4711, len(conf), len(command), 0,
                         1, 2 * MIB, 24 * GIB, limit)
    block = struct.pack("<IIQQQ", 0x4B4C4253, len(records), 0, fnv(body, 8) if closed else 0, 0)
    data = (header + conf + command).ljust(4096, b"\0") + block + body
    return data if closed else data.ljust(4096 + MIB, b"\0")


STREAMS = [record(DEFINE_DEVICE, stream=0, id=2 * MIB, size=24 * GIB), record(DEFINE_STREAM, stream=1, id=0x10, size=0)]
GOOD = dict(requested_bytes=0, peak_requested_bytes=10 * GIB, allocated_bytes=0, peak_allocated_bytes=10 * GIB,
            reserved_bytes=10 * GIB, peak_reserved_bytes=10 * GIB + 100 * MIB, allocs=1, frees=1)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(data if isinstance(data, bytes) else data.encode())
        return path

    def failed(self, result, status, *words):
        self.assertEqual(result.returncode, status, result)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def report(self, path, *options):
        result = segalloc("report", path, "--json", *options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        self.assertEqual(result.stdout.count("\n"), 1)
        return json.loads(result.stdout)


class Trace(Case):
    CSV = HEADER + ("12,00:00:00:000000,allocate,0x200,1000,(nil)\n"
                    "12,00:00:01:500000,allocate,0x400,3000,0x55aa\n"
                    "13,00:00:02:000000,free,0x200,1000,(nil)\n"
                    "13,00:00:03:000000,allocate failure,(nil),77,0x55aa\n"
                    "13,00:00:04:000000,allocate,0x200,5,0\n")

    def test_there_and_back(self):
        path, ours = self.file("a", self.CSV), os.path.join(self.folder, "t")
        self.assertEqual(segalloc("trace", "cat", path).stdout, self.CSV)
        self.assertEqual(segalloc("trace", "cat", "-", stdin=self.CSV).stdout, self.CSV)
        self.assertEqual(segalloc("trace", "import", path, "-o", ours).returncode, 0)
        self.assertEqual(segalloc("trace", "cat", ours).stdout, self.CSV)
        piped = segalloc("trace", "import", path, "-o", "-", binary=True).stdout
        with open(ours, "rb") as file:
            self.assertEqual(file.read(), piped)
        self.failed(segalloc("trace", "import", path, "-o", ours), 1, ours, "-f")
        self.failed(segalloc("trace", "import", ours, "-f", "-o", ours), 1, "also the input")
        self.failed(segalloc("trace", "import", self.file("b", self.CSV + "x\n"), "-f", "-o", ours), 1, "line 7")
        self.assertEqual(segalloc("trace", "cat", ours).stdout, self.CSV)  # what was there stays
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "b", "t"])
        out = os.path.join(self.folder, "c")
        self.assertEqual(segalloc("trace", "cat", ours, "-o", out).returncode, 0)
        with open(out) as file:
            self.assertEqual(file.read(), self.CSV)

    def test_a_part(self):
        path = self.file("a", self.CSV)
        rows = self.CSV.splitlines(True)
        self.assertEqual(segalloc("trace", "cat", path, "--from", "1.5", "--to", "3").stdout,
                         "".join(rows[:1] + rows[2:4]))
        self.assertEqual(segalloc("trace", "cat", path, "--device", "1").stdout, HEADER)
        self.failed(segalloc("trace", "cat", path, "--from", "-1"), 2, '"-1"')
        self.failed(segalloc("trace", "cat", path, "--device", "64"), 2, '"64"')

    def test_info(self):
        info = json.loads(segalloc("trace", "info", "--json", self.file("a", self.CSV)).stdout)
        self.assertEqual((info["format"], info["end"], info["truncated"]), ("rmm-csv", "closed", False))
        self.assertEqual((info["allocs"], info["frees"], info["events"]), (3, 1, 5))
        self.assertEqual((info["peak_requested_bytes"], info["end_requested_bytes"]), (4000, 3005))
        self.assertEqual((info["duration_ns"], info["streams"], info["threads"]), (4 * 10 ** 9, 2, 2))
        self.assertEqual(info["kinds"]["allocate_failure"], 1)
        path = self.file("t", trace(STREAMS + [record(ALLOCATE, id=7, size=9)], "alias:off", "a b", closed=False))
        info = json.loads(segalloc("trace", "info", "--json", path).stdout)
        self.assertEqual((info["end"], info["conf"], info["command"], info["pid"]),
                         ("killed", "alias:off", "a b", 4711))
        self.assertEqual(info["devices"][0]["total_bytes"], 24 * GIB)
        self.assertEqual(segalloc("trace", "info", "--strict", path).returncode, 4)
        self.assertIn("without closing", segalloc("trace", "info", path).stdout)

    def test_usage(self):
        self.failed(segalloc("trace"), 2, "info, cat, export or import")
        self.failed(segalloc("trace", "show"), 2, '"show"')
        self.failed(segalloc("trace", "info"), 2, "which trace")
        self.failed(segalloc("trace", "info", "a", "b"), 2, '"b"')
        self.failed(segalloc("trace", "import", self.file("a", HEADER)), 2, "-o TRACE")
        self.failed(segalloc("trace", "cat", self.file("e", "")), 1, "empty")
        self.failed(segalloc("trace", "cat", "/nonexistent"), 1, "/nonexistent", "No such file")
        self.assertEqual(segalloc("trace", "info", self.file("a", HEADER)).returncode, 1)


class Report(Case):
    def test_of_a_trace(self):
        rows = STREAMS + [record(ALLOCATE, id=1, size=5 * GIB), record(ALLOCATE, id=2, size=7 * GIB, time=10 ** 9)]
        rows += [record(FREE, id=1, size=5 * GIB)] + statistics(0, peak_reserved_bytes=16 * GIB,
                                                                reserved_bytes=16 * GIB,
                                                                 peak_allocated_bytes=12 * GIB, allocated_bytes=7 * GIB,
                                                                 peak_requested_bytes=12 * GIB, allocs=2, frees=1,
                                                                grows=3)
        path = self.file("t", trace(rows, "reserve_slack:2", "train"))
        report = self.report(path)
        self.assertEqual(report["schema"], "segalloc.report/1")
        self.assertEqual((report["allocs"], report["frees"], report["passed_on"], report["ooms"]), (2, 1, 0, 0))
        self.assertEqual((report["served_share"], report["utilization"], report["fragmentation"]), (1, 0.75, 0.25))
        device, = report["devices"]
        table = device["statistics"]
        self.assertEqual((table["reserved_bytes"], table["peak_reserved_bytes"], table["grows"]),
                         (16 * GIB, 16 * GIB, 3))
        self.assertEqual(table["peak_requested_bytes"], 12 * GIB)
        self.assertTrue(all(isinstance(value, int) for value in table.values()))
        self.assertEqual(sum(row["allocs"] for row in device["sizes"]), 2)
        self.assertTrue(report["verdict"].startswith("Good: the smallest card is 12.00 GiB; "), report["verdict"])
        self.assertTrue(any("reserve_slack:1.0" in line for line in report["advice"]), report["advice"])
        text = segalloc("report", path)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertTrue(text.stdout.startswith(report["verdict"]), text.stdout)
        self.assertLess(text.stdout.index("reserved"), text.stdout.index("Advice"))

    def test_what_is_set_is_not_advised(self):
        low = dict(GOOD, peak_allocated_bytes=5 * GIB, peak_pending_bytes=4 * GIB, strict_wait_ns=10 ** 9, passed_on=1)
        def advice(conf):
            path = self.file("t", trace(STREAMS + [record(ALLOCATE, id=1, size=GIB)] + statistics(0, **low), conf))
            return "\n".join(self.report(path)["advice"])
        for setting in ("reserve_slack:1", "free_sync:event", "pending_limit:1GiB"):
            key = setting.split(":")[0]
            low["peak_pending_bytes"] = GIB if key == "reserve_slack" else 4 * GIB
            self.assertIn(key + ":", advice(""))
            self.assertNotIn(key + ":", advice(setting))
        low["peak_pending_bytes"] = 0
        self.assertIn("expandable_segments:True", advice("expandable_segments:False"))
        self.assertNotIn("expandable_segments:True", advice(""))

    def test_waits(self):
        """Each device has its own, and the advice goes by their sum."""
        waits = [dict(strict_frees=3, strict_wait_ns=4 * 10 ** 8, host_waits=5, host_wait_ns=6 * 10 ** 6,
                      waits_given_up=1),
                 dict(strict_frees=4, strict_wait_ns=11 * 10 ** 8, host_waits=0, host_wait_ns=0, waits_given_up=0)]
        rows = STREAMS + [record(DEFINE_DEVICE, stream=1, id=2 * MIB, size=24 * GIB),
                          record(ALLOCATE, id=1, size=GIB), record(FREE, id=1, time=2 * 10 ** 9)]
        path = self.file("t", trace(rows + statistics(0, **GOOD, **waits[0]) + statistics(1, **GOOD, **waits[1])))
        report = self.report(path)
        told = [{key: device["statistics"][key] for key in waits[0]} for device in report["devices"]]
        self.assertEqual(told, waits)
        advice, = (line for line in report["advice"] if line.startswith("free_sync:event"))
        self.assertIn("waited 1.50 s of 2.00 s", advice)
        self.assertIn(advice, segalloc("report", path).stdout)

    def test_run_ahead(self):
        ahead = dict(GOOD, peak_allocated_bytes=GIB, peak_requested_bytes=GIB, peak_pending_bytes=8 * GIB)
        report = self.report(self.file("t", trace(STREAMS + [record(ALLOCATE, id=1, size=GIB)] + statistics(0, **ahead))))
        self.assertTrue(report["verdict"].startswith("Run ahead: "), report["verdict"])
        self.assertTrue(any("pending_limit:4097MiB" in line for line in report["advice"]), report["advice"])

    def test_not_served(self):
        rows = STREAMS + [record(ALLOCATE, id=1, size=3)] * 1 + [record(PASSED_ON, size=GIB)] * 3
        report = self.report(self.file("t", trace(rows)))
        self.assertEqual((report["served_share"], report["passed_on"]), (0.25, 3))
        self.assertIn("Partly served: 3 of 4", report["verdict"])
        self.assertTrue(any("segalloc doctor" in line for line in report["advice"]))
        report = self.report(self.file("t", trace(STREAMS + [record(PASSED_ON, size=GIB)])))
        self.assertEqual(report["served_share"], 0)
        self.assertIn("Not served", report["verdict"])

    def test_out_of_memory(self):
        rows = STREAMS + [record(ALLOCATE, id=1, size=3 * GIB), record(FAILURE, size=30 * GIB)]
        rows += statistics(0, **dict(GOOD, ooms=1, frees=0))
        path = self.file("t", trace(rows))
        report = self.report(path)
        self.assertEqual(report["ooms"], 1)
        self.assertTrue(report["verdict"].startswith("Out of memory: 1 of 2 allocations failed, the largest of 30.00 "
                                                     "GiB with 3.00 GiB in use"),
                        report["verdict"])
        self.assertTrue(any("--min-limit" in line for line in report["advice"]))
        report = self.report(self.file("l", trace(rows, limit=10 * GIB)))
        self.assertTrue(any("limit of 10.00 GiB" in line for line in report["advice"]))

    def test_killed(self):
        rows = STREAMS + statistics(0, **GOOD) + [record(ALLOCATE, id=1, size=3)] * 5
        unfinished = statistics(0, reserved_bytes=99 * GIB, peak_reserved_bytes=99 * GIB)[:1]
        path = self.file("t", trace(rows + unfinished, closed=False))
        report = self.report(path)
        self.assertFalse(report["complete"])
        self.assertEqual(report["peak_reserved_bytes"], 10 * GIB + 100 * MIB)  # half a snapshot is none
        self.assertEqual(report["allocs"], 5)
        self.assertEqual(segalloc("report", path, "--strict").returncode, 4)
        self.assertEqual(report["end_text"], "the process ended without closing it")
        self.assertEqual(segalloc("report", path).stdout.splitlines()[1], "The trace is incomplete: the process ended "
                         "without closing it. It was read to the last complete record.")

    def test_damaged(self):
        """What stands before the damage is shown; status and standard error say where it begins."""
        first = trace(STREAMS + [record(ALLOCATE, id=i, size=3) for i in range(32767 - 3)])
        path = self.file("t", first + b"SBLK" + b"\x02".ljust(28, b"\0"))
        for verb in (("report", path), ("trace", "info", path)):
            result = segalloc(*verb, "--json")
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stderr.startswith(f"segalloc {verb[0]}: {path}: byte {4096 + (1 << 20) + 8}: a block "),
                            result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
            shown = json.loads(result.stdout)
            self.assertEqual((shown["allocs"], shown["end_text"]), (32764, result.stderr.split(f"{path}: ")[1].split(";")[0]))
        whole = os.path.join(self.folder, "whole")
        result = segalloc("trace", "import", path, "-o", whole)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1))
        self.assertEqual(self.report(whole)["allocs"], 32764)
        for verb in (("replay", path), ("tune", path, "-b", "1")):
            result = segalloc(*verb)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(f"{path}: byte {4096 + (1 << 20) + 8}: ", result.stderr)

    def test_order_that_was_lost(self):
        """The name comes in pieces."""
        name = b"cuStreamSomethingNew"
        pieces = [record(67, flags=LAST if at else 0, stream=0, id=int.from_bytes(name[at:at + 8].ljust(8, b"\0"), "little"),
                         size=int.from_bytes(name[at + 8:at + 16].ljust(8, b"\0"), "little")) for at in (0, 16)]
        rows = STREAMS + statistics(0, **GOOD) + [record(ALLOCATE, id=1, size=3)]
        for more, by in ([], None), (pieces, name.decode()):
            path = self.file("t", trace(rows + more))
            report = self.report(path)
            self.assertEqual((report["untracked_order"], report["untracked_by"]), (int(by is not None), by))
            self.assertEqual(report["events"], 1)
            self.assertEqual(name.decode() in segalloc("report", path).stdout, by is not None)

    def test_why_each_of_several_is_incomplete(self):
        rows = STREAMS + [record(ALLOCATE, id=1, size=3)] * 5
        killed = self.file("killed", trace(rows, closed=False))
        cut = self.file("cut", trace(rows)[:-10])
        reports = json.loads(segalloc("report", "--json", killed, cut).stdout)
        self.assertEqual([report["end_text"] for report in reports["reports"]],
                         ["the process ended without closing it", "the file ends inside a block"])

    def test_cut_anywhere(self):
        whole = trace(STREAMS + [record(ALLOCATE, id=i, size=3) for i in range(50)])
        for size in (*range(0, 120, 7), 4095, *range(4096, len(whole), 13)):
            result = segalloc("report", self.file("t", whole[:size]), "--json")
            self.assertIn(result.returncode, (0, 1))
            if result.returncode:
                self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1))
            else:
                report = json.loads(result.stdout)
                self.assertFalse(report["complete"])
                self.assertEqual(report["allocs"], (size - 4096 - 32) // 32 - 2)

    def test_of_csv(self):
        report = self.report(self.file("a", Trace.CSV))
        self.assertEqual((report["peak_requested_bytes"], report["peak_reserved_bytes"], report["served_share"]),
                         (4000, None, None))
        self.assertEqual(report["ooms"], 1)
        self.assertEqual(json.loads(segalloc("report", "--json", "-", stdin=Trace.CSV).stdout)["allocs"], 3)
        self.assertEqual(json.loads(segalloc("report", "--json", "/dev/stdin", stdin=Trace.CSV).stdout)["allocs"], 3)

    def test_of_statistics(self):
        table = dict(GOOD, allocs=10, passed_on=0)
        data = {"schema": "segalloc.stats/1", "version": "1", "pid": 5, "start_realtime_ns": 1, "end_realtime_ns": 2,
                "conf": "", "command": "x \"y\"", "new": [1], "devices": [{"device": 0, "statistics": table},
                                                                    {"device": 1, "statistics": dict(table, new=4)}]}
        path = self.file("s", json.dumps(data))
        report = self.report(path)
        self.assertEqual((report["source"], report["allocs"], report["command"]), ("statistics", 20, 'x "y"'))
        self.assertEqual(report["peak_reserved_bytes"], 2 * (10 * GIB + 100 * MIB))
        self.assertEqual([device["device"] for device in report["devices"]], [0, 1])
        self.assertTrue(report["verdict"].startswith("Good: the smallest card is at least 10.00 GiB; all 20 allocations "
                                                     "served"), report["verdict"])
        self.assertEqual((report["smallest_card_bytes"], report["at_least"]), (10 * GIB, True))
        self.assertIn("smallest card at least 10.00 GiB", segalloc("report", path).stdout)
        data["devices"] = []
        self.failed(segalloc("report", self.file("s", json.dumps(data))), 1, "no device memory")
        self.failed(segalloc("report", self.file("s", "{}")), 1, "segalloc.stats/1")
        self.failed(segalloc("report", self.file("s", '{"schema"')), 1, "no statistics")
        self.failed(segalloc("report", self.file("s", '{"schema": \x1c\x0b\x1d x')), 1, "no statistics", "'?' in line 1")

    def test_rank_by_name(self):
        """What %r became in the file's name, by the pattern in its configuration; others stand for anything."""
        for pattern, name, rank in (
            ("/d/%h-%r.%p.trace", "node-7-12.345.trace", 12), ("%r", "7", 7), ("t%%%r%e", "t%12python3", 12),
            ("%h%r", "node12", 12), ("%h%rx", "1-2-33x", 33), ("%e.%r.trace", "a.b.trace", None), ("t.%r", "u.1", None),
            ("t.%r", "t.1x", None), ("%h" * 40 + "x%r", "a" * 60, None), ("t", "t", None),
        ):
            path = self.file(name, trace(STREAMS + [record(ALLOCATE, id=1, size=3)], conf=f"trace:{pattern},limit:1GiB"))
            self.assertEqual(self.report(path)["rank"], rank, (pattern, name))

    def test_several(self):
        good = self.file("good", trace(STREAMS + [record(ALLOCATE, id=1, size=3)] + statistics(0, **GOOD)))
        csv = self.file("csv", Trace.CSV)
        result = segalloc("report", good, csv)
        self.assertEqual((result.returncode, len(result.stdout.splitlines())), (0, 3))
        reports = json.loads(segalloc("report", "--json", good, csv).stdout)
        self.assertEqual([report["file"] for report in reports["reports"]], [good, csv])
        result = segalloc("report", good, "/nonexistent", csv)
        self.assertEqual((result.returncode, len(result.stdout.splitlines())), (1, 3))

    def test_bounds(self):
        path = self.file("t", trace(STREAMS + [record(ALLOCATE, id=1, size=3)] + statistics(0, **GOOD)))
        for bound, status in (("frag=20%", 0), ("frag=0.5%", 3), ("frag=0.2", 0), ("reserved=11GiB", 0),
                              ("reserved=10GiB", 3), ("ooms=0", 0), ("unserved=0%", 0), ("requested=1B", 3)):
            result = segalloc("report", path, "--fail-above", bound)
            self.assertEqual(result.returncode, status, bound)
            self.assertEqual(result.stderr.count("\n"), 1 if status else 0)
        for bound in ("frag", "frag=", "frag=x", "frag=-1%", "frag=101%", "reserved=20%", "nope=1", "ooms=1x", "stranded=5",
                      "ooms=nan"):
            self.failed(segalloc("report", path, "--fail-above", bound), 2, bound.split("=")[0])
        self.failed(segalloc("report", self.file("a", Trace.CSV), "--fail-above", "frag=20%", "-o", "/dev/null", "-f"),
                    1, "not known")

    def test_the_report_never_takes_the_place_of_a_recording(self):
        path, link = self.file("a", Trace.CSV), os.path.join(self.folder, "link")
        os.symlink(path, link)
        for output in path, link:
            self.failed(segalloc("report", self.file("b", Trace.CSV), path, "-f", "-o", output), 1, "also the input")
        with open(path) as file:
            self.assertEqual(file.read(), Trace.CSV)

    def test_nothing_in_it(self):
        self.failed(segalloc("report", self.file("a", HEADER)), 1, "no events")
        self.failed(segalloc("report", self.file("t", trace([]))), 1, "no events")
        self.failed(segalloc("report", self.file("e", "")), 1, "empty")
        self.failed(segalloc("report"), 2, "which trace")
        self.failed(segalloc("report", "x", "--format", "html"), 2, '"html"')

    def test_output(self):
        path, out = self.file("a", Trace.CSV), os.path.join(self.folder, "out")
        self.assertEqual(segalloc("report", path, "--json", "-o", out).stdout, "")
        with open(out) as file:
            self.assertEqual(json.load(file)["allocs"], 3)
        self.failed(segalloc("report", path, "-o", out), 1, out, "-f")
        self.assertEqual(segalloc("report", path, "-fo", out).returncode, 0)


unittest.main(verbosity=2)
