"""The page of `report --html`, without a browser: what is in it, how large it is, and that no name of a trace is more than
text. tests/html looks at it in a browser.

Usage: test_html.py SEGALLOC ACTS DATA"""
import base64
import csv
import hashlib
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from own_trace import define_site, define_text, record, trace
from shared import sampled

SEGALLOC, ACTS, DATA = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
MIB, GIB = 1 << 20, 1 << 30
MOST = 5 * MIB
PINNED, SHARED = 1, 2  # marks of pages
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if key not in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(2)>\n\u2028"\\\'<!--'


def segalloc(*arguments, **more):
    return subprocess.run([SEGALLOC, *arguments], capture_output=True, timeout=300, check=False, **more)


class Page(html.parser.HTMLParser):
    """The elements of a page as a browser would see them."""
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.styles, self.open, self.policy = [], [], [], None, None
        self.feed(text)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open = tag
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open == "script":
            self.scripts[-1] += data
        elif self.open == "style":
            self.styles[-1] += data


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def record(self, name, *acts, sim="1GiB", command=ACTS, rank=""):
        path = self.folder / name.replace("%r", rank)
        subprocess.run([SEGALLOC, "run", "--sim", sim, "-o", self.folder / name, "--conf", "oom_report:never", "--", command, *acts],
                       env=dict(ENVIRONMENT, RANK=rank) if rank else ENVIRONMENT, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        self.assertTrue(path.exists())
        return path

    def page(self, *arguments, status=0):
        """The page of these files. Whatever they are: it is small, needs nothing, and holds the elements of the template only."""
        path = self.folder / "page.html"
        result = segalloc("report", "-f", "--html", path, *arguments)
        self.assertEqual((result.returncode, result.stdout), (status, b""), result)
        data = path.read_bytes()
        self.assertLess(len(data), MOST)
        page = Page(data.decode())
        self.assertEqual(len(page.scripts), 3)
        self.assertEqual([tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "object", "base")], [])
        self.assertEqual([given for _, given in page.tags for name in given if name in ("src", "style") or name.startswith("on")], [])
        self.assertTrue(all(given["href"].startswith("#") for _, given in page.tags if "href" in given))
        for kind, texts in ("script", page.scripts[1:]), ("style", page.styles):
            for text in texts:
                sha = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                self.assertRegex(page.policy, f"{kind}-src [^;]*'sha256-{re.escape(sha)}'")
        self.assertIn("default-src 'none'", page.policy)
        self.assertNotIn("unsafe", page.policy)
        self.agrees(page.data)
        return page

    def agrees(self, data):
        """What the data says of one thing in several places is the same."""
        for run in data["runs"]:
            level = {}
            for device in run["devices"]:
                if "n" not in device:
                    continue
                self.assertEqual({len(device[key]) for key in ("n", "us", "requested", "allocated", "reserved") if key in device}, {len(device["n"])})
                self.assertEqual(max(device["requested"]), device["peak_requested"])
                if run["source"] == "replay" and not run["diverged"]:
                    self.assertEqual(max(device["reserved"]), device["peak_reserved"])
                    self.assertEqual(max(device["allocated"]), device["peak_allocated"])
                level[device["ordinal"]] = device
            for frame in run.get("frames", []):
                self.assertTrue(all(row[0] <= len(run["groups"]) for row in frame["live"]))
                if len(level) == 1:
                    device, = level.values()
                    at = [value for n, value in zip(device["n"], device["requested"]) if n == frame["n"]]
                    self.assertTrue(not at or sum(row[2] for row in frame["live"]) in at, frame["n"])
                for held in frame["map"] or []:
                    self.assertEqual(sum(sum(segment[3][0:-1:3]) for segment in held["segments"]), held["reserved"])
                    marked = {bit: self.marked(held, bit) for bit in (PINNED, SHARED)}
                    self.assertLessEqual(marked[PINNED], held["pinned"])
                    self.assertLessEqual(marked[SHARED], held["aliased"])  # a page may have several addresses more
                    self.assertEqual(marked[SHARED] > 0, held["aliased"] > 0)

    @staticmethod
    def marked(held, bit):
        """Bytes of a map's pages that have a mark; each of them lies in its segment."""
        marked = 0
        for page_bytes, _, _, pieces, marks in held["segments"]:
            for first, pages, bits in zip(marks[0::3], marks[1::3], marks[2::3]):
                assert pages and (first + pages) * page_bytes <= sum(pieces[0:-1:3]), marks
                marked += pages * page_bytes * bool(bits & bit)
        return marked


