"""Writes segalloc/_fields.py, the named fields of segalloc.stats(), from the library's table of statistics.

Usage: fields.py STATS_DEF OUTPUT VERSION"""
import re
import sys

HEAD = '''"""The statistics of a device. Made from the library's table by fields.py."""
from typing import NamedTuple, Tuple


class Stats(NamedTuple):
    """What the library has done on one device, in a consistent snapshot.

    A level, such as `reserved_bytes`, is the present value. Beside it `peak_…` is the largest value since the start, or since
    segalloc.reset_peaks(). Totals only grow. Names say the unit: `…_bytes`, `…_ns` for nanoseconds; the others count.
    """

'''
KINDS = {"GAUGE": "LEVEL", "TOTAL": "COUNTER"}
UNITS = {"BYTES": "bytes", "COUNT": "count", "NS": "ns"}


def rows(path):
    """(name, kind, unit, text) of each statistic."""
    with open(path, encoding="utf-8") as file:
        table = file.read().split("*/", 1)[1]
    found = re.findall(r'^(STAT|GAUGE|TOTAL)\((\w+), (\w+), (\w+), "((?:[^"\\]|\\.)*)"\)$', table, re.M)
    if len(found) != len(re.findall(r"^(?:STAT|GAUGE|TOTAL)\(", table, re.M)) or not found:
        sys.exit(f"{path}: not every row could be read")
    return [(name, KINDS.get(row, kind), unit, what) for row, name, kind, unit, what in found]


def main():
    source, output, version = sys.argv[1:]
    table = rows(source)
    text = HEAD
    for name, kind, unit, what in table:
        text += f'    {name}: int = 0\n    """{what} ({UNITS[unit]})"""\n'
        if kind == "LEVEL":
            text += f'    peak_{name}: int = 0\n    """the largest: {what} ({UNITS[unit]})"""\n'
    text += f'\n\nVERSION = "{version}"\n'
    text += "TABLE: Tuple[Tuple[str, str, str, str], ...] = (\n"
    for name, kind, unit, what in table:
        text += f'    ({name!r}, {kind.lower()!r}, {UNITS[unit]!r}, "{what}"),\n'
    text += ')\n"""(name, level, counter or time, unit, text) of each statistic"""\n'
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
