"""Findings of a run that checked itself, in its trace: `report` has what the run wrote to standard error, as text, as JSON and as a
page. Fields and kinds of later versions are passed over, and findings that are cut off are none.

Usage: test_checked.py SEGALLOC MISTAKES SCHEMAS"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from own_trace import MIB, define_site, define_text, record, trace

SEGALLOC, MISTAKES, SCHEMAS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("SEGALLOC_")}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
RECORDED = ["set_after_free", "overrun_by_512", "double_free", "free_of_the_middle", "unrecorded_stream", "part_after_free", "many_places", "none"]
FINDING, FIRST, LAST = 76, 64, 128
KIND, BLOCK, NOW, WHERE, BYTES, ALLOCATED, FREED, NOW_AT, BETWEEN, ORDER = 0, 1, 2, 3, 4, 7, 9, 11, 13, 14
ALLOCATE = record(1, thread=1, stream=1, id=512, size=MIB)


def finding(*fields, first=True, last=True):
    """The records of one: (field, id, size) each."""
    return [record(FINDING, FIRST * (first and i == 0) | LAST * (last and i == len(fields) - 1), 1, field, one, other)
            for i, (field, one, other) in enumerate(fields)]


def text_field(text):
    words = text.encode().ljust(32, b"\0")
    return [(ORDER, *(int.from_bytes(words[at + i:at + i + 8], "little") for i in (0, 8))) for at in (0, 16)]


class Checked(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "run.trace"

    def tool(self, *arguments, status=0):
        done = subprocess.run([SEGALLOC, *map(str, arguments)], env=ENVIRONMENT, text=True, timeout=120, check=False, capture_output=True)
        self.assertEqual(done.returncode, status, done)
        return done

    def told(self, path):
        told = json.loads(self.tool("report", "--json", path).stdout)
        try:
            import jsonschema
            jsonschema.Draft202012Validator(json.loads((SCHEMAS / "report.json").read_text())).validate(told)
        except ImportError:
            pass
        return told["check"]

    def own(self, *records):
        self.path.write_bytes(trace([*records, ALLOCATE], conf=b"check:fill+canary"))
        return self.told(self.path)

    def test_as_on_standard_error(self):
        for name in RECORDED:
            with self.subTest(name):
                path = self.folder / f"{name}.trace"
                done = self.tool("run", "--sim", "1GiB", "--check=json", "-o", path, "--", MISTAKES, name)
                said = [json.loads(line.removeprefix("segalloc: check: ")) for line in done.stderr.splitlines()
                        if line.startswith("segalloc: check: ")]
                check = self.told(path)
                self.assertEqual([check[key] for key in ("frees", "filled_bytes", "read_bytes", "findings")],
                                 [said[-1][key] for key in ("frees", "filled", "read", "findings")])
                self.assertEqual(len(check["found"]), len(said) - 1)
                for found, expected in zip(check["found"], said):
                    self.same(found, expected)
                self.assertEqual(sum(check["kinds"].values()), check["findings"])

    def same(self, found, expected):
        self.assertEqual(found["finding"], expected["finding"])
        self.assertEqual([found["block"][key] for key in ("address", "bytes")], [expected["block"][key] for key in ("address", "bytes")])
        for key in ("offset", "last", "differ", "compared", "written", "found", "missing"):
            if "compared" in expected:
                self.assertEqual(found[key], expected[key], key)
        for note, other in [(found["block"]["allocated"], expected["block"]["allocated"]),
                            (found["block"]["freed"], expected["block"].get("freed")),
                            (found["now"] and found["now"]["by"], found["now"] and expected["now"]["by"])]:
            if not other:
                self.assertIsNone(note)
                continue
            self.assertEqual([note["event"], note["thread"], note["stream"]], [other["event"], other["thread"], other.get("stream")])
            # The report has a line of the source where the run has an offset, since it reads the program's own tables.
            function = re.search(r" in \w+", other["site"])
            self.assertIn(function[0] if function else "", note["site"])

    def test_text_and_page(self):
        path = self.folder / "run.trace"
        self.tool("run", "--sim", "1GiB", "--check", "-o", path, "--", MISTAKES, "set_after_free")
        text = self.tool("report", path).stdout
        self.assertRegex(text, r"(?m)^Check: 1 free checked, 5.50 KiB filled, .* read back: 1 finding \(write after free: 1\)$")
        self.assertRegex(text.splitlines()[0], "The run checked itself, with 1 finding.$")
        for line in (r"where +0x\w+, byte 100 of the block", r"block +5000 bytes", r"allocated at .* in first_owner", r"freed at .* in first_end.*"
                     "in the order of its stream$", r"between +1 allocation or free", "likely +work that was still queued"):
            self.assertRegex(text, f"(?m)^ +{line}")
        self.assertRegex(self.tool("report", "--all", path).stdout, r"(?m)^  check_write_after_free +1 ")
        self.tool("report", "--html", self.folder / "page.html", path)
        self.assertIn("write after free", (self.folder / "page.html").read_text())
        self.tool("report", "--html", self.folder / "redacted.html", "--redact", path)
        self.assertNotIn("first_owner", (self.folder / "redacted.html").read_text())
        self.tool("report", "--fail-above", "findings=0", path, status=3)
        self.tool("report", "--fail-above", "findings=1", path)

    def test_a_run_without(self):
        self.path.write_bytes(trace([ALLOCATE]))
        self.assertIsNone(self.told(self.path))
        self.assertNotIn("Check:", self.tool("report", self.path).stdout)
        self.assertIn("is not known", self.tool("report", "--fail-above", "findings=0", self.path, status=1).stderr)

    def test_later_versions(self):
        """A field that is not known is skipped, and a kind that is not known is told as such."""
        names = [*define_text(1, "/home/me/train.py"), *define_text(2, "step"), *define_site(1, (1, 2, 20))]
        check = self.own(*names, *finding((99, 7, 7), (KIND, 0, 3), (BLOCK, 4096, 100), (FREED, 5, 1 << 32), *text_field("in the order of its stream"),
                                          (1 << 20, 1, 1), (WHERE, 4100, 4), (BYTES, 8, 64)))
        [found] = check["found"]
        self.assertEqual((found["finding"], found["device"], found["differ"], found["offset"], found["now"]), ("write after free", 3, 8, 4, None))
        self.assertEqual(found["block"]["freed"]["site"], "train.py:20 in step")
        self.assertEqual(found["block"]["order"], "in the order of its stream")
        check = self.own(*finding((KIND, 1000, 0), (BLOCK, 4096, 100)))
        self.assertEqual(check["found"][0]["finding"], "a finding of a kind that this version does not know")
        self.assertEqual((check["findings"], check["kinds"]), (1, {}))
        self.assertIn("a kind that this version does not know", self.tool("report", self.path).stdout)
        # Other verbs pass them over.
        self.tool("trace", "cat", self.path)
        self.tool("replay", self.path)
        self.assertEqual(json.loads(self.tool("trace", "info", "--json", self.path).stdout)["kinds"]["finding"], 2)

    def test_cut_off(self):
        """One without an end or without a kind is none, and one that is begun anew replaces what came before."""
        self.assertIsNone(self.own(*finding((KIND, 0, 0), (BLOCK, 1, 1), last=False)))
        self.assertIsNone(self.own(*finding((BLOCK, 1, 1))))
        self.assertIsNone(self.own(*finding((KIND, 0, 0), first=False)))
        check = self.own(*finding((KIND, 0, 0), (BLOCK, 1, 1), last=False), *finding((KIND, 2, 0)))
        self.assertEqual([(found["finding"], found["block"]) for found in check["found"]], [("write behind the end of a block", None)])

    def test_many(self):
        """As many as are kept are named, and all are counted."""
        check = self.own(*(each for i in range(262) for each in finding((KIND, 0, 0), (BLOCK, i, 1))))
        self.assertEqual(len(check["found"]), 256)
        self.assertIn("  and 6 more", self.tool("report", self.path).stdout)

    def test_hostile(self):
        """Numbers as they may not be: nothing is taken from a table by them."""
        most = (1 << 64) - 1
        self.own(*(record(FINDING, FIRST | LAST, 1, field, most, most) for field in range(20)),
                 *finding(*((field, most, most) for field in range(20))), *finding((KIND, 0, 0), (ORDER, 0x0a1b5d0d0a1b5d0d, most)))
        text = self.tool("report", self.path).stdout
        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f]")
        self.tool("report", "--html", self.folder / "page.html", self.path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