class Figures(Case):
    def test_a_failure(self):
        path = self.record("t", "a+300", "b+200", "c?900", "a-", "d+100", "e+20")
        run, = self.page(path).data["runs"]
        told = json.loads(segalloc("report", "--json", path).stdout)
        self.assertEqual((run["verdict"], run["advice"]), (told["verdict"], told["advice"]))
        self.assertEqual((run["source"], run["diverged"], run["walked"]), ("replay", 0, 6))
        failure, = run["failures"]
        self.assertEqual((failure[1], failure[3]), (3, 900 * MIB))
        marks = {kind: n for kind, _, n, _ in run["marks"]}
        self.assertEqual((marks["requested"], marks["failure"], marks["end"]), (2, 3, 6))
        frame, = (frame for frame in run["frames"] if frame["n"] == 4)  # 300 MiB are free
        self.assertEqual([row[1:3] for row in frame["live"]], [[1, 200 * MIB], [0, 0]])
        held, = frame["map"]
        pieces = [piece for segment in held["segments"] for piece in zip(segment[3][0::3], segment[3][1::3])]
        self.assertEqual(pieces, [(300 * MIB, 0), (200 * MIB, 1)])
        self.assertEqual(run["lifetimes"], [[2, 29, 1, 300 * MIB]])
        self.assertEqual(sorted(row[1:] for row in run["alive"]), [[1, 20 * MIB], [1, 100 * MIB], [1, 200 * MIB]])

    def test_a_long_trace(self):
        for name in sampled(("qwen25-7b-lora.csv.zst", "lmcleaner-3b-zero3.csv.zst"), 2):
            with self.subTest(name):
                run, = self.page(DATA / name).data["runs"]
                rows = list(csv.DictReader(segalloc("trace", "export", DATA / name, "--format", "csv", "--points", "0", "-o", "-")
                                           .stdout.decode().splitlines()))
                level = [0] + [int(row["requested_bytes"]) for row in rows]
                device, = run["devices"]
                self.assertEqual((run["walked"], run["shown"]), (len(rows), len(device["n"])))
                self.assertLess(run["shown"], 40000)
                self.assertEqual(max(device["requested"]), max(level))
                self.assertEqual(min(device["requested"]), min(level[1:]))
                self.assertGreater(len(run["frames"]), 40)
                if run["requests"] == len(rows):  # an event's number is then that of its row
                    self.assertTrue(all(level[n] == value for n, value in zip(device["n"], device["requested"])))
                    self.assertTrue(all(sum(row[2] for row in frame["live"]) == level[frame["n"]] for frame in run["frames"]))

    def test_ranks_and_devices(self):
        paths = [self.record("run.%r.trace", f"a+{100 + rank}", "device=1", "b+50", "b-", sim="1GiB,count=2", rank=str(rank)) for rank in range(9)]
        data = self.page(*reversed(paths)).data
        self.assertEqual([run["rank"] for run in data["runs"]], list(range(9)))
        self.assertEqual([[device["peak_requested"] for device in run["devices"]] for run in data["runs"]],
                         [[(100 + rank) * MIB, 50 * MIB] for rank in range(9)])
        self.assertTrue(all({held["device"] for frame in run["frames"] for held in frame["map"]} == {0, 1} for run in data["runs"]))

    def test_pinned_pages(self):
        path = self.folder / "pinned"
        path.write_bytes(trace([record(34, thread=1, size=16 * MIB), record(35, thread=1, size=500), record(48, thread=1, id=5, size=2 * GIB), record(35, thread=1),
                                record(1, thread=1, id=512, size=16 * MIB), record(49, thread=1, id=1, size=2), record(2, thread=1, id=512, size=16 * MIB)]))
        run, = self.page(path).data["runs"]
        held, = run["frames"][-1]["map"]
        self.assertEqual((held["pinned"], [segment[4] for segment in held["segments"]]), (8 * MIB, [[1, 2, PINNED, 0]]))

    def test_pages_at_a_second_address(self):
        path = self.folder / "shared"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "-o", path, "--conf", "reserve_slack:1.0", "--", ACTS.parent / "streams", "1", "1500", "4", "20000000"],
                       env=ENVIRONMENT, check=True, timeout=60)
        run, = self.page(path).data["runs"]
        self.assertTrue(any(self.marked(held, SHARED) for frame in run["frames"] for held in frame["map"] or []))

    def test_settings_tried_by_replay(self):
        """Each effect on the page is what `segalloc replay` finds under that setting; several files share a recommendation."""
        acts = [act for i in range(60) for act in (f"a+{20 + i % 7}", f"b+{3 + i % 5}", "a-", "b-")]
        paths = [self.record(f"t{i}", *acts, sim="2GiB") for i in range(2)]
        tune = self.page(*paths).data["tune"]
        self.assertEqual([trace["events"] for trace in tune["traces"]], [240, 240])
        self.assertGreater(len(tune["candidates"]), 5)
        for setting in tune["candidates"][:4] + [tune["recommended"]]:
            for path, figures in zip(paths, setting["traces"]):
                played = json.loads(segalloc("replay", "--json", "--conf", setting["conf"] or "reserve_slack:auto", path).stdout)
                self.assertEqual(figures["peak_reserved_bytes"], played["peak_reserved_bytes"], setting["conf"])
            self.assertEqual(setting["peak_reserved_bytes"], sum(figures["peak_reserved_bytes"] for figures in setting["traces"]))

    def test_nothing_tried(self):
        path = self.record("t", "a+300", "a-")
        for options, word in ((["--no-advice"], "--no-advice"),):
            data = self.page(*options, path).data
            self.assertNotIn("tune", data)
            self.assertIn(word, data["untried"])
        stats = self.folder / "stats"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--conf", f"stats:{stats}", "--", ACTS, "a+300"], env=ENVIRONMENT, check=True, timeout=60)
        self.assertIn("nothing to replay", self.page(stats).data["untried"])
        result = segalloc("report", "--no-advice", path)
        self.assertEqual((result.returncode, result.stderr.count(b"\n")), (2, 1))

    def test_statistics_only(self):
        path = self.folder / "stats"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB", "--conf", f"stats:{path}", "--", ACTS, "a+300"], env=ENVIRONMENT, check=True, timeout=60)
        run, = self.page(path).data["runs"]
        self.assertEqual((run["devices"][0]["peak_requested"], run["events"]), (300 * MIB, None))

    def test_usage(self):
        path, out = self.record("t", "a+300"), self.folder / "out.html"
        for arguments, status, word in ((["--html", path], 2, "--html"), (["--html", out, "--json", path], 2, "--json"),
                                        (["--redact", path], 2, "--redact"), (["--html", path, "-f", path], 1, "also the input"),
                                        (["--html", self.folder / "no" / "out", path], 1, "No such")):
            result = segalloc("report", *arguments)
            self.assertEqual((result.returncode, result.stderr.count(b"\n")), (status, 1), result)
            self.assertIn(word, result.stderr.decode())
        self.assertEqual(segalloc("report", "--html", out, path).returncode, 0)
        again = segalloc("report", "--html", out, path)
        self.assertEqual((again.returncode, again.stderr.count(b"\n")), (1, 1))
        self.assertIn(b"-f", again.stderr)
        self.assertEqual(segalloc("report", "--html", "-", path).stdout, out.read_bytes())
        piped = segalloc("report", "--html", self.folder / "piped", "-", input=path.read_bytes())
        self.assertEqual((piped.returncode, piped.stderr.count(b"\n")), (1, 1), piped)


