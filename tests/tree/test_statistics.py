"""Each statistic of src/base/stats.def is counted by code of the library.

Usage: test_statistics.py SOURCE_ROOT

A STAT is counted by sg_count() or sg_core_count(), through its counter's address, or set where statistics are read; or
it stands in a row of findings.def. A GAUGE or TOTAL is
changed as a field of struct sg_usage. A row whose text says "always 0" is kept for readers of earlier versions, and
nothing counts it."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
# Not code that counts: what prints statistics, and the tables that are made from the rows.
LAYERS = ("base", "core", "inspect", "preload")


def rows(text):
    """(kind of row, name, field or None, text) of each row."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for match in re.finditer(r'^(STAT|GAUGE|TOTAL)\((\w+), (\w+), \w+, "([^"]*)"\)$', text, re.MULTILINE):
        yield match[1], match[2], None if match[1] == "STAT" else match[3], match[4]


def is_counted(kind, name, field, code):
    if kind == "STAT":
        return re.search(rf"sg_(?:core_)?count\([^;]*\bSG_STAT_{name}\b|FINDING\(\w+, {name}, |&[\w.>-]*counter\[SG_STAT_{name}\]|value\[SG_STAT_{name}\] [+=]", code) is not None
    return re.search(rf"sg_gauge_(?:add|sub|set)\(&[\w.>-]*\b{field}\b|\b{field}(?:\+\+| \+= )", code) is not None


class Statistics(unittest.TestCase):
    def test_reads(self):
        table = '/* GAUGE(no, no, COUNT, "no") */\nSTAT(waits, COUNTER, COUNT, "waits")\nGAUGE(held_bytes, held, BYTES, "held")\n'
        self.assertEqual(list(rows(table)), [("STAT", "waits", None, "waits"), ("GAUGE", "held_bytes", "held", "held")])
        self.assertTrue(is_counted("STAT", "waits", None, "sg_count(device, SG_STAT_waits, 1);"))
        self.assertFalse(is_counted("STAT", "waits", None, "say(stats->value[SG_STAT_waits]);"))
        self.assertTrue(is_counted("GAUGE", "held_bytes", "held", "sg_gauge_add(&device->accounts.usage.held, 1);"))
        self.assertFalse(is_counted("GAUGE", "held_bytes", "held", "return usage->held.now;"))

    def test_every_row_is_counted(self):
        code = "\n".join(path.read_text() for layer in LAYERS for path in sorted((ROOT / "src" / layer).rglob("*.[ch]")))
        self.assertIn("sg_core_count(core, device, sg_finding_stat(", code)
        code += (ROOT / "src/base/findings.def").read_text()
        found = list(rows((ROOT / "src/base/stats.def").read_text()))
        self.assertGreater(len(found), 40)
        for kind, name, field, text in found:
            with self.subTest(name):
                self.assertEqual(is_counted(kind, name, field, code), "always 0" not in text)


if __name__ == "__main__":
    unittest.main()
