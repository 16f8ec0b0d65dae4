"""What `trace export` and `metrics` write, read by those that it is for: flamegraph.pl, promtool and Prometheus where they
are here, and by the definitions of the formats. PyTorch's viewer reads its format in tests/pytorch.

Usage: test_export.py SEGALLOC ACTS DATA"""
import csv
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import shared

SEGALLOC, ACTS, DATA = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
HERE = pathlib.Path(__file__).resolve().parent
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB = 1 << 20
FLAMEGRAPH = pathlib.Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
ENVIRONMENT = dict(os.environ)
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]


def segalloc(*arguments, **more):
    return subprocess.run([SEGALLOC, *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)


def validate(document, schema):
    try:
        import jsonschema
    except ImportError:
        return False
    jsonschema.validate(document, json.loads((HERE / "schemas" / schema).read_text()))
    return True


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, path, format, *more):
        result = segalloc("trace", "export", path, "--format", format, "-o", "-", *more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def record(self, size, *acts):
        path = self.folder / f"trace{len(os.listdir(self.folder))}"
        subprocess.run([SEGALLOC, "run", "--sim", size, "-o", path, "--conf", "oom_report:never", "--", ACTS, *acts],
                       env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return path

    def begin(self, name):
        """The first events of a long trace."""
        return shared.beginning(SEGALLOC, DATA / name, self.folder / "beginning.csv")

    def write(self, *rows):
        path = self.folder / f"rows{len(os.listdir(self.folder))}.csv"
        path.write_text(HEADER + "".join(row + "\n" for row in rows))
        return path


class Timeline(Case):
    def in_use(self, path):
        """Bytes in use after each event of RMM's CSV, by the words of the format."""
        live, now, series = {}, 0, []
        for row in csv.DictReader(segalloc("trace", "cat", path).stdout.splitlines()):
            if row["Action"] == "allocate":
                live[row["Pointer"]] = int(row["Size"])
                now += int(row["Size"])
            elif row["Action"] == "free" and row["Pointer"] in live:
                now -= live.pop(row["Pointer"])
            elif row["Action"] != "allocate failure":
                continue
            series.append(now)
        return series

    def test_every_event(self):
        path = self.write("1,00:00:00:000000,allocate,0x200,1000,0", "1,00:00:01:500000,allocate,0x400,3000,0",
                          "1,00:00:02:000000,free,0x200,1000,0", "1,00:00:03:000000,allocate failure,(nil),77,0")
        rows = list(csv.DictReader(self.export(path, "csv", "--points", "0").splitlines()))
        self.assertEqual([int(row["requested_bytes"]) for row in rows], [1000, 4000, 3000, 3000])
        self.assertEqual([float(row["time_s"]) for row in rows], [0, 1.5, 2, 3])
        self.assertEqual([int(row["blocks"]) for row in rows], [1, 2, 1, 1])
        self.assertEqual([row["failures"] for row in rows], ["0", "0", "0", "1"])
        self.assertEqual({row["reserved_bytes"] for row in rows}, {""})  # nobody has said
        told = json.loads(self.export(path, "chrome"))
        failure, = (event for event in told["traceEvents"] if event["ph"] == "i")
        self.assertEqual((failure["ts"], failure["args"]["bytes"]), (3e6, 77))

    def test_a_long_trace(self):
        """However few points: the peak and the end stay, and every point is one of the trace."""
        path = self.begin("qwen25-7b-lora.csv.zst")
        series = self.in_use(path)
        rows = list(csv.DictReader(self.export(path, "csv", "--points", "0").splitlines()))
        self.assertEqual([int(row["requested_bytes"]) for row in rows], series)
        for points in 8, 100, 5000:
            with self.subTest(points):
                rows = list(csv.DictReader(self.export(path, "csv", "--points", points).splitlines()))
                self.assertLessEqual(len(rows), 2 * points)
                self.assertGreaterEqual(len(rows), points // 8)
                self.assertEqual(max(int(row["requested_bytes"]) for row in rows), max(series))
                self.assertEqual(min(int(row["requested_bytes"]) for row in rows), min(series))
                self.assertEqual((int(rows[-1]["event"]), int(rows[-1]["requested_bytes"])), (len(series), series[-1]))
                self.assertTrue(all(series[int(row["event"]) - 1] == int(row["requested_bytes"]) for row in rows))
        rows = list(csv.DictReader(self.export(path, "csv", "--to", "peak").splitlines()))
        self.assertEqual(int(rows[-1]["event"]), series.index(max(series)) + 1)

    def test_chrome(self):
        path = self.record("1GiB", "a+300", "b+200", "c?900", "a-", "d+100")
        text = self.export(path, "chrome")
        told = json.loads(text)
        validate(told, "chrome.json")
        events = told["traceEvents"]
        by_name = {name: [event["args"]["bytes"] for event in events if event["ph"] == "C" and event["name"] == name]
                   for name in ("requested", "reserved", "allocated")}
        self.assertEqual(max(by_name["requested"]), 500 * MIB)
        self.assertEqual(by_name["requested"][-1], 300 * MIB)
        self.assertGreaterEqual(max(by_name["reserved"]), 500 * MIB)
        self.assertEqual([event["name"] for event in events if event["ph"] == "i"], ["out of memory: 900.00 MiB"])
        times = [event["ts"] for event in events if event["ph"] == "C"]
        self.assertEqual(times, sorted(times))
        # An event is written as any JSON writer would, and its microseconds are the trace's nanoseconds.
        counters = [line.rstrip(",") for line in text.splitlines() if line.startswith('{"ph":"C"')]
        self.assertEqual(counters, [json.dumps(event, separators=(",", ":")) for event in events if event["ph"] == "C"])
        rows = csv.DictReader(self.export(path, "csv", "--points", "0").splitlines())
        self.assertEqual([round(time * 1000) for time in times[::3]], [round(float(row["time_s"]) * 1e9) for row in rows])

    def test_hostile_names(self):
        program = self.folder / 'a"b\\c<script>\n;x'
        program.write_text("#!/bin/sh\nexec " + f"'{ACTS}' a+10\n")
        program.chmod(0o700)
        path = self.folder / "t"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "-o", path, "--", program, b"\xff\xfe", "y" * 10240], env=ENVIRONMENT,
                       timeout=60, check=False)
        for format in "chrome", "speedscope":
            json.loads(self.export(path, format))


class Stacks(Case):
    def test_at_the_peak(self):
        path = self.record("1GiB", "a+300", "b+20", "c+20", "a-", "d+100")
        lines = self.export(path, "folded").splitlines()
        self.assertEqual(lines, [f"device 0;256.00 MiB to 512.00 MiB {300 * MIB}", f"device 0;16.00 MiB to 32.00 MiB {40 * MIB}"])
        self.assertEqual(self.export(path, "folded", "--to", "end").splitlines(),
                         [f"device 0;64.00 MiB to 128.00 MiB {100 * MIB}", f"device 0;16.00 MiB to 32.00 MiB {40 * MIB}"])
        self.assertEqual(segalloc("trace", "export", path, "--format", "folded", "--to", "failure", "-o", "-").returncode, 1)

    def test_window(self):
        """The peak between two readings of a device's allocations and frees."""
        rows, row = [], "1,00:00:0{}:000000,{},{},{},0"
        for second, (action, pointer, size) in enumerate([("allocate", "0x200", 1000), ("allocate", "0x400", 5000),
                ("free", "0x400", 5000), ("allocate", "0x600", 300), ("free", "0x600", 300), ("allocate", "0x800", 200),
                ("free", "0x200", 1000), ("allocate", "0x400", 9000)]):
            rows.append(row.format(second, action, pointer, size))
        path = self.write(*rows)
        for window, expected in {"0:0:0:4": 6000,    # from the beginning
                                 "0:2:1:4": 1300,    # after the large block is gone
                                 "0:2:0:2": 6000,    # it is there at the beginning
                                 "0:3:2:4": 1200, "0:3:2:5": 9200,
                                 "0:3:2:3": 1000,    # nothing is allocated
                                 "0:3:2:99": 9200, "1:0:0:9": 0}.items():
            with self.subTest(window):
                told = json.loads(self.export(path, "json", "--window", window))
                validate(told, "../../../docs/schemas/alive.json")
                self.assertEqual(told["bytes"], expected)
                self.assertEqual(sum(group["bytes"] for group in told["groups"]), expected)
        whole = json.loads(self.export(path, "json"))
        self.assertEqual([(each["bytes"], each["blocks"]) for each in whole["groups"]], [(9000, 1), (200, 1)])
        for wrong in "1:2:3", "1:2:3:4:5", "0:-1:0:0", "64:0:0:0", "":
            self.assertEqual(segalloc("trace", "export", path, "--format", "json", "--window", wrong, "-o", "-").returncode, 2)
        self.assertEqual(segalloc("trace", "export", path, "--format", "csv", "--window", "0:0:0:1", "-o", "-").returncode, 2)

    def test_the_sum_is_the_peak(self):
        for name in "qwen25-7b-lora.csv.zst", "lmcleaner-3b-zero3.csv.zst":
            path = self.begin(name)
            peak = json.loads(segalloc("trace", "info", "--json", path).stdout)["peak_requested_bytes"]
            folded = self.export(path, "folded")
            self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()), peak)
            told = json.loads(self.export(path, "speedscope"))
            validate(told, "speedscope.json")
            profile, = told["profiles"]
            self.assertEqual((sum(profile["weights"]), profile["endValue"]), (peak, peak))
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertLess(max(map(max, profile["samples"])), len(told["shared"]["frames"]))
            names = [frame["name"] for frame in told["shared"]["frames"]]
            self.assertEqual(len(names), len(set(names)))

    @unittest.skipUnless(FLAMEGRAPH.exists(), "no flamegraph.pl")
    def test_flamegraph(self):
        folded = self.export(DATA / "qwen25-7b-lora.csv.zst", "folded")
        result = subprocess.run(["perl", FLAMEGRAPH, "--countname", "bytes"], input=folded, capture_output=True, text=True,
                                timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("128.00 MiB to 256.00 MiB (11,406,409,728 bytes", result.stdout)


class Snapshot(Case):
    def snapshot(self, path, *more):
        out = self.folder / "snapshot"
        self.assertEqual(segalloc("trace", "export", path, "-f", "-o", out, *more).returncode, 0)
        return pickle.loads(out.read_bytes())

    def held(self, told, device=0):
        return sum(segment["total_size"] for segment in told["segments"] if segment["device"] == device)

    def follow(self, told, device, card):
        """Pages come before a block lies in them, go when none does, and never are more than the card has."""
        mapped, blocks = set(), {}
        for event in told["device_traces"][device]:
            pages = set(range(event.get("addr", 0) >> 21, (event.get("addr", 0) + max(event["size"], 1) - 1 >> 21) + 1))
            if event["action"] == "segment_map":
                self.assertFalse(pages & mapped)
                mapped |= pages
                self.assertLessEqual(len(mapped) << 21, card)
            elif event["action"] == "segment_unmap":
                self.assertTrue(pages <= mapped)
                self.assertFalse(any(pages & used for used in blocks.values()))
                mapped -= pages
            elif event["action"] == "alloc":
                self.assertTrue(pages <= mapped)
                blocks[event["addr"]] = pages
            elif event["action"] == "free_completed":
                del blocks[event["addr"]]
        self.assertEqual(self.held(told, device), len(mapped) << 21)

    def test_segments_fit_the_card(self):
        """However many places blocks lay at in turn."""
        path = self.record("256MiB", *(act for i in range(6) for act in (f"a+{40 + 30 * i}", "b+10", "a-", "b-")))
        for to in "end", "peak", "0.5":
            told = self.snapshot(path, "--to", to)
            self.assertLessEqual(self.held(told), 256 * MIB)
            self.follow(told, 0, 256 * MIB)

    def test_at_the_peak(self):
        """Where nothing failed: what was alive when most was."""
        told = self.snapshot(self.record("1GiB", "a+300", "b+200", "a-", "b-"))
        self.assertEqual(sum(segment["allocated_size"] for segment in told["segments"]), 500 * MIB)
        self.assertEqual([event["action"] for event in told["device_traces"][0] if event["action"] in ("alloc", "free_completed")],
                         ["alloc", "alloc"])

    def test_a_long_trace(self):
        path = self.begin("qwen25-7b-lora.csv.zst")
        told = self.snapshot(path)
        peak = json.loads(segalloc("trace", "info", "--json", path).stdout)["peak_requested_bytes"]
        self.assertEqual(sum(segment["requested_size"] for segment in told["segments"]), peak)


class Usage(Case):
    def test_usage(self):
        path = self.write("1,00:00:00:000000,allocate,0x200,1000,0")
        for arguments, status, word in ((["--format", "xml"], 2, '"xml"'), (["--points", "-1"], 2, "--points"),
                                        (["--to", "soon"], 2, '"soon"'), (["--to", "failure"], 1, "no allocation failed")):
            result = segalloc("trace", "export", path, "-o", self.folder / "out", *arguments)
            self.assertEqual(result.returncode, status, result)
            self.assertIn(word, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertFalse((self.folder / "out").exists())
        piped = subprocess.run(f"cat '{path}' | '{SEGALLOC}' trace export - --format folded -o -", shell=True, capture_output=True,
                               text=True, timeout=60)
        self.assertEqual((piped.returncode, piped.stdout), (1, ""))
        self.assertIn("read twice", piped.stderr)


class Metrics(Case):
    """Of a process that runs, and of one that has been killed."""

    def start(self, *acts):
        return shared.start(self, SEGALLOC, ACTS, *acts, environment=ENVIRONMENT)

    @staticmethod
    def values(text, name):
        return {match[1]: float(match[2]) for match in re.finditer(rf'^{name}\{{pid="(\d+)".*\}} (\S+)$', text, re.M)}

    def test_values(self):
        process = self.start("a+100", "b+50", "b-", "c+10")  # after the fourth the page is written
        pid = str(process.pid)
        text = segalloc("metrics", pid).stdout
        self.assertEqual(self.values(text, "segalloc_requested_bytes"), {pid: 110 * MIB})
        self.assertEqual(self.values(text, "segalloc_peak_requested_bytes"), {pid: 150 * MIB})
        self.assertEqual(self.values(text, "segalloc_allocs_total"), {pid: 3})
        self.assertEqual(self.values(text, "segalloc_device_bytes"), {pid: 1 << 30})
        self.assertIn(pid, self.values(segalloc("metrics").stdout, "segalloc_requested_bytes"))
        mode = os.stat(f"/dev/shm/segalloc-live-{pid}").st_mode
        self.assertEqual(mode & 0o777, 0o600)
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        out = self.folder / "node.prom"
        for _ in range(2):  # what stands there is replaced
            self.assertEqual(segalloc("metrics", pid, "-o", out).returncode, 0)
            self.assertEqual(self.values(out.read_text(), "segalloc_allocs_total"), {pid: 3})
        self.assertEqual(os.listdir(self.folder), ["node.prom"])
        process.kill()
        process.wait(60)
        self.assertNotIn(pid, self.values(segalloc("metrics").stdout, "segalloc_requested_bytes"))
        gone = segalloc("metrics", pid)
        self.assertEqual((gone.returncode, gone.stderr.count("\n")), (1, 1))
        self.assertIn("live:True", gone.stderr)

    def test_labels(self):
        """They join with the DCGM exporter's and with other ranks', and hold no argument of the program."""
        environment = dict(ENVIRONMENT, RANK="3")
        process = shared.start(self, SEGALLOC, ACTS, "a+1", "b+2", environment=environment)
        line = next(line for line in segalloc("metrics", str(process.pid)).stdout.splitlines()
                    if line.startswith("segalloc_requested_bytes{"))
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        self.assertEqual((labels["pid"], labels["gpu"], labels["device"], labels["rank"], labels["command"]),
                         (str(process.pid), "0", "0", "3", "acts"))
        self.assertRegex(labels["UUID"], "^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertEqual(labels["model"], "segalloc simulated GPU")
        self.assertNotIn("b+2", segalloc("metrics", str(process.pid)).stdout)

    def test_wrong_numbers(self):
        """A number that can't be is said to be so."""
        for port in ("99999", "65536", "127.0.0.1:70000", "18446744073709551617"):
            wrong = segalloc("metrics", "--listen", port)
            self.assertEqual((wrong.returncode, wrong.stderr.count("\n")), (2, 1))
            self.assertIn(f"there is no port {port.split(':')[-1]}, the largest is 65535", wrong.stderr)
        for pid in ("999999999", "99999999999999999999"):
            wrong = segalloc("report", pid)
            self.assertEqual((wrong.returncode, wrong.stderr), (1, f"segalloc report: there is no process {pid}, and no file of that name\n"))
        said = segalloc("report", str(os.getpid()))
        self.assertIn("keeps no live statistics", said.stderr)

    def serve(self, *arguments):
        server = subprocess.Popen([SEGALLOC, "metrics", *arguments, "--listen", "0"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait, 60)
        self.addCleanup(server.kill)
        line = server.stderr.readline()
        if "without libmicrohttpd" in line:
            self.skipTest("built without libmicrohttpd")
        return server, re.search(r"http://127\.0\.0\.1:\d+", line)[0]

    def test_endpoint(self):
        process = self.start("a+100")
        server, address = self.serve()
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
            self.assertIn("version=0.0.4", answer.headers["Content-Type"])
            self.assertEqual(self.values(answer.read().decode(), "segalloc_requested_bytes").get(str(process.pid)), 100 * MIB)
        for request, status in ((f"{address}/etc/passwd", 404), (urllib.request.Request(f"{address}/metrics", b"x"), 405)):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            self.assertEqual(caught.exception.code, status)
            caught.exception.close()
        taken = segalloc("metrics", "--listen", address.rsplit(":", 1)[1])
        self.assertEqual((taken.returncode, taken.stderr.count("\n")), (1, 1))
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)

    def test_only_this_machine(self):
        """Without an address nothing listens at this machine's others."""
        _, address = self.serve()
        port = int(address.rsplit(":", 1)[1])
        with open(f"/proc/net/tcp") as table:
            listening = [line.split()[1] for line in table if f":{port:04X} " in line and line.split()[3] == "0A"]
        self.assertEqual(listening, [f"0100007F:{port:04X}"])
        self.assertEqual(segalloc("metrics", "--listen", "nowhere:x").returncode, 2)

    @unittest.skipUnless(shutil.which("prometheus"), "no Prometheus")
    def test_prometheus(self):
        process = self.start("a+100")
        _, address = self.serve(str(process.pid))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = self.folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n- job_name: segalloc\n"
                          f"  static_configs: [{{targets: ['{address.removeprefix('http://')}']}}]\n")
        prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
                                       f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        self.addCleanup(prometheus.wait, 60)
        self.addCleanup(prometheus.terminate)
        query = f"http://127.0.0.1:{port}/api/v1/query?query=segalloc_requested_bytes"
        result = []
        for _ in range(600):
            try:
                with urllib.request.urlopen(query, timeout=60) as answer:
                    result = json.load(answer)["data"]["result"]
            except (urllib.error.URLError, ConnectionError):
                pass
            if result:
                break
            time.sleep(0.1)
        self.assertEqual([(row["metric"]["pid"], float(row["value"][1])) for row in result], [(str(process.pid), 100 * MIB)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