class Names(Case):
    def hostile(self):
        """A trace whose every name is hostile, and one of them long."""
        texts = [HOSTILE, HOSTILE[::-1], "/" + "d" * 4000 + "/x.py", b"\xff\xfe\x80<b>", "a" * 15 + "é" * 600]
        records = [row for i, name in enumerate(texts) for row in define_text(i + 1, name)]
        records += define_site(1, (1, 2, 3), (3, 1, 5)) + define_site(2, (4, 5, 7)) + define_site(3, (3, 3, 1), (4, 4, 2))
        records += [record(70, stream=i + 1, id=i, size=i + 1) for i in range(5)]
        for i in range(30):
            records.append(record(71, thread=1, id=i % 3 + 1, size=i % 5 + 1))
            records.append(record(1, thread=1, stream=1, id=(i + 1) << 21, size=MIB, time=i * 10 ** 7))
        records.append(record(3, thread=1, stream=1, size=GIB, time=10 ** 9))
        path = self.folder / "<b onclick=alert(3)>é.trace"
        path.write_bytes(trace(records, (HOSTILE.encode() + b"\xff\0" + b"x" * 10240)[:12000]))
        return path

    def test_hostile_names(self):
        page = self.page(self.hostile())
        self.assertEqual(len(page.tags), len(self.page(self.record("plain", "a+10")).tags))
        joined = "\n".join(page.data["texts"])
        self.assertIn("<script>alert(1)", joined)
        run, = page.data["runs"]
        self.assertEqual(len(run["failures"]), 1)
        self.assertTrue(page.data["texts"][run["failures"][0][5] - 1])

    def test_hostile_files_and_arguments(self):
        program = self.folder / "<script>x;\n"
        program.symlink_to(ACTS)
        path = self.record("<script>", "a+10", b"\xff\xfe", "y" * 10240, HOSTILE, command=program)
        run, = self.page(path).data["runs"]
        self.assertIn("<script>x", run["command"])

    def test_redacted(self):
        program = self.folder / "secret-program"
        program.symlink_to(ACTS)
        path = self.record("secret-trace", "a+10", "b?2000", "secret-word", command=program)
        records = define_text(1, "/home/secret/secret.py") + define_text(2, "secret_function") + define_text(3, "secret phase")
        records += define_site(1, (1, 2, 3)) + define_site(2, (1, 2, 9), (1, 2, 4)) + [record(70, stream=1, size=3)]
        for i in range(20):
            records += [record(71, thread=1, id=i % 2 + 1, size=1), record(1, thread=1, stream=1, id=(i + 1) << 21, size=MIB)]
        other = self.folder / "secret-other"
        other.write_bytes(trace(records + [record(3, thread=1, stream=1, size=GIB)], b"secret command"))
        for file in path, other:
            self.assertIn("secret", json.dumps(self.page(file).data))
            page = self.page("--redact", file)
            self.assertNotIn("secret", json.dumps(page.data))
            self.assertNotIn("secret", (self.folder / "page.html").read_text())
        named, redacted = (self.page(*options, other).data["runs"][0] for options in ([], ["--redact"]))
        self.assertEqual([[row[1:] for row in frame["live"]] for frame in named["frames"]],
                         [[row[1:] for row in frame["live"]] for frame in redacted["frames"]])

    def test_many_sites_phases_and_segments(self):
        """A page is small whatever the trace."""
        count = 2500
        records = [row for i in range(count) for row in define_text(i + 1, f"/{i:06}" + "x" * 150 + ".py")]
        for i in range(count):
            records += define_site(i + 1, *[((i + k) % count + 1, i + 1, k) for k in range(12)])
            records.append(record(70, stream=i + 1, size=i + 1))
            records.append(record(71, thread=1, id=i + 1, size=i + 1))
            records.append(record(1, thread=1, stream=1, id=(i + 1) << 22, size=1000 + i, time=i * 1000))
        path = self.folder / "many"
        path.write_bytes(trace(records))
        run, = self.page(path).data["runs"]
        self.assertEqual(sum(row[1] for row in run["frames"][-1]["live"]), count)
        self.page(*[path] * 6)


unittest.main()
